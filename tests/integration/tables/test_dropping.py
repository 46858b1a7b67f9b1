"""`ottla table drop`: tables go with all their files."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ottla.cli.whole import app
from ottla.client.admin.admin import Admin
from ottla.tables.dropping import found
from ottla.tables.errors import TableError, TableRunFailed
from ottla.tables.pointer import read_pointers
from ottla.tables.table_task import TableTask
from tests.integration.tables.test_typed import JSON, alter

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.tables import Place

pytestmark = pytest.mark.long


async def filled(place: Place) -> None:
    await place.create(**JSON, ottla_table_value_schema="n int")
    for _ in range(2):
        await place.fill([b'{"n":1}', b"{"])
        await place.run_once()


def stored(place: Place) -> list[Path]:
    return [path for path in (place.directory / "w").rglob("*") if path.is_file()]


def test_a_table_is_dropped_with_its_letters_and_files(place: Place) -> None:
    asyncio.run(filled(place))
    told = place.command("drop", place.topic, "--yes")
    assert (told.exit_code, "ottla.table.enable=false" in told.stderr) == (1, True)
    asyncio.run(alter(place, enable="false"))
    told = place.command("drop", place.topic)
    assert told.exit_code == 1
    assert "with 4 rows in 4 files; --yes deletes them" in told.stderr
    assert place.rows().num_rows == 2
    mine = place.directory / "w/ottla/note.txt"
    mine.write_text("not ours")
    told = place.command("drop", place.topic, "--yes")
    assert told.exit_code == 0, told.stderr
    assert re.search(r"with 4 rows are gone, and \d+ files", told.stdout)
    assert stored(place) == [mine]
    assert place.topic not in asyncio.run(read_pointers(place.bootstrap))
    told = place.command("drop", place.topic, "--yes")
    assert (told.exit_code, "nothing to do" in told.stdout) == (0, True)


def test_the_table_of_a_deleted_topic_is_dropped(place: Place) -> None:
    asyncio.run(filled(place))

    async def delete() -> None:
        async with Admin(place.bootstrap) as admin:
            await admin.delete_topic(place.topic)

    asyncio.run(delete())
    assert place.command("drop", place.topic, "--yes").exit_code == 0
    assert stored(place) == []


async def test_a_dropped_table_is_not_made_again_by_a_worker_that_is_late(place: Place) -> None:
    await filled(place)
    async with place.worker() as worker:
        [settings] = (await worker._enabled()).values()
        await alter(place, enable="false")
        drop = await asyncio.to_thread(place.command, "drop", place.topic, "--yes")
        assert drop.exit_code == 0, drop.stderr
        with pytest.raises(TableRunFailed, match="enable is not true any more"):
            await TableTask(worker, settings).run_once()
    tables = place.tables()
    assert tables.load(place.table) is None
    tables.close()


async def test_the_table_of_another_topic_is_left(place: Place) -> None:
    await filled(place)
    tables = place.tables()
    with pytest.raises(TableError, match="is of topic"):
        found(tables, "another", place.table)
    tables.close()


def test_a_worker_of_another_directory_makes_no_second_table(place: Place, tmp_path: Path) -> None:
    """Fault: it repointed all readers, who then missed what only the first table had."""
    asyncio.run(filled(place))
    other = ["--warehouse", f"file://{tmp_path}/other", "--bootstrap", place.bootstrap]

    def run(*args: str) -> tuple[int, str]:
        told = CliRunner().invoke(app, ["table", *args, *other])
        return told.exit_code, told.output

    pointer = asyncio.run(read_pointers(place.bootstrap))[place.topic]
    code, said = run("run", "--once", "--topics", place.topic)
    assert (code, "TableElsewhere: this catalogue has no table of the topic" in said) == (1, True)
    assert pointer.metadata_location in said
    assert asyncio.run(read_pointers(place.bootstrap))[place.topic] == pointer
    assert place.command("run", "--once", "--topics", place.topic).exit_code == 0
    asyncio.run(alter(place, enable="false"))
    code, said = run("drop", place.topic)
    assert (code, "--yes has them forget it, and its files stay" in said) == (1, True)
    kept = stored(place)
    assert run("drop", place.topic, "--yes")[0] == 0
    assert stored(place) == kept
    asyncio.run(alter(place, enable="true"))
    assert run("run", "--once", "--topics", place.topic)[0] == 0
    moved = asyncio.run(read_pointers(place.bootstrap))[place.topic]
    assert moved.metadata_location.startswith(f"file://{tmp_path}/other/")
