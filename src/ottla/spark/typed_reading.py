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
from ottla.schemas.values import Values
from ottla.spark.errors import InvalidValue, SchemaChanged
from ottla.spark.typed_options import ERROR, table_of
from ottla.tables.converting import Converter, text_keys, typed_keys
from ottla.tables.rows import raw_rows
from ottla.tables.settings import converted_by
from ottla.wire.columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ottla.schemas.cache import SchemaCache
    from ottla.schemas.model import Schema
    from ottla.spark.client_settings import ClientSettings
    from ottla.spark.typed_options import TypedOptions


def record_columns(columns: Sequence[str], typed: TypedOptions) -> tuple[str, ...]:
    """The columns of records that typed rows need."""
    if typed.format == "table":
        return COLUMNS
    needed = {"_key": "key", "_timestamp": "timestamp", "_timestamp_type": "timestampType"}
    wanted = {*columns, "_key"} if _reads_keys(columns, typed) else set(columns)
    more = [of_record for name, of_record in needed.items() if name in wanted]
    # A header may name the schema of a value or a key.
    is_framed = typed.format in FRAMED or typed.key is not None
    headers = ["headers"] if "_headers" in columns or is_framed else []
    return ("value", "topic", "partition", "offset", *more, *headers)


def _reads_keys(columns: Sequence[str], typed: TypedOptions) -> bool:
    """Whether keys are decoded: a record with a bad key is not left out by chance."""
    return typed.key_format != "binary" and ("_key" in columns or typed.invalid != "fail")


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
    has_keys = _reads_keys(columns, typed)
    made = {*typed.value_columns.names, *(("_key",) if has_keys else ())}
    of_record = pa.schema([one for one in schema if one.name not in made])
    resolver = schemas or _Given(typed.references)
    keys = None
    if typed.key is not None:
        # Keys of newer schemas are resolved to that of the query.
        keys = Values(
            "registry-latest", typed.key_columns, resolver=resolver, schema=typed.key, is_key=True
        )
    watch = None
    if typed.followed is not None and schemas is not None:
        watch = _Watch(typed, typed.followed, schemas)
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
        if watch is not None:
            watch.look(found.schema_ids)
        reasons = np.zeros(batch.num_rows, np.uint8)
        reasons[found.bad] = found.reasons
        if has_keys:
            raw = batch.column("key")
            key = (
                text_keys(raw, reasons) if keys is None else typed_keys(keys, raw, headers, reasons)
            )
        bad = np.flatnonzero(reasons)
        if len(bad) and typed.invalid == "fail":
            raise _invalid(batch, int(bad[0]), Reason(int(reasons[bad[0]])))
        arrays: dict[str, Any] = dict(
            zip(of_record.names, raw_rows(batch, of_record).columns, strict=True)
        )
        arrays |= dict(zip(value.names, found.columns.columns, strict=True))
        if "_schema_id" in columns:
            arrays["_schema_id"] = found.schema_ids
        if has_keys:
            arrays["_key"] = key
        if ERROR in columns:
            arrays[ERROR] = _errors(reasons)
        rows = pa.RecordBatch.from_arrays([arrays[name] for name in columns], schema=schema)
        if len(bad) and typed.invalid == "drop":
            rows = rows.filter(pa.array(reasons == 0))
        yield rows


class _Watch:
    """Ends a query once it reads values of a schema, and the newest one has other columns."""

    def __init__(self, typed: TypedOptions, subject: str, schemas: SchemaCache) -> None:
        self._typed = typed
        self._subject = subject
        self._schemas = schemas
        self._known: set[int] = set()

    def look(self, ids: pa.Array) -> None:
        """Look at the ids of a batch; each new one costs a request."""
        new = {one for one in ids.unique().to_pylist() if one is not None} - self._known
        if not new:
            return
        latest = self._schemas.latest(self._subject)
        if latest is not None:
            references = self._schemas.references(latest) if latest.references else {}
            columns = self._typed.columns_of_values(latest, references)
            if not columns.equals(self._typed.value_columns):
                raise SchemaChanged(
                    f"subject {self._subject} has a newer schema with other columns "
                    f"({', '.join(columns.names)}): start the query again to read them"
                )
        self._known |= new


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


def _errors(reasons: NDArray[np.uint8]) -> pa.Array:
    texts = [Reason(int(code)).label if code else None for code in reasons]
    return pa.array(texts, pa.string())


def _invalid(batch: pa.RecordBatch, row: int, reason: Reason) -> InvalidValue:
    what = "key" if reason is Reason.BAD_KEY else "value"
    topic, partition, offset = (
        batch.column(name)[row].as_py() for name in ("topic", "partition", "offset")
    )
    return InvalidValue(
        f"the {what} of {topic}-{partition} at offset {offset} does not fit its schema: "
        f"{reason.label}; invalid=drop leaves such records out, "
        "invalid=null shows them without columns"
    )
