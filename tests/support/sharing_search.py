"""A small world around a share partition, for searching all of its states.

Two members, a log of three offsets, a persister whose writes succeed, fail, or fail after they
arrived, time, crashes and deletions. Each move makes a new world; a world's `key` is what it is,
without the accidents of clocks, numbers and names, so that equal worlds are visited once.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ottla.sharing.partition import SharePartition
from ottla.sharing.values import (
    TERMINAL,
    Ack,
    AcknowledgeType,
    AcquireMode,
    DeliverySettings,
    FetchTurn,
    LogBatch,
    PersistedState,
    RecordState,
    Write,
)
from ottla.sharing.window import Window
from tests.support.sharing_model import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMBERS = ("a", "b")
ACKS = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)


@dataclass(frozen=True)
class Setting:
    """What is tried, and how many states that leads to."""

    name: str
    states: int
    log: tuple[LogBatch, ...]
    limit: int = 3
    window: int = 10
    lock: int = 1
    modes: tuple[tuple[AcquireMode, int], ...] = ((AcquireMode.BATCH_OPTIMIZED, 10),)
    """How members fetch: mode and most records."""
    acks: tuple[AcknowledgeType, ...] = ACKS
    whole: bool = False
    """Members acknowledge all they hold, not each record by itself."""
    writes: int = 1
    """How many may be under way."""
    failures: bool = True
    crashes: bool = True
    deletions: bool = False

    @cached_property
    def data(self) -> set[int]:
        """The offsets that have a record."""
        return {
            offset
            for batch in self.log
            if batch.has_data
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }

    @cached_property
    def share_settings(self) -> DeliverySettings:
        return DeliverySettings(self.lock, self.limit, self.window)


@dataclass
class World:
    setting: Setting
    partition: SharePartition
    store: Store
    now: int = 0
    incarnation: int = 0
    log_start: int = 0
    writes: tuple[tuple[Write, bool], ...] = ()
    """Under way, oldest first, and whether a consumer waits for it."""
    locks: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Who may believe to hold an offset, and until when; kept apart from the partition."""
    settled: frozenset[int] = frozenset()
    """Offsets whose consumer was told that they are accepted or rejected."""
    unsure: frozenset[int] = frozenset()
    """Offsets of which the store may know more or less than the partition."""

    @classmethod
    def begin(cls, setting: Setting) -> World:
        partition = SharePartition(setting.share_settings, PersistedState(0, 0))
        return cls(setting, partition, Store())

    def copy(self) -> World:
        return replace(
            self,
            partition=_twin(self.partition),
            store=Store(self.store.start, dict(self.store.records)),
            locks=dict(self.locks),
        )

    def key(self) -> tuple[object, ...]:
        order = {write.write_id: index for index, (write, _) in enumerate(self.writes)}
        names: dict[str | None, int] = {None: 0}
        runs = tuple(
            (
                *run[:2],
                *run.condition[:2],
                names.setdefault(run.condition.owner, len(names)),
                max(run.condition.deadline_ms - self.now, 0) if run.condition.owner else 0,
                run.condition.target,
                order.get(run.condition.write_id),
                run.batch,
            )
            for run in self.partition.runs()
        )
        return (
            self.partition.start_offset,
            self.partition.end_offset,
            runs,
            self.store.start,
            tuple(sorted(self.store.records.items())),
            tuple((write[2:], waits) for write, waits in map(_plain, self.writes)),
            self.log_start,
            self.settled,
            self.unsure,
        )

    def moves(self) -> Iterator[World]:
        for member in MEMBERS:
            for mode, records in self.setting.modes:
                yield self.copy()._fetch(member, mode, records)
        if len(self.writes) < self.setting.writes:
            yield from self._acknowledgements()
            for member in MEMBERS:
                yield self.copy()._release(member)
            yield self.copy()._wait()
        if self.writes:
            yield self.copy()._write_succeeds()
            if self.setting.failures:
                yield self.copy()._write_fails(arrived=False)
                yield self.copy()._write_fails(arrived=True)
        if self.setting.crashes:
            yield self.copy()._crash()
        if self.setting.deletions and self.log_start <= self.setting.log[-1].last_offset:
            yield self.copy()._delete()

    def _acknowledgements(self) -> Iterator[World]:
        held: dict[str, list[int]] = {}
        for run in self.partition.runs():
            if run.condition.is_locked and run.condition.owner is not None:
                held.setdefault(run.condition.owner, []).extend(range(run.first, run.last + 1))
        for member, offsets in held.items():
            parts = [offsets] if self.setting.whole else [[offset] for offset in offsets]
            for kind in self.setting.acks:
                for part in parts:
                    yield self.copy()._acknowledge(member, part, kind)

    def _fetch(self, member: str, mode: AcquireMode, records: int) -> World:
        offset = self.partition.next_fetch_offset
        batches = [
            batch for batch in self.setting.log if batch.last_offset >= max(offset, self.log_start)
        ]
        if self.log_start > offset:
            self.partition.log_start_moved(self.log_start)
            return self
        turn = FetchTurn(member, records, 1, mode)
        got = self.partition.acquire(turn, offset, batches, self.now)
        for first, last, count in got.ranges:
            assert count <= self.setting.limit, "delivered more often than the limit says"
            for at in range(first, last + 1):
                assert at in self.setting.data, "delivered what no record is at"
                assert at not in self.settled, "delivered again after it was settled"
                assert at not in self.locks, "delivered while another member holds it"
                self.locks[at] = member, self.now + self.setting.lock
        if mode is AcquireMode.RECORD_LIMIT:
            assert got.records <= records, "delivered more than asked for"
        return self

    def _acknowledge(self, member: str, offsets: list[int], kind: AcknowledgeType) -> World:
        acks = [Ack(offset, offset, kind) for offset in offsets]
        write = self.partition.acknowledge(member, acks, self.now)
        if kind is AcknowledgeType.RENEW:
            assert write is None, "renewing is not persisted"
            for offset in offsets:
                self.locks[offset] = member, self.now + self.setting.lock
        else:
            assert write is not None
            self.writes = *self.writes, (write, True)
        return self

    def _release(self, member: str) -> World:
        for offset, (owner, _) in self.locks.items():
            if owner == member:
                self.locks[offset] = member, self.now
        return self._ended(self.partition.release(member, self.now))

    def _wait(self) -> World:
        self.now += 1
        return self._ended(self.partition.tick(self.now))

    def _ended(self, write: Write | None) -> World:
        """Locks that are due have ended, but for those an acknowledgement holds up."""
        held_up = {at for write_, waits in self.writes if waits for at in _offsets(write_)}
        due = {at for at, (_, deadline) in self.locks.items() if deadline <= self.now}
        ended = due - held_up
        told = set() if write is None else set(_offsets(write))
        assert told == {at for at in ended if at >= self._start_of(write)}, (
            "a lock outlived its time"
        )
        for offset in ended:
            del self.locks[offset]
        if write is not None:
            self.writes = *self.writes, (write, False)
        return self

    def _start_of(self, write: Write | None) -> int:
        return self.partition.start_offset if write is None else write.start_offset

    def _write_succeeds(self) -> World:
        (write, waits), *rest = self.writes
        self.writes = tuple(rest)
        self.store.apply(write)
        if waits:
            for offset in _offsets(write):
                self.locks.pop(offset, None)
            self.settled |= {
                at
                for first, last, state, _ in write.batches
                if state in TERMINAL
                for at in range(first, last + 1)
            }
        self.partition.write_succeeded(write.write_id)
        return self

    def _write_fails(self, *, arrived: bool) -> World:
        (write, _), *rest = self.writes
        self.writes = tuple(rest)
        if arrived:
            self.store.apply(write)
        self.unsure |= set(_offsets(write))
        return self._ended(self.partition.write_failed(write.write_id, self.now))

    def _delete(self) -> World:
        self.log_start += 1
        self.partition.log_start_moved(self.log_start)
        return self

    def _crash(self) -> World:
        """Everything but the store is gone; what was under way did not arrive."""
        before = self.partition
        self.incarnation += 1
        in_doubt = self.unsure | {at for write, _ in self.writes for at in _offsets(write)}
        in_doubt |= set(range(self.log_start))
        in_doubt |= set(range(self.setting.log[-1].last_offset)) - self.setting.data
        self.partition = SharePartition(self.setting.share_settings, self.store.persisted())
        self.writes, self.locks, self.unsure = (), {}, frozenset()
        old, new = _by_offset(before), _by_offset(self.partition)
        for offset in (old.keys() | new.keys()) - in_doubt:
            # Nothing is known of what has not been delivered, and nothing kept of what is settled.
            was = old.get(offset, _beyond(before, offset))
            assert new.get(offset, _beyond(self.partition, offset)) == was, "reloaded differently"
        if self.log_start:
            self.partition.log_start_moved(self.log_start)
        return self


def _offsets(write: Write) -> Iterator[int]:
    for first, last, _, _ in write.batches:
        yield from range(first, last + 1)


def _plain(entry: tuple[Write, bool]) -> tuple[tuple[object, ...], bool]:
    write, waits = entry
    return (*write[:4], tuple(write.batches), tuple(write.archived)), waits


def _by_offset(partition: SharePartition) -> dict[int, tuple[bool, int]]:
    """Whether each offset is settled, and how often it was delivered, but for locks that stand."""
    return {
        offset: (
            run.condition.state in TERMINAL,
            run.condition.delivery_count - (run.condition.state is RecordState.ACQUIRED),
        )
        for run in partition.runs()
        for offset in range(run.first, run.last + 1)
    }


def _beyond(partition: SharePartition, offset: int) -> tuple[bool, int]:
    return offset < partition.start_offset, 0


def _twin(partition: SharePartition) -> SharePartition:
    """A copy that changes by itself. Reaches inside: `deepcopy` would take most of the search."""
    twin = copy.copy(partition)
    twin._transitions = dict(partition._transitions)
    window = twin._window = Window(partition.start_offset)
    for run in partition._window.runs():
        window.append(run.batch, [run[:3]])
    window.end = partition.end_offset
    return twin
