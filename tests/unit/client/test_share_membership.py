"""The heartbeat machine of a share group's member."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import BrokerUnreachable, ClientError, KafkaError, UnsupportedApi
from ottla.client.share.membership import DEFAULT_INTERVAL, EAGER_BEATS, Membership, Phase
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

TOPIC = b"t" * 16
FENCED = [
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
]
FATAL = [
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_ID_NOT_FOUND,
]
PASSING = [
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
]


def member() -> Membership:
    return Membership("g", "m", ["t"], "rack-1")


def good(epoch: int = 1, *partitions: int) -> ShareGroupHeartbeatResponse:
    assignment = Assignment([TopicPartitions(TOPIC, partitions)])
    return ShareGroupHeartbeatResponse(
        member_id="m", member_epoch=epoch, heartbeat_interval_ms=5000, assignment=assignment
    )


def refused(code: ErrorCode) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=code)


def steady() -> Membership:
    joined = member()
    joined.answered(good(7, 0, 1), 0.5)
    return joined


def test_a_member_joins_with_everything_and_goes_on_with_its_epoch() -> None:
    one = member()
    join = one.heartbeat()
    assert (join.member_epoch, join.subscribed_topic_names, join.rack_id) == (0, ["t"], "rack-1")
    assert one.answered(good(7, 0, 1), 0.5) == 5.0
    assert one.assignment == {(TOPIC, 0), (TOPIC, 1)}
    beat = one.heartbeat()
    assert (beat.member_epoch, beat.subscribed_topic_names, beat.rack_id) == (7, None, None)


def test_no_assignment_means_no_change_and_an_empty_one_means_none() -> None:
    one = steady()
    one.answered(good(8)._replace(assignment=None), 0.5)
    assert one.assignment == {(TOPIC, 0), (TOPIC, 1)}
    one.answered(good(9), 0.5)
    assert not one.assignment


def test_what_the_coordinator_names_is_used() -> None:
    one = member()
    answer = good(1, 0)._replace(member_id="n", heartbeat_interval_ms=0)
    assert one.answered(answer, 0.5) == DEFAULT_INTERVAL
    assert one.heartbeat().member_id == "n"


def test_a_member_without_partitions_asks_sooner_for_a_while() -> None:
    one = member()
    waits = [one.answered(good(), 0.5) for _ in range(EAGER_BEATS + 2)]
    assert all(wait <= 1.0 for wait in waits[:EAGER_BEATS])
    assert waits[EAGER_BEATS:] == [5.0, 5.0]
    assert member().answered(good(1, 0), 0.5) == 5.0


@pytest.mark.parametrize("code", FENCED)
def test_a_fenced_member_joins_again_at_once_with_its_id(code: ErrorCode) -> None:
    one = steady()
    assert one.answered(refused(code), 0.5) == 0.0
    assert not one.assignment
    join = one.heartbeat()
    assert (join.member_id, join.member_epoch, join.subscribed_topic_names) == ("m", 0, ["t"])
    assert one.answered(refused(code), 0.5) > 0


@pytest.mark.parametrize("code", FATAL)
def test_what_will_not_pass_ends_it(code: ErrorCode) -> None:
    one = steady()
    one.answered(refused(code), 0.5)
    assert one.phase is Phase.FAILED
    assert isinstance(one.failure, KafkaError)
    assert one.failure.code == code


def test_a_broker_without_share_groups_ends_it() -> None:
    one = member()
    one.failed(UnsupportedApi("no share groups"), 0.5)
    assert one.phase is Phase.FAILED


def test_a_missing_permission_is_told_once_and_waited_for() -> None:
    one = member()
    one.answered(refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 0.5)
    assert one.complaint is not None
    one.complaint = None
    one.answered(refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 0.5)
    assert one.complaint is None
    one.answered(good(), 0.5)
    assert one.phase is Phase.STEADY


def test_leaving() -> None:
    one = steady()
    one.subscribe([])
    assert one.heartbeat().member_epoch == -1
    assert one.answered(good(-1), 0.5) == 0.0
    assert one.is_silent
    assert one.phase is Phase.LEFT


passing = st.sampled_from(PASSING).map(lambda code: KafkaError(code, "heartbeat"))
failures = st.lists(st.one_of(passing, st.just(BrokerUnreachable("down"))), min_size=1, max_size=9)


@given(failures=failures, random=st.floats(0, 1, exclude_max=True))
def test_what_passes_is_waited_out_and_then_everything_is_said_again(
    failures: list[ClientError], random: float
) -> None:
    one = steady()
    for failure in failures:
        assert one.failed(failure, random) > 0
        assert one.phase is Phase.STEADY
        assert one.assignment == {(TOPIC, 0), (TOPIC, 1)}, "fetches go on without a coordinator"
    beat = one.heartbeat()
    assert (beat.member_epoch, beat.subscribed_topic_names) == (7, ["t"])
    one.answered(good(7, 0), random)
    assert one.heartbeat().subscribed_topic_names is None


def test_a_member_without_partitions_beats_often_again_after_a_failure() -> None:
    one = member()
    pauses = [one.answered(good(), 0.5) for _ in range(EAGER_BEATS + 1)]
    assert pauses[-1] == one.interval
    one.failed(BrokerUnreachable("down"), 0.5)
    assert one.answered(good(), 0.5) == pauses[0]


def test_a_subscription_that_changes_is_said_until_it_is_heard() -> None:
    one = steady()
    beat = one.heartbeat()
    one.subscribe(["u"])
    # The answer to what was asked before says nothing about the change.
    one.answered(good(7)._replace(assignment=None), 0.5)
    beat = one.heartbeat()
    assert (beat.member_epoch, beat.subscribed_topic_names) == (7, ["u"])
    one.answered(good(8, 2), 0.5)
    assert one.heartbeat().subscribed_topic_names is None


def test_a_member_that_left_can_come_back_at_any_moment() -> None:
    one = steady()
    one.subscribe([])
    assert not one.assignment
    # A heartbeat that was under way is answered before the member has left.
    assert one.answered(good(7, 0, 1), 0.5) == 0.0
    assert one.heartbeat().member_epoch == -1
    one.subscribe(["u"])
    # The answer to the leave comes late.
    one.answered(good(-1), 0.5)
    join = one.heartbeat()
    assert (join.member_epoch, join.subscribed_topic_names) == (0, ["u"])
    one.answered(good(9, 3), 0.5)
    assert one.phase is Phase.STEADY


def test_a_leave_that_fails_is_not_repeated() -> None:
    one = steady()
    one.subscribe([])
    one.failed(BrokerUnreachable("down"), 0.5)
    assert one.is_silent
    assert Membership("g", "m", []).is_silent
