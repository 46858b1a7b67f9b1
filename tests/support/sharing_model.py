"""A share partition that keeps every offset by itself, and a persister that does: slow and plain.

Both say the same things as the real ones, so that a test can ask both and compare.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from ottla.sharing.values import (
    TERMINAL,
    AcknowledgeType,
    AcquireMode,
    DeliverySettings,
    PersistedState,
    RecordState,
    ShareError,
)
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.sharing.partition import SharePartition
    from ottla.sharing.values import Ack, FetchTurn, LogBatch, Write

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED


@dataclass
class Record:
    batch: tuple[int, int]
    state: RecordState = AVAILABLE
    count: int = 0
    owner: str | None = None
    deadline: int = 0
    target: RecordState | None = None
    write: int = 0

    def view(self) -> tuple[object, ...]:
        """What can be compared: a settled record is no more than its state."""
        if self.state in TERMINAL:
            return (self.state,)
        if self.state is AVAILABLE:
            return self.state, self.count
        return self.state, self.count, self.owner, self.deadline, self.target


@dataclass
class Store:
    """What a persister keeps of one share partition, by offset."""

    start: int = 0
    records: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Delivery count and state; of two for one offset the higher stands."""

    def apply(self, write: Write) -> None:
        self.start = write.start_offset
        for first, last, state, count in write.batches:
            for offset in range(first, last + 1):
                self.records[offset] = max(self.records.get(offset, (0, 0)), (count, state))
        self.records = {at: kept for at, kept in self.records.items() if at >= self.start}

    def persisted(self) -> PersistedState:
        batches = [
            (first, last, state, count)
            for first, last, (count, state) in ranges_of(sorted(self.records.items()))
        ]
        return PersistedState(0, self.start, batches)


def ranges_of(
    values: Iterable[tuple[int, tuple[int, int]]],
) -> Iterable[tuple[int, int, tuple[int, int]]]:
    """(offset, value) as (first, last, value) of neighbours that agree."""
    numbered = enumerate(values)
    for (value, _), group in groupby(
        numbered, key=lambda entry: (entry[1][1], entry[1][0] - entry[0])
    ):
        offsets = [offset for _, (offset, _) in group]
        yield offsets[0], offsets[-1], value


@dataclass
class ModelPartition:
    settings: DeliverySettings
    start: int = 0
    end: int = 0
    records: dict[int, Record] = field(default_factory=dict)
    writes: int = 0

    @classmethod
    def loaded(cls, settings: DeliverySettings, persisted: PersistedState) -> ModelPartition:
        model = cls(settings, persisted.start_offset, persisted.start_offset)
        for first, last, state, count in persisted.batches:
            model._add(model.end, first - 1, Record((model.end, first - 1)))
            model._add(first, last, Record((first, last), RecordState(state), count))
        model._advance()
        return model

    def next_fetch_offset(self) -> int:
        return min((at for at, r in self.records.items() if r.state is AVAILABLE), default=self.end)

    def next_deadline(self) -> int | None:
        locked = [r for r in self.records.values() if r.state is ACQUIRED and r.target is None]
        return min((record.deadline for record in locked), default=None)

    def complete(self) -> int:
        return sum(r.state in TERMINAL or r.target in TERMINAL for r in self.records.values())

    def acquire(
        self, turn: FetchTurn, fetch_offset: int, batches: Sequence[LogBatch], now: int
    ) -> list[tuple[int, int, int]]:
        if turn.max_records <= 0 or not batches:
            return []
        low, high = min(fetch_offset, batches[0].first_offset), batches[-1].last_offset
        data = {
            offset
            for batch in batches
            if batch.has_data
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        for offset in range(low, high + 1):
            record = self.records.get(offset)
            if record is not None and record.state is AVAILABLE and offset not in data:
                record.state = ARCHIVED
        taken: dict[int, int] = {}
        stop = self._redeliver(turn, low, high, now, taken)
        size = self.end - self.start
        if not stop and len(taken) < turn.max_records and size < self.settings.max_record_locks:
            self._grow(turn, batches, data, now, taken)
        # A range never spans two in-flight batches.
        found = sorted(taken.items())
        result = [
            (first, last, count)
            for _, group in groupby(found, key=lambda entry: self.records[entry[0]].batch)
            for first, last, (count, _) in ranges_of((at, (count, 0)) for at, count in group)
        ]
        self._advance()
        return result

    def _take(self, offset: int, turn: FetchTurn, now: int, taken: dict[int, int]) -> None:
        record = self.records[offset]
        record.state, record.owner = ACQUIRED, turn.member
        record.count += 1
        record.deadline = now + self.settings.lock_duration_ms
        taken[offset] = record.count

    def _redeliver(
        self, turn: FetchTurn, low: int, high: int, now: int, taken: dict[int, int]
    ) -> bool:
        limit = self.settings.delivery_count_limit
        threshold = max(2, -(-limit // 2))
        available = [
            offset
            for offset in sorted(self.records)
            if low <= offset <= high and self.records[offset].state is AVAILABLE
        ]
        for batch, group in groupby(available, key=lambda at: self.records[at].batch):
            offsets = list(group)
            if max(self.records[offset].count for offset in offsets) >= threshold:
                if not taken:
                    self._isolate(turn, offsets, threshold, now, taken)
                return True
            alike = len({self.records[offset].count for offset in offsets}) == 1
            whole = alike and batch[1] - max(batch[0], self.start) + 1 == len(offsets)
            for offset in offsets:
                if len(taken) < turn.max_records or (
                    whole and turn.mode is AcquireMode.BATCH_OPTIMIZED
                ):
                    self._take(offset, turn, now, taken)
            if len(taken) >= turn.max_records:
                break
        return False

    def _isolate(
        self, turn: FetchTurn, offsets: list[int], threshold: int, now: int, taken: dict[int, int]
    ) -> None:
        limit = self.settings.delivery_count_limit
        cap = turn.max_records
        suspected = False
        for offset in offsets:
            record = self.records[offset]
            if limit > 2 and record.count >= limit - 1:
                if not taken:
                    self._take(offset, turn, now, taken)
                return
            if record.count >= threshold and not suspected:
                suspected = True
                size = record.batch[1] - record.batch[0] + 1
                cap = min(cap, max(1, size // 2 ** (record.count - threshold + 1)))
            if len(taken) >= cap:
                return
            self._take(offset, turn, now, taken)

    def _grow(
        self,
        turn: FetchTurn,
        batches: Sequence[LogBatch],
        data: set[int],
        now: int,
        taken: dict[int, int],
    ) -> None:
        strict = turn.mode is AcquireMode.RECORD_LIMIT
        stop = self.start + self.settings.max_record_locks
        high = batches[-1].last_offset
        first = self.end
        while self.end <= high:
            offset = self.end
            if offset >= stop or (offset in data and len(taken) >= turn.max_records):
                break
            inside = [b.last_offset for b in batches if b.first_offset <= offset <= b.last_offset]
            after = [b.first_offset - 1 for b in batches if b.first_offset > offset]
            last = (inside or after)[0]
            for at in range(offset, last + 1):
                self.records[at] = Record((0, 0))
                if at not in data:
                    self.records[at].state = ARCHIVED
                elif not strict or (len(taken) < turn.max_records and at < stop):
                    self._take(at, turn, now, taken)
            self.end = last + 1
            if not strict and self.end - first >= turn.batch_size:
                self._batch(first)
                first = self.end
        self._batch(first)

    def _batch(self, first: int) -> None:
        for offset in range(first, self.end):
            self.records[offset].batch = first, self.end - 1

    def acknowledge(self, member: str, acks: Sequence[Ack], now: int) -> list[int]:
        """The offsets now in transition."""
        before = copy.deepcopy(self.records)
        named: set[int] = set()
        try:
            changed = [at for ack in acks for at in self._acknowledge(member, ack, now, named)]
        except ShareError:
            self.records = before
            raise
        self.writes += bool(changed)
        return changed

    def _acknowledge(self, member: str, ack: Ack, now: int, named: set[int]) -> Iterable[int]:
        if ack.last_offset >= max(self.end, self.start):
            raise ShareError(ErrorCode.INVALID_REQUEST)
        for offset in range(max(ack.first_offset, self.start), ack.last_offset + 1):
            record = self.records[offset]
            if record.state is not ACQUIRED or record.target is not None or record.owner != member:
                raise ShareError(ErrorCode.INVALID_RECORD_STATE)
            if offset in named:
                raise ShareError(ErrorCode.INVALID_RECORD_STATE)
            named.add(offset)
            if ack.type is AcknowledgeType.RENEW:
                if not self.settings.renew_enabled:
                    raise ShareError(ErrorCode.INVALID_RECORD_STATE)
                record.deadline = now + self.settings.lock_duration_ms
                continue
            record.write = self.writes + 1
            match ack.type:
                case AcknowledgeType.ACCEPT:
                    record.target = ACKNOWLEDGED
                case AcknowledgeType.RELEASE if ack.is_uncounted:
                    record.target = AVAILABLE
                    record.count -= 1
                case AcknowledgeType.RELEASE:
                    record.target = self._released(record)
                case _:
                    record.target = ARCHIVED
            yield offset

    def _released(self, record: Record) -> RecordState:
        return ARCHIVED if record.count >= self.settings.delivery_count_limit else AVAILABLE

    def release(self, member: str, now: int) -> list[int]:
        for record in self.records.values():
            if record.owner == member and record.state is ACQUIRED:
                record.deadline = now
        return self.tick(now)

    def tick(self, now: int) -> list[int]:
        ended = [
            offset
            for offset, record in sorted(self.records.items())
            if record.state is ACQUIRED and record.target is None and record.deadline <= now
        ]
        for offset in ended:
            record = self.records[offset]
            record.state, record.owner = self._released(record), None
        self.writes += bool(ended)
        return ended

    def write_succeeded(self, write: int) -> None:
        for record in self.records.values():
            if record.target is not None and record.write == write:
                record.state, record.target, record.owner = record.target, None, None
        self._advance()

    def write_failed(self, write: int, now: int) -> list[int]:
        for record in self.records.values():
            if record.target is not None and record.write == write:
                record.target = None
        return self.tick(now)

    def log_start_moved(self, offset: int) -> None:
        if offset > self.start:
            self.start = offset
            self.end = max(self.end, offset)
            self._advance()

    def advance(self) -> None:
        self._advance()

    def _add(self, first: int, last: int, like: Record) -> None:
        for offset in range(first, last + 1):
            self.records[offset] = copy.copy(like)
        self.end = max(self.end, last + 1)

    def _advance(self) -> None:
        while self.start < self.end and self.records[self.start].state in TERMINAL:
            self.start += 1
        self.records = {at: r for at, r in self.records.items() if at >= self.start}


def offsets_of(partition: SharePartition) -> dict[int, Record]:
    """A machine's window, offset by offset."""
    return {
        offset: Record((run.batch.first, run.batch.last), *run.condition)
        for run in partition.runs()
        for offset in range(run.first, run.last + 1)
    }
