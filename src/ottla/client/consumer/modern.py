"""A member of a KIP-848 group: one heartbeat does it all.

    OUT      nothing is sent                              -> JOINING when there are topics
    JOINING  epoch 0, with the whole subscription         -> STEADY by a good answer
    STEADY   the epoch of the last answer                 -> JOINING when fenced, with the same id
    LEAVING  epoch -1 (-2 for a static member)            -> OUT by any response

- The coordinator names partitions by topic id; they are used once metadata has their names.
- It assigns a partition only when its last owner has revoked it. So a member takes over new
  partitions at once and confirms them in its next heartbeat, which it sends immediately.
- After a failed request to the coordinator the whole state is sent: it may be another one now.
- A fenced member has lost its partitions: the caller is told before it joins again.
"""

from __future__ import annotations

import base64
import math
import uuid
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from ottla.client.cluster.retry import RETRY
from ottla.client.cluster.view import TopicPartition
from ottla.client.consumer.machine import NOW, Learn, Lost, Member, Own, Send
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    RequestTopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.client.cluster.view import Topic
    from ottla.client.consumer.machine import Command, Wish
    from ottla.client.errors import KafkaError
    from ottla.wire.schema.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
STATIC_LEAVING_EPOCH: Final = -2
DEFAULT_INTERVAL: Final = 3.0  # where a coordinator names none
# Until the first assignment has come there is no reason to wait for a whole interval.
EAGER_BEATS: Final = 8
FENCED: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.STALE_MEMBER_EPOCH}
)


class Phase(Enum):
    OUT = auto()
    JOINING = auto()
    STEADY = auto()
    LEAVING = auto()


class ModernMember(Member):
    """See the module's docstring."""

    def __init__(
        self,
        group: str,
        topics: Sequence[str],
        *,
        pattern: str | None = None,
        instance_id: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = 300_000,
        member_id: str | None = None,
    ) -> None:
        super().__init__(group, topics)
        self.member_id = member_id or base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()
        self.epoch = JOINING_EPOCH
        self.instance_id = instance_id
        self.pattern = pattern
        self.phase = Phase.JOINING if topics or pattern else Phase.OUT
        self.due = NOW if topics or pattern else math.inf
        self._rack = rack
        self._assignor = assignor
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._names: dict[bytes, str] = {}
        self._assigned: frozenset[tuple[bytes, int]] | None = None
        self._tell_all = True
        self._tell_owned = False
        self._eager_beats = 0
        self._learn_at = NOW
        self._learn_failures = 0

    # -- the shell's side -------------------------------------------------------------------------

    def next(self, now: float) -> Command | None:
        if self.failure is not None or self.phase is Phase.OUT:
            return None
        if self.is_lost:  # tell the caller before anything else; an expired member leaves
            leaving = self.phase is Phase.LEAVING and now >= self.due
            return Send(self._leave_request()) if leaving else None
        if self.phase is Phase.LEAVING and self.wish() is not None:
            return None  # the caller gives up its partitions first: only a member may commit
        if self._unnamed and now >= self._learn_at:
            return Learn(None if self.pattern else frozenset(self.topics))
        return Send(self._heartbeat()) if now >= self.due else None

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        if self.phase is Phase.LEAVING:
            return self._leave_request()
        joins = self.phase is Phase.JOINING
        whole = joins or self._tell_all
        owned = whole or self._tell_owned
        return ConsumerGroupHeartbeatRequest(
            self.group,
            self.member_id,
            self.epoch,
            self.instance_id,
            self._rack if whole else None,
            self._rebalance_timeout_ms if whole else -1,
            list(self.topics) if whole and not self.pattern else None,
            self.pattern if whole else None,
            self._assignor if whole else None,
            ([] if joins else self._owned_by_id()) if owned else None,
        )

    def _owned_by_id(self) -> list[RequestTopicPartitions]:
        ids = {name: topic_id for topic_id, name in self._names.items()}
        found: dict[bytes, list[int]] = {}
        for topic, number in sorted(self.owned):
            found.setdefault(ids[topic], []).append(number)
        return [RequestTopicPartitions(topic_id, numbers) for topic_id, numbers in found.items()]

    def _leave_request(self) -> ConsumerGroupHeartbeatRequest:
        epoch = LEAVING_EPOCH if self.instance_id is None else STATIC_LEAVING_EPOCH
        return ConsumerGroupHeartbeatRequest(
            self.group, self.member_id, epoch, self.instance_id, topic_partitions=None
        )

    def answered(
        self,
        request: ConsumerGroupHeartbeatRequest,
        answer: ConsumerGroupHeartbeatResponse,
        now: float,
        random: float,
    ) -> None:
        self._failures = 0
        if request.member_epoch < 0:
            if self.phase is Phase.LEAVING:
                self._be_out()
            return
        if self.phase is Phase.LEAVING:
            self.epoch = answer.member_epoch  # for the last commit
            self.due = NOW
            return
        self.phase = Phase.STEADY
        self.member_id = answer.member_id or self.member_id
        self.epoch = answer.member_epoch
        # Topics subscribed to while the request was in flight still have to be sent.
        self._tell_all = self._tell_all and not self._is_told_by(request)
        self._tell_owned = False
        if answer.assignment is not None:
            self._assigned = frozenset(
                (topic.topic_id, number)
                for topic in answer.assignment.topic_partitions
                for number in topic.partitions
            )
        interval = answer.heartbeat_interval_ms / 1000 or DEFAULT_INTERVAL
        if not self._assigned and self._eager_beats < EAGER_BEATS:
            self._eager_beats += 1
            interval = min(interval, RETRY.delay(self._eager_beats, random))
        self.due = NOW if self._tell_all else now + interval

    def _is_told_by(self, request: ConsumerGroupHeartbeatRequest) -> bool:
        """Whether the heartbeat had the current subscription."""
        if self.pattern is not None:
            return request.subscribed_topic_regex == self.pattern
        names = request.subscribed_topic_names
        return names is not None and tuple(names) == self.topics

    def refused(self, error: KafkaError, now: float, random: float) -> bool:
        if self.phase is Phase.LEAVING:
            # The coordinator will miss this member's heartbeats.
            self._be_out()
            return True
        self._tell_all = True
        if error.code not in FENCED:
            return False
        self._failures += 1
        self.phase = Phase.JOINING
        self.epoch = JOINING_EPOCH
        self._assigned = None
        self.is_lost = bool(self.owned)
        # A member that is fenced again and again must not keep the coordinator busy.
        self.due = NOW if self._failures == 1 else now + RETRY.delay(self._failures, random)
        return True

    def learned(self, topics: Mapping[str, Topic], now: float) -> None:
        self._names.update({topic.id: topic.name for topic in topics.values()})
        self._learn_failures = self._learn_failures + 1 if self._unnamed else 0
        self._learn_at = now + RETRY.delay(max(self._learn_failures, 1), 1.0)

    def farewell(self) -> Any | None:
        known = self.phase in (Phase.STEADY, Phase.LEAVING)
        return self._leave_request() if known else None

    @property
    def _unnamed(self) -> bool:
        """Whether partitions were assigned whose topics are not known by name yet."""
        return any(topic_id not in self._names for topic_id, _ in self._assigned or ())

    def _be_out(self) -> None:
        self.phase = Phase.OUT
        self.epoch = JOINING_EPOCH
        self._assigned = None
        self.due = math.inf
        if self.topics or self.pattern:
            self._join()

    def _join(self) -> None:
        self.phase, self.epoch, self.due = Phase.JOINING, JOINING_EPOCH, NOW
        # The partitions of its former membership are not its own any more.
        self.is_lost = bool(self.owned)

    @property
    def is_subscribed(self) -> bool:
        return bool(self.topics or self.pattern)

    # -- the caller's side ------------------------------------------------------------------------

    def wish(self) -> Wish | None:
        if self.is_lost:
            return Lost()
        if self.phase in (Phase.OUT, Phase.LEAVING):
            target = frozenset[TopicPartition]()
        elif self._assigned is None or self._unnamed:
            return None
        else:
            target = frozenset(
                TopicPartition(self._names[topic_id], number) for topic_id, number in self._assigned
            )
        return Own(target) if target != self.owned else None

    def settled(self, owned: frozenset[TopicPartition]) -> None:
        self.is_lost = False
        self.owned = owned
        if self.phase is Phase.STEADY:
            self._tell_owned = True
            self.due = NOW

    def subscribe(self, topics: Sequence[str]) -> None:
        self.topics, self.pattern = tuple(topics), None
        self._tell_all = True
        self._eager_beats = 0
        if not topics:
            if self.phase is Phase.STEADY:
                self.phase, self.due = Phase.LEAVING, NOW
            elif self.phase is Phase.JOINING:
                self._be_out()
        else:
            if self.phase is Phase.OUT:
                self._join()
            self.due = NOW

    @property
    def is_steady(self) -> bool:
        return self.phase is Phase.STEADY

    def expire(self) -> None:
        if self.phase is Phase.STEADY:
            self.phase, self.due = Phase.LEAVING, NOW
            self.is_lost = True
