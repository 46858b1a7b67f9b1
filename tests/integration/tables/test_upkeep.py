"""Upkeep of real tables: rows stay, files go."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.transforms import HourTransform

from ottla.client.admin.admin import Admin
from ottla.client.security import PLAINTEXT
from ottla.clock import SYSTEM
from ottla.tables.errors import CommitRefused
from ottla.tables.format import Commit
from ottla.tables.iceberg import open_snapshot
from ottla.tables.inspecting import verify
from ottla.tables.settings import topic_settings
from ottla.tables.table_task import TableTask
from ottla.tables.upkeep import Upkeep
from ottla.tables.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.tables import Place

HOUR = 3_600_000

pytestmark = pytest.mark.long


def upkeep(place: Place) -> Upkeep:
    settings = topic_settings(place.topic, {"ottla.table.enable": "true"})
    assert settings is not None
    return Upkeep(place.tables(), Warehouse(place.settings.warehouse), settings)


@pytest.mark.parametrize("in_memory", [True, False])
async def test_case_63_files_are_merged_and_the_old_ones_go_after_the_grace(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    if not in_memory:
        monkeypatch.setattr("ottla.tables.merging.IN_MEMORY", 0)
    await place.create(2)
    for turn in range(3):
        await place.fill([b"%d" % turn, b"x"], 0, headers=(("h", b"1"),))
        await place.fill([b"%d" % turn], 1)
        await place.run_once()
    before, files = place.rows(), place.data_files()
    assert len(files) == 3
    now = SYSTEM.wall_ms() + 2 * HOUR
    work = upkeep(place)
    spool = tmp_path / "spool"
    assert await work.compact(spool, now) == 1
    assert await work.compact(spool, now) == 0
    assert list(spool.iterdir()) == []
    assert place.rows().equals(before)
    state = place.state()
    tables = place.tables()
    [merged] = tables.files(state)
    tables.close()
    assert (merged.rows, merged.partitions, merged.offsets) == (9, (0, 1), (0, 5))
    assert state.next == {0: 6, 1: 3}
    assert await work.sweep(now) == 0
    await place.fill([b"more"])
    assert (await place.run_once())[0] == 7


async def test_case_64_a_merge_that_a_round_overtook_is_dropped(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.create()
    for _ in range(2):
        await place.fill([b"a"])
        await place.run_once()
    work = upkeep(place)
    upload = Warehouse.upload

    async def overtaken(self: Warehouse, spool: Path, url: str) -> None:
        monkeypatch.setattr(Warehouse, "upload", upload)
        await place.fill([b"b"])
        await place.run_once()
        await upload(self, spool, url)

    monkeypatch.setattr(Warehouse, "upload", overtaken)
    assert await work.compact(tmp_path / "spool", SYSTEM.wall_ms() + 2 * HOUR) == 0
    assert place.values() == [b"a", b"a", b"b"]
    assert len(place.data_files()) == 3


async def test_old_snapshots_and_what_only_they_name_go(place: Place, tmp_path: Path) -> None:
    await place.create()
    for turn in range(30):
        state = place.state() if turn else None
        if turn == 0:
            await place.fill([b"a"])
            await place.run_once()
            continue
        assert state is not None
        tables = place.tables()
        tables.commit(state, Commit(f"{turn}", state.next, state.next, state.first, (), ()))
        tables.close()
    now = SYSTEM.wall_ms() + 48 * HOUR
    work = upkeep(place)
    assert await work.expire(now) == 20
    assert await work.expire(now) == 0
    stray = (
        place.directory / "w/ottla" / place.state().location.rpartition("/")[2] / "data/mine.txt"
    )
    stray.write_text("not ours")
    assert await work.sweep(SYSTEM.wall_ms()) == 0
    gone = await work.sweep(now)
    assert gone >= 20
    assert await work.sweep(now) == 0
    assert stray.exists()
    assert place.values() == [b"a"]
    await place.fill([b"b"])
    await place.run_once()
    assert place.values() == [b"a", b"b"]


async def test_files_of_an_older_partition_spec_are_left(place: Place, tmp_path: Path) -> None:
    await place.create()
    for _ in range(2):
        await place.fill([b"a"], timestamp_ms=5 * 24 * HOUR)
        await place.run_once()
    handle: Any = place.state().handle
    with handle.update_spec() as update:
        update.remove_field("_day")
        update.add_field("_timestamp", HourTransform(), "_hour")
    for _ in range(2):
        await place.fill([b"b"], timestamp_ms=5 * 24 * HOUR)
        await place.run_once()
    assert await upkeep(place).compact(tmp_path / "spool", SYSTEM.wall_ms() + 2 * HOUR) == 1
    tables = place.tables()
    found = sorted((one.bucket or 0, one.rows) for one in tables.files(place.state()))
    tables.close()
    assert found == [(0, 1), (0, 1), (5 * 24, 2)]
    assert place.values() == [b"a", b"a", b"b", b"b"]


async def test_case_65_old_days_leave_the_table_and_not_the_topic(place: Place) -> None:
    await place.create()
    await place.fill([b"old"], timestamp_ms=5 * 24 * HOUR)
    await place.fill([b"new"])
    await place.run_once()
    keys = {"ottla.table.enable": "true", "ottla.table.retention.ms": str(24 * HOUR)}
    settings = topic_settings(place.topic, keys)
    assert settings is not None
    tables = place.tables()
    work = Upkeep(tables, Warehouse(place.settings.warehouse), settings)
    assert await work.retain(SYSTEM.wall_ms()) == 1
    assert await work.retain(SYSTEM.wall_ms()) == 0
    assert (place.values(), place.state().next) == ([b"new"], {0: 2})
    # So that nobody takes the table for complete below it.
    dropped = open_snapshot(place.state().metadata_location).properties["ottla.dropped"]
    assert dropped == '{"0":1}'
    async with Admin(place.bootstrap) as admin:
        [found] = await verify(place.bootstrap, PLAINTEXT, admin, tables, settings)
    tables.close()
    assert not found.is_wrong
    await place.fill([b"more"])
    assert await place.run_once() == {0: 3}
    assert place.values() == [b"new", b"more"]


async def test_a_table_that_was_rolled_back_is_left_alone(place: Place, tmp_path: Path) -> None:
    await place.create()
    for _ in range(3):
        await place.fill([b"a"])
        await place.run_once()
    state = place.state()
    handle = state.handle
    ids = [one.snapshot_id for one in handle.metadata.snapshots]  # type: ignore[attr-defined]  # pyiceberg's
    handle.manage_snapshots().rollback_to_snapshot(ids[1]).commit()  # type: ignore[attr-defined]  # pyiceberg's
    assert await upkeep(place).compact(tmp_path / "spool", SYSTEM.wall_ms() + 2 * HOUR) == 0


async def test_a_replacement_is_refused_when_the_table_has_moved_on(place: Place) -> None:
    await place.create()
    await place.fill([b"a"])
    await place.run_once()
    stale = place.state()
    await place.fill([b"b"])
    await place.run_once()
    tables = place.tables()
    with pytest.raises(CommitRefused):
        tables.expire(stale, [stale.snapshot or 0])
    tables.close()


async def test_a_table_that_does_not_change_is_left_alone(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of a thousand idle tables spent half of its time on looking after them."""
    await place.create()
    await place.fill([b"one"])
    looked = 0
    loaded = 0
    step, load = Upkeep.step, TableTask._load

    async def counted(upkeep: Upkeep, spool: Path, now_ms: int) -> None:
        nonlocal looked
        looked += 1
        await step(upkeep, spool, now_ms)

    async def noted(task: TableTask) -> Any:
        nonlocal loaded
        loaded += 1
        return await load(task)

    monkeypatch.setattr(Upkeep, "step", counted)
    monkeypatch.setattr(TableTask, "_load", noted)
    settings = topic_settings(place.topic, {"ottla.table.enable": "true"})
    assert settings is not None
    async with place.worker() as worker:
        task = TableTask(worker, replace(settings, commit_interval=0.01))
        running = asyncio.create_task(task.run())
        while loaded < 8:  # noqa: ASYNC110  # polled, as the worker does
            await asyncio.sleep(0.01)
        before = looked
        assert before <= 3  # after its creation, its first commit, and once more
        await place.fill([b"two"])
        while looked == before:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
