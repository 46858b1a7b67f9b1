"""The share coordinator: the durable state of the share-partitions in one state partition.

Rules:

- A share-partition begins with Initialize, whose snapshot replaces everything before it. Until then
  it can be neither read nor written (42), only summarized and deleted. An Initialize without a
  start that has been stored with its epoch changes nothing: a group's coordinator that starts over
  asks again, and its predecessor's request may still be on its way.
- The state epoch fences: an Initialize or Write with a lower one than stored is refused (124).
- The leader epoch fences: a Read or Write with a lower one than was ever stored is refused (74).
  Only Read stores it. A Write with -1 as an epoch is not checked for it.
- A write is stored as an update; after `updates_per_snapshot` updates the next write is stored as a
  whole snapshot.
- An old snapshot is written again unchanged ("cold"), so that the log before it can be pruned.
  `index` tells up to which offset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import UUID

from ottla.coordination.machine import Decision, Refused
from ottla.coordination.share_state.batches import NO_OFFSET, combine, is_valid
from ottla.coordination.share_state.messages import (
    NO_EPOCH,
    DeleteState,
    DropTopics,
    InitializeState,
    ReadState,
    ReadStateResponse,
    ReadStateSummary,
    StateResponse,
    StateSummaryResponse,
    WriteState,
)
from ottla.coordination.share_state.records import (
    UNKNOWN_COUNT,
    Snapshot,
    StateRecord,
    Update,
    decode,
)
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Now
    from ottla.coordination.groups.topics import TopicsImage
    from ottla.coordination.machine import Token
    from ottla.coordination.share_state.messages import StateReply, StateRequest
    from ottla.coordination.share_state.records import ShareKey, Value

_Decision: TypeAlias = "Decision[StateRecord, StateReply]"

NULL_TOPIC_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class ShareStateConfig:
    """Each field is followed by Kafka's name for it, below `share.coordinator.`"""

    updates_per_snapshot: int = 500
    """snapshot.update.records.per.snapshot; 0 makes every write a snapshot"""
    cold_snapshot_interval_ms: int = 300_000
    """cold.partition.snapshot.interval.ms"""


class ShareState(NamedTuple):
    """The state of a share-partition."""

    snapshot: Snapshot
    """The last snapshot with all updates since folded into it."""
    updates: int = 0
    """Number of updates since that snapshot."""
    leader_fence: int = NO_EPOCH
    """The highest leader epoch ever stored; Initialize does not lower it."""


def fold(snapshot: Snapshot, update: Update) -> Snapshot:
    """The snapshot after an update."""
    moved = update.start_offset != NO_OFFSET
    start = update.start_offset if moved else snapshot.start_offset
    led = update.leader_epoch != NO_EPOCH
    return replace(
        snapshot,
        leader_epoch=update.leader_epoch if led else snapshot.leader_epoch,
        start_offset=start,
        batches=combine(snapshot.batches, update.batches, start),
        delivery_complete_count=update.delivery_complete_count,
    )


class ShareStateMachine:
    """The state machine of one partition of `__share_group_state`."""

    def __init__(self, config: ShareStateConfig) -> None:
        self.config = config
        self.states: dict[ShareKey, ShareState] = {}
        self._cold_check_ms: int | None = None
        self._handlers: dict[type, tuple[Callable[..., StateReply], Callable[..., StateReply]]] = {
            InitializeState: (self._initialize, StateResponse),
            ReadState: (self._read, ReadStateResponse),
            WriteState: (self._write, StateResponse),
            DeleteState: (self._delete, StateResponse),
            ReadStateSummary: (self._summary, StateSummaryResponse),
            DropTopics: (self._drop, StateResponse),
        }

    # Called by the runtime

    def replay(self, key: bytes, value: bytes | None) -> None:
        if (record := decode(key, value)) is not None:
            self.apply(record)

    def loaded(self, now: Now) -> None:
        self._cold_check_ms = now.ms + self.config.cold_snapshot_interval_ms

    def decide(self, request: StateRequest, token: Token, now: Now) -> _Decision:
        decision: _Decision = Decision()
        handler, answer = self._handlers[type(request)]
        try:
            reply = handler(request, now.wall_ms, decision)
        except Refused as refusal:
            reply = answer(refusal.error, refusal.message)
        decision.reply(token, reply)
        return decision

    def tick(self, now: Now) -> _Decision:
        decision: _Decision = Decision()
        if self._cold_check_ms is not None and now.ms >= self._cold_check_ms:
            self._cold_check_ms = now.ms + self.config.cold_snapshot_interval_ms
            self._write_cold(now.wall_ms, decision)
        return decision

    def next_deadline(self) -> int | None:
        return self._cold_check_ms

    def encode(self, record: StateRecord) -> tuple[bytes, bytes | None]:
        return record.encode()

    def apply(self, record: StateRecord) -> None:
        key, value = record
        old = self.states.get(key)
        if value is None:
            self.states.pop(key, None)
        elif isinstance(value, Snapshot):
            fence = value.leader_epoch if old is None else max(old.leader_fence, value.leader_epoch)
            self.states[key] = ShareState(value, 0, fence)
        elif old is not None:
            snapshot = fold(old.snapshot, value)
            fence = max(old.leader_fence, snapshot.leader_epoch)
            self.states[key] = ShareState(snapshot, old.updates + 1, fence)

    def _emit(self, key: ShareKey, value: Value | None, decision: _Decision) -> None:
        record = StateRecord(key, value)
        self.apply(record)
        decision.records.append(record)

    # The five requests

    def _initialize(
        self, request: InitializeState, wall_ms: int, decision: _Decision
    ) -> StateReply:
        _check_exists(request.key, request.topics)
        old = self.states.get(request.key)
        if old is not None and old.snapshot.state_epoch > request.state_epoch:
            raise _fenced_state(old, request.state_epoch)
        if (
            old is not None
            and old.snapshot.state_epoch == request.state_epoch
            and request.start_offset == NO_OFFSET
        ):
            return StateResponse()
        snapshot = Snapshot(
            0 if old is None else old.snapshot.snapshot_epoch + 1,
            request.state_epoch,
            NO_EPOCH,
            request.start_offset,
            wall_ms,
            wall_ms,
            (),
            UNKNOWN_COUNT if request.start_offset == NO_OFFSET else 0,
        )
        self._emit(request.key, snapshot, decision)
        return StateResponse()

    def _read(self, request: ReadState, wall_ms: int, decision: _Decision) -> StateReply:
        _check_exists(request.key, request.topics)
        state = self._known(request.key)
        if state.leader_fence > request.leader_epoch:
            raise _fenced_leader(state, request.leader_epoch)
        snapshot = state.snapshot
        if request.leader_epoch not in (NO_EPOCH, snapshot.leader_epoch):
            update = Update(
                snapshot.snapshot_epoch,
                request.leader_epoch,
                NO_OFFSET,
                (),
                snapshot.delivery_complete_count,
            )
            self._store(request.key, update, wall_ms, decision)
        return ReadStateResponse(
            state_epoch=snapshot.state_epoch,
            start_offset=snapshot.start_offset,
            batches=snapshot.batches,
        )

    def _write(self, request: WriteState, wall_ms: int, decision: _Decision) -> StateReply:
        _check_exists(request.key, request.topics)
        state = self._known(request.key)
        if request.leader_epoch != NO_EPOCH and state.leader_fence > request.leader_epoch:
            raise _fenced_leader(state, request.leader_epoch)
        if request.state_epoch != NO_EPOCH and state.snapshot.state_epoch > request.state_epoch:
            raise _fenced_state(state, request.state_epoch)
        for batch in request.batches:
            if not is_valid(batch):
                raise Refused(ErrorCode.INVALID_REQUEST, f"no range of offsets: {batch}")
        update = Update(
            state.snapshot.snapshot_epoch,
            state.snapshot.leader_epoch,
            request.start_offset,
            combine((), request.batches, request.start_offset),
            request.delivery_complete_count,
        )
        self._store(request.key, update, wall_ms, decision)
        return StateResponse()

    def _delete(self, request: DeleteState, _wall_ms: int, decision: _Decision) -> StateReply:
        _check_key(request.key)
        if request.key in self.states:
            self._emit(request.key, None, decision)
        return StateResponse()

    def _summary(
        self, request: ReadStateSummary, _wall_ms: int, _decision: _Decision
    ) -> StateReply:
        _check_exists(request.key, request.topics)
        state = self.states.get(request.key)
        if state is None:
            return StateSummaryResponse()
        snapshot = state.snapshot
        return StateSummaryResponse(
            state_epoch=snapshot.state_epoch,
            leader_epoch=snapshot.leader_epoch,
            start_offset=snapshot.start_offset,
            delivery_complete_count=snapshot.delivery_complete_count,
        )

    def _drop(self, request: DropTopics, _wall_ms: int, decision: _Decision) -> StateReply:
        for key in [key for key in self.states if key.topic_id in request.topic_ids]:
            self._emit(key, None, decision)
        return StateResponse()

    # Snapshots

    def _known(self, key: ShareKey) -> ShareState:
        if (state := self.states.get(key)) is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{key} is not initialized")
        return state

    def _store(
        self,
        key: ShareKey,
        update: Update,
        wall_ms: int,
        decision: _Decision,
    ) -> None:
        state = self.states[key]
        if state.updates < self.config.updates_per_snapshot:
            self._emit(key, update, decision)
            return
        snapshot = replace(
            fold(state.snapshot, update),
            snapshot_epoch=state.snapshot.snapshot_epoch + 1,
            create_ms=wall_ms,
            write_ms=wall_ms,
        )
        self._emit(key, snapshot, decision)

    def _write_cold(self, wall_ms: int, decision: _Decision) -> None:
        """Write old snapshots again, unless all are repeats and nothing could be pruned."""
        snapshots = {key: state.snapshot for key, state in self.states.items()}
        if all(snapshot.create_ms != snapshot.write_ms for snapshot in snapshots.values()):
            return
        for key, snapshot in snapshots.items():
            # A snapshot from the future was written before the wall clock was set back: it counts
            # as old.
            if not 0 <= wall_ms - snapshot.write_ms < self.config.cold_snapshot_interval_ms:
                epoch = snapshot.snapshot_epoch + 1
                cold = replace(snapshot, snapshot_epoch=epoch, write_ms=wall_ms)
                self._emit(key, cold, decision)


def _check_key(key: ShareKey) -> None:
    if key.topic_id == NULL_TOPIC_ID or key.partition < 0:
        raise Refused(ErrorCode.INVALID_REQUEST, f"no share-partition: {key}")


def _check_exists(key: ShareKey, topics: TopicsImage) -> None:
    _check_key(key)
    topic = topics.topics_by_id.get(key.topic_id)
    if topic is None or key.partition >= topic.partitions:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no such partition: {key}")


def _fenced_state(state: ShareState, epoch: int) -> Refused:
    stored = state.snapshot.state_epoch
    return Refused(ErrorCode.FENCED_STATE_EPOCH, f"state epoch {epoch} is below {stored}")


def _fenced_leader(state: ShareState, epoch: int) -> Refused:
    fence = state.leader_fence
    return Refused(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {epoch} is below {fence}")
