"""Tables of topics whose values name schemas of a registry."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.client.admin.admin import Admin
from ottla.client.security import PLAINTEXT
from ottla.schemas.registry_client import SchemaRegistry
from ottla.tables import pointer
from ottla.tables.errors import PointersUnreadable, TableRunFailed
from ottla.tables.inspecting import status, verify
from ottla.tables.pointer import create_pointer_topic, read_pointers
from ottla.tables.topic_table import open_table
from ottla.tables.topics import enabled_topics
from ottla.testing.embedded import EmbeddedBroker
from tests.conformance.registry.test_serializers import pair
from tests.integration.tables.test_typed import alter, rows
from tests.support.random_avro import encoded
from tests.support.tables import places

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.tables import Place

pytestmark = pytest.mark.long
REGISTRY = {"ottla_table_value_format": "registry"}
LONG_AGO = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(registry=True) as broker:
        yield broker


@pytest.fixture
def place(broker: EmbeddedBroker, tmp_path: Path) -> Place:
    return next(places(broker.bootstrap, tmp_path))


def order(*fields: tuple[str, Any]) -> dict[str, Any]:
    made = [{"name": name, "type": kind} for name, kind in fields]
    return {"type": "record", "name": "Order", "fields": made}


ONE = order(("amount", "int"))
TWO = {**order(("amount", "long")), "name": "Order"}
TWO["fields"].append({"name": "shop", "type": "string", "default": ""})


class Subject:
    """Registers schemas for the values of a topic, and writes values of them."""

    def __init__(self, broker: EmbeddedBroker, place: Place) -> None:
        self._url = broker.registry_url
        self._name = f"{place.topic}-value"

    async def add(self, schema: Any, kind: str = "avro", *, any_level: bool = False) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        async with SchemaRegistry(self._url) as registry:
            if any_level:
                await registry.set_config("NONE", self._name)
            return (await registry.register(self._name, text, kind=kind)).id


def framed(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def written(number: int, schema: Any, **fields: Any) -> bytes:
    return framed(number, encoded(schema, [fields])[0])


@pytest.fixture
def subject(broker: EmbeddedBroker, place: Place) -> Subject:
    return Subject(broker, place)


async def test_case_55_a_schema_in_the_middle_brings_its_column(
    place: Place, subject: Subject
) -> None:
    one, two = await subject.add(ONE), await subject.add(TWO)
    await place.create(**REGISTRY)
    await place.fill(
        [written(one, ONE, amount=1), written(two, TWO, amount=2**40, shop="a"), None,
         written(one, ONE, amount=3)]
    )  # fmt: skip
    assert await place.run_once() == {0: 4}
    assert rows(place, "amount", "shop", "_schema_id", "_tombstone") == [
        (1, None, one, False), (2**40, "a", two, False), (None, None, None, True),
        (3, None, one, False),
    ]  # fmt: skip
    handle: Any = place.state().handle
    [only] = handle.metadata.snapshots
    assert only.schema_id == handle.metadata.current_schema_id


async def test_case_55_a_schema_of_a_later_round_widens_the_table(
    place: Place, subject: Subject
) -> None:
    one = await subject.add(ONE)
    await place.create(**REGISTRY)
    await place.fill([written(one, ONE, amount=1)])
    await place.run_once()
    before = {each.name: each.metadata for each in place.state().columns}
    two = await subject.add(TWO)
    await place.fill([written(two, TWO, amount=2**40, shop="b")])
    await place.run_once()
    assert rows(place, "amount", "shop") == [(1, None), (2**40, "b")]
    after = {each.name: each.metadata for each in place.state().columns}
    assert {name: after[name] for name in before} == before


async def test_case_56_a_conflict_goes_to_the_dead_letters_or_to_a_column(
    place: Place, subject: Subject
) -> None:
    one = await subject.add(ONE)
    await place.create(**REGISTRY)
    await place.run_once()  # the table has the columns that the subject has now
    text = order(("amount", "string"))
    two = await subject.add(text, any_level=True)
    both = [written(one, ONE, amount=1), written(two, text, amount="x")]
    await place.fill(both)
    await place.run_once()
    assert rows(place, "_offset", "amount") == [(0, 1)]
    letters = rows(place, "_offset", "reason", "schema_id", "value", table=f"{place.table}__dlq")
    assert letters == [(1, "schema_conflict", two, both[1])]
    await alter(place, on_conflict="new-column")
    await place.fill(both)
    await place.run_once()
    assert rows(place, "_offset", "amount", "amount__string") == [
        (0, 1, None), (2, 1, None), (3, None, "x"),
    ]  # fmt: skip
    names = json.loads(dict(_properties(place))["ottla.names"])
    assert names == {"amount__string": {"source": "amount"}}
    await place.fill(both)  # another worker knows the column by the property
    await place.run_once()
    assert rows(place, "amount", "amount__string")[-2:] == [(1, None), (None, "x")]


def _properties(place: Place) -> dict[str, str]:
    handle: Any = place.state().handle
    return dict(handle.metadata.properties)


async def test_case_12_references_are_resolved(
    broker: EmbeddedBroker, place: Place, subject: Subject
) -> None:
    from ottla.schemas.model import Reference

    shop = {"type": "record", "name": "Shop", "fields": [{"name": "name", "type": "string"}]}
    tree = order(("shop", "Shop"))
    async with SchemaRegistry(broker.registry_url) as registry:
        await registry.register(f"{place.topic}-shop", json.dumps(shop))
        number = (
            await registry.register(
                f"{place.topic}-value",
                json.dumps(tree),
                references=[Reference("Shop", f"{place.topic}-shop", 1)],
            )
        ).id
    await place.create(**REGISTRY)
    await place.fill([framed(number, b"\x02a")])
    await place.run_once()
    assert rows(place, "shop") == [({"name": "a"},)]


async def test_json_schema_and_protobuf_values(place: Place, subject: Subject) -> None:
    text = {"type": "object", "properties": {"shop": {"type": "string"}}}
    one = await subject.add(text, "json")
    proto = 'syntax = "proto3"; message M { bool paid = 1; }'
    two = await subject.add(proto, "protobuf", any_level=True)
    await place.create(**REGISTRY)
    await place.fill([framed(one, b'{"shop":"a"}'), framed(two, b"\x00\x08\x01")])
    await place.run_once()
    assert rows(place, "shop", "paid") == [("a", None), (None, True)]


@pytest.mark.parametrize("in_headers", [False, True])
async def test_case_35_values_of_confluents_serialisers(
    broker: EmbeddedBroker, place: Place, *, in_headers: bool
) -> None:
    """Three kinds of schemas in one topic; headers name them by GUID, and the table by none."""

    def serialised(kind: str) -> tuple[bytes, list[Any]]:
        conf = {"schema.id.serializer": header_schema_id_serializer} if in_headers else {}
        headers: list[Any] = []
        context = SerializationContext(f"{place.topic}-{kind}", MessageField.VALUE, headers)
        with SchemaRegistryClient({"url": broker.registry_url}) as client:
            write, _, value = pair(kind, client, conf)
            return write(value, context), headers

    await place.create(**REGISTRY)
    for kind in ("avro", "json", "protobuf"):
        value, headers = await asyncio.to_thread(serialised, kind)
        await place.fill([value], headers=headers)
    assert await place.run_once() == {0: 3}
    found = rows(place, "shop", "_schema_id")
    assert [one for one, _ in found] == ["north"] * 3
    assert all((number is None) == in_headers for _, number in found)


async def test_latest_has_the_columns_of_the_newest_schema(place: Place, subject: Subject) -> None:
    one = await subject.add(ONE)
    await place.create(ottla_table_value_format="registry-latest")
    await place.fill([written(one, ONE, amount=1)])
    await place.run_once()
    await subject.add(TWO)
    await place.fill([written(one, ONE, amount=2)])
    await place.run_once()
    assert rows(place, "amount", "shop") == [(1, None), (2, "")]


async def test_case_34_an_unknown_schema_is_waited_for(place: Place, subject: Subject) -> None:
    one = await subject.add(ONE)
    await place.create(**REGISTRY, message_timestamp_after_max_ms=str(2**62))
    future = LONG_AGO * 2  # a test that takes a minute finds no letter, either
    await place.fill([written(one, ONE, amount=1), framed(999_999, b"\x02")], timestamp_ms=future)
    for _ in range(2):
        with pytest.raises(TableRunFailed, match="offset 1 is not in the registry yet"):
            await place.run_once()
        assert rows(place, "_offset") == [(0,)]
        assert place.state().next == {0: 1}


async def test_case_57_an_old_record_of_an_unknown_schema_is_a_letter(
    place: Place, subject: Subject
) -> None:
    one = await subject.add(ONE)
    await place.create(**REGISTRY, retention_ms="-1")
    await place.fill([framed(999_999, b"\x02"), b"junk"], timestamp_ms=LONG_AGO)
    await place.fill([written(one, ONE, amount=1)], timestamp_ms=LONG_AGO)
    assert await place.run_once() == {0: 3}
    assert rows(place, "_offset", "amount") == [(2, 1)]
    assert rows(place, "_offset", "reason", table=f"{place.table}__dlq") == [
        (0, "unknown_schema"), (1, "not_framed"),
    ]  # fmt: skip


async def test_case_94_the_tail_has_the_tables_columns(place: Place, subject: Subject) -> None:
    one = await subject.add(ONE)
    await place.create(**REGISTRY)
    await place.fill([written(one, ONE, amount=1)])
    await place.run_once()
    two = await subject.add(TWO)
    await place.fill([written(two, TWO, amount=2, shop="b"), b"junk"])
    table = await open_table(place.topic, bootstrap=place.bootstrap)
    assert table.to_arrow(["_offset", "amount"]).to_pydict() == {
        "_offset": [0, 1], "amount": [1, 2],
    }  # fmt: skip
    assert table.schema.field("amount").type == pa.int32()


async def test_text_keys(place: Place) -> None:
    await place.create(ottla_table_key_format="utf8")
    await place.fill([b"1"], key="kéy".encode())
    await place.fill([b"2"], key=b"\xff")
    await place.run_once()
    assert rows(place, "_key", "value") == [("kéy", b"1")]
    assert rows(place, "_key", "reason", table=f"{place.table}__dlq") == [(b"\xff", "bad_key")]


async def test_keys_of_a_registry(broker: EmbeddedBroker, place: Place) -> None:
    key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
    async with SchemaRegistry(broker.registry_url) as registry:
        number = (await registry.register(f"{place.topic}-key", json.dumps(key))).id
    await place.create(ottla_table_key_format="registry")
    await place.fill([b"1"], key=framed(number, b"\x02"))
    await place.fill([b"2"], key=b"junk")
    await place.run_once()
    assert rows(place, "_key", "value") == [({"id": 1}, b"1")]
    assert rows(place, "_key", "reason", table=f"{place.table}__dlq") == [(b"junk", "bad_key")]
    await place.fill([b"3"], key=framed(number, b"\x04"))
    table = await open_table(place.topic, bootstrap=place.bootstrap)
    assert table.to_arrow(["_key"]).to_pydict() == {"_key": [{"id": 1}, {"id": 2}]}
    tables = place.tables()
    try:
        async with Admin(place.bootstrap) as admin:
            settings = (await enabled_topics(admin, [place.topic], {}))[place.topic]
            assert (await status(admin, tables, settings, 0)).problem is None
            findings = await verify(place.bootstrap, PLAINTEXT, admin, tables, settings)
            assert not any(one.is_wrong for one in findings)
    finally:
        tables.close()


async def test_a_table_on_a_broker_that_does_not_know_its_keys_tells_how_to_read_the_tail(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    place = next(places(broker.bootstrap, tmp_path))
    broker.create_topic(place.topic)
    keys = {"enable": "true", "value.format": "json", "value.schema": "a int"}
    await place.fill([b'{"a":1}'])
    overrides = {place.topic: {f"ottla.table.{key}": one for key, one in keys.items()}}
    await place.run_once(overrides=overrides)
    await place.fill([b'{"a":2}', b"{"])
    table = await open_table(place.topic, bootstrap=place.bootstrap)
    assert table.to_arrow(["a"]).to_pydict() == {"a": [1, 2]}


def test_the_registry_of_another_cluster_is_named_by_an_option(
    broker: EmbeddedBroker, ottla_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    place = next(places(ottla_broker.bootstrap, tmp_path))
    one = asyncio.run(Subject(broker, place).add(ONE))
    asyncio.run(place.create(**REGISTRY))
    asyncio.run(place.fill([written(one, ONE, amount=1)]))
    args = ["run", "--once", "--topics", place.topic]
    told = place.command(*args)
    assert (told.exit_code, "the brokers do not say" in told.stderr) == (1, True)
    told = place.command(*args, "--registry", broker.registry_url)
    assert told.exit_code == 0, told.stderr
    assert rows(place, "amount", "_schema_id") == [(1, one)]


def test_rows_are_made_again_with_the_columns_of_all_schemas(
    place: Place, subject: Subject
) -> None:
    one = asyncio.run(subject.add(ONE))
    asyncio.run(place.create())
    asyncio.run(place.fill([written(one, ONE, amount=1)]))
    two = asyncio.run(subject.add(TWO))
    asyncio.run(place.fill([written(two, TWO, amount=2**40, shop="b"), b"junk"]))
    asyncio.run(place.run_once())
    asyncio.run(alter(place, value_format="registry"))
    told = place.command("rebuild", place.topic, "--json")
    assert told.exit_code == 0, told.stderr
    assert json.loads(told.stdout) == {"files": 1, "rows": 3, "kept": 1, "left": []}
    assert rows(place, "_offset", "amount", "shop", "_schema_id") == [
        (0, 1, None, one), (1, 2**40, "b", two), (2, None, None, None),
    ]  # fmt: skip
    assert place.state().next == {0: 3}
    asyncio.run(place.fill([written(two, TWO, amount=5, shop="c")]))
    assert asyncio.run(place.run_once()) == {0: 4}


async def test_pointers_that_do_not_come_are_an_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Admin(place.bootstrap) as admin:
        await create_pointer_topic(admin)

    async def never(_: object) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(pointer, "_newest", never)
    with pytest.raises(PointersUnreadable, match=r"ottla\.tables could not be read within 5 s"):
        await read_pointers(place.bootstrap, api_timeout=5)
