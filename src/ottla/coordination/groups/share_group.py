"""A share group: its state is folded from records, except deadlines and open requests.

It has three epochs, as a consumer group has. Members never revoke partitions first, because a
partition may have several members: each gets its target at once.

The group also records where it has state at the share coordinator, see `ShareStatePartitionsValue`.
Rules:

- A partition can be assigned once it is initialized. For other subscribed partitions the group
  requests initialization, again with the next heartbeat if the request failed, timed out or was
  lost in a restart. Until it succeeds the partition counts as one that may have state.
- A report counts only for an open request: the latest to initialize a partition, the first to
  delete the state of a topic.
- State outlives subscriptions: it ends only if offsets, the group or the topic are deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.coordination.groups.keys import (
    ShareCurrentAssignmentKey,
    ShareGroupKey,
    ShareMemberKey,
    ShareStatePartitionsKey,
    ShareTargetEpochKey,
    ShareTargetMemberKey,
)
from ottla.coordination.groups.records import TargetEpochValue, TargetMemberValue
from ottla.coordination.groups.share_assignor import ShareReader, assign_simple
from ottla.coordination.groups.share_effects import (
    DeleteShareState,
    InitializeShareState,
    Outcome,
    error_of,
)
from ottla.coordination.groups.share_records import (
    ShareCurrentAssignmentValue,
    ShareGroupValue,
    ShareMemberValue,
    ShareStatePartitionsValue,
)
from ottla.coordination.groups.topics import metadata_hash
from ottla.coordination.timers import Timers
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from ottla.coordination.groups.config import GroupConfig, ShareSettings
    from ottla.coordination.groups.partitions import Partitions, TopicPartition
    from ottla.coordination.groups.records import Record
    from ottla.coordination.groups.topics import TopicsImage
    from ottla.coordination.groups.turn import Turn

NOTHING_YET = ShareCurrentAssignmentValue(0, 0, frozenset())
NO_STATE = ShareStatePartitionsValue()


class Attempt(NamedTuple):
    """The latest request for a partition; `effect` is None after a failure or a restart."""

    effect: InitializeShareState | None
    retry_ms: int


class ShareGroup:
    kind: Final = "share"
    protocol_type: Final = "share"

    def __init__(self, group_id: str, config: GroupConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.stored: ShareGroupValue | None = None
        self.target_epoch = 0
        self.members: dict[str, ShareMemberValue] = {}
        self.targets: dict[str, Partitions] = {}
        self.current: dict[str, ShareCurrentAssignmentValue] = {}
        self.states = NO_STATE
        # Volatile state, lost in a restart.
        self.timers: Timers[str] = Timers()
        self.attempts: dict[TopicPartition, Attempt] = {}
        self.deletes: dict[UUID, DeleteShareState] = {}
        self.retargeted_ms: int | None = None
        self.seen_topics: TopicsImage | None = None
        """The last topics compared with members and state; most heartbeats have the same ones."""
        self.wanted: Partitions = frozenset()
        """All partitions of the subscribed topics in that snapshot."""

    # The durable part

    def apply(self, record: Record) -> None:
        match record:
            case (ShareGroupKey(), ShareGroupValue() as value):
                self.stored = value
            case (ShareTargetEpochKey(), value):
                self.target_epoch = value.epoch if isinstance(value, TargetEpochValue) else 0
            case (ShareTargetMemberKey(_, member_id), TargetMemberValue(partitions)):
                self.targets[member_id] = partitions
            case (ShareTargetMemberKey(_, member_id), _):
                self.targets.pop(member_id, None)
            case (ShareMemberKey(_, member_id), ShareMemberValue() as value):
                self.members[member_id] = value
            case (ShareMemberKey(_, member_id), _):
                self.members.pop(member_id, None)
            case (ShareCurrentAssignmentKey(_, member_id), ShareCurrentAssignmentValue() as value):
                self.current[member_id] = value
            case (ShareCurrentAssignmentKey(_, member_id), _):
                self.current.pop(member_id, None)
            case (ShareStatePartitionsKey(), ShareStatePartitionsValue() as value):
                self._apply_states(value)
            case (ShareStatePartitionsKey(), _):
                self._apply_states(NO_STATE)

    def _apply_states(self, value: ShareStatePartitionsValue) -> None:
        self.states = value
        self.seen_topics = None
        self.attempts = {p: a for p, a in self.attempts.items() if p in value.initializing}
        self.deletes = {t: effect for t, effect in self.deletes.items() if t in value.deleting}

    def restore(self, now_ms: int) -> None:
        for member_id in self.members:
            self.touch(member_id, now_ms, self.config.share)

    # Questions

    @property
    def epoch(self) -> int:
        return 0 if self.stored is None else self.stored.epoch

    @property
    def metadata_hash(self) -> int:
        return 0 if self.stored is None else self.stored.metadata_hash

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*(member.topic_names for member in self.members.values()))

    def assignable(self) -> Partitions:
        return self.wanted & self.states.initialized

    # Membership, as records

    def bump(self, turn: Turn, new_hash: int) -> None:
        turn.emit(ShareGroupKey(self.group_id), ShareGroupValue(self.epoch + 1, new_hash))

    def follow(self, topics: TopicsImage, turn: Turn, *, changed: bool) -> None:
        """Raise the group epoch if members, topics or assignable partitions changed.

        If a new target is due anyway, only the hash is updated.
        """
        if topics is self.seen_topics and not changed:
            return
        self.seen_topics = topics
        names = self.subscribed_topics()
        self.wanted = frozenset(_partitions(topics, names))
        new_hash = metadata_hash(topics, names)
        assigned = frozenset().union(*self.targets.values())
        different = new_hash != self.metadata_hash or assigned != self.assignable()
        if changed or (different and self.epoch <= self.target_epoch):
            self.bump(turn, new_hash)
        elif new_hash != self.metadata_hash:
            turn.emit(ShareGroupKey(self.group_id), ShareGroupValue(self.epoch, new_hash))

    def retarget(self, topics: TopicsImage, interval_ms: int, turn: Turn) -> None:
        """Compute the target for the group epoch, unless the last one is too recent."""
        last_ms = self.retargeted_ms
        if self.epoch <= self.target_epoch:
            return
        if last_ms is not None and turn.now_ms < last_ms + interval_ms:
            return
        # An empty target is cheap; the first real one must not wait because of it.
        self.retargeted_ms = turn.now_ms if self.assignable() else None
        readers = {
            member_id: ShareReader(
                topic_ids(topics, member.topic_names), self.targets.get(member_id, frozenset())
            )
            for member_id, member in self.members.items()
        }
        for member_id, target in assign_simple(readers, self.assignable()).items():
            if self.targets.get(member_id) != target:
                turn.emit(ShareTargetMemberKey(self.group_id, member_id), TargetMemberValue(target))
        turn.emit(ShareTargetEpochKey(self.group_id), TargetEpochValue(self.epoch))

    def remove(self, member_id: str, turn: Turn) -> None:
        """Remove a member; the next heartbeat of another one computes the new target."""
        turn.emit(ShareCurrentAssignmentKey(self.group_id, member_id), None)
        turn.emit(ShareTargetMemberKey(self.group_id, member_id), None)
        turn.emit(ShareMemberKey(self.group_id, member_id), None)
        self.bump(turn, self.metadata_hash)
        self.timers.cancel(member_id)
        self.seen_topics = None

    def end(self, turn: Turn) -> None:
        """The tombstones of an empty group."""
        turn.emit(ShareTargetEpochKey(self.group_id), None)
        turn.emit(ShareStatePartitionsKey(self.group_id), None)
        turn.emit(ShareGroupKey(self.group_id), None)

    # State at the share coordinator, as records and effects

    def initialize_missing(self, topics: TopicsImage, turn: Turn) -> None:
        """Request state for subscribed partitions that have none and no pending request."""
        due = [
            partition
            for partition in self.wanted - self.states.initialized
            if partition not in self.attempts or self.attempts[partition].retry_ms <= turn.now_ms
        ]
        if due:
            self.initialize(dict.fromkeys(sorted(due), -1), topics, turn)

    def initialize(
        self, starts: Mapping[TopicPartition, int], topics: TopicsImage, turn: Turn
    ) -> InitializeShareState:
        """Request state; a partition with state keeps it if the request fails.

        A topic leaves `deleting` when each of its partitions is in another set.
        """
        effect = InitializeShareState(self.group_id, self.epoch, starts)
        fresh = starts.keys() - self.states.initialized
        initializing = self.states.initializing | fresh
        names = {topic_id: topics.topics_by_id[topic_id].name for topic_id, _ in starts}
        booked = initializing | self.states.initialized
        for topic_id in names:
            # A running delete ends before this request starts; its report is ignored.
            self.deletes.pop(topic_id, None)
        covered = {t for t, name in names.items() if booked.issuperset(_partitions(topics, [name]))}
        self._set_states(
            turn,
            initializing=initializing,
            deleting=self.states.deleting - covered,
            names=names,
        )
        retry_ms = turn.now_ms + self.config.share_initialize_retry_interval_ms
        self.attempts.update(dict.fromkeys(fresh, Attempt(effect, retry_ms)))
        turn.effect(effect)
        return effect

    def take_initialized(self, effect: InitializeShareState, outcome: Outcome, turn: Turn) -> None:
        """A failed request may have taken effect, so its partition stays recorded."""
        asked = frozenset(p for p, attempt in self.attempts.items() if attempt.effect is effect)
        done = frozenset(p for p in asked if error_of(outcome, p) is ErrorCode.NONE)
        self.attempts.update(dict.fromkeys(asked - done, Attempt(None, turn.now_ms)))
        self._set_states(
            turn,
            initializing=self.states.initializing - done,
            initialized=self.states.initialized | done,
        )

    def with_state(self, topics: TopicsImage) -> Partitions:
        """Partitions that have or may have state; all partitions of topics in `deleting`."""
        deleting = (topics.topics_by_id.get(topic_id) for topic_id in self.states.deleting)
        names = (topic.name for topic in deleting if topic is not None)
        left = frozenset(_partitions(topics, names))
        return self.states.initializing | self.states.initialized | left

    def delete(self, partitions: Partitions, turn: Turn) -> DeleteShareState:
        """Request deletion of all state of some topics."""
        effect = DeleteShareState(self.group_id, partitions)
        ended = {topic_id for topic_id, _ in partitions}
        self._set_states(
            turn,
            initializing=_without(self.states.initializing, ended),
            initialized=_without(self.states.initialized, ended),
            deleting=self.states.deleting | ended,
        )
        for topic_id in ended:
            self.deletes.setdefault(topic_id, effect)
        turn.effect(effect)
        return effect

    def take_deleted(self, effect: DeleteShareState, outcome: Outcome, turn: Turn) -> None:
        failed = {p[0] for p in effect.partitions if error_of(outcome, p) is not ErrorCode.NONE}
        asked = {topic_id for topic_id, first in self.deletes.items() if first is effect}
        for topic_id in asked & failed:
            del self.deletes[topic_id]
        self._set_states(turn, deleting=self.states.deleting - (asked - failed))

    def forget_topics(self, gone: frozenset[UUID], turn: Turn) -> None:
        self._set_states(
            turn,
            initializing=_without(self.states.initializing, gone),
            initialized=_without(self.states.initialized, gone),
            deleting=self.states.deleting - gone,
        )

    def _set_states(
        self,
        turn: Turn,
        *,
        initializing: Partitions | None = None,
        initialized: Partitions | None = None,
        deleting: frozenset[UUID] | None = None,
        names: Mapping[UUID, str] | None = None,
    ) -> None:
        """Store changed states; None: unchanged. `names` has the names of new topics."""
        old = self.states
        initializing = old.initializing if initializing is None else initializing
        initialized = old.initialized if initialized is None else initialized
        deleting = old.deleting if deleting is None else deleting
        known = {**(names or {}), **old.names}
        mentioned = {topic_id for topic_id, _ in initializing | initialized} | deleting
        value = ShareStatePartitionsValue(
            initializing,
            initialized,
            deleting,
            {topic_id: known[topic_id] for topic_id in mentioned},
        )
        if value != old:
            turn.emit(ShareStatePartitionsKey(self.group_id), value)

    # Time

    def touch(self, member_id: str, now_ms: int, settings: ShareSettings) -> None:
        self.timers.set(member_id, now_ms + settings.session_timeout_ms)

    def tick(self, turn: Turn) -> None:
        """Remove members whose session expired."""
        while (member_id := self.timers.pop_due(turn.now_ms)) is not None:
            self.remove(member_id, turn)


def topic_ids(topics: TopicsImage, names: Iterable[str]) -> frozenset[UUID]:
    """The ids of those topics that exist."""
    by_name = topics.topics_by_name
    return frozenset(by_name[name].topic_id for name in names if name in by_name)


def _partitions(topics: TopicsImage, names: Iterable[str]) -> Iterable[TopicPartition]:
    for name in names:
        if (topic := topics.topics_by_name.get(name)) is not None:
            yield from ((topic.topic_id, index) for index in range(topic.partitions))


def _without(partitions: Partitions, topics: frozenset[UUID] | set[UUID]) -> Partitions:
    return frozenset(partition for partition in partitions if partition[0] not in topics)
