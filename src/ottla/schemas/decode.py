"""Values of records to typed columns.

`decode` takes a column of values and gives a row for each, in the same order: null in every column
for a null value (a tombstone) and for a bad one, whose reason is told. It raises only for what no
record is to blame for: a schema that no columns can be made of (SchemaError), a chunk whose columns
are too large (ChunkTooLarge), and whatever a resolver raises, such as a registry that does not
answer.

Formats:

- `raw`: the values themselves, in one binary column.
- `json`: one JSON object a value; `columns` say what is taken (`ddl.parse_ddl`).
- `avro`, `protobuf`: values of `schema`, without a frame.
- `registry`: each value names its schema (`framing`), and the schema's fields are taken by name.
- `registry-latest`: the same, resolved to `schema`, the reader's.

A value depends on its bytes, its headers, its schema and `columns` alone, never on its neighbours.
Kernels compile at the first call: not for an event loop.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from ottla.schemas.columns import columns_of
from ottla.schemas.conform import Match, SchemaConflict, match
from ottla.schemas.framing_kernels import BY_ID, NONE, split_column, take_indexes
from ottla.schemas.json_columns import JsonColumns
from ottla.schemas.model import Kind, Schema, SchemaTooLarge
from ottla.schemas.proto_tree import UnknownMessage
from ottla.schemas.reasons import Reason
from ottla.schemas.spans import spans_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.schemas.framing_kernels import Frames
    from ottla.schemas.spans import Spans
    from ottla.wire.kernels.jit import I64, U8

_log = logging.getLogger(__name__)

MAX_PROGRAMS: Final = 1_024
"""Compiled schemas that are kept: a topic has a handful, a worker many topics."""


class Resolver(Protocol):
    """Where schemas come from. It caches; None means that there is no such schema. A registry that
    does not answer raises, and so does `decode`."""

    def by_id(self, number: int) -> Schema | None: ...
    def by_guid(self, guid: bytes) -> Schema | None: ...
    def references(self, schema: Schema) -> Mapping[str, str]:
        """The texts of the schema's references by name, those of references included; asked only
        for a schema that has some."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows of a column of values."""

    columns: pa.RecordBatch
    """A row for each value, with the columns that were asked for."""
    bad: I64
    """The bad rows, in order."""
    reasons: U8
    """Why: a `Reason` for each of `bad`."""
    schema_ids: pa.Array
    """The schema id of each row; null without one."""


class Named(NamedTuple):
    """A schema that values name; `message` are the indexes of a Protobuf message in it."""

    kind: Kind
    text: str
    references: tuple[tuple[str, str], ...]
    message: tuple[int, ...] | None


class _Reader(Protocol):
    """Decodes records of one schema."""

    def run(self, records: Spans) -> tuple[Sequence[pa.Array], U8]: ...


def decode(
    values: pa.Array,
    headers: pa.Array | None,
    resolver: Resolver | None,
    columns: pa.Schema,
    *,
    format: str,  # noqa: A002  # the option's name
    schema: Schema | None = None,
    message: str | None = None,
    is_key: bool = False,
    follow: Callable[[Sequence[Named]], pa.Schema] | None = None,
) -> Decoded:
    """Decode `values`, a binary array. `headers` are needed for framed values only. `message` is
    the Protobuf message of `schema`, else its first one. `follow` is told the schemas that values
    name, in the order of their first values, and gives the columns in place of `columns`."""
    rows = len(values)
    no_ids = pa.nulls(rows, pa.int32())
    if format == "raw":
        found = pa.RecordBatch.from_arrays([values.cast(pa.binary())], schema=columns)
        return _decoded(found, np.zeros(rows, np.uint8), no_ids)
    spans = spans_of(values)
    if format == "json":
        return _decoded(*_json_reader(_key(columns)).read(spans), no_ids)
    if format in ("avro", "protobuf"):
        given = _wanted(schema, format)
        references = resolver.references(given) if resolver and given.references else {}
        group = _Group(given, references, None, message)
        return _decoded(*group.read(spans, columns), no_ids)
    if format not in ("registry", "registry-latest"):
        raise ValueError(
            f"expected raw, json, avro, protobuf, registry or registry-latest, got {format!r}"
        )
    if resolver is None:
        raise ValueError(f"expected a resolver for the format {format}, got None")
    reader = _wanted(schema, format) if format == "registry-latest" else None
    frames = split_column(spans, headers, is_key=is_key)
    reasons = np.zeros(rows, np.uint8)
    reasons[(frames.kinds == NONE) & (spans.begins >= 0)] = Reason.NOT_FRAMED
    groups = _groups(frames, resolver, reader, message, reasons)
    if follow is not None:
        columns = follow(_named(groups))
    found = _in_order(groups, frames.payloads, columns, reasons)
    ids = pa.array(frames.ids, mask=frames.kinds != BY_ID)
    return _decoded(found, reasons, ids)


def _wanted(schema: Schema | None, format_: str) -> Schema:
    if schema is None:
        raise ValueError(f"expected a schema for the format {format_}, got None")
    return schema


def _decoded(columns: pa.RecordBatch, reasons: U8, ids: pa.Array) -> Decoded:
    bad = np.flatnonzero(reasons)
    return Decoded(columns, bad, reasons[bad], ids)


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows of one schema."""

    schema: Schema
    references: Mapping[str, str]
    reader: Schema | None
    message: str | tuple[int, ...] | None

    @property
    def named(self) -> Named:
        indexes = self.message if isinstance(self.message, tuple) else None
        references = tuple(sorted(self.references.items()))
        return Named(self.schema.kind, self.schema.text, references, indexes)

    def read(self, records: Spans, columns: pa.Schema) -> tuple[pa.RecordBatch, U8]:
        rows = len(records.begins)
        plan = _plan(
            self.schema.kind,
            self.schema.text,
            tuple(sorted(self.references.items())),
            None if self.reader is None else (self.reader.kind, self.reader.text),
            self.message,
            _key(columns),
        )
        if isinstance(plan, Reason):
            reasons = np.where(records.begins < 0, Reason.OK, plan).astype(np.uint8)
            return _nulls(rows, columns), reasons
        reader, matched = plan
        arrays, reasons = reader.run(records)
        return matched.apply(arrays, rows, columns), reasons


def _groups(
    frames: Frames, resolver: Resolver, reader: Schema | None, message: str | None, reasons: U8
) -> list[tuple[_Group, I64]]:
    """The schemas of framed rows, each asked for once."""
    found: list[tuple[_Group, I64]] = []
    framed = np.flatnonzero(frames.kinds == BY_ID)
    numbers, places = np.unique(frames.ids[framed], return_inverse=True)
    named: list[tuple[Schema | None, I64]] = [
        (resolver.by_id(number) if number > 0 else None, framed[places == place])
        for place, number in enumerate(numbers.tolist())
    ]
    named += [(resolver.by_guid(guid), rows) for guid, rows in frames.guids.items()]
    for schema, rows in named:
        if schema is None:
            reasons[rows] = Reason.UNKNOWN_SCHEMA
            continue
        references: dict[str, str] = {}
        for each in (reader, schema):
            if each is not None and each.references:
                references |= resolver.references(each)
        if schema.kind is not Kind.PROTOBUF:
            rows = _without_rests(frames, rows, reasons)  # noqa: PLW2901
            found.append((_Group(schema, references, reader, None), rows))
            continue
        for indexes, mine in take_indexes(frames, rows, reasons).items():
            which = indexes if reader is None else message
            found.append((_Group(schema, references, reader, which), mine))
    return found


def _named(groups: list[tuple[_Group, I64]]) -> list[Named]:
    found = sorted((int(rows[0]), at) for at, (_, rows) in enumerate(groups) if len(rows))
    return [groups[at][0].named for _, at in found]


def _without_rests(frames: Frames, rows: I64, reasons: U8) -> I64:
    """Only Protobuf's headers may have more than a GUID."""
    longer = [row for row, rest in zip(frames.headed, frames.rests, strict=True) if rest]
    bad = np.intersect1d(rows, np.array(longer, np.int64))
    reasons[bad] = Reason.NOT_FRAMED
    return np.setdiff1d(rows, bad)


def _in_order(
    groups: list[tuple[_Group, I64]], records: Spans, columns: pa.Schema, reasons: U8
) -> pa.RecordBatch:
    """The rows of all groups in the order of records; the reasons of bad ones are set."""
    rows = len(reasons)
    if not groups:
        return _nulls(rows, columns)
    if len(groups) == 1:
        group, mine = groups[0]
        others = np.ones(rows, np.bool_)
        others[mine] = False
        batch, found = group.read(records.without(others), columns)
        reasons[mine] = found[mine]
        return batch
    batches = []
    place = np.zeros(rows, np.int64)
    is_absent = np.ones(rows, np.bool_)
    count = 0
    for group, mine in groups:
        batch, found = group.read(records.take(mine), columns)
        batches.append(batch)
        reasons[mine] = found
        place[mine] = np.arange(count, count + len(mine))
        is_absent[mine] = False
        count += len(mine)
    table = pa.Table.from_batches(batches).combine_chunks()
    taken = table.take(pa.array(place, mask=is_absent)).combine_chunks()
    return taken.to_batches()[0] if columns.names and rows else _nulls(rows, columns)


def _nulls(rows: int, columns: pa.Schema) -> pa.RecordBatch:
    if not columns.names:  # a batch made of no arrays has no rows
        return pa.RecordBatch.from_struct_array(pa.nulls(rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(
        [pa.nulls(rows, each.type) for each in columns], schema=columns
    )


def _key(columns: pa.Schema) -> bytes:
    """Equal for equal columns, metadata included, which `pa.Schema` leaves out."""
    data: bytes = columns.serialize().to_pybytes()
    return data


def _columns(key: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(key))


@lru_cache(MAX_PROGRAMS)
def _json_reader(key: bytes) -> JsonColumns:
    return JsonColumns(_columns(key), any_text=True)


@lru_cache(MAX_PROGRAMS)
def _plan(
    kind: Kind,
    text: str,
    references: tuple[tuple[str, str], ...],
    reader: tuple[Kind, str] | None,
    message: str | tuple[int, ...] | None,
    key: bytes,
) -> tuple[_Reader, Match] | Reason:
    """How records of a schema become the columns, or why they cannot."""
    schema = Schema(kind, text)
    resolved = dict(references)
    if reader is not None and reader[0] is not kind:
        return Reason.SCHEMA_CONFLICT
    target = schema if reader is None else Schema(*reader)
    try:
        matched = match(columns_of(target, resolved, message), _columns(key))
    except SchemaConflict:
        return Reason.SCHEMA_CONFLICT
    except SchemaTooLarge:
        if reader is not None:  # that is an option, not a record
            raise
        return Reason.SCHEMA_CONFLICT
    except UnknownMessage:
        if isinstance(message, str):  # that is an option, not a record
            raise
        return Reason.UNKNOWN_SCHEMA
    if kind is Kind.JSON:
        return _JsonReader(JsonColumns(pa.schema(matched.wanted))), matched
    if kind is Kind.AVRO:
        made = _avro_reader(schema, None if reader is None else target, resolved, matched)
        return Reason.SCHEMA_CONFLICT if made is None else (made, matched)
    return _proto_reader(target, resolved, message, matched), matched


def _proto_reader(
    schema: Schema,
    resolved: Mapping[str, str],
    message: str | tuple[int, ...] | None,
    matched: Match,
) -> _Reader:
    """Fields go by number, so a reader's schema reads what any version wrote."""
    from ottla.schemas.parsing import parse
    from ottla.schemas.programs import NotExpressible
    from ottla.schemas.proto_program import ProtoProgram, compile_proto
    from ottla.schemas.proto_rows import ProtoRows
    from ottla.schemas.proto_tree import message_of

    files = parse(schema, resolved).tree
    which = message_of(files, message)
    rows = ProtoRows(files, which, matched.wanted)
    try:
        return ProtoProgram(compile_proto(which, matched.wanted), rows)
    except NotExpressible:
        _log.warning("Protobuf message %s is decoded record by record", which.name)
        return rows


class _JsonReader:
    def __init__(self, columns: JsonColumns) -> None:
        self._columns = columns

    def run(self, records: Spans) -> tuple[Sequence[pa.Array], U8]:
        batch, reasons = self._columns.read(records)
        return batch.columns, reasons


def _avro_reader(
    schema: Schema, reader: Schema | None, resolved: Mapping[str, str], matched: Match
) -> _Reader | None:
    from ottla.schemas.avro_fallback import AvroFallback
    from ottla.schemas.avro_program import Unresolvable, compile_avro
    from ottla.schemas.avro_tree import tree_of
    from ottla.schemas.parsing import parse
    from ottla.schemas.programs import NotExpressible

    written: Any = parse(schema, resolved).tree
    read: Any = None if reader is None else parse(reader, resolved).tree
    nodes = tree_of(written), None if read is None else tree_of(read)
    try:
        return compile_avro(*nodes, matched.wanted)
    except Unresolvable:
        return None
    except NotExpressible:
        return AvroFallback(written, read, nodes[1] or nodes[0], matched.wanted)
