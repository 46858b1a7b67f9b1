"""The table worker, a process, killed at each named step of a round (tables.md, case 47)."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import signal
from typing import TYPE_CHECKING

import pytest

from ottla.clock import SYSTEM
from ottla.tables.settings import topic_settings
from ottla.tables.upkeep import Upkeep
from ottla.tables.warehouse import Warehouse
from tests.support import mortal_worker
from tests.support.ecosystem import ottla_process
from tests.support.tables import places

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.context import ForkServerContext
    from pathlib import Path

    from tests.support.tables import Place

pytestmark = pytest.mark.long

GRACE = 7 * 3_600_000
KEYS = {
    "ottla.table.enable": "true",
    "ottla.table.value.format": "json",
    "ottla.table.value.schema": "n bigint",
    "ottla.table.keep.value": "true",
}
DAY = 86_400_000


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own: one in this process would stand still while kernels are compiled."""
    with ottla_process(tmp_path_factory.mktemp("broker")) as address:
        yield address


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """One process has imported everything, and forks the others."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.mortal_worker", "ottla.tables.iceberg"])
    return context


async def fill(place: Place, turn: int) -> None:
    """Rows of two days in two partitions, and one that does not fit in each."""
    for number in (0, 1):
        for day in (0, 1):
            values = [b'{"n":%d}' % (10 * turn + n) for n in range(3)]
            await place.fill(values, number, timestamp_ms=day * DAY)
        await place.fill([b"poison"], number, timestamp_ms=0)


def table(place: Place, *args: str) -> tuple[int, object]:
    result = place.command(*args, "--json")
    assert result.stdout, result.stderr
    return result.exit_code, json.loads(result.stdout)


async def named_and_stored(place: Place) -> tuple[set[str], set[str]]:
    """Data files that the tables name, and those that are there after a sweep."""
    settings = topic_settings(place.topic, KEYS)
    assert settings is not None
    tables = place.tables()
    warehouse = Warehouse(place.settings.warehouse)
    named: set[str] = set()
    for letters in (False, True):
        upkeep = Upkeep(tables, warehouse, settings, letters=letters)
        await upkeep.sweep(SYSTEM.wall_ms() + GRACE)
        state = tables.load(f"{place.table}__dlq" if letters else place.table)
        assert state is not None
        named |= {one.url for one in tables.files(state)}
    tables.close()
    return named, place.data_files()


@pytest.mark.parametrize("step", mortal_worker.STEPS)
def test_case_47_a_worker_killed_at_a_step_leaves_no_gap_and_no_duplicate(
    bootstrap: str, tmp_path: Path, processes: ForkServerContext, step: str
) -> None:
    place = next(places(bootstrap, tmp_path))
    keys = {key.replace(".", "_"): one for key, one in KEYS.items()}
    asyncio.run(place.create(2, retention_ms="-1", **keys))
    asyncio.run(fill(place, 1))
    if "create" not in step:
        # The table is there, and what the worker dies with is its second round.
        asyncio.run(place.run_once())
        asyncio.run(fill(place, 2))
    child = processes.Process(
        target=mortal_worker.run,
        args=(place.bootstrap, *mortal_worker.places(tmp_path), place.topic, step),
    )
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    end = 7 if "create" in step else 14
    ends = {"0": end, "1": end}
    assert table(place, "run", "--once", "--topics", place.topic) == (0, {place.topic: ends})
    code, found = table(place, "verify", place.topic)
    assert code == 0, found
    rows, letters = place.rows(), place.rows(f"{place.table}__dlq")
    assert (rows.num_rows, letters.num_rows) == (2 * end - 2 * end // 7, 2 * end // 7)
    code, found = table(place, "status", place.topic)
    assert code == 0, found
    named, stored = asyncio.run(named_and_stored(place))
    assert named == stored
