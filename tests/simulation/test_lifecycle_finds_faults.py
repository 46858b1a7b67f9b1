"""The lifecycle machine finds faults 1, 2 and 4 of the review when their mends are taken back.

Each test patches the old behaviour in, as far as today's design can still express it, and asserts
that the machine fails for the right reason: it looks at records, log starts and answers alone here,
not at what workers meet on the way. Where a blind search would take minutes the steps are given.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from ottla.broker.hosting.checkpoints import Checkpoints
from ottla.broker.hosting.cleaner import Cleaner
from ottla.log import storage
from ottla.log.checkpoints import Checkpoint, write_offsets
from ottla.log.compaction import plan_compaction, run_compaction
from ottla.log.partition import PartitionLog
from ottla.log.storage import Entry, File
from tests.simulation.lifecycle import ANCHOR, Lifecycle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from ottla.broker.hosting.partitions import HostedPartition
    from ottla.log.compaction import CompactionPlan, CompactionResult

COMPACTION = "compaction"  # the kind of its worker
SEARCH = settings(
    max_examples=500,
    stateful_step_count=30,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
    database=None,
    report_multiple_bugs=False,
)


class Records(Lifecycle):
    """Looks at what clients see."""

    watches_workers = False


class Starts(Records):
    """What may meet a log start that moves: so the search comes to the point within seconds."""

    commit = look_at_the_offset = load_the_coordinator_anew = None  # type: ignore[assignment]
    delete_the_coordinators_topic = read_files = None  # type: ignore[assignment]
    look_up_a_time = compact = expire = delete = None  # type: ignore[assignment]


def write(machine: Lifecycle, name: str, batches: int) -> None:
    """Acknowledged records, each batch in a segment of its own."""
    machine.write(name=name, sizes=[5], key=0, later=2000, batches=batches, waits=True)


def let_go(machine: Lifecycle, kind: str, calls: int | None = None) -> None:
    """The only worker of its kind."""
    (which,) = [place for place, job in enumerate(machine.world.jobs) if job.kind == kind]
    machine.let_go(which=which, calls=calls)


def let_others_go(machine: Lifecycle, kind: str) -> None:
    while others := [place for place, job in enumerate(machine.world.jobs) if job.kind != kind]:
        machine.let_go(which=others[0], calls=None)


def compaction_meets_new_topic(machine: Lifecycle) -> None:
    machine.create(name="a", compacts=True)
    write(machine, "a", 3)
    machine.compact()
    let_go(machine, COMPACTION, calls=0)
    machine.delete(name="a", again=True, compacts=True)
    let_others_go(machine, COMPACTION)
    write(machine, "a", 3)
    let_go(machine, COMPACTION)


def reader_meets_new_topic(machine: Lifecycle) -> None:
    machine.create(name="a", compacts=False)
    machine.create(name="b", compacts=False)
    write(machine, "a", 1)
    machine.read_files(name="a")
    let_go(machine, "read_files", calls=0)
    machine.delete(name="a", again=False, compacts=False)
    let_others_go(machine, "read_files")
    write(machine, "b", 1)
    let_go(machine, "read_files")


def checkpoint_meets_delete_records(machine: Lifecycle) -> None:
    write(machine, ANCHOR, 4)
    machine.delete_records(name=ANCHOR, share=0.5)
    machine.checkpoint()
    if any(job.kind == "replace" for job in machine.world.jobs):
        let_go(machine, "replace", calls=0)
    machine.delete_records(name=ANCHOR, share=1.0)
    machine.let_all_go(order=0)
    machine.kill_and_start(order=0)
    machine.consume(name=ANCHOR)


STEPS = [compaction_meets_new_topic, reader_meets_new_topic, checkpoint_meets_delete_records]


def live(steps: Callable[[Lifecycle], None], machine: Lifecycle) -> None:
    try:
        machine.start()
        steps(machine)
    finally:
        machine.teardown()


@pytest.mark.parametrize("steps", STEPS)
def test_with_the_mends_in_place_these_steps_do_no_harm(
    steps: Callable[[Lifecycle], None],
) -> None:
    live(steps, Lifecycle())


def test_fault_1_a_compaction_is_installed_whatever_became_of_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files are addressed by path again, and nobody asks whether the log is still open."""

    @contextmanager
    def located(path: Path | Entry) -> Iterator[tuple[Path, None]]:
        yield (path.parent.path / path.name if isinstance(path, Entry) else path), None

    def compaction(plan: CompactionPlan) -> CompactionResult:
        return run_compaction(plan)

    async def compact(self: Cleaner, partition: HostedPartition) -> None:
        log = partition.log
        now_ms = self._clock.wall_ms()
        plan = plan_compaction(log, self._first_dirty(partition), now_ms)
        if plan is not None:
            result = await self._workers.run(partial(compaction, plan))
            for group in result.groups:
                log._usable = True
                log.install(group, now_ms)

    monkeypatch.setattr(storage, "_located", located)
    monkeypatch.setattr(Cleaner, "_compact", compact)
    with pytest.raises(AssertionError, match=r"lost|ends at|never sent"):
        live(compaction_meets_new_topic, Records())


def test_fault_2_files_are_closed_under_their_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """`close` gives descriptors back at once, and readers keep the numbers."""

    class NumberStays(File):
        __slots__ = ("_closed",)

        def close(self) -> None:
            if self.fd >= 0 and not getattr(self, "_closed", False):
                self._closed = True
                self._storage.close(self.fd)

    close = PartitionLog.close

    def close_at_once(self: PartitionLog, *, clean: bool = True) -> bool:
        closed = close(self, clean=clean)
        self._give_back()
        return closed

    monkeypatch.setattr("ottla.log.segment.File", NumberStays)
    monkeypatch.setattr(PartitionLog, "close", close_at_once)
    with pytest.raises(AssertionError, match="never sent"):
        live(reader_meets_new_topic, Records())


def test_fault_4_two_write_the_same_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeleteRecords writes the log starts itself while a worker writes older ones."""

    async def log_starts_durable(self: Checkpoints, moved: Iterable[HostedPartition]) -> None:
        for partition in moved:
            self.put(Checkpoint.LOG_START, partition, partition.log.log_start_offset)
        column = self._book._columns[Checkpoint.LOG_START]
        write_offsets(self._storage, self._directory, Checkpoint.LOG_START, column)

    monkeypatch.setattr(Checkpoints, "log_starts_durable", log_starts_durable)
    with pytest.raises(AssertionError, match=r"begins at \d+, not at"):
        live(checkpoint_meets_delete_records, Records())


@pytest.mark.long
def test_fault_4_a_log_start_is_answered_before_it_is_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def log_starts_durable(self: Checkpoints, moved: Iterable[HostedPartition]) -> None:
        for partition in moved:
            self.put(Checkpoint.LOG_START, partition, partition.log.log_start_offset)
        await asyncio.sleep(0)

    monkeypatch.setattr(Checkpoints, "log_starts_durable", log_starts_durable)
    with pytest.raises(AssertionError, match=r"begins at \d+, not at"):
        run_state_machine_as_test(Starts, settings=SEARCH)
