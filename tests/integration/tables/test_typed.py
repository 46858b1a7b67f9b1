"""Tables with columns by schema: JSON values, dead letters, and columns that come later."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.errors import KafkaError
from ottla.tables import rounds
from ottla.tables.errors import TableRunFailed
from ottla.tables.settings import topic_settings
from ottla.wire.error_codes import ErrorCode
from tests.integration.tables.test_worker import Killed, MortalTask

if TYPE_CHECKING:
    from tests.support.tables import Place

JSON = {"ottla_table_value_format": "json"}
SHOP = "shop string, amount bigint"


def rows(place: Place, *names: str, table: str | None = None) -> list[tuple[Any, ...]]:
    found = place.rows(table)
    return list(zip(*(found.column(name).to_pylist() for name in names), strict=True))


async def alter(place: Place, **keys: str) -> None:
    async with Admin(place.bootstrap) as admin:
        await admin.alter_configs(
            "topic",
            place.topic,
            {f"ottla.table.{key.replace('_', '.')}": value for key, value in keys.items()},
        )


async def test_json_values_become_columns(place: Place) -> None:
    await place.create(
        **JSON, ottla_table_value_schema="shop string, at timestamp, tags array<string>"
    )
    await place.fill(
        [b'{"shop":"a","at":"2026-11-16T10:00:00Z","tags":["x"]}', None, b'{"other":1}']
    )
    assert await place.run_once() == {0: 3}
    assert rows(place, "shop", "tags", "_tombstone") == [
        ("a", ["x"], False), (None, None, True), (None, None, False),
    ]  # fmt: skip
    assert "value" not in place.rows().column_names


@pytest.mark.long
async def test_avro_values_become_columns(place: Place) -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "shop", "type": "string"}, {"name": "amount", "type": "long"}],
    }
    await place.create(ottla_table_value_format="avro", ottla_table_value_schema=json.dumps(schema))
    await place.fill([b"\x02a\x08", b"\x02a", b"\x02b\x05"])
    assert await place.run_once() == {0: 3}
    assert rows(place, "_offset", "shop", "amount") == [(0, "a", 4), (2, "b", -3)]
    assert rows(place, "_offset", "reason", table=f"{place.table}__dlq") == [(1, "malformed")]


POISON = {
    b"{": "malformed",
    b"": "malformed",
    b"[1]": "malformed",
    b'{"amount":1}{"amount":2}': "trailing_bytes",
    b'{"amount":9223372036854775808}': "out_of_range",
}


async def test_case_57_poison_goes_to_the_dead_letters_with_its_bytes(place: Place) -> None:
    await place.create(**JSON, ottla_table_value_schema=SHOP)
    good = b'{"shop":"a","amount":1}'
    values = [one for bad in POISON for one in (good, bad)]
    await place.fill(values, key=b"k")
    assert await place.run_once() == {0: len(values)}
    letters = rows(place, "_offset", "value", "reason", "_key", table=f"{place.table}__dlq")
    assert letters == [
        (2 * at + 1, value, reason, b"k") for at, (value, reason) in enumerate(POISON.items())
    ]
    assert rows(place, "_offset", "amount") == [(2 * at, 1) for at in range(len(POISON))]


@pytest.mark.long
async def test_case_58_a_letter_stays_one_although_its_schema_came_later(place: Place) -> None:
    await place.create(**JSON, ottla_table_value_schema="amount int")
    await place.fill([b'{"amount":1}', b'{"amount":3000000000}', b'{"amount":2}'])
    keys = {"enable": "true", "value.format": "json", "value.schema": "amount int"}
    settings = topic_settings(place.topic, {f"ottla.table.{key}": one for key, one in keys.items()})
    assert settings is not None
    async with place.worker() as worker:
        task = MortalTask(worker, settings)
        task.fate = (rounds.CommitRows, "before")
        with pytest.raises(Killed):
            await task.run_once()
    await alter(place, value_schema="amount bigint")
    assert await place.run_once() == {0: 3}
    assert rows(place, "_offset", "amount") == [(0, 1), (2, 2)]
    assert rows(place, "_offset", table=f"{place.table}__dlq") == [(1,)]


@pytest.mark.long
async def test_case_55_columns_that_come_later_are_added_with_their_rows(place: Place) -> None:
    await place.create(**JSON, ottla_table_value_schema="amount int")
    await place.fill([b'{"amount":1}'])
    await place.run_once()
    await alter(place, value_schema="amount bigint, shop string")
    await place.fill([b'{"amount":3000000000,"shop":"b"}'])
    await place.run_once()
    assert rows(place, "amount", "shop") == [(1, None), (3_000_000_000, "b")]
    state = place.state()
    handle: Any = state.handle
    [first, second] = handle.metadata.snapshots
    assert (first.schema_id, second.schema_id) == (0, 1)
    assert len(state.commits) == 2


@pytest.mark.long
async def test_a_raw_table_becomes_a_typed_one(place: Place) -> None:
    await place.create()
    await place.fill([b"bytes"])
    await place.run_once()
    await alter(place, value_format="json", value_schema=SHOP)
    await place.fill([b'{"shop":"a"}'])
    await place.run_once()
    assert rows(place, "value", "shop") == [(b"bytes", None), (None, "a")]


@pytest.mark.long
async def test_a_column_that_cannot_have_the_type_keeps_the_table_waiting(place: Place) -> None:
    await place.create(**JSON, ottla_table_value_schema="amount string")
    await place.run_once()
    await alter(place, value_schema="amount bigint")
    await place.fill([b'{"amount":1}'])
    with pytest.raises(TableRunFailed, match="SchemaConflict"):
        await place.run_once()


@pytest.mark.long
@pytest.mark.parametrize("invalid", ["pause", "drop"])
async def test_poison_may_pause_the_table_or_be_dropped(place: Place, invalid: str) -> None:
    await place.create(**JSON, ottla_table_value_schema=SHOP, ottla_table_invalid=invalid)
    await place.fill([b'{"shop":"a"}', b"{"])
    if invalid == "drop":
        assert await place.run_once() == {0: 2}
        assert rows(place, "shop") == [("a",)]
        return
    with pytest.raises(TableRunFailed, match="offset 1 of partition 0 is malformed"):
        await place.run_once()
    assert place.rows().num_rows == 0


@pytest.mark.long
async def test_the_bytes_can_be_kept_beside_the_columns(place: Place) -> None:
    await place.create(**JSON, ottla_table_value_schema=SHOP, ottla_table_keep_value="true")
    await place.fill([b'{"shop":"a"}'])
    await place.run_once()
    assert rows(place, "shop", "value") == [("a", b'{"shop":"a"}')]


@pytest.mark.long
async def test_section_18_a_broken_schema_is_refused_when_it_is_set(place: Place) -> None:
    """Fault: it was taken, and the table paused."""
    with pytest.raises(KafkaError, match="character 5: expected a type"):
        await place.create(**JSON, ottla_table_value_schema="shop strin")
    await place.create(**JSON, ottla_table_value_schema=SHOP)
    with pytest.raises(KafkaError, match="character 12: expected ','") as caught:
        await alter(place, value_schema="shop string amount")
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    async with Admin(place.bootstrap) as admin:
        [kept] = await admin.describe_configs("topic", place.topic, ["ottla.table.value.schema"])
    assert kept.value == SHOP
