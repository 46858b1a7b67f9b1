"""Rows without Arrow: the same records as with it, out of the same bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.reader.decode import decode, to_records
from ottla.client.reader.rows import Chunk, RecordRows, decode_records, next_offset_of
from ottla.client.reader.types import CorruptRecords
from ottla.wire.builder import build_control_batch
from ottla.wire.columns import COLUMNS
from ottla.wire.compression import Codec
from ottla.wire.records import ControlType, Record
from tests.support.build import build_batch

NOW = 1_700_000_000_000
PRODUCERS = (7, 8)


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]]]:
    """Batches of records, of transactions and their markers; the aborted ones as Fetch has them."""
    data = bytearray()
    aborted: list[tuple[int, int]] = []
    opened: dict[int, int] = {}
    offset = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 6))):
        producer = draw(st.sampled_from((-1, *PRODUCERS)))
        if producer in opened and draw(st.booleans()):
            kind = draw(st.sampled_from((ControlType.ABORT, ControlType.COMMIT)))
            first = opened.pop(producer)
            if kind is ControlType.ABORT:
                aborted.append((producer, first))
            data += build_control_batch(
                kind,
                producer_id=producer,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=NOW,
                base_offset=offset,
            )
            offset += 1
            continue
        count = draw(st.integers(1, 4))
        records = [
            Record(
                offset + n,
                NOW + draw(st.integers(0, 9)),
                draw(st.none() | st.binary(max_size=3)),
                draw(st.none() | st.binary(max_size=20)),
                draw(st.sampled_from(((), (("h", b"1"), ("h", None))))),
            )
            for n in range(count)
        ]
        transactional = producer != -1
        if transactional:
            opened.setdefault(producer, offset)
        data += build_batch(
            records,
            base_offset=offset,
            codec=draw(st.sampled_from((Codec.NONE, Codec.LZ4))),
            producer_id=producer,
            producer_epoch=0 if transactional else -1,
            base_sequence=0 if transactional else -1,
            transactional=transactional,
        )
        offset += count
    return bytes(data), aborted


@given(logs(), st.integers(0, 12), st.none() | st.integers(0, 20), st.integers(0, 80))
def test_records_are_those_of_the_columns(
    log: tuple[bytes, list[tuple[int, int]]], start: int, end: int | None, cut: int
) -> None:
    data, aborted = log
    chunk = Chunk("t", 3, start, end, 0, memoryview(data)[: len(data) - cut], aborted)
    columns = [
        record for rows in decode(chunk, COLUMNS, verify_crc=True) for record in to_records(rows)
    ]
    plain = [record for rows in decode_records(chunk, (), verify_crc=True) for record in rows]
    assert plain == columns


def test_what_is_broken_is_said_alike() -> None:
    data = bytearray(build_batch([Record(0, NOW, None, b"value")]))
    data[-1] ^= 1
    chunk = Chunk("t", 0, 0, None, 1, memoryview(data))
    with pytest.raises(CorruptRecords, match="seek past the broken batch"):
        decode_records(chunk, (), verify_crc=True)


def test_rows_can_be_cut_and_know_where_they_end() -> None:
    data = build_batch([Record(n, NOW, None, b"12345") for n in range(4)])
    [rows] = decode_records(Chunk("t", 0, 0, None, 4, memoryview(data)), (), verify_crc=True)
    part = rows.slice(1, 2)
    assert isinstance(part, RecordRows)
    assert [record.offset for record in part] == [1, 2]
    assert (part.num_rows, next_offset_of(part)) == (2, 3)
    assert part.nbytes * 2 == rows.nbytes
