"""Rows that must go (case 68)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from ottla.client.admin.admin import Admin
from ottla.tables.compacting import is_ours
from ottla.tables.iceberg import IcebergTables
from ottla.tables.pointer import read_pointers
from tests.integration.tables.test_typed import JSON, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.tables.format import TableState
    from tests.support.tables import Place

pytestmark = pytest.mark.long

SECRET = b"canary-71f3"
RECORDS = [b'{"user":"canary-71f3","n":1}', b'{"user":"b","n":2}', b'{"user":null,"n":3}']


def run(place: Place, *args: str) -> tuple[int, Any, str]:
    result = place.command(*args, "--json")
    return result.exit_code, json.loads(result.stdout or "null"), result.stderr


def with_secret(directory: Path) -> list[str]:
    """Files that have it; values of Parquet are compressed, so these are read."""
    found = []
    for path in directory.rglob("*"):
        if not path.is_file():
            continue
        has = SECRET in path.read_bytes()
        if path.suffix == ".parquet":
            has = has or SECRET in str(read(path)).encode()
        if has:
            found.append(path.name)
    return found


async def filled(place: Place) -> None:
    await place.create(2, **JSON, ottla_table_value_schema="user string, n bigint")
    for number in (0, 1):
        for _ in range(2):
            await place.fill([*RECORDS, b"{"], number, key=b"k")
            await place.run_once()


async def delete_log(place: Place) -> None:
    async with Admin(place.bootstrap) as admin:
        await admin.delete_records({(place.topic, 0): 8, (place.topic, 1): 8})


def test_case_68_no_file_of_the_store_has_the_value_afterwards(place: Place) -> None:
    asyncio.run(filled(place))
    assert with_secret(place.directory / "w")
    where = f"user = '{SECRET.decode()}'"
    code, told, said = run(place, "erase", place.topic, "--where", where)
    assert code == 3, said
    assert (told["rows"], told["in_log"]) == (
        4, {"0": [[0, 1], [4, 5]], "1": [[0, 1], [4, 5]]},
    )  # fmt: skip
    assert f"still in the log: {place.topic}-0 0 to 0, {place.topic}-0 4 to 4" in said
    assert with_secret(place.directory / "w") == []
    assert SECRET not in (place.directory / "catalog.db").read_bytes()
    left = [(number, at, n) for number in (0, 1) for at, n in ((1, 2), (2, 3), (5, 2), (6, 3))]
    assert rows(place, "_partition", "_offset", "n") == left
    assert place.state().next == {0: 8, 1: 8}
    pointer = asyncio.run(read_pointers(place.bootstrap))[place.topic]
    assert pointer.metadata_location == place.state().metadata_location
    assert run(place, "verify", place.topic)[0] == 0
    # The next round goes on, and what is asked again is not done again.
    asyncio.run(place.fill([b'{"user":"c","n":4}']))
    asyncio.run(place.run_once())
    code, told, _ = run(place, "erase", place.topic, "--where", where)
    assert (code, told["rows"], told["files"]) == (3, 0, 0)
    asyncio.run(delete_log(place))
    code, told, said = run(place, "erase", place.topic, "--where", where)
    assert (code, told["in_log"], told["letters_not_searched"]) == (3, {}, 4)
    assert "4 dead letters were not searched" in said
    # Values of dead letters are bytes: whoever looks at them erases them by their places.
    code, told, _ = run(place, "erase", place.topic, "--where", "_offset in (3, 7)")
    assert (code, told["rows"], told["letters_not_searched"]) == (0, 4, 0)
    assert run(place, "erase", place.topic, "--where", "user = 'nobody'")[:2] == (
        0, {"rows": 0, "files": 0, "deleted": 0, "in_log": {}, "letters_not_searched": 0},
    )  # fmt: skip


def test_dead_letters_are_erased_by_what_they_have(place: Place) -> None:
    asyncio.run(filled(place))
    code, told, _ = run(place, "erase", place.topic, "--where", "_key = 'k' and _partition = 1")
    assert (code, told["rows"]) == (3, 8)
    assert {number for (number,) in rows(place, "_partition")} == {0}
    letters = rows(place, "_partition", "_offset", table=f"{place.table}__dlq")
    assert letters == [(0, 3), (0, 7)]


def test_a_predicate_that_cannot_be_is_refused(place: Place) -> None:
    asyncio.run(place.create(**JSON, ottla_table_value_schema="user string"))
    asyncio.run(place.run_once())
    code, _, said = run(place, "erase", place.topic, "--where", "user like 'x'")
    assert (code, "--where" in said) == (2, True)
    code, _, said = run(place, "erase", place.topic, "--where", "nobody = 'x'")
    assert (code, "no column 'nobody'; the columns are user" in said) == (1, True)


def unnamed(state: TableState) -> Path:
    """A data file of rows that the table has, as a merge uploads it before its commit."""
    directory = Path(state.location.removeprefix("file://")) / "data"
    source = min(
        path for path in directory.rglob("*.parquet") if SECRET.decode() in str(read(path))
    )
    copy = source.with_name(f"{uuid4().hex}-0.parquet")
    assert is_ours(str(copy))
    shutil.copyfile(source, copy)
    os.utime(copy, (0, 0))  # a store whose clock is behind
    return copy


def read(path: Path) -> list[Any]:
    import pyarrow.parquet as pq

    found: list[Any] = pq.read_table(path).to_pylist()
    return found


def test_case_64_a_file_that_comes_after_the_commit_of_an_erasure_is_left(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: it was deleted, and the merge that had uploaded it committed a file that was gone."""
    asyncio.run(filled(place))
    early = unnamed(place.state())
    late: list[Path] = []
    expire = IcebergTables.expire

    def uploaded(self: IcebergTables, state: TableState, snapshots: Sequence[int]) -> TableState:
        found = expire(self, state, snapshots)
        if not late:
            late.append(unnamed(state))
        return found

    monkeypatch.setattr(IcebergTables, "expire", uploaded)
    where = f"user = '{SECRET.decode()}'"
    assert run(place, "erase", place.topic, "--where", where)[1]["rows"] == 4
    assert (early.exists(), late[0].exists()) == (False, True)
    # Nothing is written again: no commit is refused because of this one.
    assert run(place, "erase", place.topic, "--where", where)[1]["files"] == 0
    assert late[0].exists()
