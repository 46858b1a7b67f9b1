"""Pointers as records."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.tables.errors import BadPointer
from ottla.tables.pointer import MAX_BYTES, Pointer, decode_pointer, encode_pointer

POINTER = Pointer("orders", "id", "ottla.orders", "file:///m.json", "iceberg", 7, {10: 3, 2: 1})


def test_a_pointer_survives() -> None:
    assert decode_pointer("orders", encode_pointer(POINTER)) == POINTER
    empty = Pointer("o", "id", "t", "l", "iceberg", None, {}, "t__dlq", "file:///d.json")
    assert decode_pointer("o", encode_pointer(empty)) == empty


def test_a_pointer_of_a_version_that_did_not_say_where_the_letters_are() -> None:
    value = json.loads(encode_pointer(POINTER))
    del value["dlq_metadata_location"]
    assert decode_pointer("orders", json.dumps(value).encode()) == POINTER


def test_partitions_are_in_numeric_order() -> None:
    assert b'"position":{"2":1,"10":3}' in encode_pointer(POINTER)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version 2 is not 1"),
        ({"version": None}, "version None"),
        ({"table": 1}, "table is not a text"),
        ({"snapshot_id": "x"}, "snapshot_id"),
        ({"position": []}, "a field is missing or wrong"),
        ({"position": {"0": "x"}}, "whole number"),
        ({"position": {"x": 1}}, "a field is missing or wrong"),
        ({"dlq": 4}, "dlq is not a text"),
    ],
)
def test_what_is_no_pointer_is_refused(change: dict[str, object], said: str) -> None:
    value = {**json.loads(encode_pointer(POINTER)), **change}
    with pytest.raises(BadPointer, match=said):
        decode_pointer("orders", json.dumps(value).encode())


@pytest.mark.parametrize("value", [b"", b"[]", b"\xff", b"null", b"[" * 50_000, b"{}"])
def test_garbage_is_refused(value: bytes) -> None:
    with pytest.raises(BadPointer):
        decode_pointer("orders", value)


def test_a_pointer_has_a_largest_size() -> None:
    with pytest.raises(BadPointer, match="at most"):
        decode_pointer("orders", b" " * (MAX_BYTES + 1))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_pointer_or_refused(value: bytes) -> None:
    with pytest.raises(BadPointer):
        decode_pointer("orders", value)
