"""The member machines of both group protocols, without a socket."""

from __future__ import annotations

import pytest

from ottla.client.cluster.view import Partition, Topic, TopicPartition
from ottla.client.consumer.classic import MAX_ANEW, ClassicMember
from ottla.client.consumer.machine import Learn, Lost, Member, Own, Send
from ottla.client.consumer.modern import ModernMember
from ottla.client.consumer.protocol import (
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from ottla.client.errors import BrokerUnreachable, KafkaError
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from ottla.wire.schema.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.schema.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from ottla.wire.schema.leave_group import LeaveGroupRequest
from ottla.wire.schema.sync_group import SyncGroupRequest, SyncGroupResponse

ID = b"t" * 16
TOPIC = Topic("t", ID, False, [Partition(n, 1, 0, (), (), ()) for n in range(4)])
P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
RANDOM = 0.5


def sent(member: Member, now: float = 0.0) -> object:
    command = member.next(now)
    assert isinstance(command, Send)
    return command.request


def refuse(member: Member, code: ErrorCode, now: float = 0.0) -> None:
    member.failed(KafkaError(code, "x"), now, RANDOM)


# -- KIP-848 --------------------------------------------------------------------------------------


def beat(member: ModernMember, epoch: int, *partitions: int, now: float = 0.0) -> None:
    request = sent(member, now)
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    found = Assignment([ResponseTopicPartitions(ID, partitions)])
    answer = ConsumerGroupHeartbeatResponse(
        member_id="m", member_epoch=epoch, heartbeat_interval_ms=5000, assignment=found
    )
    member.answered(request, answer, now, RANDOM)


def modern(*partitions: int) -> ModernMember:
    """A steady member that owns these."""
    member = ModernMember("g", ["t"], member_id="m")
    beat(member, 1, *partitions)
    assert member.next(0.0) == Learn(frozenset({"t"}))
    member.learned({"t": TOPIC}, 0.0)
    member.settled(frozenset(TopicPartition("t", n) for n in partitions))
    return member


def test_modern_joins_learns_names_owns_and_says_so() -> None:
    member = ModernMember("g", ["t"], member_id="m", instance_id="i", rack="r", assignor="range")
    request = sent(member)
    assert request == ConsumerGroupHeartbeatRequest(
        "g", "m", 0, "i", "r", 300_000, ["t"], None, "range", []
    )
    beat(member, 3, 0, 1)
    assert member.wish() is None, "the topic's name is not known yet"
    assert member.next(0.0) == Learn(frozenset({"t"}))
    member.learned({"t": TOPIC}, 0.0)
    assert member.wish() == Own(frozenset({P0, P1}))
    assert member.next(0.1) is None
    member.settled(frozenset({P0, P1}))
    request = sent(member, 0.1)
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    assert request.member_epoch == 3
    assert request.subscribed_topic_names is None
    assert request.topic_partitions is not None
    assert [(one.topic_id, list(one.partitions)) for one in request.topic_partitions] == [
        (ID, [0, 1])
    ]
    beat(member, 3, 0, 1, now=0.1)
    assert member.next(5.0) is None
    assert isinstance(member.next(5.2), Send)


def test_modern_gives_up_before_it_goes_on() -> None:
    member = modern(0, 1)
    beat(member, 2, 1)
    assert member.wish() == Own(frozenset({P1}))
    member.settled(frozenset({P1}))
    assert member.wish() is None
    assert isinstance(member.next(0.0), Send), "the coordinator hears of it at once"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    ],
)
def test_modern_that_is_fenced_has_lost_its_partitions_and_joins_again(code: ErrorCode) -> None:
    member = modern(0)
    refuse(member, code)
    assert member.wish() == Lost()
    assert member.next(0.0) is None, "the caller hears of it first"
    member.settled(frozenset())
    request = sent(member)
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    assert request.member_epoch == 0
    assert request.subscribed_topic_names == ["t"]
    assert request.topic_partitions == []


def test_modern_tells_everything_after_a_lost_answer() -> None:
    member = modern(0)
    member.failed(BrokerUnreachable("gone"), 0.0, RANDOM)
    refuse(member, ErrorCode.NOT_COORDINATOR)
    assert member.next(0.0) is None
    request = sent(member, 9.0)
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    assert request.subscribed_topic_names == ["t"]
    assert member.failure is None


def test_modern_fails_for_good_by_what_no_retry_mends() -> None:
    member = modern(0)
    refuse(member, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert member.failure is not None
    assert member.next(100.0) is None


def test_modern_leaves_and_comes_back() -> None:
    member = modern(0)
    member.subscribe(())
    assert member.wish() == Own(frozenset())
    assert member.next(1e9) is None, "the caller commits first"
    assert isinstance(member.farewell(), ConsumerGroupHeartbeatRequest)
    member.settled(frozenset())
    request = sent(member)
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    assert request.member_epoch == -1
    member.answered(request, ConsumerGroupHeartbeatResponse(member_epoch=-1), 0.0, RANDOM)
    assert member.next(1e9) is None
    member.subscribe(["u"])
    request = sent(member)
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    assert (request.member_epoch, request.subscribed_topic_names) == (0, ["u"])


def test_modern_that_comes_back_before_its_caller_has_heard_has_lost_its_partitions() -> None:
    member = modern(0, 1)
    member.expire()
    leaving = sent(member)
    member.subscribe(["t"])
    member.answered(leaving, ConsumerGroupHeartbeatResponse(), 0.0, 0.5)  # type: ignore[arg-type]
    assert member.wish() == Lost()
    assert member.next(0.0) is None
    member.settled(frozenset())
    joining = sent(member)
    assert isinstance(joining, ConsumerGroupHeartbeatRequest)
    assert (joining.member_epoch, joining.topic_partitions) == (0, [])


def test_modern_tells_what_was_subscribed_to_while_a_heartbeat_was_under_way() -> None:
    member = ModernMember("g", ["x"])
    joining = sent(member)
    member.subscribe(["t"])
    answer = ConsumerGroupHeartbeatResponse(member_epoch=1, heartbeat_interval_ms=5000)
    member.answered(joining, answer, 0.0, 0.5)  # type: ignore[arg-type]
    told = sent(member)
    assert isinstance(told, ConsumerGroupHeartbeatRequest)
    assert told.subscribed_topic_names == ["t"]


def test_modern_static_member_leaves_for_a_while_only() -> None:
    member = ModernMember("g", ["t"], member_id="m", instance_id="i")
    beat(member, 1, 0)
    request = member.farewell()
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    assert request.member_epoch == -2


# -- classic --------------------------------------------------------------------------------------


def join(
    member: ClassicMember, generation: int, *others: str, leads: bool = True
) -> JoinGroupRequest:
    request = sent(member)
    assert isinstance(request, JoinGroupRequest)
    mine = request.protocols[0].metadata
    members = [JoinGroupResponseMember("m", None, mine)]
    members += [
        JoinGroupResponseMember(one, None, write_subscription(Subscription(["t"])))
        for one in others
    ]
    answer = JoinGroupResponse(
        generation_id=generation,
        protocol_name=request.protocols[0].name,
        leader="m" if leads else "other",
        member_id="m",
        members=members if leads else (),
    )
    member.answered(request, answer, 0.0, RANDOM)
    return request


def sync(member: ClassicMember, *partitions: TopicPartition) -> SyncGroupRequest:
    if isinstance(member.next(0.0), Learn):
        member.learned({"t": TOPIC}, 0.0)
    request = sent(member)
    assert isinstance(request, SyncGroupRequest)
    answer = SyncGroupResponse(assignment=write_assignment(partitions))
    member.answered(request, answer, 0.0, RANDOM)
    return request


def classic(assignor: str, *partitions: TopicPartition) -> ClassicMember:
    member = ClassicMember("g", ["t"], assignors=[assignor])
    join(member, 1, leads=False)
    sync(member, *partitions)
    assert member.wish() == Own(frozenset(partitions))
    member.settled(frozenset(partitions))
    return member


def test_classic_leader_assigns_for_all() -> None:
    member = ClassicMember("g", ["t"], assignors=["range"])
    join(member, 1, "n")
    request = sync(member, P0, P1)
    given = {one.member_id: read_assignment(one.assignment) for one in request.assignments}
    assert given == {
        "m": [TopicPartition("t", 0), TopicPartition("t", 1)],
        "n": [TopicPartition("t", 2), TopicPartition("t", 3)],
    }
    member.settled(frozenset({P0, P1}))
    assert member.next(2.9) is None
    assert isinstance(sent(member, 3.0), HeartbeatRequest)


def test_classic_is_told_its_id_first() -> None:
    member = ClassicMember("g", ["t"])
    assert isinstance(sent(member), JoinGroupRequest)
    member.required("m-1")
    refuse(member, ErrorCode.MEMBER_ID_REQUIRED)
    request = sent(member)
    assert isinstance(request, JoinGroupRequest)
    assert request.member_id == "m-1"


def test_classic_eager_gives_everything_up_before_it_joins_again() -> None:
    member = classic("range", P0, P1)
    refuse(member, ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.wish() == Own(frozenset())
    assert member.next(100.0) is None
    member.settled(frozenset())
    request = join(member, 2, leads=False)
    assert read_subscription(request.protocols[0].metadata).owned == []


def test_classic_cooperative_keeps_what_it_has_and_gives_up_afterwards() -> None:
    member = classic("cooperative-sticky", P0, P1)
    refuse(member, ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.wish() is None
    request = join(member, 2, leads=False)
    told = read_subscription(request.protocols[0].metadata)
    assert (list(told.owned), told.generation) == ([P0, P1], 1)
    sync(member, P1)
    assert member.wish() == Own(frozenset({P1}))
    member.settled(frozenset({P1}))
    request = join(member, 3, leads=False)
    assert list(read_subscription(request.protocols[0].metadata).owned) == [P1]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_classic_that_was_thrown_out_starts_anew(code: ErrorCode) -> None:
    member = classic("cooperative-sticky", P0)
    refuse(member, code)
    assert member.wish() == Lost()
    member.settled(frozenset())
    assert isinstance(sent(member), JoinGroupRequest)


def test_classic_that_is_never_taken_in_says_so() -> None:
    member = ClassicMember("g", ["t"])
    for _ in range(MAX_ANEW):
        refuse(member, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert isinstance(member.failure, KafkaError)


def test_classic_leader_rebalances_when_a_topic_grows() -> None:
    member = ClassicMember("g", ["t"], assignors=["range"])
    join(member, 1)
    sync(member, P0)
    member.settled(frozenset({P0}))
    member.answered(HeartbeatRequest(), HeartbeatResponse(), 29.0, RANDOM)
    assert member.next(30.0) == Learn(frozenset({"t"}))
    member.learned({"t": TOPIC}, 30.0)
    assert member.wish() is None
    grown = Topic("t", ID, False, [Partition(n, 1, 0, (), (), ()) for n in range(5)])
    member.learned({"t": grown}, 60.0)
    assert member.wish() == Own(frozenset())


def test_classic_leaves_unless_it_is_static() -> None:
    assert isinstance(classic("range", P0).farewell(), LeaveGroupRequest)
    static = ClassicMember("g", ["t"], instance_id="i")
    join(static, 1, leads=False)
    sync(static, P0)
    assert static.farewell() is None
