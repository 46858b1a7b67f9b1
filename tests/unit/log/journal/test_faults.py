"""A fault at every system call of a scripted life with a journal: nothing acknowledged is lost.

The script appends, writes slots, syncs logs directly, fills files, rests, deletes and stops. For
each number of a changing system call and each kind of fault it runs to its end or to the loss of
power; then the power goes, and everything acknowledged must be there after the next start.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from ottla.log.checkpoints import CorruptCheckpoint
from ottla.log.errors import StorageFailure
from ottla.log.journal.replay import CorruptJournal, scan
from tests.support.faults_broker import soak
from tests.support.journal_crew import Crew
from tests.support.log_batches import read_all
from tests.support.log_faults import Fault, Survival
from tests.support.sizes import some


def live(crew: Crew) -> None:
    """The script; it leaves slots that are needed."""
    for number in range(10):
        crew.append(number % 2, [200, 900])
        if number == 4:
            crew.append(0, [3100])  # too large for the journal
        crew.cut()
        crew.write_slot()
        if number % 3 == 0:
            crew.sync_directly()
            crew.obey()
        if number == 7:
            crew.rest()
            crew.delete_records(1, 0.5)
            crew.expire(1)
    crew.obey()
    crew.stop()
    for number in range(3):
        crew.append(number % 2, [300])
        crew.cut()
        crew.obey()
        crew.sync_directly()
        crew.write_slot()


def total_calls() -> int:
    crew = Crew()
    first = crew.disk.calls
    live(crew)
    assert crew.disk.open_files
    return crew.disk.calls - first


CALLS = total_calls()


def calls(survival: Survival) -> range:
    """Every call, for what is the worst that can be left; every seventh for the rest, except in
    the long runs."""
    return range(0, CALLS, 1 if soak() or survival is Survival.NOTHING else 7)


def test_the_script_needs_the_journal() -> None:
    crew = Crew()
    live(crew)
    assert CALLS > 100
    crew.lose_power(Survival.NOTHING)
    assert crew.replays


@pytest.mark.sampled
@pytest.mark.parametrize("survival", list(Survival))
@pytest.mark.parametrize(
    "fault", [Fault.SHORT_WRITE, Fault.ENOSPC, Fault.EIO, Fault.CRASH, Fault.TORN_CRASH]
)
def test_a_fault_at_every_call(fault: Fault, survival: Survival) -> None:
    """Cases 13, 14, 17, 18 and 24, and J7: a failure is not a loss."""
    for number in some(calls(survival), fault.value):
        crew = Crew()
        crew.survival = survival
        crew.disk.plan[crew.disk.calls + number] = fault
        try:
            live(crew)
            crew.check()
            crew.lose_power(survival)
        except BaseException as error:
            error.add_note(f"{fault} at call {number}")
            raise


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("survival", list(Survival))
def test_power_lost_again_at_every_call_of_the_next_start(survival: Survival, torn: bool) -> None:
    """Case 19: the second replay gives the same logs, byte for byte."""
    expected: list[bytes] | None = None
    for number in range(-1, 10_000):
        crew = Crew()
        live(crew)
        if number >= 0:
            crew.at_start = {number: Fault.TORN_CRASH if torn else Fault.CRASH}
        crew.lose_power(survival)
        found = [read_all(log) for log in crew.logs]
        if expected is None:
            expected = found
        assert found == expected, f"call {number}"
        if crew.disk.plan:
            break  # the start has no such call any more
    else:
        raise AssertionError("a start that never ends")
    assert number > 5


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_a_disk_that_fails_during_the_next_start(fault: Fault) -> None:
    """The journal stays until a start has replayed it."""
    for number in range(10_000):
        crew = Crew()
        live(crew)
        crew.at_start = {number: fault}
        crew.lose_power(Survival.NOTHING)
        if crew.disk.plan:
            return
    raise AssertionError("a start that never ends")


def test_a_bit_that_the_disk_has_turned_is_never_replayed() -> None:
    """A slot that is not whole gives nothing: the start is refused, or it was the last one."""
    refused = 0
    for number in range(CALLS):
        crew = Crew()
        crew.disk.plan[crew.disk.calls + number] = Fault.BIT_FLIP
        with suppress(CorruptCheckpoint, StorageFailure):  # of other files, and found
            live(crew)
        appended = [list(batches) for batches in crew.appended]
        crew.disk = crew.disk.crash(Survival.EVERYTHING)
        crew.directory.storage = crew.disk
        try:
            leftover = scan(crew.directory)
        except CorruptJournal:
            refused += 1
            continue
        if leftover is None:
            continue
        for key in leftover.unsettled():
            for batch in leftover._batches(leftover._stretches[key]):
                assert bytes(batch.data) in appended[key[1]]
    assert refused
