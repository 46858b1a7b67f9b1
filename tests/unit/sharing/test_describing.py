"""A share-partition as it is described: runs, holders, and the bound on both."""

from __future__ import annotations

from ottla.sharing.describing import MOST_RUNS, Held, held
from ottla.sharing.partition import SharePartition
from ottla.sharing.values import DeliverySettings, PersistedState
from ottla.wire.schema.write_share_group_state import StateBatch

ACKNOWLEDGED, ARCHIVED = 2, 4


def loaded(batches: list[StateBatch]) -> SharePartition:
    return SharePartition(DeliverySettings(), PersistedState(1, 0, batches))


def test_without_runs_only_the_count_is_told() -> None:
    assert held(loaded([]), 1_000, 0, 0) == Held(0)


def test_case_54_two_hundred_thousand_runs_are_cut() -> None:
    batches = [
        StateBatch(offset, offset, ACKNOWLEDGED if offset % 2 else ARCHIVED, 1)
        for offset in range(1, 200_000)
    ]
    found = held(loaded(batches), 5_000, 2_000, 1_000_000)
    assert len(found.window) == MOST_RUNS
    assert found.window_cut
    assert found.end_offset == 200_000
    assert found.stalled_ms == 3_000
    few = held(loaded(batches), 5_000, 2_000, 3)
    assert [(run.first, run.last, run.state) for run in few.window] == [
        (0, 0, 0),
        (1, 1, ACKNOWLEDGED),
        (2, 2, ARCHIVED),
    ]
    assert few.members == []
