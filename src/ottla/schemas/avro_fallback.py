"""Avro record by record, for what a program cannot express: recursive types.

fastavro reads; values become those of the columns, with JSON text where a type is met again below
itself. Slow, so one line in the log says which schema costs it, and `records` counts.
"""

from __future__ import annotations

import io
import json
import logging
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ottla.schemas.avro_columns import ONLY, branch_names
from ottla.schemas.avro_tree import (
    NULL,
    Array,
    Enum,
    Fixed,
    Map,
    Node,
    Primitive,
    Record,
    Union,
    is_nullable,
)
from ottla.schemas.names import children, is_json_text, source_of
from ottla.schemas.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.schemas.spans import Spans
    from ottla.wire.kernels.jit import U8

_log = logging.getLogger(__name__)

_INT64: Final = range(-(2**63), 2**63)
_INT32: Final = range(-(2**31), 2**31)


class _OutOfRange(Exception):
    pass


class AvroFallback:
    """Decodes with fastavro; the same columns as a program's."""

    def __init__(self, writer: Any, reader: Any, node: Node, wanted: Sequence[pa.Field]) -> None:
        """`writer` and `reader` (or None) are schemas as JSON; `node` is the reader's, or the
        writer's if there is none."""
        from fastavro import parse_schema

        self._writer = parse_schema(_without_logical(writer))
        self._reader = None if reader is None else parse_schema(_without_logical(reader))
        self._node = node
        self._wanted = list(wanted)
        self.records = 0
        name = getattr(node, "name", "")
        _log.warning("Avro schema %s is recursive: its records are decoded one by one", name)

    def run(self, records: Spans) -> tuple[list[pa.Array], U8]:
        reasons = np.zeros(len(records.begins), np.uint8)
        rows: list[dict[str, Any] | None] = []
        for row, begin in enumerate(records.begins.tolist()):
            rows.append(None)
            if begin >= 0:
                self.records += 1
                reason, rows[-1] = self._row(records.value(row))
                reasons[row] = reason
        array = pa.array(rows, pa.struct(self._wanted))
        return array.flatten(), reasons

    def _row(self, data: bytes) -> tuple[Reason, dict[str, Any] | None]:
        from fastavro import schemaless_reader

        stream = io.BytesIO(data)
        try:
            value = schemaless_reader(stream, self._writer, self._reader, return_record_name=True)
            if stream.tell() != len(data):
                return Reason.TRAILING_BYTES, None
            if isinstance(self._node, Record):
                return Reason.OK, _record(self._node, self._wanted, value)
            return Reason.OK, {ONLY: _value(self._node, self._wanted[0], value)}
        except _OutOfRange:
            return Reason.OUT_OF_RANGE, None
        except RecursionError:
            return Reason.TOO_LARGE, None
        except Exception:  # noqa: BLE001  # fastavro raises whatever its readers meet
            return Reason.MALFORMED, None


def _record(node: Record, columns: Sequence[pa.Field], value: Any) -> dict[str, Any]:
    value = _untagged(value)
    nodes = {each.name: each.node for each in node.fields}
    return {
        column.name: _value(nodes[source_of(column)], column, value[source_of(column)])
        for column in columns
    }


def _untagged(value: Any) -> Any:
    """fastavro gives (name, record) for records in unions."""
    is_tagged = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict)
    return value[1] if is_tagged else value


def _value(node: Node, column: pa.Field, value: Any) -> Any:
    if value is None:
        return None
    if is_json_text(column):
        return _json_text(value)
    _is_nullable, node = is_nullable(node)
    below = children(column.type)
    if isinstance(node, Record):
        return _record(node, below, value)
    if isinstance(node, Array):
        return [_value(node.items, below[0], each) for each in value]
    if isinstance(node, Map):
        return [(key, _value(node.values, below[1], each)) for key, each in value.items()]
    if isinstance(node, Union):
        return _branch(node, below, value)
    return _scalar(node, column.type, value)


def _branch(union: Union, columns: Sequence[pa.Field], value: Any) -> dict[str, Any]:
    for name, branch in zip(branch_names(union), union.branches, strict=True):
        if branch != NULL and _is_of(branch, value):
            return {
                each.name: _value(branch, each, value)
                for each in columns
                if source_of(each) == name
            }
    raise ValueError("expected a branch of the union")


def _is_of(node: Node, value: Any) -> bool:
    if isinstance(node, Record):
        is_tagged = isinstance(value, tuple)
        return (value[0] == node.name) if is_tagged else isinstance(value, dict)
    if isinstance(node, Array):
        return isinstance(value, list)
    if isinstance(node, Map):
        return isinstance(value, dict)
    if isinstance(node, Enum):
        return isinstance(value, str) and value in node.symbols
    if isinstance(node, Fixed):
        return isinstance(value, bytes) and len(value) == node.size
    kinds: dict[str, type] = {
        "boolean": bool,
        "int": int,
        "long": int,
        "float": float,
        "double": float,
        "bytes": bytes,
        "string": str,
    }
    if isinstance(value, bool) or not isinstance(node, Primitive):
        return isinstance(node, Primitive) and node.kind == "boolean"
    return isinstance(value, kinds[node.kind])


def _scalar(node: Any, kind: pa.DataType, value: Any) -> Any:
    if pa.types.is_decimal(kind):
        unscaled = int.from_bytes(value, "big", signed=True)
        if abs(unscaled) >= 10**kind.precision:
            raise _OutOfRange
        sign = int(unscaled < 0)
        return Decimal((sign, tuple(map(int, str(abs(unscaled)))), -kind.scale))
    if isinstance(node, Fixed) and pa.types.is_string(kind):
        return str(uuid.UUID(bytes=value))
    if pa.types.is_timestamp(kind) and node.logical.endswith("millis"):
        value *= 1_000
    limits = _INT32 if pa.types.is_int32(kind) or pa.types.is_date32(kind) else _INT64
    if isinstance(value, int) and not isinstance(value, bool) and value not in limits:
        raise _OutOfRange
    return value


def _json_text(value: Any) -> str:
    return json.dumps(_jsonable(value), separators=(",", ":"), ensure_ascii=False)


def _jsonable(value: Any) -> Any:
    """Bytes as Avro's JSON encoding has them: a character for each."""
    value = _untagged(value)
    if isinstance(value, dict):
        return {key: _jsonable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_jsonable(each) for each in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _without_logical(schema: Any) -> Any:
    """fastavro then gives plain numbers and bytes, which the columns' types explain."""
    if isinstance(schema, list):
        return [_without_logical(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: each for key, each in schema.items() if key != "logicalType"}
    for key in ("type", "items", "values"):
        if key in kept:
            kept[key] = _without_logical(kept[key])
    if "fields" in kept:
        kept["fields"] = [{**one, "type": _without_logical(one["type"])} for one in kept["fields"]]
    return kept
