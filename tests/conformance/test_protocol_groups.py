"""The group protocols on the wire: who is told what, error by error, and offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ottla import EmbeddedBroker
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.describe_groups import DescribeGroupsRequest
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.heartbeat import HeartbeatRequest
from ottla.wire.schema.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.schema.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.schema.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.schema.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.schema.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.group_members import ConsumerMember, subscription
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ottla.wire.schema.join_group import JoinGroupResponse


class Membership(NamedTuple):
    member_id: str
    generation: int


class GroupClient:
    """One group as seen through one connection; requests can be changed field by field."""

    def __init__(self, raw: RawClient, group: str) -> None:
        self.raw = raw
        self.group = group
        raw.ask("find_coordinator", 2, FindCoordinatorRequest(group, 0))

    def join_request(self, member_id: str = "", instance: str | None = None) -> JoinGroupRequest:
        protocols = [JoinGroupRequestProtocol("range", subscription(["t"]))]
        return JoinGroupRequest(
            self.group, 30_000, 30_000, member_id, instance, "consumer", protocols
        )

    def join(self, request: JoinGroupRequest, *, version: int = 9) -> JoinGroupResponse:
        answer: JoinGroupResponse = self.raw.ask("join_group", version, request)
        return answer

    def sync(
        self, member: Membership, *, instance: str | None = None, assignments: Any = ()
    ) -> Any:
        request = SyncGroupRequest(
            self.group,
            member.generation,
            member.member_id,
            instance,
            "consumer",
            "range",
            [SyncGroupRequestAssignment(*assignment) for assignment in assignments],
        )
        return self.raw.ask("sync_group", 5, request)

    def heartbeat(self, member: Membership, *, instance: str | None = None) -> int:
        request = HeartbeatRequest(self.group, member.generation, member.member_id, instance)
        error: int = self.raw.ask("heartbeat", 4, request).error_code
        return error

    def commit(
        self,
        topic: str,
        offset: int,
        *,
        member: Membership | None = None,
        metadata: str | None = "",
        instance: str | None = None,
        partition: int = 0,
    ) -> int:
        member = member or Membership("", -1)
        asked = [OffsetCommitRequestPartition(partition, offset, -1, metadata)]
        request = OffsetCommitRequest(
            self.group,
            member.generation,
            member.member_id,
            group_instance_id=instance,
            topics=[OffsetCommitRequestTopic(topic, partitions=asked)],
        )
        error: int = self.raw.ask("offset_commit", 8, request).topics[0].partitions[0].error_code
        return error

    def offsets(self) -> dict[tuple[str, int], tuple[int, str | None]]:
        """All that the group has committed."""
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(self.group, topics=None)])
        (found,) = self.raw.ask("offset_fetch", 9, asked).groups
        assert found.error_code == 0
        return {
            (topic.name, p.partition_index): (p.committed_offset, p.metadata)
            for topic in found.topics
            for p in topic.partitions
        }

    def leader(self) -> Membership:
        """Join alone, up to the answer of the join."""
        asked = self.join(self.join_request())
        assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = self.join(self.join_request(asked.member_id))
        assert joined.error_code == 0
        return Membership(joined.member_id, joined.generation_id)

    def stable(self) -> Membership:
        member = self.leader()
        assert self.sync(member, assignments=[(member.member_id, b"mine")]).assignment == b"mine"
        return member


@pytest.fixture
def client(raw: RawClient, group: str) -> GroupClient:
    return GroupClient(raw, group)


@pytest.fixture
def other(ottla_broker: EmbeddedBroker, group: str) -> Iterator[GroupClient]:
    with RawClient(ottla_broker.bootstrap) as connection:
        yield GroupClient(connection, group)


def test_a_member_gets_its_id_before_it_joins(client: GroupClient) -> None:
    first = client.join(client.join_request())
    assert (first.error_code, first.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
    assert first.member_id.startswith("raw-")
    joined = client.join(client.join_request(first.member_id))
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, first.member_id)
    assert [m.member_id for m in joined.members] == [first.member_id]


def test_before_v4_a_member_joins_at_once(client: GroupClient) -> None:
    joined = client.join(client.join_request(), version=3)
    assert (joined.error_code, joined.generation_id) == (0, 1)


def test_generations_count_and_only_the_leader_sees_the_members(
    client: GroupClient, other: GroupClient
) -> None:
    first = client.stable()
    asked = other.join(other.join_request())
    other.raw.send("join_group", 9, other.join_request(asked.member_id))
    while client.heartbeat(first) != ErrorCode.REBALANCE_IN_PROGRESS:
        pass
    again = client.join(client.join_request(first.member_id))
    _, follower = other.raw.receive("join_group", 9)
    assert again.generation_id == follower.generation_id == first.generation + 1
    assert again.leader == follower.leader == first.member_id
    assert {m.member_id for m in again.members} == {first.member_id, asked.member_id}
    assert list(follower.members) == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"session_timeout_ms": 10}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 100_000_000}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_joins_that_are_refused(
    client: GroupClient, change: dict[str, Any], error: ErrorCode
) -> None:
    request = client.join_request()._replace(**change)
    assert client.join(request).error_code == error


def test_nothing_in_common_with_the_group(client: GroupClient, other: GroupClient) -> None:
    client.stable()
    for change in (
        {"protocols": [JoinGroupRequestProtocol("else", b"")]},
        {"protocol_type": "connect"},
    ):
        request = other.join_request()._replace(**change)
        assert other.join(request).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_error_matrix(client: GroupClient, ottla_topic: str) -> None:
    """Heartbeat, sync and commit with a wrong member or generation, and in each state."""
    member = client.leader()
    # CompletingRebalance: alive, but nothing can be committed.
    assert client.heartbeat(member) == 0
    assert client.commit(ottla_topic, 1, member=member) == ErrorCode.REBALANCE_IN_PROGRESS
    assert client.sync(member, assignments=[(member.member_id, b"mine")]).error_code == 0
    # Stable.
    assert client.commit(ottla_topic, 1, member=member) == 0
    stranger = Membership("stranger", member.generation)
    old = Membership(member.member_id, member.generation - 1)
    for wrong, error in (
        (stranger, ErrorCode.UNKNOWN_MEMBER_ID),
        (old, ErrorCode.ILLEGAL_GENERATION),
    ):
        assert client.heartbeat(wrong) == error
        assert client.sync(wrong).error_code == error
        assert client.commit(ottla_topic, 2, member=wrong) == error
    # Somebody without a membership cannot commit while there are members.
    assert client.commit(ottla_topic, 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.offsets() == {(ottla_topic, 0): (1, "")}


def test_sync_checks_type_and_name(client: GroupClient) -> None:
    member = client.leader()
    for type_, name in (("connect", "range"), ("consumer", "roundrobin")):
        request = SyncGroupRequest(
            client.group, member.generation, member.member_id, None, type_, name
        )
        answer = client.raw.ask("sync_group", 5, request)
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_static_member_takes_over_without_a_rebalance(client: GroupClient) -> None:
    joined = client.join(client.join_request(instance="i"))
    old = Membership(joined.member_id, joined.generation_id)
    client.sync(old, instance="i", assignments=[(old.member_id, b"mine")])
    again = client.join(client.join_request(instance="i"))
    new = Membership(again.member_id, again.generation_id)
    assert (again.error_code, new.generation, again.skip_assignment) == (0, old.generation, True)
    assert new.member_id != old.member_id
    assert client.sync(new, instance="i").assignment == b"mine"
    assert client.heartbeat(new, instance="i") == 0
    assert client.heartbeat(old, instance="i") == ErrorCode.FENCED_INSTANCE_ID
    assert client.sync(old, instance="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert client.commit("t", 1, member=old, instance="i") in (
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )


def test_leave_answers_every_member(client: GroupClient) -> None:
    joined = client.join(client.join_request(instance="i"))
    leaving = [
        MemberIdentity("", "i"),
        MemberIdentity("stranger", None),
        MemberIdentity("", "nobody"),
    ]
    answer = client.raw.ask("leave_group", 5, LeaveGroupRequest(client.group, members=leaving))
    assert answer.error_code == 0
    assert [(m.member_id, m.group_instance_id, m.error_code) for m in answer.members] == [
        ("", "i", 0),
        ("stranger", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    member = Membership(joined.member_id, joined.generation_id)
    assert client.heartbeat(member) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("metadata", ["", "état", "x" * 4096])
def test_commit_metadata_comes_back_as_it_was(
    client: GroupClient, ottla_topic: str, metadata: str
) -> None:
    assert client.commit(ottla_topic, 5, metadata=metadata) == 0
    assert client.offsets() == {(ottla_topic, 0): (5, metadata)}


def test_null_metadata_is_answered_as_empty(client: GroupClient, ottla_topic: str) -> None:
    assert client.commit(ottla_topic, 5, metadata=None) == 0
    assert client.offsets() == {(ottla_topic, 0): (5, "")}


def test_commits_that_are_refused(client: GroupClient, ottla_topic: str) -> None:
    too_long = client.commit(ottla_topic, 5, metadata="x" * 4097)
    assert too_long == ErrorCode.OFFSET_METADATA_TOO_LARGE
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.commit("nowhere", 5) == unknown
    assert client.commit(ottla_topic, 5, partition=1) == unknown
    assert client.offsets() == {}


def test_offset_fetch_of_named_partitions(client: GroupClient, ottla_topic: str) -> None:
    client.commit(ottla_topic, 5)
    for version in range(1, 8):
        asked = [OffsetFetchRequestTopic(ottla_topic, (0, 7))]
        answer = client.raw.ask("offset_fetch", version, OffsetFetchRequest(client.group, asked))
        (topic,) = answer.topics
        assert [
            (p.partition_index, p.committed_offset, p.error_code) for p in topic.partitions
        ] == [
            (0, 5, 0),
            (7, -1, 0),
        ]
    groups = [
        OffsetFetchRequestGroup(
            name, topics=[OffsetFetchRequestTopics(ottla_topic, bytes(16), (0,))]
        )
        for name in (client.group, "no-such-group")
    ]
    answer = client.raw.ask("offset_fetch", 9, OffsetFetchRequest(groups=groups))
    assert [g.topics[0].partitions[0].committed_offset for g in answer.groups] == [5, -1]


def test_offset_delete_answers_every_partition(
    client: GroupClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    client.commit(topic, 5)
    asked = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(p) for p in (0, 1)])]
    answer = client.raw.ask("offset_delete", 0, OffsetDeleteRequest(client.group, asked))
    assert answer.error_code == 0
    assert [p.partition_index for p in answer.topics[0].partitions] == [0, 1]
    assert client.offsets() == {}


def test_offsets_of_a_deleted_topic_are_gone(
    ottla_broker: EmbeddedBroker, client: GroupClient, new_topic: Callable[..., str]
) -> None:
    """A topic made anew must not be read from where the old one ended."""
    topic = new_topic()
    assert client.commit(topic, 5) == 0
    ottla_broker.delete_topic(topic)
    ottla_broker.create_topic(topic)
    assert client.offsets() == {}


def test_offsets_and_groups_survive_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as connection:
        broker.create_topic("t")
        client = GroupClient(connection, "g")
        member = client.stable()
        assert client.commit("t", 5, member=member, metadata="m") == 0
    with EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as connection:
        client = GroupClient(connection, "g")
        assert client.offsets() == {("t", 0): (5, "m")}
        assert client.heartbeat(member) == 0
        assert client.commit("t", 6, member=member) == 0


@pytest.mark.parametrize(("version", "error"), [(5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_describing_a_group_that_is_not_there(
    client: GroupClient, version: int, error: int
) -> None:
    answer = client.raw.ask("describe_groups", version, DescribeGroupsRequest([client.group]))
    (described,) = answer.groups
    assert (described.error_code, described.group_state) == (error, "Dead")


def test_unchanged_fields_do_not_bump_the_epoch(client: GroupClient, ottla_topic: str) -> None:
    member = ConsumerMember(client.raw, client.group)
    joined = member.heartbeat(subscribed_topic_names=[ottla_topic], subscribed_topic_regex="")
    assert joined.error_code == 0
    epoch = joined.member_epoch
    owned = [(t.topic_id, tuple(t.partitions)) for t in joined.assignment.topic_partitions]
    assert owned == [(client.raw.topic(ottla_topic).topic_id, (0,))]
    for _ in range(3):
        again = member.heartbeat(
            member_epoch=epoch,
            subscribed_topic_names=[ottla_topic],
            subscribed_topic_regex="",
            topic_partitions=None,
        )
        assert (again.error_code, again.member_epoch) == (0, epoch)
    assert member.heartbeat(member_epoch=-1, topic_partitions=None).member_epoch == -1


def test_consumer_group_errors(client: GroupClient, ottla_topic: str) -> None:
    member = ConsumerMember(client.raw, client.group)
    epoch = member.heartbeat(subscribed_topic_names=[ottla_topic]).member_epoch
    for fields, error in (
        ({"member_id": "stranger", "member_epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": epoch + 5}, ErrorCode.FENCED_MEMBER_EPOCH),
        (
            {"member_epoch": epoch, "server_assignor": "nope"},
            ErrorCode.UNSUPPORTED_ASSIGNOR,
        ),
        (
            {"member_epoch": epoch, "subscribed_topic_regex": "("},
            ErrorCode.INVALID_REGULAR_EXPRESSION,
        ),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
    ):
        answer = member.heartbeat(topic_partitions=None, **fields)
        assert (answer.error_code, bool(answer.error_message)) == (error, True)
    stale = Membership(member.request.member_id, epoch + 1)
    assert client.commit(ottla_topic, 1, member=stale) in (
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNSUPPORTED_VERSION,
    )


def test_classic_to_consumer_and_back(client: GroupClient, ottla_topic: str) -> None:
    classic = client.stable()
    member = ConsumerMember(client.raw, client.group)
    refused = member.heartbeat(subscribed_topic_names=[ottla_topic])
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    leaving = [MemberIdentity(classic.member_id)]
    client.raw.ask("leave_group", 5, LeaveGroupRequest(client.group, members=leaving))
    assert member.heartbeat(subscribed_topic_names=[ottla_topic]).error_code == 0
    request = client.join_request()
    assert client.join(request).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    member.heartbeat(member_epoch=-1, topic_partitions=None)
    client.stable()
