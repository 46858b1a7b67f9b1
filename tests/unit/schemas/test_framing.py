"""Frames of one value and of whole columns."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ottla.schemas.framing import KEY_HEADER, VALUE_HEADER, Frame, NotFramed, indexes_of, split
from ottla.schemas.framing_kernels import BY_GUID, BY_ID, NONE, split_column
from ottla.schemas.spans import spans_of
from ottla.wire.arrow.decode import HEADER_TYPE

GUID = bytes(range(16))
HEADERS = pa.list_(pa.field("element", HEADER_TYPE))


def test_a_prefix_with_an_id() -> None:
    assert split(b"\0\0\0\1\2rest") == Frame(258, None, (), 5)
    assert split(b"\0\xff\xff\xff\xff") == Frame(-1, None, (), 5)


def test_a_prefix_with_a_guid() -> None:
    assert split(b"\1" + GUID + b"rest") == Frame(None, GUID, (), 17)


@pytest.mark.parametrize("value", [b"", b"\0\0\0\1", b"\2\0\0\0\1", b"{}", b"\1" + GUID[:15]])
def test_other_values_are_not_framed(value: bytes) -> None:
    with pytest.raises(NotFramed, match="expected a value that begins with 00"):
        split(value)


@pytest.mark.parametrize(
    ("data", "indexes", "end"),
    [(b"\0x", (0,), 1), (b"\2\0x", (0,), 2), (b"\4\2\6x", (1, 3), 3), (b"\2\x80\2", (128,), 3)],
)
def test_message_indexes(data: bytes, indexes: tuple[int, ...], end: int) -> None:
    assert indexes_of(data, 0) == (indexes, end)
    assert split(b"\0\0\0\0\7" + data, has_indexes=True) == Frame(7, None, indexes, 5 + end)


@pytest.mark.parametrize("data", [b"", b"\4\2", b"\1", b"\2\1", b"\x80" * 6, b"\xfe\x01"])
def test_other_indexes_are_not_framed(data: bytes) -> None:
    with pytest.raises(NotFramed):
        indexes_of(data, 0)


def test_case_35_a_header_comes_before_a_prefix() -> None:
    header = [(VALUE_HEADER, b"\1" + GUID)]
    assert split(b"\0\0\0\0\1x", header) == Frame(None, GUID, (), 0)
    assert split(b"\0\0\0\0\1x", [(KEY_HEADER, b"\1" + GUID)]) == Frame(1, None, (), 5)
    assert split(b"x", [(KEY_HEADER, b"\1" + GUID)], is_key=True) == Frame(None, GUID, (), 0)
    more = [(VALUE_HEADER, b"\1" + GUID + b"\2\4")]
    assert split(b"x", more, has_indexes=True) == Frame(None, GUID, (2,), 0)
    twice = [(VALUE_HEADER, b"\1" + bytes(16)), *header]
    assert split(b"x", twice) == Frame(None, GUID, (), 0)


@pytest.mark.parametrize(
    "header", [None, b"", b"\1" + GUID[:15], b"\0" + GUID, b"\1" + GUID + b"x"]
)
def test_case_35_a_header_with_other_bytes_is_not_framed(header: bytes | None) -> None:
    with pytest.raises(NotFramed):
        split(b"\0\0\0\0\1x", [(VALUE_HEADER, header)])


def test_a_column_is_framed_as_its_values_are() -> None:
    rng = random.Random("frames")
    values: list[bytes | None] = []
    headers: list[list[dict[str, object]] | None] = []
    for _ in range(2_000):
        starts = (b"", b"\0", b"\1", b"\0\0\0\0\3", b"\1" + GUID, rng.randbytes(3))
        values.append(rng.choice(starts) + rng.randbytes(rng.randrange(20)))
        if rng.random() < 0.1:
            values[-1] = None
        named = rng.choice((VALUE_HEADER, KEY_HEADER, "other"))
        given = rng.choice((b"\1" + GUID, b"\1" + bytes(16), b"\1", None))
        pairs: list[dict[str, object]] = [{"key": named, "value": given}] * rng.randrange(2)
        headers.append(pairs if rng.random() < 0.5 else None)
    frames = split_column(spans_of(pa.array(values, pa.binary())), pa.array(headers, HEADERS))
    by_guid = {row: guid for guid, rows in frames.guids.items() for row in rows.tolist()}
    for row, value in enumerate(values):
        given_headers: list[Any] = [(each["key"], each["value"]) for each in headers[row] or []]
        if value is None:
            assert frames.kinds[row] == NONE
            continue
        try:
            expected = split(value, given_headers)
        except NotFramed:
            assert frames.kinds[row] == NONE
            assert frames.payloads.begins[row] < 0
            continue
        kind = BY_ID if expected.guid is None else BY_GUID
        assert frames.kinds[row] == kind
        assert frames.payloads.value(row) == value[expected.start :]
        if kind == BY_ID:
            assert frames.ids[row] == expected.id
        else:
            assert by_guid[row] == expected.guid
    assert {NONE, BY_ID, BY_GUID} == set(np.unique(frames.kinds).tolist())
