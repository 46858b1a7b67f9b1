"""KIP-848 on the wire: what becomes of members that are slow, and of those that come back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.consumer_group_heartbeat import RequestTopicPartitions
from tests.support.group_members import ConsumerMember
from tests.support.raw_client import TIMEOUT_SECONDS, RawClient
from tests.support.share_member import set_group_configs

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.wire.schema.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse


def owned_by(answer: Any) -> list[int]:
    """The partitions a heartbeat assigns, of the one topic there is."""
    topics = answer.assignment.topic_partitions
    return sorted(partition for topic in topics for partition in topic.partitions)


def beat_until(
    member: ConsumerMember, until: Callable[[Any], bool], **fields: Any
) -> ConsumerGroupHeartbeatResponse:
    """Heartbeat until an answer is the one that is waited for."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        answer: ConsumerGroupHeartbeatResponse = member.heartbeat(**fields)
        if until(answer):
            return answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)


def test_a_groups_own_settings_are_heard_at_the_next_heartbeat(
    raw: RawClient, group: str, new_topic: Callable[..., str]
) -> None:
    member = ConsumerMember(raw, group)
    before = member.heartbeat(subscribed_topic_names=[new_topic()])
    assert before.heartbeat_interval_ms == 5000
    set_group_configs(raw, group, consumer_heartbeat_interval_ms="7000")
    after = member.heartbeat(member_epoch=before.member_epoch, topic_partitions=None)
    assert after.heartbeat_interval_ms == 7000


def test_case_61_who_does_not_revoke_in_time_is_fenced(
    raw: RawClient, group: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    slow, quick = (ConsumerMember(raw, group) for _ in range(2))
    slow.request = slow.request._replace(rebalance_timeout_ms=300)
    joined = slow.heartbeat(subscribed_topic_names=[topic])
    assert owned_by(joined) == [0, 1]
    all_of_it = [RequestTopicPartitions(joined.assignment.topic_partitions[0].topic_id, (0, 1))]
    told = quick.heartbeat(subscribed_topic_names=[topic])
    assert owned_by(told) == []
    # The slow one hears that it shall give one up, and goes on as if it had not.
    keeps = {"member_epoch": joined.member_epoch, "topic_partitions": all_of_it}
    told_to_revoke = beat_until(slow, lambda answer: answer.assignment is not None, **keeps)
    assert len(owned_by(told_to_revoke)) == 1
    fenced = beat_until(slow, lambda answer: answer.error_code != 0, **keeps)
    assert fenced.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    mine: list[int] = []
    epoch = told.member_epoch
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while mine != [0, 1]:
        answer = quick.heartbeat(member_epoch=epoch, topic_partitions=None)
        assert answer.error_code == ErrorCode.NONE
        epoch = answer.member_epoch
        mine = mine if answer.assignment is None else owned_by(answer)
        assert time.monotonic() < deadline


def test_case_61_a_static_member_that_leaves_with_minus_2_finds_its_place_again(
    raw: RawClient, group: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    static = ConsumerMember(raw, group)
    joined = static.heartbeat(subscribed_topic_names=[topic], instance_id="one")
    epoch = joined.member_epoch
    left = static.heartbeat(member_epoch=-2, instance_id="one", topic_partitions=None)
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -2)
    again = ConsumerMember(raw, group)
    returned = again.heartbeat(subscribed_topic_names=[topic], instance_id="one")
    # The same place: no new epoch, so nobody else would have been disturbed.
    assert (returned.error_code, returned.member_epoch) == (ErrorCode.NONE, epoch)
    assert owned_by(returned) == [0, 1]
    zombie = static.heartbeat(member_epoch=epoch, instance_id="one", topic_partitions=None)
    assert zombie.error_code == ErrorCode.FENCED_INSTANCE_ID
