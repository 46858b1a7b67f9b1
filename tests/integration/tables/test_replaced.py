"""A topic that was deleted and created again: its old table and old dead letters."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.client.admin.admin import Admin
from ottla.tables.errors import TopicReplaced
from tests.integration.tables.test_typed import JSON, rows

if TYPE_CHECKING:
    from tests.support.tables import Place

pytestmark = pytest.mark.long

SCHEMA = "amount int"


def run(place: Place, *args: str) -> tuple[int, str]:
    result = place.command(*args)
    return result.exit_code, result.output


async def _replaced(place: Place) -> None:
    """The old topic had a row and three letters; the new one has four good records."""
    await place.create(**JSON, ottla_table_value_schema=SCHEMA)
    await place.fill([b"{", b"{", b"{", b'{"amount":9}'])
    await place.run_once()
    async with Admin(place.bootstrap) as admin:
        await admin.delete_topic(place.topic)
    await place.create(**JSON, ottla_table_value_schema=SCHEMA)
    await place.fill([b'{"amount":%d}' % one for one in range(4)])


@pytest.fixture
def replaced(place: Place) -> Place:
    asyncio.run(_replaced(place))
    return place


def run_once(place: Place) -> tuple[int, str]:
    return run(place, "run", "--once", "--topics", place.topic)


def test_case_54_retire_renames_the_dead_letters_with_the_table(replaced: Place) -> None:
    code, said = run_once(replaced)
    assert (code, "TopicReplaced" in said) == (1, True)
    changed_ms = replaced.state().changed_ms
    code, said = run(replaced, "retire", replaced.topic)
    assert (code, f"{replaced.table}__{changed_ms}__dlq" in said) == (0, True)
    assert run_once(replaced)[0] == 0
    assert rows(replaced, "_offset", "amount") == [(0, 0), (1, 1), (2, 2), (3, 3)]
    old = f"{replaced.table}__{changed_ms}"
    assert rows(replaced, "_offset", "amount", table=old) == [(3, 9)]
    assert rows(replaced, "_offset", table=f"{old}__dlq") == [(0,), (1,), (2,)]
    assert run(replaced, "verify", replaced.topic)[0] == 0
    code, said = run(replaced, "retire", replaced.topic)
    assert (code, "nothing to do" in said) == (0, True)


def test_case_54_readers_see_the_new_log_as_soon_as_the_old_table_is_retired(
    replaced: Place,
) -> None:
    with pytest.raises(TopicReplaced):
        ottla.table(replaced.topic, bootstrap=replaced.bootstrap)
    assert run(replaced, "retire", replaced.topic)[0] == 0
    for _ in range(2):
        found = ottla.table(replaced.topic, bootstrap=replaced.bootstrap).to_arrow(["amount"])
        assert sorted(found.column("amount").to_pylist()) == [0, 1, 2, 3]
        assert run_once(replaced)[0] == 0


def test_case_54_status_and_verify_say_what_to_do_about_the_old_table(replaced: Place) -> None:
    """Fault: the lag was that of another log, and verify spoke of readers."""
    result = replaced.command("status", replaced.topic, "--json")
    [told] = json.loads(result.stdout)
    assert (result.exit_code, told["position"], told["lag"]) == (1, {}, 4)
    code, said = run(replaced, "verify", replaced.topic)
    assert (code, "TopicReplaced" in said) == (1, True)
    assert f"ottla table retire {replaced.topic}" in said


def test_a_table_of_a_deleted_topic_is_named(place: Place) -> None:
    """Fault: the advice was to set ottla.table.enable on a topic that does not exist."""
    asyncio.run(_deleted(place))
    for command in ("status", "verify", "show"):
        code, said = run(place, command, place.topic)
        assert (code, f"there is no topic '{place.topic}'" in said) == (1, True)
        assert place.state().metadata_location in said
    code, said = run(place, "status", f"{place.topic}-never")
    assert (code, "metadata" in said) == (1, False)


async def _deleted(place: Place) -> None:
    await place.create()
    await place.fill([b"x"])
    await place.run_once()
    async with Admin(place.bootstrap) as admin:
        await admin.delete_topic(place.topic)


def test_case_54_letters_of_another_topic_id_never_count_as_taken(replaced: Place) -> None:
    tables = replaced.tables()
    tables.rename(replaced.table, "old")
    tables.close()
    code, said = run_once(replaced)
    assert (code, f"{replaced.table}__dlq belongs to topic id" in said) == (1, True)
    assert run(replaced, "retire", replaced.topic)[0] == 0
    assert run_once(replaced)[0] == 0
    assert rows(replaced, "_offset", "amount") == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_case_54_verify_and_status_see_letters_of_another_topic_id(replaced: Place) -> None:
    letters = f"{replaced.table}__dlq"
    tables = replaced.tables()
    tables.rename(replaced.table, "old")
    tables.rename(letters, "aside")
    asyncio.run(replaced.run_once())
    # As `retire` left it when it renamed the table alone.
    tables.rename("aside", letters)
    tables.close()
    code, said = run(replaced, "status", replaced.topic)
    assert (code, "TopicReplaced" in said) == (1, True)
    assert run(replaced, "verify", replaced.topic)[0] == 0, "the old letters are not compared"


@pytest.mark.parametrize(
    "command",
    [
        ("reprocess",),
        ("erase", "--where", "amount = 9"),
        ("compact",),
        ("expire",),
        ("sweep",),
    ],
)
def test_case_54_commands_that_write_refuse_the_old_table(
    replaced: Place, command: tuple[str, ...]
) -> None:
    name, *options = command
    code, said = run(replaced, name, replaced.topic, *options)
    assert (code, "TopicReplaced" in said) == (1, True), said
    assert rows(replaced, "_offset", "amount") == [(3, 9)]
    letters = rows(replaced, "_offset", "_attempt", table=f"{replaced.table}__dlq")
    assert letters == [(0, 1), (1, 1), (2, 1)]
