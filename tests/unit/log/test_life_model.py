"""Logs that come and go in the same directories while jobs on them are under way.

A job is cut into its steps (lease and plan, work, outcome), and anything may happen between two of
them: appends, rolls, retention, deletion, a new log in the same place. After each step every living
log holds exactly what was appended to it, and a reader that holds a lease reads what was there when
it came, whatever has become of the log.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ottla.log.compaction import plan_compaction, run_compaction
from ottla.log.config import LogConfig
from ottla.log.errors import LogClosed
from ottla.log.life import Life
from ottla.log.os_storage import OsStorage
from ottla.log.partition import PartitionLog
from ottla.log.reading import read_segments
from ottla.log.tail import TailCache
from tests.support.log_batches import batch_of, joined, read_all
from tests.support.sizes import examples

if TYPE_CHECKING:
    from ottla.log.compaction import CompactionPlan, CompactionResult
    from ottla.log.life import Lease
    from ottla.log.segment import Segment
    from ottla.log.storage import Directory

CONFIG = LogConfig(
    segment_bytes=250,
    index_interval_bytes=1,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)
PLACES = st.integers(0, 1)


class Reader(NamedTuple):
    lease: Lease
    segments: tuple[Segment, ...]
    expected: bytes


class Compaction(NamedTuple):
    log: PartitionLog
    lease: Lease
    plan: CompactionPlan


class Compacted(NamedTuple):
    log: PartitionLog
    lease: Lease
    result: CompactionResult


class Unsynced(OsStorage):
    """Real files and names; this is not about power cuts."""

    def fdatasync(self, fd: int) -> None:
        pass

    def fsync_dir(self, path: Path | Directory) -> None:
        pass


class LifeModel(RuleBasedStateMachine):
    """Two places, each with at most one living log. Keys are unique: compaction drops nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.storage = Unsynced()
        self.tail = TailCache(2000)
        self.logs: dict[int, PartitionLog] = {}
        self.content: dict[int, bytes] = {}
        self.number = 0
        self.readers: list[Reader] = []
        self.planned: list[Compaction] = []
        self.compacted: list[Compacted] = []

    def teardown(self) -> None:
        leases = [reader.lease for reader in self.readers]
        leases += [job.lease for job in self.planned]
        leases += [job.lease for job in self.compacted]
        for lease in leases:
            lease.release()
        for log in self.logs.values():
            log.close(clean=False)
        shutil.rmtree(self.root)

    def home(self, place: int) -> Path:
        return self.root / f"t-{place}"

    @initialize()
    def start(self) -> None:
        for place in range(2):
            self.create(place)
            self.append(place, 6)

    @rule(place=PLACES)
    def replace(self, place: int) -> None:
        """Delete it, and let another one come at once."""
        self.delete(place)
        self.create(place)
        self.append(place, 6)

    @rule(place=PLACES)
    def create(self, place: int) -> None:
        if place not in self.logs:
            self.logs[place] = PartitionLog.open(self.home(place), CONFIG, now_ms=0, tail=self.tail)
            self.content[place] = b""

    @rule(place=PLACES, count=st.integers(1, 6))
    def append(self, place: int, count: int) -> None:
        if (log := self.logs.get(place)) is None:
            return
        for _ in range(count):
            self.number += 1
            batch = batch_of(b"%d" % place * 30, key=b"%d" % self.number)
            log.append(batch, leader_epoch=0, now_ms=0)
            batch.assign(log.log_end_offset - 1, 0)
            self.content[place] += batch.data
        log.advance_high_watermark(log.flush())

    @rule(place=PLACES)
    def roll(self, place: int) -> None:
        if place in self.logs:
            self.logs[place].roll(0)

    @rule(place=PLACES)
    def purge(self, place: int) -> None:
        if place in self.logs:
            self.logs[place].purge(1)

    @rule(place=PLACES)
    def delete(self, place: int) -> None:
        if (log := self.logs.pop(place, None)) is not None:
            log.close(clean=False)
            self.number += 1
            self.home(place).rename(self.root / f"t-{place}.{self.number}-delete")

    @rule(place=PLACES)
    def restart(self, place: int) -> None:
        if (log := self.logs.get(place)) is not None:
            assert log.close()
            end = log.log_end_offset
            self.logs[place] = PartitionLog.open(
                self.home(place),
                CONFIG,
                now_ms=0,
                clean=True,
                recovery_point=end,
                high_watermark=end,
                tail=self.tail,
                storage=self.storage,
            )

    # Jobs

    @rule(place=PLACES)
    def begin_reading(self, place: int) -> None:
        if (log := self.logs.get(place)) is not None:
            self.readers.append(Reader(log.lease(), log.segments, self.content[place]))

    @precondition(lambda self: self.readers)
    @rule()
    def leave(self) -> None:
        self.readers.pop(0).lease.release()

    @rule(place=PLACES)
    def plan(self, place: int) -> None:
        if (log := self.logs.get(place)) is not None:
            plan = plan_compaction(log, 0, 0)
            if plan is not None:
                self.planned.append(Compaction(log, log.lease(), plan))

    @precondition(lambda self: self.planned)
    @rule()
    def compact(self) -> None:
        job = self.planned.pop(0)
        self.compacted.append(Compacted(job.log, job.lease, run_compaction(job.plan)))

    @precondition(lambda self: self.compacted)
    @rule()
    def install(self) -> None:
        job = self.compacted.pop(0)
        with job.lease:
            if job.log.life is Life.OPEN:
                for group in job.result.groups:
                    job.log.install(group, 0)
                return
            for group in job.result.groups:
                try:
                    job.log.install(group, 0)
                except LogClosed:
                    continue
                raise AssertionError("installed in a closed log")
            job.result.discard(0)

    # What must hold

    @invariant()
    def living_logs_hold_what_was_appended(self) -> None:
        for place, log in self.logs.items():
            assert read_all(log) == self.content[place]
            files = log.read_files(
                0, 1 << 20, upper_bound_offset=log.log_end_offset, min_one_message=True
            )
            assert b"".join(files.chunks) == self.content[place]

    @invariant()
    def readers_read_what_they_came_for(self) -> None:
        for reader in self.readers:
            end = reader.segments[-1].next_offset if reader.expected else 0
            found = read_segments(reader.segments, 0, 1 << 20, end, at_least_one=True)
            assert joined(found)[: len(reader.expected)] == reader.expected


TestLifeModel = LifeModel.TestCase
TestLifeModel.settings = settings(max_examples=examples(60), stateful_step_count=40)
