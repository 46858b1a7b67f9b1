"""Typed rows whose schemas are in a registry: newer schemas while a query runs, and keys."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from ottla.schemas.encode import encode
from ottla.spark.client_settings import ClientSettings
from ottla.spark.errors import BadOption, SchemaChanged
from ottla.spark.typed_options import TypedOptions, parse_typed
from ottla.spark.typed_reading import record_columns, typed_rows
from ottla.sync import SchemaRegistry
from ottla.testing.embedded import EmbeddedBroker
from tests.unit.spark.test_typed_rows import records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.long("a broker with a registry")
AMOUNT: Final[dict[str, Any]] = {"name": "amount", "type": "long"}
SHOP: Final[dict[str, Any]] = {"name": "shop", "type": "string", "default": "none"}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(registry=True) as running:
        yield running


def encoded(
    broker: EmbeddedBroker, subject: str, fields: list[dict[str, Any]], rows: list[dict[str, Any]]
) -> list[bytes]:
    """Register a schema; rows of it."""
    text = json.dumps({"type": "record", "name": "R", "fields": fields})
    with SchemaRegistry(broker.registry_url) as registry:
        found = registry.register(subject, text)
    values: list[bytes] = encode(
        pa.RecordBatch.from_pylist(rows), found.schema, id=found.id
    ).to_pylist()
    return values


def parsed(broker: EmbeddedBroker, topic: str, **options: str) -> TypedOptions:
    given = {"valueFormat": "registry-latest", **options}
    lower = {name.lower(): value for name, value in given.items()}
    found = parse_typed(lower, ClientSettings(broker.bootstrap), [topic])
    assert found is not None
    return found


def read(
    broker: EmbeddedBroker,
    typed: TypedOptions,
    columns: Sequence[str],
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
) -> dict[str, list[Any]]:
    batch = records(values, keys).select(record_columns(columns, typed))
    client = ClientSettings(broker.bootstrap)
    found: dict[str, list[Any]] = pa.Table.from_batches(
        list(typed_rows([batch], typed, columns, client))
    ).to_pydict()
    return found


@pytest.mark.parametrize("kind", ["registry", "registry-latest"])
def test_case_90_a_newer_schema_is_ignored_or_ends_the_query(
    broker: EmbeddedBroker, kind: str
) -> None:
    topic = f"evolving-{kind}"
    old = encoded(broker, f"{topic}-value", [AMOUNT], [{"amount": 1}])
    ignoring = parsed(broker, topic, valueFormat=kind)
    restarting = parsed(broker, topic, valueFormat=kind, schemaEvolution="restart")
    assert read(broker, restarting, ["amount"], old) == {"amount": [1]}
    new = encoded(broker, f"{topic}-value", [AMOUNT, SHOP], [{"amount": 2, "shop": "a"}])
    assert read(broker, ignoring, ["amount"], [*old, *new]) == {"amount": [1, 2]}
    with pytest.raises(SchemaChanged, match=rf"{topic}-value has a newer schema .*amount, shop"):
        read(broker, restarting, ["amount"], new)
    # Started again, the query has the new columns; older values are no reason to end it.
    again = parsed(broker, topic, valueFormat=kind, schemaEvolution="restart")
    missing = "none" if kind == "registry-latest" else None
    assert read(broker, again, ["amount", "shop"], [*old, *new]) == {
        "amount": [1, 2],
        "shop": [missing, "a"],
    }


def test_keys_of_a_registry(broker: EmbeddedBroker) -> None:
    value = encoded(broker, "keyed-value", [AMOUNT], [{"amount": 1}])
    with pytest.raises(BadOption, match="keyFormat: the registry has no subject keyed-key"):
        parsed(broker, "keyed", keyFormat="registry")
    old = encoded(broker, "keyed-key", [AMOUNT], [{"amount": 7}])
    typed = parsed(broker, "keyed", keyFormat="registry", invalid="null")
    new = encoded(broker, "keyed-key", [AMOUNT, SHOP], [{"amount": 8, "shop": "a"}])
    assert typed.columns.field("_key").type == pa.struct([("amount", pa.int64())])
    found = read(broker, typed, ["_key", "amount", "_error"], value * 4, [*old, *new, None, b"x"])
    assert found == {
        "_key": [{"amount": 7}, {"amount": 8}, None, {"amount": None}],
        "amount": [1] * 4,
        "_error": [None, None, None, "bad_key"],
    }
