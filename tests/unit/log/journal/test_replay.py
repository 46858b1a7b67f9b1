"""What a journal gives back to logs that have lost something. Numbers are acceptance cases."""

from __future__ import annotations

import pytest

from ottla.log.journal.files import read_state
from ottla.log.journal.replay import find_slots, scan
from tests.support.journal_crew import Crew
from tests.support.log_batches import read_all
from tests.support.log_faults import Fault, Survival


def a_round(crew: Crew, partition: int = 0, size: int = 600) -> None:
    crew.append(partition, [size])
    crew.cut()
    crew.write_slot()


@pytest.fixture
def crew() -> Crew:
    """With the journal's first file."""
    crew = Crew()
    crew.append(0, [1])
    crew.cut()
    crew.obey()
    crew.sync_directly()
    return crew


def test_all_that_the_logs_have_lost_comes_back(crew: Crew) -> None:
    """Case 20: and if nothing is lost, nothing is added."""
    for number in range(6):
        a_round(crew, number % 2)
    before = [read_all(log) for log in crew.logs]
    crew.lose_power(Survival.EVERYTHING)
    assert crew.replays == 0
    assert [read_all(log) for log in crew.logs] == before


def test_segments_that_were_never_synced_come_back(crew: Crew) -> None:
    """Case 21: their boundaries may be others."""
    for _ in range(7):
        a_round(crew, size=1500)
    assert len(crew.logs[0].segments) > 2
    before = read_all(crew.logs[0])
    crew.lose_power(Survival.NOTHING)
    assert crew.replays == 7
    assert read_all(crew.logs[0]) == before


def test_leader_epochs_come_back_with_their_batches(crew: Crew) -> None:
    """Case 22: their file was never written."""
    for epoch in (2, 3, 5):
        crew.epoch = epoch
        a_round(crew)
        a_round(crew)
    log = crew.logs[0]
    before = [log.end_offset_for_epoch(epoch) for epoch in range(7)]
    crew.lose_power(Survival.NOTHING)
    assert crew.replays == 6
    log = crew.logs[0]
    assert [log.end_offset_for_epoch(epoch) for epoch in range(7)] == before


def test_slots_of_an_earlier_lap_are_not_replayed(crew: Crew) -> None:
    """Case 15: they lie behind a torn one, and have smaller numbers."""
    while crew.writer.trim < 10:  # files are used again
        a_round(crew, size=3)
        crew.sync_directly()
        crew.obey()
    acknowledged, disk, directory = crew.acknowledged[0], crew.disk, crew.directory
    crew.append(0, [2700])
    crew.cut()
    slot = crew.slot
    assert slot is not None
    disk.plan[disk.calls] = Fault.TORN_CRASH
    state = read_state(directory)
    assert state is not None
    crew.write_slot()
    directory.storage = disk.crash(Survival.EVERYTHING)
    slots = find_slots(directory, state)
    newest = slots[-1].header
    assert newest.seq == slot.seq
    assert any(found.header.seq < newest.trim for found in slots)
    leftover = scan(directory)
    assert leftover is not None
    stretches = leftover._stretches[bytes(16), 0]
    assert stretches[-1].end == acknowledged
    assert len(stretches) == newest.seq - newest.trim
