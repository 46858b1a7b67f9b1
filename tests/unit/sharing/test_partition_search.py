"""Every state a small share partition can reach, and what must hold in each.

Two members and three offsets. In no state is a record held by two members, delivered again after it
was settled, delivered more often than the limit says, or held longer than its lock; the start never
moves back; a reload from the store is the partition that crashed, without its locks.
The setting with most to delete belongs to the long runs.
"""

from __future__ import annotations

import os
from collections import deque
from itertools import pairwise

import pytest

from ottla.sharing.values import AcknowledgeType, AcquireMode, LogBatch
from tests.support.sharing_search import ACKS, Setting, World

SINGLE = (LogBatch(0, 0), LogBatch(1, 1), LogBatch(2, 2))
PAIR = (LogBatch(0, 1), LogBatch(2, 2))
WHOLE = (LogBatch(0, 2),)
MARKER = (LogBatch(0, 0), LogBatch(1, 1, has_data=False), LogBatch(2, 2))
GAP = (LogBatch(0, 0), LogBatch(2, 2))
RENEWING = (*ACKS, AcknowledgeType.RENEW)
ONE_BATCH = ((AcquireMode.BATCH_OPTIMIZED, 1),)
ONE_BY_ONE = ((AcquireMode.RECORD_LIMIT, 1),)

SETTINGS = [
    Setting("limit 3", 30_029, PAIR, limit=3, failures=False),
    Setting("limit 1", 21_871, PAIR, limit=1, modes=ONE_BY_ONE),
    Setting("window of 1", 6_860, SINGLE, window=1),
    Setting("window of 2", 1_273, SINGLE, window=2, limit=2, failures=False),
    Setting("strict", 12_221, WHOLE, limit=2, modes=ONE_BY_ONE, failures=False),
    Setting("failing writes", 6_595, PAIR, limit=2, modes=ONE_BATCH, whole=True),
    Setting(
        "two writes",
        17_496,
        PAIR,
        limit=2,
        modes=ONE_BATCH,
        acks=ACKS[:2],
        whole=True,
        writes=2,
        crashes=False,
    ),
    Setting("marker", 7_155, MARKER, limit=2),
    Setting("gap", 1_094, GAP, limit=2, failures=False, deletions=True),
    Setting("renewing", 2_967, PAIR, lock=2, acks=RENEWING, whole=True, failures=False),
]

if os.environ.get("HYPOTHESIS_PROFILE") == "soak":
    SETTINGS.append(Setting("deletions", 23_600, WHOLE, limit=2, failures=False, deletions=True))


def explore(setting: Setting) -> int:
    first = World.begin(setting)
    seen = {first.key()}
    queue = deque([first])
    while queue:
        world = queue.popleft()
        start = world.partition.start_offset
        for after in world.moves():
            same_life = after.incarnation == world.incarnation
            assert not same_life or after.partition.start_offset >= start, "the start moved back"
            check(after)
            if (key := after.key()) not in seen:
                seen.add(key)
                queue.append(after)
    return len(seen)


def check(world: World) -> None:
    partition = world.partition
    runs = partition.runs()
    assert [run.first for run in runs[:1]] in ([], [partition.start_offset])
    assert [run.last + 1 for run in runs[-1:]] in ([], [partition.end_offset])
    assert all(a.last + 1 == b.first for a, b in pairwise(runs)), "a hole in the window"
    for run in runs:
        condition = run.condition
        assert condition.delivery_count <= world.setting.limit
        assert (condition.owner is None) == (condition.state.name != "ACQUIRED")
        if condition.owner is not None:
            for offset in range(run.first, run.last + 1):
                assert world.locks[offset][0] == condition.owner, "held by one who never got it"


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_all_states(setting: Setting) -> None:
    assert explore(setting) == setting.states
