"""Records as typed rows, in Spark's workers.

A row must not depend on the columns that are asked for. So values are decoded whole where an
invalid one is left out or shown as null; where it fails the query, only the wanted columns are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ottla.schemas.decode import decode
from ottla.schemas.model import FRAMED
from ottla.schemas.reasons import Reason
from ottla.spark.errors import InvalidValue
from ottla.spark.typed_options import ERROR, table_of
from ottla.tables.converting import Converter
from ottla.tables.rows import raw_rows
from ottla.tables.settings import converted_by
from ottla.wire.columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ottla.schemas.cache import SchemaCache
    from ottla.schemas.decode import Decoded
    from ottla.schemas.model import Schema
    from ottla.spark.client_settings import ClientSettings
    from ottla.spark.typed_options import TypedOptions


def record_columns(columns: Sequence[str], typed: TypedOptions) -> tuple[str, ...]:
    """The columns of records that typed rows need."""
    if typed.format == "table":
        return COLUMNS
    needed = {"_key": "key", "_timestamp": "timestamp", "_timestamp_type": "timestampType"}
    more = [of_record for name, of_record in needed.items() if name in columns]
    # A header may name the schema of a value.
    headers = ["headers"] if "_headers" in columns or typed.format in FRAMED else []
    return ("value", "topic", "partition", "offset", *more, *headers)


def typed_rows(
    batches: Iterable[pa.RecordBatch],
    typed: TypedOptions,
    columns: Sequence[str],
    client: ClientSettings,
) -> Iterator[pa.RecordBatch]:
    """The rows of records, with these columns in this order."""
    everything = typed.columns
    schema = pa.schema([everything.field(name) for name in columns])
    registry = typed.registry
    schemas = None if registry is None or registry.url is None else registry.schemas(client)
    try:
        if typed.format == "table":
            yield from _table_rows(batches, typed, schema, schemas)
        else:
            yield from _value_rows(batches, typed, schema, schemas)
    finally:
        if schemas is not None:
            schemas.close()


def _table_rows(
    batches: Iterable[pa.RecordBatch],
    typed: TypedOptions,
    schema: pa.Schema,
    schemas: SchemaCache | None,
) -> Iterator[pa.RecordBatch]:
    """As the worker of the table makes them; records that would be dead letters are left out."""
    (topic, conversion), columns = table_of(typed.text)
    settings = converted_by(topic, conversion)
    assert settings is not None
    converter = Converter(settings, schemas)
    converter.start(columns)
    for batch in batches:
        for part in converter.convert(batch):
            try:
                yield part.rows(schema)
            except pa.ArrowInvalid as error:
                raise InvalidValue(
                    f"{topic} has values of a newer schema that do not fit the table's columns yet "
                    f"({error}); let its worker take them, or use tail=False"
                ) from None
            if part.waits is not None:
                raise InvalidValue(f"{topic}: {part.waits}; tail=False reads the table")


def _value_rows(
    batches: Iterable[pa.RecordBatch],
    typed: TypedOptions,
    schema: pa.Schema,
    schemas: SchemaCache | None,
) -> Iterator[pa.RecordBatch]:
    columns = schema.names
    value = typed.value_columns
    if typed.invalid == "fail":
        value = pa.schema([one for one in value if one.name in columns])
    of_record = pa.schema([one for one in schema if one.name not in typed.value_columns.names])
    resolver = schemas or _Given(typed.references)
    for batch in batches:
        headers = batch.column("headers") if "headers" in batch.schema.names else None
        found = decode(
            batch.column("value"),
            headers,
            resolver,
            value,
            format=typed.format,
            schema=typed.schema,
            message=typed.message,
        )
        if len(found.bad) and typed.invalid == "fail":
            raise _invalid(batch, found)
        arrays: dict[str, Any] = dict(
            zip(of_record.names, raw_rows(batch, of_record).columns, strict=True)
        )
        arrays |= dict(zip(value.names, found.columns.columns, strict=True))
        if "_schema_id" in columns:
            arrays["_schema_id"] = found.schema_ids
        if ERROR in columns:
            arrays[ERROR] = _errors(batch.num_rows, found)
        rows = pa.RecordBatch.from_arrays([arrays[name] for name in columns], schema=schema)
        if len(found.bad) and typed.invalid == "drop":
            kept = np.ones(batch.num_rows, bool)
            kept[found.bad] = False
            rows = rows.filter(pa.array(kept))
        yield rows


class _Given:
    """A resolver of what the options say: references of one schema."""

    def __init__(self, references: Iterable[tuple[str, str]]) -> None:
        self._references = dict(references)

    def by_id(self, number: int) -> Schema | None:
        raise AssertionError(f"schema {number} is asked for without a registry")

    def by_guid(self, guid: bytes) -> Schema | None:
        raise AssertionError(f"schema {guid.hex()} is asked for without a registry")

    def references(self, schema: Schema) -> dict[str, str]:
        return self._references


def _errors(rows: int, found: Decoded) -> pa.Array:
    texts = np.full(rows, None, object)
    texts[found.bad] = [Reason(int(code)).label for code in found.reasons]
    return pa.array(texts, pa.string())


def _invalid(batch: pa.RecordBatch, found: Decoded) -> InvalidValue:
    row = int(found.bad[0])
    topic, partition, offset = (
        batch.column(name)[row].as_py() for name in ("topic", "partition", "offset")
    )
    return InvalidValue(
        f"the value of {topic}-{partition} at offset {offset} does not fit its schema: "
        f"{Reason(int(found.reasons[0])).label}; invalid=drop leaves such records out, "
        "invalid=null shows them without columns"
    )
