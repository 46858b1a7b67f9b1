"""Dead letters that are tried again, and upkeep of their table."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import ottla
from ottla.cli.whole import app
from ottla.client.admin.admin import Admin
from ottla.client.security import PLAINTEXT
from ottla.clock import SYSTEM
from ottla.tables import rounds
from ottla.tables.converting import Converter
from ottla.tables.errors import NoTable
from ottla.tables.inspecting import verify
from ottla.tables.pointer import read_pointers
from ottla.tables.reprocessing import Moved, Reprocessing, Wanted
from ottla.tables.settings import topic_settings
from ottla.tables.topic_table import open_table
from ottla.tables.upkeep import Upkeep
from ottla.tables.warehouse import Warehouse
from tests.integration.tables.test_typed import JSON, alter, rows
from tests.integration.tables.test_worker import Killed, MortalTask

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.tables.settings import TopicSettings
    from tests.support.tables import Place

pytestmark = pytest.mark.long

HOUR = 3_600_000
LARGE = b'{"amount":3000000000}'


def settings_of(place: Place, schema: str) -> TopicSettings:
    keys = {"enable": "true", "value.format": "json", "value.schema": schema}
    found = topic_settings(place.topic, {f"ottla.table.{key}": one for key, one in keys.items()})
    assert found is not None
    return found


def work(place: Place, schema: str, spool: Path) -> Reprocessing:
    warehouse = Warehouse(place.settings.warehouse)
    settings = settings_of(place, schema)
    return Reprocessing(place.tables(), warehouse, settings, Converter(settings), spool)


async def is_right(place: Place, schema: str) -> bool:
    tables = place.tables()
    async with Admin(place.bootstrap) as admin:
        found = await verify(place.bootstrap, PLAINTEXT, admin, tables, settings_of(place, schema))
    tables.close()
    return not any(one.is_wrong for one in found)


async def filled(place: Place) -> None:
    """Offsets 1 and 2 of each partition do not fit `amount int`; 1 fits bigint."""
    await place.create(2, **JSON, ottla_table_value_schema="amount int")
    for number in (0, 1):
        await place.fill([b'{"amount":1}', LARGE, b"{", b'{"amount":2}'], number, key=b"k")
    await place.run_once()
    await alter(place, value_schema="amount bigint")


async def test_case_59_letters_that_fit_by_now_become_rows(place: Place, tmp_path: Path) -> None:
    await filled(place)
    letters = f"{place.table}__dlq"
    done = await work(place, "amount bigint", tmp_path / "a").run(Wanted())
    assert done == Moved(2, 2)
    assert rows(place, "_partition", "_offset", "amount", "_key") == [
        (number, offset, amount, b"k")
        for number in (0, 1)
        for offset, amount in ((0, 1), (1, 3_000_000_000), (3, 2))
    ]
    assert rows(place, "_offset", "value", "_attempt", table=letters) == [(2, b"{", 2)] * 2
    assert await is_right(place, "amount bigint")
    assert place.state().next == {0: 4, 1: 4}
    await place.fill([b'{"amount":3}'])
    assert await place.run_once() == {0: 5, 1: 4}
    assert await is_right(place, "amount bigint")


def test_case_59_readers_see_the_rows_at_once(place: Place) -> None:
    asyncio.run(filled(place))
    result = CliRunner().invoke(
        app,
        [
            "table", "reprocess", place.topic, "--bootstrap", place.bootstrap,
            "--warehouse", f"file://{place.directory}/w",
            "--catalog", f"sqlite:///{place.directory}/catalog.db",
        ],
    )  # fmt: skip
    assert "2 dead letters are rows now, 2 still do not fit" in result.output
    found = ottla.table(place.topic, bootstrap=place.bootstrap).to_arrow(["amount"])
    assert sorted(found.column("amount").to_pylist()) == [1, 1, 2, 2, 3_000_000_000, 3_000_000_000]
    pointer = asyncio.run(read_pointers(place.bootstrap))[place.topic]
    assert pointer.metadata_location == place.state().metadata_location


def test_case_57_dead_letters_are_read_by_the_name_of_their_table(place: Place) -> None:
    asyncio.run(filled(place))
    name = f"{place.table}__dlq"
    for known_as in (name, f"{place.topic}__dlq"):
        found = ottla.table(known_as, bootstrap=place.bootstrap).to_arrow()
        assert sorted(found.column("_offset").to_pylist()) == [1, 1, 2, 2]
    cut = ottla.table(name, bootstrap=place.bootstrap, at={0: 2, 1: 4}).to_arrow(["_offset"])
    assert sorted(cut.column("_offset").to_pylist()) == [1, 1, 2]
    statement = f"select reason, count(*) as n from {name} group by reason order by reason"
    result = CliRunner().invoke(app, ["sql", statement, "--json", "--bootstrap", place.bootstrap])
    assert (result.exit_code, [json.loads(one) for one in result.stdout.splitlines()]) == (
        0, [{"reason": "malformed", "n": 2}, {"reason": "out_of_range", "n": 2}],
    )  # fmt: skip


async def test_a_topic_without_dead_letters_says_so(place: Place) -> None:
    await place.create()
    await place.fill([b"one"])
    await place.run_once()
    with pytest.raises(NoTable, match=f"topic '{place.topic}' has no dead letters"):
        await open_table(f"{place.topic}__dlq", bootstrap=place.bootstrap)


async def test_case_59_only_the_letters_that_were_asked_for_are_tried(
    place: Place, tmp_path: Path
) -> None:
    await filled(place)
    again = work(place, "amount bigint", tmp_path / "a")
    assert await again.run(Wanted(reason="malformed")) == Moved(0, 2)
    future_us = (SYSTEM.wall_ms() + HOUR) * 1000
    assert await again.run(Wanted(since_us=future_us)) == Moved(0, 0)
    assert await again.run(Wanted(reason="out_of_range")) == Moved(2, 0)
    attempts = rows(place, "reason", "_attempt", table=f"{place.table}__dlq")
    assert attempts == [("malformed", 2)] * 2


async def test_case_59_a_kill_between_the_two_commits_leaves_one_copy_after_the_next_run(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(place)
    killed = work(place, "amount bigint", tmp_path / "a")

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(killed._tables, "replace", die)
        with pytest.raises(Killed):
            await killed.run(Wanted())
    assert not await is_right(place, "amount bigint"), "they are in both tables"
    assert await work(place, "amount bigint", tmp_path / "b").run(Wanted()) == Moved(2, 2)
    assert await is_right(place, "amount bigint")


async def test_case_64_a_run_that_a_round_overtook_leaves_no_file(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: the rows of the refused commit stayed in the store until a sweep."""
    await filled(place)
    upload = Warehouse.upload

    async def overtaken(self: Warehouse, spool: Path, url: str) -> None:
        monkeypatch.setattr(Warehouse, "upload", upload)
        await place.fill([b'{"amount":9}'])
        await place.run_once()
        await upload(self, spool, url)

    monkeypatch.setattr(Warehouse, "upload", overtaken)
    assert await work(place, "amount bigint", tmp_path / "a").run(Wanted()) == Moved(2, 2)
    assert await is_right(place, "amount bigint")
    tables = place.tables()
    named: set[str] = set()
    for name in (place.table, f"{place.table}__dlq"):
        named |= tables.named_files(place.state(name))
    tables.close()
    assert place.data_files() <= named


async def test_case_59_letters_that_the_worker_has_not_passed_are_left(
    place: Place, tmp_path: Path
) -> None:
    await place.create(**JSON, ottla_table_value_schema="amount int")
    await place.fill([b'{"amount":1}', LARGE])
    async with place.worker() as worker:
        task = MortalTask(worker, settings_of(place, "amount int"))
        task.fate = (rounds.CommitRows, "before")
        with pytest.raises(Killed):
            await task.run_once()
    assert rows(place, "_offset", table=f"{place.table}__dlq") == [(1,)]
    await alter(place, value_schema="amount bigint")
    again = work(place, "amount bigint", tmp_path / "a")
    assert await again.run(Wanted()) == Moved(0, 0)
    await place.run_once()
    assert await again.run(Wanted()) == Moved(1, 0)
    assert await is_right(place, "amount bigint")


async def test_letters_are_merged_and_their_old_files_go(place: Place, tmp_path: Path) -> None:
    await place.create(**JSON, ottla_table_value_schema="amount int")
    for _ in range(3):
        await place.fill([b'{"amount":1}', b"{"])
        await place.run_once()
    letters = f"{place.table}__dlq"
    before = place.rows(letters)
    warehouse = Warehouse(place.settings.warehouse)
    settings = settings_of(place, "amount int")
    upkeep = Upkeep(place.tables(), warehouse, settings, letters=True)
    now = SYSTEM.wall_ms() + 2 * HOUR
    assert await upkeep.compact(tmp_path / "spool", now) == 1
    assert place.rows(letters).equals(before)
    tables = place.tables()
    [merged] = tables.files(place.state(letters))
    tables.close()
    assert (merged.rows, merged.offsets) == (3, (1, 5))
    await place.fill([b"{", b'{"amount":2}'])
    assert await place.run_once() == {0: 8}
    assert await is_right(place, "amount int")
