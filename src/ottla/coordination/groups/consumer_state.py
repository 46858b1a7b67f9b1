"""A KIP-848 group: its state is folded from records, except deadlines.

A group has three epochs. The group epoch rises with every change of members, subscriptions or
topics; the target epoch says for which group epoch the target was computed; a member's epoch says
which target it has reached.

Computing a target takes time in proportion to the size of the group. In a small group every change
computes one. In a large group changes are collected for a while, and their heartbeats wait for one
target that covers all of them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.coordination.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Subscriber
from ottla.coordination.groups.keys import (
    ConsumerGroupKey,
    CurrentAssignmentKey,
    MemberKey,
    PartitionMetadataKey,
    RegexKey,
    TargetEpochKey,
    TargetMemberKey,
)
from ottla.coordination.groups.reconcile import STABLE, UNREVOKED
from ottla.coordination.groups.records import (
    ConsumerGroupValue,
    CurrentAssignmentValue,
    MemberValue,
    RegexValue,
    TargetEpochValue,
    TargetMemberValue,
)
from ottla.coordination.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from ottla.coordination.groups.config import ConsumerSettings, GroupConfig
    from ottla.coordination.groups.partitions import Partitions, TopicPartition
    from ottla.coordination.groups.records import Record
    from ottla.coordination.groups.topics import TopicsImage
    from ottla.coordination.groups.turn import Turn

LEFT_FOR_NOW = -2
"""The epoch of a static member that left temporarily; it keeps its partitions for a session."""

NOTHING_YET = CurrentAssignmentValue(0, 0, STABLE, frozenset(), frozenset())

TimerKey: TypeAlias = tuple[str, str]
TARGET: TimerKey = ("target", "")

Subscription: TypeAlias = "tuple[tuple[str, ...], str | None]"
"""Topic names and regular expression; many members have the same."""


class Waiting(NamedTuple):
    """A heartbeat that changed the group and waits for the target of that change."""

    member_id: str
    topics: TopicsImage
    answer: Callable[[Turn], None]
    refuse: Callable[[Turn], None]
    """Replies with an error: the member left or sent a newer heartbeat."""


def subscription(member: MemberValue) -> Subscription:
    return member.topic_names, member.regex


def session(member_id: str) -> TimerKey:
    return ("session", member_id)


def revocation(member_id: str) -> TimerKey:
    return ("revocation", member_id)


class ConsumerGroup:
    kind: Final = "consumer"
    protocol_type: Final = "consumer"

    def __init__(self, group_id: str, config: GroupConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.stored: ConsumerGroupValue | None = None
        self.target_epoch = 0
        self.members: dict[str, MemberValue] = {}
        self.targets: dict[str, Partitions] = {}
        self.current: dict[str, CurrentAssignmentValue] = {}
        self.regexes: dict[str, RegexValue] = {}
        self.static: dict[str, str] = {}
        self.subscriptions: Counter[Subscription] = Counter()
        self.owners: dict[TopicPartition, str] = {}
        # Volatile state, lost in a restart.
        self.timers: Timers[TimerKey] = Timers()
        self.matched_ms: dict[str, int] = {}
        """When each expression was last matched; a missing one may be matched at once."""
        self.waiting: list[Waiting] = []
        self.retargeted_ms: int | None = None
        self.seen_topics: TopicsImage | None = None
        """The last snapshot compared with the subscriptions; most heartbeats have the same one."""

    # The durable part

    def apply(self, record: Record) -> None:
        match record:
            case (ConsumerGroupKey(), ConsumerGroupValue() as value):
                self.stored = value
            case (TargetEpochKey(), value):
                self.target_epoch = value.epoch if isinstance(value, TargetEpochValue) else 0
            case (TargetMemberKey(_, member_id), TargetMemberValue(partitions)):
                self.targets[member_id] = partitions
            case (TargetMemberKey(_, member_id), _):
                self.targets.pop(member_id, None)
            case (RegexKey(_, regex), RegexValue() as value):
                self.regexes[regex] = value
            case (RegexKey(_, regex), _):
                self.regexes.pop(regex, None)
                self.matched_ms.pop(regex, None)
            case (MemberKey(_, member_id), value):
                self._apply_member(member_id, value if isinstance(value, MemberValue) else None)
            case (CurrentAssignmentKey(_, member_id), value):
                given = value if isinstance(value, CurrentAssignmentValue) else None
                self._apply_current(member_id, given)

    def _apply_member(self, member_id: str, value: MemberValue | None) -> None:
        old = self.members.pop(member_id, None)
        if old is not None:
            self.subscriptions[subscription(old)] -= 1
            if not self.subscriptions[subscription(old)]:
                del self.subscriptions[subscription(old)]
            if self.static.get(old.instance_id or "") == member_id:
                del self.static[old.instance_id or ""]
        if value is not None:
            self.members[member_id] = value
            self.subscriptions[subscription(value)] += 1
            if value.instance_id is not None:
                self.static[value.instance_id] = member_id

    def _apply_current(self, member_id: str, value: CurrentAssignmentValue | None) -> None:
        old = self.current.pop(member_id, NOTHING_YET)
        for partition in old.assigned | old.pending_revocation:
            if self.owners.get(partition) == member_id:
                del self.owners[partition]
        if value is not None:
            self.current[member_id] = value
            for partition in value.assigned | value.pending_revocation:
                self.owners[partition] = member_id

    def restore(self, now_ms: int) -> None:
        for member_id in self.members:
            self.touch(member_id, now_ms)
            self.watch_revocation(member_id, now_ms)

    # Questions

    @property
    def epoch(self) -> int:
        return 0 if self.stored is None else self.stored.epoch

    @property
    def metadata_hash(self) -> int:
        return 0 if self.stored is None else self.stored.metadata_hash

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        for member_id in self.members:
            current = self.current.get(member_id, NOTHING_YET)
            if current.state != STABLE or current.member_epoch != self.target_epoch:
                return "Reconciling"
        return "Stable"

    @property
    def assignor(self) -> str:
        """The assignor that most members prefer."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor)
        return min(votes, key=lambda name: (-votes[name], name), default=DEFAULT_ASSIGNOR)

    def _names(self, subscribed: Subscription) -> frozenset[str]:
        names, regex = subscribed
        matched = self.regexes.get(regex or "")
        return frozenset((*names, *(matched.topics if matched else ())))

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*map(self._names, self.subscriptions))

    def may_match(self, regex: str, now_ms: int) -> bool:
        """Whether an expression may be matched again."""
        last_ms = self.matched_ms.get(regex)
        return last_ms is None or now_ms - last_ms >= self.config.regex_refresh_interval_ms

    def is_free_for(self, member_id: str, partition: TopicPartition) -> bool:
        return self.owners.get(partition, member_id) == member_id

    # Changes, as records

    def next_target_ms(self, topics: TopicsImage) -> int:
        """The earliest time for the next target."""
        if self.retargeted_ms is None:
            return 0
        by_name = topics.topics_by_name
        known = (by_name[name] for name in self.subscribed_topics() if name in by_name)
        size = len(self.members) + sum(topic.partitions for topic in known)
        if size <= self.config.consumer_assign_at_once:
            return 0
        return self.retargeted_ms + size // self.config.consumer_assign_per_ms

    def wait_for_target(self, waiting: Waiting, due_ms: int) -> None:
        self.waiting.append(waiting)
        self.timers.set(TARGET, due_ms)

    def retarget(self, topics: TopicsImage, turn: Turn) -> None:
        """Compute the target for the group epoch, and answer waiting heartbeats."""
        self.retargeted_ms = turn.now_ms
        self.timers.cancel(TARGET)
        topic_ids = {
            subscribed: self._topic_ids(subscribed, topics) for subscribed in self.subscriptions
        }
        subscribers = {
            member_id: Subscriber(
                topic_ids[subscription(member)],
                self.targets.get(member_id, frozenset()),
                member.instance_id,
            )
            for member_id, member in self.members.items()
        }
        read = frozenset().union(*topic_ids.values())
        counts = {topic_id: topics.topics_by_id[topic_id].partitions for topic_id in sorted(read)}
        for member_id, target in ASSIGNORS[self.assignor](subscribers, counts).items():
            if self.targets.get(member_id) != target:
                turn.emit(TargetMemberKey(self.group_id, member_id), TargetMemberValue(target))
        turn.emit(TargetEpochKey(self.group_id), TargetEpochValue(self.epoch))
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            one.answer(turn)

    def _topic_ids(self, subscribed: Subscription, topics: TopicsImage) -> frozenset[UUID]:
        by_name = topics.topics_by_name
        names = self._names(subscribed)
        return frozenset(by_name[name].topic_id for name in names if name in by_name)

    def overtake(self, member_id: str, turn: Turn) -> bool:
        """Refuse the waiting heartbeats of a member; returns whether there were any.

        If an old heartbeat were answered after a newer one, it would return outdated partitions.
        """
        overtaken = [one for one in self.waiting if one.member_id == member_id]
        if overtaken:
            self.waiting = [one for one in self.waiting if one.member_id != member_id]
            for one in overtaken:
                one.refuse(turn)
        return bool(overtaken)

    def bump(self, turn: Turn, metadata_hash: int) -> None:
        value = ConsumerGroupValue(self.epoch + 1, metadata_hash)
        turn.emit(ConsumerGroupKey(self.group_id), value)

    def remove(self, member_id: str, turn: Turn) -> None:
        """Remove a member; the next heartbeat of another one computes the new target."""
        self.forget(member_id, turn)
        self.bump(turn, self.metadata_hash)

    def forget(self, member_id: str, turn: Turn) -> None:
        self.seen_topics = None
        regex = self.members[member_id].regex
        turn.emit(CurrentAssignmentKey(self.group_id, member_id), None)
        turn.emit(TargetMemberKey(self.group_id, member_id), None)
        turn.emit(MemberKey(self.group_id, member_id), None)
        self.drop_unused_regex(regex, turn)
        self.timers.cancel(session(member_id))
        self.timers.cancel(revocation(member_id))
        self.overtake(member_id, turn)

    def drop_unused_regex(self, regex: str | None, turn: Turn) -> None:
        used = any(member.regex == regex for member in self.members.values())
        if regex in self.regexes and not used:
            turn.emit(RegexKey(self.group_id, regex or ""), None)

    def end(self, turn: Turn) -> None:
        """The tombstones of an empty group; older releases may have written a record of type 4."""
        turn.emit(TargetEpochKey(self.group_id), None)
        turn.emit(PartitionMetadataKey(self.group_id), None)
        turn.emit(ConsumerGroupKey(self.group_id), None)

    # Time

    def touch(self, member_id: str, now_ms: int, settings: ConsumerSettings | None = None) -> None:
        timeout_ms = (settings or self.config.consumer).session_timeout_ms
        self.timers.set(session(member_id), now_ms + timeout_ms)

    def watch_revocation(self, member_id: str, now_ms: int) -> None:
        """Start the rebalance timeout in which the member must give up partitions."""
        if self.current.get(member_id, NOTHING_YET).state == UNREVOKED:
            timeout_ms = self.members[member_id].rebalance_timeout_ms
            self.timers.set(revocation(member_id), now_ms + timeout_ms)
        else:
            self.timers.cancel(revocation(member_id))

    def tick(self, turn: Turn) -> None:
        """Fence a member whose session expired, or that did not revoke its partitions in time."""
        while (key := self.timers.pop_due(turn.now_ms)) is not None:
            if key != TARGET:
                self.remove(key[1], turn)
            elif self.waiting:
                self.retarget(self.waiting[-1].topics, turn)
