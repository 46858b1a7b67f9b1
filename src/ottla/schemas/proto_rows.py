"""Protobuf record by record, with protobuf's own parser.

- A field without presence has its default value when it is absent, one with presence is null.
- Enums are their names; a number without a name is its digits.
- `Struct`, `Value`, `Any` and recursive messages are JSON text, as protobuf writes them.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from ottla.schemas.names import children, is_json_text, source_of
from ottla.schemas.proto_columns import TIMESTAMP, WRAPPERS
from ottla.schemas.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.schemas.proto_tree import Field, Message
    from ottla.schemas.spans import Spans
    from ottla.wire.kernels.jit import U8

Convert: TypeAlias = Callable[[Any], Any]

_ANY: Final = "google.protobuf.Any"


class _OutOfRange(Exception):
    pass


class ProtoRows:
    """Decodes with protobuf's parser."""

    def __init__(self, files: bytes, message: Message, wanted: Sequence[pa.Field]) -> None:
        from google.protobuf import descriptor_pool, message_factory
        from google.protobuf.descriptor_pb2 import FileDescriptorSet

        pool = descriptor_pool.DescriptorPool()
        for file in FileDescriptorSet.FromString(files).file:
            pool.AddSerializedFile(file.SerializeToString())
        descriptor = pool.FindMessageTypeByName(message.name)
        self._class = message_factory.GetMessageClass(descriptor)
        self._wanted = list(wanted)
        self._convert = _struct(message, wanted)

    def run(self, records: Spans) -> tuple[list[pa.Array], U8]:
        reasons = np.zeros(len(records.begins), np.uint8)
        rows: list[dict[str, Any] | None] = []
        for row, begin in enumerate(records.begins.tolist()):
            rows.append(None)
            if begin >= 0:
                reasons[row], rows[-1] = self._row(records.value(row))
        return pa.array(rows, pa.struct(self._wanted)).flatten(), reasons

    def _row(self, data: bytes) -> tuple[Reason, dict[str, Any] | None]:
        from google.protobuf.message import DecodeError

        try:
            value = self._class.FromString(data)
            if not value.IsInitialized():  # a required field is missing
                return Reason.MALFORMED, None
            found: dict[str, Any] = self._convert(value)
        except (DecodeError, UnicodeDecodeError):
            return Reason.MALFORMED, None
        except _OutOfRange:
            return Reason.OUT_OF_RANGE, None
        except RecursionError:
            return Reason.TOO_LARGE, None
        return Reason.OK, found


def _struct(message: Message, columns: Sequence[pa.Field]) -> Convert:
    by_name = {each.name: each for each in message.fields}
    getters = [(each.name, _getter(by_name[source_of(each)], each)) for each in columns]
    return lambda value: {name: get(value) for name, get in getters}


def _getter(one: Field, column: pa.Field) -> Convert:
    """The column's value of a message."""
    name = one.name
    if one.is_repeated and one.message is not None and one.message.is_map_entry:
        key, value = one.message.fields
        below = children(column.type)
        keys, values = _single(key, below[0]), _single(value, below[1])
        return lambda whole: [
            (keys(each), values(getattr(whole, name)[each])) for each in getattr(whole, name)
        ]
    if one.is_repeated:
        convert = _single(one, children(column.type)[0])
        return lambda whole: [convert(each) for each in getattr(whole, name)]
    convert = _single(one, column)
    if one.is_present:
        return lambda whole: convert(getattr(whole, name)) if whole.HasField(name) else None
    return lambda whole: convert(getattr(whole, name))


def _single(one: Field, column: pa.Field) -> Convert:
    inner = one.message
    if is_json_text(column):
        return _json_text
    if inner is None:
        if one.kind == "enum":
            symbols = dict(one.symbols)
            return lambda value: symbols.get(value, str(value))
        return Decimal if one.kind in ("uint64", "fixed64") else lambda value: value
    if inner.name == TIMESTAMP:
        return _micros
    if inner.name in WRAPPERS:
        is_large = inner.fields[0].kind == "uint64"
        return lambda value: Decimal(value.value) if is_large else value.value
    return _struct(inner, children(column.type))


def _micros(value: Any) -> int:
    micros: int = value.seconds * 1_000_000 + value.nanos // 1_000
    if not -(2**63) <= micros < 2**63:
        raise _OutOfRange
    return micros


def _json_text(value: Any) -> str:
    from google.protobuf.json_format import MessageToDict

    if value.DESCRIPTOR.full_name == _ANY:
        packed = {"@type": value.type_url, "value": b64encode(value.value).decode()}
        return json.dumps(packed, separators=(",", ":"))
    made = MessageToDict(value, preserving_proto_field_name=True)
    return json.dumps(made, separators=(",", ":"), ensure_ascii=False)
