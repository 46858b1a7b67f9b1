"""`ottla table rebuild`: rows made again from the log."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.admin.admin import Admin
from ottla.tables.errors import CommitRefused
from ottla.tables.iceberg import IcebergTables
from ottla.tables.pointer import read_pointers
from tests.integration.tables.test_typed import JSON, alter, rows
from tests.support.tables import DAY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.tables import Place

pytestmark = pytest.mark.long


def rebuilt(place: Place, *args: str) -> tuple[int, Any]:
    result = place.command("rebuild", place.topic, *args, "--json")
    assert result.stdout, result.stderr
    return result.exit_code, json.loads(result.stdout)


def verified(place: Place) -> bool:
    return place.command("verify", place.topic).exit_code == 0


async def delete_below(place: Place, offset: int) -> None:
    async with Admin(place.bootstrap) as admin:
        await admin.delete_records({(place.topic, 0): offset})


async def raw_then_typed(place: Place) -> None:
    await place.create(2)
    for turn in range(2):
        for number in (0, 1):
            await place.fill([b'{"n":%d}' % turn, b"{", None], number, timestamp_ms=turn * DAY)
        await place.run_once()
    await alter(place, value_format="json", value_schema="n int", keep_value="true")
    await place.fill([b'{"n":7}'])
    await place.run_once()


def test_older_rows_get_the_columns_of_a_typed_table(place: Place) -> None:
    asyncio.run(raw_then_typed(place))
    wanted = ("_partition", "_offset", "n", "value", "_tombstone")
    assert {n for (n,) in rows(place, "n")} == {None, 7}
    code, told = rebuilt(place)
    assert (code, told) == (0, {"files": 3, "rows": 13, "kept": 4, "left": []})
    of_partition = [
        (0, 0, b'{"n":0}', False), (1, None, b"{", False), (2, None, None, True),
        (3, 1, b'{"n":1}', False), (4, None, b"{", False), (5, None, None, True),
    ]  # fmt: skip
    assert rows(place, *wanted) == [
        *((0, *one) for one in of_partition), (0, 6, 7, b'{"n":7}', False),
        *((1, *one) for one in of_partition),
    ]  # fmt: skip
    assert verified(place)
    assert place.state().next == {0: 7, 1: 6}
    pointer = asyncio.run(read_pointers(place.bootstrap))[place.topic]
    assert pointer.metadata_location == place.state().metadata_location
    asyncio.run(place.fill([b'{"n":8}']))
    assert asyncio.run(place.run_once())[0] == 8


def test_case_68_rows_that_were_erased_do_not_come_back(place: Place) -> None:
    asyncio.run(_with_letters(place))
    assert place.command("erase", place.topic, "--where", "n = 1").exit_code == 3
    assert rebuilt(place)[1]["rows"] == 4
    assert rows(place, "_offset", "n") == [(1, 2), (3, 3), (5, 2), (7, 3)]
    assert rows(place, "_offset", table=f"{place.table}__dlq") == [(2,), (6,)]


async def _with_letters(place: Place) -> None:
    await place.create(**JSON, ottla_table_value_schema="n int")
    for _ in range(2):
        await place.fill([b'{"n":1}', b'{"n":2}', b"{", b'{"n":3}'])
        await place.run_once()


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_file_is_made_again_from_what_is_nowhere_else(place: Place, damage: str) -> None:
    asyncio.run(_with_letters(place))
    assert place.command("erase", place.topic, "--where", "n = 2").exit_code == 3
    before = place.rows()
    tables = place.tables()
    path = Path(max(one.url for one in tables.files(place.state())).removeprefix("file://"))
    tables.close()
    whole = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    result = place.command("verify", place.topic)
    assert (result.exit_code, "ottla table rebuild --files" in result.stderr) == (1, True)
    assert path.name in result.stderr
    code, told = rebuilt(place, "--files", path.name)
    assert (code, told["files"], told["left"]) == (0, 1, [])
    assert place.rows().equals(before)
    assert verified(place)
    result = place.command("rebuild", place.topic, "--files", path.name)
    assert (result.exit_code, "has no file" in result.stderr) == (1, True)


def test_files_whose_records_are_gone_from_the_log_are_left(place: Place) -> None:
    asyncio.run(_with_letters(place))
    before = place.rows()
    asyncio.run(delete_below(place, 1))
    code, told = rebuilt(place)
    assert (code, told["files"]) == (0, 1)
    [left] = told["left"]
    assert left["why"] == "the log of partition 0 begins after its offset 0"
    name = left["file"].rpartition("/")[2]
    assert rebuilt(place, "--files", name)[0] == 1
    assert place.rows().equals(before)


def test_a_damaged_file_that_the_log_has_not_wholly_is_left(place: Place) -> None:
    asyncio.run(_with_letters(place))
    asyncio.run(delete_below(place, 1))
    tables = place.tables()
    [file] = [one for one in tables.files(place.state()) if one.offsets == (0, 3)]
    tables.close()
    Path(file.url.removeprefix("file://")).write_bytes(b"PAR1")
    code, told = rebuilt(place, "--files", file.url)
    assert (code, told["left"]) == (
        1, [{"file": file.url, "why": "the log has 2 of its 3 records"}],
    )  # fmt: skip


def test_case_64_a_rebuild_that_a_round_overtook_starts_over(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(_with_letters(place))
    replace = IcebergTables.replace
    refused: list[object] = []

    def overtaken(self: IcebergTables, state: Any, old: Sequence[Any], *args: Any) -> Any:
        if not refused:
            refused.append(old)
            raise CommitRefused("the table has moved on")
        return replace(self, state, old, *args)

    monkeypatch.setattr(IcebergTables, "replace", overtaken)
    before = place.rows()
    assert rebuilt(place)[1]["files"] == 2
    assert place.rows().equals(before)
    named: set[str] = set()
    tables = place.tables()
    for name in (place.table, f"{place.table}__dlq"):
        named |= tables.named_files(place.state(name))
    tables.close()
    assert place.data_files() <= named
