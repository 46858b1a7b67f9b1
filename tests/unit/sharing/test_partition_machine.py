"""A share partition walked at random beside one that keeps every offset by itself."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.sharing.partition import SharePartition
from ottla.sharing.values import (
    TERMINAL,
    Ack,
    AcknowledgeType,
    AcquireMode,
    DeliverySettings,
    FetchTurn,
    LogBatch,
    RecordState,
    ShareError,
)
from tests.support.sharing_model import ModelPartition, Store, offsets_of
from tests.support.sizes import examples

if TYPE_CHECKING:
    from ottla.sharing.values import Write

MEMBERS = st.sampled_from(["a", "b", "c"])
MODES = st.sampled_from(AcquireMode)
TYPES = st.sampled_from(AcknowledgeType)
LOCK_MS = 10


class SharePartitionWalk(RuleBasedStateMachine):
    @initialize(limit=st.integers(1, 6), window=st.integers(1, 24))
    def begin(self, limit: int, window: int) -> None:
        self.settings = DeliverySettings(LOCK_MS, limit, window)
        self.store = Store()
        self.log: list[LogBatch] = []
        self.log_start = 0
        self.log_end = 0
        self.now = 0
        self.writes: list[tuple[Write, list[int]]] = []
        self.reads: list[tuple[int, list[LogBatch]]] = []
        self.accepted: set[int] = set()
        """Offsets whose consumer was told that they are settled."""
        self.unsure: set[int] = set()
        """Offsets of which the store may know more or less than the machine."""
        self.derived: set[int] = set()
        """Offsets that are archived without a write."""
        self.load()

    def load(self) -> None:
        persisted = self.store.persisted()
        self.real = SharePartition(self.settings, persisted)
        self.model = ModelPartition.loaded(self.settings, persisted)
        self.highest_start = self.real.start_offset
        self.writes, self.reads, self.unsure = [], [], set()

    @rule(sizes=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 9)), min_size=1, max_size=4))
    def produce(self, sizes: list[tuple[int, int]]) -> None:
        for size, kind in sizes:
            if kind == 0:
                self.derived.update(range(self.log_end, self.log_end + size))
            else:
                has_data = kind != 1
                if not has_data:
                    self.derived.update(range(self.log_end, self.log_end + size))
                self.log.append(LogBatch(self.log_end, self.log_end + size - 1, has_data))
            self.log_end += size

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        gone = self.log.pop(data.draw(st.integers(0, len(self.log) - 1)))
        self.derived.update(range(gone.first_offset, gone.last_offset + 1))

    @rule(batches=st.integers(1, 5))
    def read(self, batches: int) -> None:
        offset = self.real.next_fetch_offset
        found = [batch for batch in self.log if batch.last_offset >= offset]
        self.reads = [*self.reads[-1:], (offset, found[:batches])]

    @precondition(lambda self: self.reads)
    @rule(member=MEMBERS, records=st.integers(0, 12), size=st.integers(0, 8), mode=MODES)
    def acquire(self, member: str, records: int, size: int, mode: AcquireMode) -> None:
        offset, batches = self.reads.pop()
        turn = FetchTurn(member, records, size, mode)
        got = self.real.acquire(turn, offset, batches, self.now)
        assert [tuple(found) for found in got.ranges] == self.model.acquire(
            turn, offset, batches, self.now
        )
        offsets = [at for first, last, _ in got.ranges for at in range(first, last + 1)]
        assert got.records == len(offsets)
        assert not self.accepted & set(offsets)
        if mode is AcquireMode.RECORD_LIMIT:
            assert len(offsets) <= records
        if offsets:
            handed = [batches[index] for index in got.batches]
            assert handed[0].first_offset <= offsets[0] <= handed[0].last_offset
            assert handed[-1].first_offset <= offsets[-1] <= handed[-1].last_offset

    @rule(member=MEMBERS, batches=st.integers(1, 5), records=st.integers(1, 12), mode=MODES)
    def fetch(self, member: str, batches: int, records: int, mode: AcquireMode) -> None:
        self.read(batches)
        self.acquire(member, records, records, mode)

    @rule(member=MEMBERS, data=st.data())
    def acknowledge_anything(self, member: str, data: st.DataObject) -> None:
        acks = []
        low = max(0, self.model.start - 2)
        for _ in range(data.draw(st.integers(1, 3))):
            first = data.draw(st.integers(low, max(low, self.model.end)))
            last = data.draw(st.integers(first, first + 4))
            acks.append(Ack(first, last, data.draw(TYPES)))
            low = last
        self.acknowledge(member, acks)

    @precondition(lambda self: any(r.owner for r in self.model.records.values()))
    @rule(data=st.data())
    def acknowledge_held(self, data: st.DataObject) -> None:
        held = [
            (offset, record.owner)
            for offset, record in sorted(self.model.records.items())
            if record.state is RecordState.ACQUIRED and record.target is None
        ]
        if not held:
            return
        low = data.draw(st.integers(0, len(held) - 1))
        high = data.draw(st.integers(low, len(held) - 1))
        member = held[low][1]
        assert member is not None
        kind = data.draw(TYPES)
        uncounted = kind is AcknowledgeType.RELEASE and data.draw(st.booleans())
        mine = [offset for offset, owner in held[low : high + 1] if owner == member]
        self.acknowledge(member, [Ack(offset, offset, kind, uncounted) for offset in mine])

    def acknowledge(self, member: str, acks: list[Ack]) -> None:
        before = offsets_of(self.real)
        try:
            expected = self.model.acknowledge(member, acks, self.now)
        except ShareError as error:
            refused = error.code
        else:
            self.expect(self.real.acknowledge(member, acks, self.now), expected, transition=True)
            return
        with pytest.raises(ShareError) as caught:
            self.real.acknowledge(member, acks, self.now)
        assert caught.value.code == refused
        assert offsets_of(self.real) == before

    def expect(self, write: Write | None, offsets: list[int], *, transition: bool) -> None:
        """A write of these offsets, as the model has them."""
        if write is None:
            assert not offsets
            return
        told = {
            offset: (state, count)
            for first, last, state, count in write.batches
            for offset in range(first, last + 1)
        }
        records = self.model.records
        assert told == {
            at: (records[at].target if transition else records[at].state, records[at].count)
            for at in offsets
        }
        archived = {at for a in write.archived for at in range(a.first_offset, a.last_offset + 1)}
        assert archived == {at for at, (state, _) in told.items() if state == RecordState.ARCHIVED}
        assert write.write_id == self.model.writes
        assert write.start_offset == self.model.start
        assert write.delivery_complete_count == self.model.complete()
        self.writes.append((write, offsets if transition else []))
        if not transition:
            self.model.advance()

    @rule(member=MEMBERS)
    def release(self, member: str) -> None:
        self.expect(
            self.real.release(member, self.now),
            self.model.release(member, self.now),
            transition=False,
        )
        assert all(
            r.owner != member or r.target is not None for r in offsets_of(self.real).values()
        )

    @rule(passed=st.integers(1, LOCK_MS))
    def wait(self, passed: int) -> None:
        self.now += passed
        self.expect(self.real.tick(self.now), self.model.tick(self.now), transition=False)

    @precondition(lambda self: self.writes)
    @rule()
    def write_succeeds(self) -> None:
        write, offsets = self.writes.pop(0)
        self.store.apply(write)
        self.real.write_succeeded(write.write_id)
        for offset in offsets:
            record = self.model.records.get(offset)
            if record is not None and record.target in TERMINAL:
                self.accepted.add(offset)
        self.model.write_succeeded(write.write_id)

    @precondition(lambda self: self.writes)
    @rule(arrived=st.booleans())
    def write_fails(self, *, arrived: bool) -> None:
        write, _ = self.writes.pop(0)
        if arrived:
            self.store.apply(write)
        for first, last, _, _ in write.batches:
            self.unsure.update(range(first, last + 1))
        self.expect(
            self.real.write_failed(write.write_id, self.now),
            self.model.write_failed(write.write_id, self.now),
            transition=False,
        )

    @rule(ahead=st.integers(1, 5))
    def delete_records(self, ahead: int) -> None:
        self.log_start = min(self.log_start + ahead, self.log_end)
        self.log = [batch for batch in self.log if batch.last_offset >= self.log_start]
        self.real.log_start_moved(self.log_start)
        self.model.log_start_moved(self.log_start)
        self.derived.update(range(self.log_start))

    @rule(limit=st.integers(1, 6), window=st.integers(1, 24), renew=st.booleans())
    def configure(self, limit: int, window: int, *, renew: bool) -> None:
        self.settings = replace(
            self.settings,
            delivery_count_limit=limit,
            max_record_locks=window,
            renew_enabled=renew,
        )
        self.real.settings = self.model.settings = self.settings

    @rule()
    def crash(self) -> None:
        """Nobody is told how the writes under way end, but they do not arrive."""
        before, start = offsets_of(self.real), self.real.start_offset
        in_doubt = {
            offset
            for write, _ in self.writes
            for first, last, _, _ in write.batches
            for offset in range(first, last + 1)
        }
        in_doubt |= self.unsure | self.derived
        self.load()
        for offset, record in offsets_of(self.real).items():
            if offset in in_doubt:
                continue
            if offset < start:
                # The start of the last write is not the last start; what is between is settled.
                assert record.state in TERMINAL
            elif offset in before:
                old = before[offset]
                if old.state in TERMINAL:
                    assert record.state is old.state
                else:
                    held = old.state is RecordState.ACQUIRED
                    assert record.view() == (RecordState.AVAILABLE, old.count - held)

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "real"):
            return
        real = self.real
        assert (real.start_offset, real.end_offset) == (self.model.start, self.model.end)
        assert {at: r.view() for at, r in offsets_of(real).items()} == {
            at: r.view() for at, r in self.model.records.items()
        }
        assert real.next_fetch_offset == self.model.next_fetch_offset()
        assert real.next_deadline() == self.model.next_deadline()
        assert real.delivery_complete_count == self.model.complete()
        assert real.start_offset >= self.highest_start
        self.highest_start = real.start_offset

    @invariant()
    def runs_are_tight(self) -> None:
        if not hasattr(self, "real"):
            return
        runs = self.real.runs()
        for before, after in pairwise(runs):
            assert before.last + 1 == after.first
            assert before[2:] != after[2:]


SharePartitionWalk.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=60)
TestSharePartitionWalk = SharePartitionWalk.TestCase
