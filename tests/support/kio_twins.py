"""Pairs of equal messages: one of kio's dataclasses and one of Ottla's NamedTuples.

kio is the oracle. A strategy draws the kio entity from its own metadata, `twin` translates it.
"""

from __future__ import annotations

import datetime
import io
import uuid
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.serial._introspect import classify_field, is_optional
from kio.static.primitive import i32Timedelta, i64Timedelta

from ottla.wire.messages import message
from ottla.wire.schema import API_NAMES

if TYPE_CHECKING:
    from ottla.wire.spec import Message

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
SHORT = 4  # elements of an array: long ones add time, not cases
FIXED_STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(max_size=8) | st.just("é" * 200),
    "bytes": st.binary(max_size=8),
    "records": st.binary(max_size=300),
    "uuid": st.uuids() | st.none(),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": st.integers(-(2**31), 2**31 - 1).map(
        lambda ms: i32Timedelta.parse(datetime.timedelta(milliseconds=ms))
    ),
    "timedelta_i64": st.integers(-(2**40), 2**40).map(
        lambda ms: i64Timedelta.parse(datetime.timedelta(milliseconds=ms))
    ),
    "datetime_i64": st.integers(0, 2**37).map(lambda s: EPOCH + datetime.timedelta(seconds=s)),
}


def every_message() -> list[tuple[int, bool]]:
    return [(api_key, request) for api_key in API_NAMES for request in (True, False)]


def kio_class(api_key: int, version: int, *, request: bool) -> Any:
    return (load_request_schema if request else load_response_schema)(api_key, version)


@cache
def entities(cls: Any) -> st.SearchStrategy[Any]:
    """Any instance of a kio dataclass."""
    drawn = {}
    for field in fields(cls):
        shape = classify_field(field)
        kafka_type = field.metadata.get("kafka_type")
        value = entities(shape.type_) if kafka_type is None else FIXED_STRATEGIES[kafka_type]
        if shape.is_array:
            value = st.lists(value, max_size=SHORT).map(tuple)
        # A tagged field says null by its absence, which is its default.
        nullable = is_optional(field) and "tag" not in field.metadata
        if nullable and kafka_type != "uuid":
            value = value | st.none()
        if "tag" in field.metadata and field.default is None:
            value = value | st.none()
        drawn[field.name] = value
    return st.builds(cls, **drawn)


def kio_bytes(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def twin(entity: Any, api_key: int, *, request: bool) -> Any:
    """The same message as Ottla holds it."""
    spec = message(api_key, request=request)
    return _twin(entity, spec.root, spec)


def _twin(entity: Any, cls: type[Any], spec: Message) -> Any:
    values: dict[str, Any] = {}
    names = {field.name: field for field in spec.structs[cls]}
    for field in fields(entity):
        row = next(
            names[n] for n in (field.name, f"{field.name}_ms", f"{field.name}_") if n in names
        )
        value = getattr(entity, field.name)
        is_time = field.metadata.get("kafka_type", "").startswith("datetime")
        if row.array and value is not None:
            values[row.name] = tuple(_leaf(item, row.type, spec, is_time=False) for item in value)
        elif row.array:
            values[row.name] = None
        else:
            values[row.name] = _leaf(value, row.type, spec, is_time=is_time)
    return cls(**values)


def _leaf(value: Any, kind: str | type[Any], spec: Message, *, is_time: bool) -> Any:
    if not isinstance(kind, str):
        return None if value is None else _twin(value, kind, spec)
    match value:
        case None if is_time:
            return -1
        case None if kind == "uuid":
            return bytes(16)
        case ErrorCode():
            return value.value
        case datetime.timedelta():
            return round(value.total_seconds() * 1000)
        case datetime.datetime():
            return round(value.timestamp() * 1000)
        case uuid.UUID():
            return value.bytes
    return value
