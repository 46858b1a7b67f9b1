"""A member of a classic group: join, let the leader assign, sync, then heartbeats.

    OUT       nothing is sent                                 -> PREPARING when there are topics
    PREPARING the caller gives up what it must first          -> JOINING when it has
    JOINING   JoinGroup, which waits for the other members    -> SYNCING, or LEARNING as the leader
    LEARNING  the leader asks how many partitions topics have -> SYNCING
    SYNCING   SyncGroup                                       -> STEADY
    STEADY    Heartbeat every interval                        -> PREPARING when told to rebalance
    LEAVING   LeaveGroup                                      -> OUT by any response

- Eager assignors: the member revokes everything in PREPARING. Cooperative ones: it revokes nothing
  then; after the next assignment it revokes the partitions missing there, and joins once more so
  that other members get them.
- A member that the coordinator has removed has lost its partitions and joins as a new one.
- Static members (`instance_id`) do not leave when they close.
- The leader refreshes the topics every METADATA_SECONDS, and rebalances when they have grown.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from ottla.client.cluster.retry import RETRY
from ottla.client.consumer.assignors import ASSIGNORS
from ottla.client.consumer.machine import NOW, Learn, Lost, Member, Own, Send
from ottla.client.consumer.protocol import (
    NO_GENERATION,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.heartbeat import HeartbeatRequest
from ottla.wire.schema.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.schema.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.schema.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.client.cluster.view import Topic, TopicPartition
    from ottla.client.consumer.assignors import Assignor
    from ottla.client.consumer.machine import Command, Wish
    from ottla.client.errors import KafkaError
    from ottla.wire.schema.join_group import JoinGroupResponse
    from ottla.wire.schema.sync_group import SyncGroupResponse

PROTOCOL_TYPE: Final = "consumer"
METADATA_SECONDS: Final = 30.0
MAX_ANEW: Final = 10  # in a row: a group that never takes this member in is an error
_ANEW: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    }
)


class Phase(Enum):
    OUT = auto()
    PREPARING = auto()
    JOINING = auto()
    LEARNING = auto()
    SYNCING = auto()
    STEADY = auto()
    LEAVING = auto()


class ClassicMember(Member):
    """See the module's docstring. `assignors` are offered in the order of preference."""

    def __init__(
        self,
        group: str,
        topics: Sequence[str],
        *,
        assignors: Sequence[str] = ("cooperative-sticky",),
        instance_id: str | None = None,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
        heartbeat_interval: float = 3.0,
    ) -> None:
        super().__init__(group, topics)
        self.instance_id = instance_id
        self.phase = Phase.PREPARING if topics else Phase.OUT
        self._offered = tuple(assignors)
        self._assignor: Assignor = ASSIGNORS[assignors[0]]
        self._protocol = ""
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._interval = heartbeat_interval
        self._assigned: frozenset[TopicPartition] | None = None
        self._members: dict[str, Subscription] | None = None  # as the leader
        self._counts: dict[str, int] = {}
        self._learn_at = math.inf

    @property
    def is_cooperative(self) -> bool:
        """Whether all offered assignors leave partitions with their owners during a rebalance."""
        return all(ASSIGNORS[name].is_cooperative for name in self._offered)

    # -- the shell's side -------------------------------------------------------------------------

    def next(self, now: float) -> Command | None:
        if self.failure is not None:
            return None
        if self.is_lost:  # tell the caller before anything else; an expired member leaves
            leaving = self.phase is Phase.LEAVING and now >= self.due
            return Send(self._leave_request()) if leaving else None
        if self.wish() is not None:
            return None
        if self.phase is Phase.LEARNING or (self.phase is Phase.STEADY and now >= self._learn_at):
            return Learn(self._wanted_topics()) if now >= min(self.due, self._learn_at) else None
        if now < self.due:
            return None
        if self.phase is Phase.PREPARING:
            self.phase = Phase.JOINING
        if self.phase is Phase.JOINING:
            return Send(self._join_request(), self._rebalance_timeout_ms / 1000)
        if self.phase is Phase.SYNCING:
            return Send(self._sync_request(), self._rebalance_timeout_ms / 1000)
        if self.phase is Phase.STEADY:
            request = HeartbeatRequest(self.group, self.epoch, self.member_id, self.instance_id)
            return Send(request)
        return Send(self._leave_request()) if self.phase is Phase.LEAVING else None

    def _join_request(self) -> JoinGroupRequest:
        owned = sorted(self.owned) if self.is_cooperative else ()
        generation = self.epoch if owned else NO_GENERATION
        subscription = write_subscription(Subscription(self.topics, owned, generation))
        return JoinGroupRequest(
            self.group,
            self._session_timeout_ms,
            self._rebalance_timeout_ms,
            self.member_id,
            self.instance_id,
            PROTOCOL_TYPE,
            [JoinGroupRequestProtocol(name, subscription) for name in self._offered],
        )

    def _sync_request(self) -> SyncGroupRequest:
        given: list[SyncGroupRequestAssignment] = []
        if self._members is not None:
            counts = {topic: self._counts.get(topic, 0) for topic in self._wanted_topics()}
            for member, partitions in self._assignor.assign(self._members, counts).items():
                given.append(SyncGroupRequestAssignment(member, write_assignment(partitions)))
        return SyncGroupRequest(
            self.group,
            self.epoch,
            self.member_id,
            self.instance_id,
            PROTOCOL_TYPE,
            self._protocol,
            given,
        )

    def _leave_request(self) -> LeaveGroupRequest:
        identity = MemberIdentity(self.member_id, self.instance_id, "the consumer was closed")
        return LeaveGroupRequest(self.group, self.member_id, [identity])

    def answered(self, request: Any, answer: Any, now: float, random: float) -> None:
        self._failures = 0
        if isinstance(request, JoinGroupRequest):
            self._joined(answer)
        elif isinstance(request, SyncGroupRequest):
            self._synced(answer, now)
        elif isinstance(request, HeartbeatRequest):
            self.due = now + self._interval
        elif self.phase is Phase.LEAVING:
            self._be_out()

    def _joined(self, answer: JoinGroupResponse) -> None:
        if self.phase is not Phase.JOINING:
            return
        self.member_id = answer.member_id
        self.epoch = answer.generation_id
        self._protocol = answer.protocol_name or self._offered[0]
        self._assignor = ASSIGNORS[self._protocol]
        is_leader = answer.leader == answer.member_id and not answer.skip_assignment
        self._members = (
            {one.member_id: _subscription(one.metadata) for one in answer.members}
            if is_leader
            else None
        )
        self.phase = Phase.LEARNING if is_leader else Phase.SYNCING
        self.due = NOW

    def _synced(self, answer: SyncGroupResponse, now: float) -> None:
        if self.phase is not Phase.SYNCING:
            return
        self._assigned = frozenset(read_assignment(answer.assignment))
        self.phase = Phase.STEADY
        self.due = now + self._interval
        self._learn_at = math.inf if self._members is None else now + METADATA_SECONDS

    def refused(self, error: KafkaError, now: float, random: float) -> bool:
        if self.phase is Phase.LEAVING:
            self._be_out()
            return True
        if error.code == ErrorCode.MEMBER_ID_REQUIRED:
            self.due = NOW  # `required` has set the id
            return True
        if error.code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._prepare()
            return True
        if error.code in _ANEW:
            self._failures += 1
            if error.code != ErrorCode.ILLEGAL_GENERATION:
                self.member_id = ""
            self.epoch = NO_GENERATION
            self._assigned = None
            self.is_lost = bool(self.owned)
            self._prepare()
            self.due = NOW if self._failures == 1 else now + RETRY.delay(self._failures, random)
            return self._failures < MAX_ANEW
        return False

    def required(self, member_id: str) -> None:
        """The coordinator wants the member to join with this id."""
        self.member_id = member_id

    def learned(self, topics: Mapping[str, Topic], now: float) -> None:
        counts = {name: len(topic.partitions) for name, topic in topics.items()}
        grown, self._counts = counts != self._counts, counts
        self._learn_at = now + METADATA_SECONDS
        if self.phase is Phase.LEARNING:
            self.phase, self.due = Phase.SYNCING, NOW
        elif self.phase is Phase.STEADY and grown:
            self._prepare()

    def farewell(self) -> Any | None:
        known = self.phase is not Phase.OUT and self.member_id
        return self._leave_request() if known and self.instance_id is None else None

    def _wanted_topics(self) -> frozenset[str]:
        members = self._members or {}
        return frozenset(topic for one in members.values() for topic in one.topics)

    def _prepare(self) -> None:
        self.phase = Phase.PREPARING
        self.due = NOW
        self._learn_at = math.inf
        self._assigned = None

    def _be_out(self) -> None:
        self.phase, self.due = Phase.OUT, math.inf
        self.member_id, self.epoch, self._assigned = "", NO_GENERATION, None
        if self.topics:
            self._prepare()

    # -- the caller's side ------------------------------------------------------------------------

    def wish(self) -> Wish | None:
        if self.is_lost:
            return Lost()
        if self.phase is Phase.STEADY and self._assigned is not None:
            target = self._assigned
        elif self.phase in (Phase.OUT, Phase.LEAVING) or (
            self.phase is Phase.PREPARING and not self.is_cooperative
        ):
            target = frozenset()
        else:
            return None
        return Own(target) if target != self.owned else None

    def settled(self, owned: frozenset[TopicPartition]) -> None:
        gave_up = self.owned - owned
        was_lost, self.is_lost = self.is_lost, False
        self.owned = owned
        if self.phase is Phase.STEADY and gave_up and not was_lost and self.is_cooperative:
            # Their new owners get them in the next round.
            self._prepare()

    def subscribe(self, topics: Sequence[str]) -> None:
        self.topics = tuple(topics)
        if topics:
            if self.phase is not Phase.LEAVING:
                self._prepare()
        elif self.phase is not Phase.OUT:
            self.phase, self.due = Phase.LEAVING, NOW

    @property
    def is_steady(self) -> bool:
        return self.phase is Phase.STEADY

    def expire(self) -> None:
        if self.phase is Phase.STEADY:
            self.phase, self.due = Phase.LEAVING, NOW
            self.is_lost = True


def _subscription(data: bytes | memoryview) -> Subscription:
    """Another member's subscription; one that makes no sense gets no partitions."""
    try:
        return read_subscription(data)
    except ValueError:
        return Subscription(())
