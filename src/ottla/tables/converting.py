"""Records to rows of a table: value columns, then where each record was, and its key and headers.

The row of a record depends on its bytes, its headers, its schema and the table's columns alone, so
converting it again gives the same row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from ottla.clock import SYSTEM
from ottla.schemas.avro_columns import ONLY
from ottla.schemas.columns import columns_of
from ottla.schemas.decode import Resolver
from ottla.schemas.evolution import apart
from ottla.schemas.model import FRAMED, ChunkTooLarge, Kind, Schema
from ottla.schemas.reasons import Reason
from ottla.schemas.values import Values
from ottla.tables.errors import BadTableSetting
from ottla.tables.format import META_COLUMNS
from ottla.tables.rows import CONVERSION, HEADERS, LETTERS, RAW, meta_columns, row_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ottla.clock import Clock
    from ottla.tables.settings import TopicSettings

PATIENCE: Final = 60.0
"""Seconds after which a record whose schema the registry does not have is a dead letter: registries
copy from each other, and producers may register late."""

_DETAILS: Final = {
    Reason.NOT_FRAMED: "the value does not begin with the id of a schema",
    Reason.UNKNOWN_SCHEMA: "the registry does not have the schema or the message",
    Reason.MALFORMED: "the value is not {0} of its schema",
    Reason.TRAILING_BYTES: "bytes follow the value",
    Reason.OUT_OF_RANGE: "a number does not fit its column",
    Reason.SCHEMA_CONFLICT: "a field of the schema has a type that its column cannot take",
    Reason.TOO_LARGE: "the value is nested too deeply, or its columns are too large",
    Reason.BAD_KEY: "the key is not UTF-8, or not of its schema",
}


@dataclass(frozen=True, slots=True)
class Converted:
    """Records of a chunk: rows of a table, and those that are none, as dead letters."""

    records: pa.RecordBatch
    typed: Mapping[str, pa.Array]
    is_good: NDArray[np.bool_] | None
    """Which records are rows; None if all are."""
    letters: pa.RecordBatch | None
    waits: str | None = None
    """Why a record after these has to wait; None if all were taken."""

    def rows(self, columns: pa.Schema) -> pa.RecordBatch:
        """The rows, with these columns; what records have nothing for is null."""
        arrays = [row_column(self.records, field, self.typed) for field in columns]
        rows = pa.RecordBatch.from_arrays(arrays, schema=columns)
        return rows if self.is_good is None else rows.filter(pa.array(self.is_good))


class Schemas(Resolver, Protocol):
    """A resolver that knows subjects, too; such as `SchemaCache`."""

    def latest(self, subject: str) -> Schema | None:
        """The newest schema of a subject."""


class Converter:
    """Converts records of one topic. `columns` are what its table should have.

    With the formats of a registry they follow the schemas of values: call `start` with the table's
    columns, and look at `columns` after `convert`.
    """

    def __init__(
        self, settings: TopicSettings, schemas: Schemas | None = None, clock: Clock = SYSTEM
    ) -> None:
        self._settings = settings
        self._schemas = schemas
        self._clock = clock
        self._values: Values | None = None
        self._keys: Values | None = None
        self._waiting: dict[int, tuple[int, float]] = {}
        self._meta = meta_columns(settings.key_format)
        self._kept = RAW if settings.keep_value or settings.value_format == "raw" else ()
        if settings.key_format == "registry":
            self._keys = self._key_values(self._given_keys())
        if settings.value_format == "raw":
            return
        schema, found = self._given()
        if settings.value_format in FRAMED:
            self._values = self._following(pa.schema([]), schema)
            self._values.take(found)
            return
        self._values = Values(
            settings.value_format,
            apart(found, self._reserved),
            resolver=schemas,
            schema=schema,
            message=settings.value_message or None,
        )

    @property
    def columns(self) -> pa.Schema:
        values = () if self._values is None else self._values.columns
        told = {CONVERSION: self._settings.conversion.encode()}
        meta = self._meta
        if self._keys is not None:
            kind = key_type(self._keys.columns)
            meta = [one if one.name != "_key" else one.with_type(kind) for one in meta]
            if not self._keys.columns.names:  # nobody knows them without a registry
                meta = [one for one in meta if one.name != "_key"]
        return pa.schema([*values, *self._kept, *meta], metadata=told)

    @property
    def _reserved(self) -> set[str]:
        return {*META_COLUMNS, *(one.name for one in self._kept)}

    def start(self, columns: pa.Schema) -> None:
        """Begin a round: the table has these columns."""
        if self._keys is not None:
            kind = columns.field("_key").type
            fields = list(kind) if pa.types.is_struct(kind) else [pa.field(ONLY, kind)]
            self._keys = self._key_values(pa.schema(fields))
        if self._settings.value_format not in FRAMED:
            return
        values = pa.schema([one for one in columns if one.name not in self._reserved])
        if self._settings.value_format == "registry":
            self._values = self._following(values, None)
            return
        schema, found = self._given()
        self._values = self._following(values, schema)
        self._values.take(found)

    def convert(self, records: pa.RecordBatch) -> list[Converted]:
        """The records, in parts if their columns are too large to be made at once."""
        try:
            return [self._converted(records)]
        except ChunkTooLarge:  # never for a single record, which is bad then
            half = records.num_rows // 2
        first = self.convert(_range(records, 0, half))
        if first[-1].waits is not None:
            return first
        return first + self.convert(_range(records, half, records.num_rows))

    def _given(self) -> tuple[Schema | None, pa.Schema]:
        """The schema of the topic's values, and its columns."""
        kind = self._settings.value_format
        if kind == "json":
            return None, columns_of(self._settings.value_schema)
        text = self._settings.value_schema
        if kind in ("avro", "protobuf") and text:
            schema: Schema | None = Schema(Kind(kind.upper()), text)
        else:
            schema = None if self._schemas is None else self._schemas.latest(self._settings.subject)
            if schema is None and (kind != "registry" and self._schemas is not None):
                raise BadTableSetting(
                    f"topic {self._settings.topic!r}: the registry has no subject "
                    f"{self._settings.subject}; register a schema, or set "
                    "ottla.table.value.subject"
                )
        if schema is None:
            return None, pa.schema([])
        references: Mapping[str, str] = {}
        if schema.references and self._schemas is not None:
            references = self._schemas.references(schema)
        is_named = kind != "registry" and schema.kind is Kind.PROTOBUF
        message = (self._settings.value_message or None) if is_named else None
        return schema, columns_of(schema, references, message)

    def _given_keys(self) -> pa.Schema:
        """The columns of the newest schema of keys; a table has to begin with some."""
        subject = f"{self._settings.topic}-key"
        if self._schemas is None:
            return pa.schema([])
        schema = self._schemas.latest(subject)
        if schema is None:
            raise BadTableSetting(
                f"topic {self._settings.topic!r}: ottla.table.key.format=registry needs the "
                f"subject {subject} in the registry"
            )
        references = self._schemas.references(schema) if schema.references else {}
        return columns_of(schema, references)

    def _key_values(self, columns: pa.Schema) -> Values:
        return Values("registry", columns, resolver=self._schemas, is_key=True)

    def _following(self, columns: pa.Schema, schema: Schema | None) -> Values:
        kind, conflict = self._settings.value_format, self._settings.on_conflict
        is_strict = conflict == "pause" or (kind == "registry-latest" and conflict != "new-column")
        return Values(
            kind,
            columns,
            resolver=self._schemas,
            schema=schema if kind == "registry-latest" else None,
            message=self._settings.value_message or None,
            on_conflict="raise"
            if is_strict
            else "new-column"
            if conflict == "new-column"
            else "bad",
            reserved=self._reserved,
        )

    def _converted(self, records: pa.RecordBatch) -> Converted:
        typed: dict[str, pa.Array] = {}
        reasons = np.zeros(records.num_rows, np.uint8)
        headers = records.column("headers") if "headers" in records.schema.names else None
        if self._values is not None:
            decoded = self._values.decode(records.column("value"), headers)
            typed = dict(zip(self._values.columns.names, decoded.columns.columns, strict=True))
            typed["_schema_id"] = decoded.schema_ids
            if not self._kept and "value" not in typed:
                typed["value"] = pa.nulls(records.num_rows, pa.binary())
            reasons[decoded.bad] = decoded.reasons
        if not self._settings.headers:
            typed["_headers"] = pa.nulls(records.num_rows, HEADERS)
        if self._settings.key_format == "utf8":
            typed["_key"] = text_keys(records.column("key"), reasons)
        elif self._keys is not None:
            typed["_key"] = typed_keys(self._keys, records.column("key"), headers, reasons)
        if not reasons.any():
            return Converted(records, typed, None, None)
        waits = None
        count = self._ready(records, reasons)
        if count < records.num_rows:
            offset = records.column("offset")[count].as_py()
            waits = f"the schema of offset {offset} is not in the registry yet"
            records, reasons = records.slice(0, count), reasons[:count]
            typed = {name: array.slice(0, count) for name, array in typed.items()}
        bad = np.flatnonzero(reasons)
        if not len(bad):
            return Converted(records, typed, None, None, waits)
        letters = self._letters(records, typed, bad, reasons[bad])
        return Converted(records, typed, reasons == 0, letters, waits)

    def _ready(self, records: pa.RecordBatch, reasons: NDArray[np.uint8]) -> int:
        """How many records come before one whose schema may be registered yet."""
        count: int = records.num_rows
        if self._schemas is None or not (reasons == Reason.UNKNOWN_SCHEMA).any():
            return count
        oldest = (self._clock.wall_ms() - PATIENCE * 1000) * 1000
        times = records.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
        now = self._clock.monotonic()
        partition = records.column("partition")[0].as_py()
        for row in np.flatnonzero((reasons == Reason.UNKNOWN_SCHEMA) & (times > oldest)).tolist():
            offset = records.column("offset")[row].as_py()
            known, since = self._waiting.get(partition, (-1, now))
            if known != offset:
                since = now
            if now - since < PATIENCE:
                self._waiting[partition] = (offset, since)
                return int(row)
        return count

    def _letters(
        self,
        records: pa.RecordBatch,
        typed: Mapping[str, pa.Array],
        bad: NDArray[Any],
        reasons: NDArray[np.uint8],
    ) -> pa.RecordBatch:
        found = [Reason(int(one)) for one in reasons]
        rows = pa.array(bad)
        refused = records.take(rows)
        details = [_DETAILS.get(one, "").format(self._settings.value_format) for one in found]
        known: dict[str, pa.Array] = {
            "reason": pa.array([one.label for one in found], pa.string()),
            "detail": pa.array(details, pa.string()),
            "_attempt": pa.array([1] * len(found), pa.int32()),
        }
        if "_schema_id" in typed:
            known["schema_id"] = typed["_schema_id"].take(rows)
        return pa.RecordBatch.from_arrays(
            [row_column(refused, field, known) for field in LETTERS], schema=LETTERS
        )


def _range(records: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    """Some of the records, in buffers of their own."""
    return records.take(pa.array(np.arange(first, last)))


def key_type(columns: pa.Schema) -> pa.DataType:
    """A key that is a record is a struct, any other its only column."""
    is_scalar = columns.names == [ONLY]
    return columns.field(0).type if is_scalar else pa.struct(list(columns))


def typed_keys(
    values: Values, keys: pa.Array, headers: pa.Array | None, reasons: NDArray[np.uint8]
) -> pa.Array:
    """Keys by their schemas; of bad ones the records are bad, unless a schema may come yet."""
    decoded = values.decode(keys, headers)
    for row, code in zip(decoded.bad.tolist(), decoded.reasons.tolist(), strict=True):
        if not reasons[row]:
            is_unknown = code == Reason.UNKNOWN_SCHEMA
            reasons[row] = Reason.UNKNOWN_SCHEMA if is_unknown else Reason.BAD_KEY
    kind = key_type(values.columns)
    if not pa.types.is_struct(kind) or values.columns.names == [ONLY]:
        return decoded.columns.column(0)
    fields = list(values.columns)
    return pa.StructArray.from_arrays(decoded.columns.columns, fields=fields, mask=keys.is_null())


def text_keys(keys: pa.Array, reasons: NDArray[np.uint8]) -> pa.Array:
    """Keys as text; those that are not are null, and their records bad."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        found: list[str | None] = []
        for row, key in enumerate(keys.to_pylist()):
            try:
                found.append(None if key is None else key.decode())
            except UnicodeDecodeError:
                found.append(None)
                reasons[row] = Reason.BAD_KEY
        return pa.array(found, pa.string())
