"""The format of a slot: what is written is read back, and nothing else is taken for a slot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.journal.slots import (
    FRAME_BYTES,
    HEADER_BYTES,
    CorruptSlot,
    NewExtent,
    decode,
    decode_header,
    encode,
    slot_size,
)

STREAM = bytes(range(16))


@st.composite
def extents(draw: st.DrawFn) -> NewExtent:
    chunks = draw(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=3))
    base = draw(st.integers(0, 2**60))
    return NewExtent(
        draw(st.binary(min_size=16, max_size=16)),
        draw(st.integers(0, 2**31 - 1)),
        draw(st.integers(0, 2**31 - 1)),
        base,
        base + draw(st.integers(1, 1000)),
        sum(map(len, chunks)),
        chunks,
    )


def encoded(found: list[NewExtent]) -> bytes:
    return b"".join(encode(found, stream=STREAM, seq=7, trim=3, node=1, now_ms=99))


@given(st.lists(extents(), max_size=4))
def test_what_is_written_is_read_back(found: list[NewExtent]) -> None:
    data = encoded(found)
    assert len(data) == slot_size(found)
    slot = decode(memoryview(data + b"\0" * 100))
    assert slot.header == (STREAM, 7, 99, 1, 3, len(data))
    assert [
        (e.topic_id, e.partition, e.leader_epoch, e.base, e.end, data[e.position :][: e.length])
        for e in slot.extents
    ] == [
        (e.topic_id, e.partition, e.leader_epoch, e.base, e.end, b"".join(e.chunks)) for e in found
    ]


@given(st.lists(extents(), min_size=1, max_size=3), st.data())
def test_a_slot_with_any_bit_changed_is_not_whole(
    found: list[NewExtent], data: st.DataObject
) -> None:
    slot = bytearray(encoded(found))
    place = data.draw(st.integers(0, len(slot) - 1))
    slot[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptSlot):
        decode(memoryview(slot))


@given(st.lists(extents(), max_size=3), st.data())
def test_a_slot_that_is_cut_off_is_not_whole(found: list[NewExtent], data: st.DataObject) -> None:
    slot = encoded(found)
    with pytest.raises(CorruptSlot):
        decode(memoryview(slot[: data.draw(st.integers(0, len(slot) - 1))]))


@given(st.binary(max_size=300))
def test_garbage_is_no_slot(data: bytes) -> None:
    assert decode_header(data) is None
    with pytest.raises(CorruptSlot):
        decode(memoryview(data))


def test_sizes_are_those_of_the_format() -> None:
    assert (HEADER_BYTES, FRAME_BYTES) == (80, 112)
    assert len(encoded([])) == FRAME_BYTES
