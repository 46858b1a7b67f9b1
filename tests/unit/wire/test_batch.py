"""The header view: what is refused, what is patched in place."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.batch import (
    CRC_START,
    HEADER_SIZE,
    MAX_SEQUENCE,
    RecordBatch,
    batch_size_at,
    iter_batches,
    read_batch,
)
from ottla.wire.builder import BatchBuilder
from ottla.wire.compression import Codec
from ottla.wire.errors import (
    BatchError,
    CrcMismatch,
    InvalidBatchLength,
    TruncatedBatch,
    UnsupportedMagic,
)
from ottla.wire.records import Record, iter_records
from tests.support.batches import opened, record_lists
from tests.support.build import build_batch

TWO = [
    Record(0, 1_000, b"k", b"first", (("h", b"1"),)),
    Record(1, 1_005, None, b"second"),
]


def two_records() -> bytearray:
    return build_batch(TWO, producer_id=7, producer_epoch=3, base_sequence=11)


def test_every_header_field_is_read() -> None:
    data = build_batch(
        [Record(40, 1_005, None, b"a"), Record(42, 1_000, None, b"b")],
        codec=Codec.ZSTD,
        base_offset=40,
        partition_leader_epoch=5,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        transactional=True,
    )
    batch = opened(data)
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (40, 42, 43)
    assert batch.partition_leader_epoch == 5
    assert batch.size == len(data)
    assert batch.magic == 2
    assert batch.codec == Codec.ZSTD
    assert batch.is_transactional
    assert not batch.is_control
    assert not batch.is_log_append_time
    assert (batch.base_timestamp, batch.max_timestamp) == (1_005, 1_005)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, 11)
    assert (batch.last_sequence, batch.record_count) == (13, 2)
    assert batch.delete_horizon_ms is None
    assert bytes(batch.payload) == bytes(data[HEADER_SIZE:])
    assert repr(batch) == f"<RecordBatch offsets 40..42 records 2 bytes {len(data)}>"


def test_sequences_wrap_to_zero() -> None:
    data = build_batch(TWO, producer_id=7, producer_epoch=3, base_sequence=MAX_SEQUENCE)
    assert opened(data).last_sequence == 0


def test_a_batch_without_producer_has_no_last_sequence() -> None:
    assert opened(build_batch(TWO)).last_sequence == -1


def test_the_delete_horizon_stands_in_the_base_timestamp() -> None:
    data = two_records()
    data[22] |= 0x40
    assert read_batch(memoryview(data)).delete_horizon_ms == 1_000


def test_every_flipped_byte_from_the_crc_on_is_noticed() -> None:
    data = two_records()
    for position in range(CRC_START - 4, len(data)):
        for bit in range(8):
            data[position] ^= 1 << bit
            with pytest.raises(CrcMismatch):
                read_batch(memoryview(data)).verify_crc()
            data[position] ^= 1 << bit
    opened(data)


def test_assign_keeps_the_crc_and_changes_nothing_else() -> None:
    data = two_records()
    before = bytes(data)
    batch = opened(data)
    batch.assign(2**40, 9)
    again = opened(data)
    assert (batch.base_offset, batch.partition_leader_epoch) == (2**40, 9)
    assert (again.base_offset, again.partition_leader_epoch) == (2**40, 9)
    assert [record.offset for record in iter_records(again)] == [2**40, 2**40 + 1]
    assert data[8:12] == before[8:12]
    assert data[16:] == before[16:]


def test_log_append_time_is_set_and_taken_back_with_a_new_crc() -> None:
    data = two_records()
    before = bytes(data)
    opened(data).set_max_timestamp(5_000, log_append_time=True)
    appended = opened(data)
    assert appended.is_log_append_time
    assert appended.max_timestamp == 5_000
    assert [record.timestamp for record in iter_records(appended)] == [5_000, 5_000]
    appended.set_max_timestamp(1_005, log_append_time=False)
    assert bytes(data) == before
    assert appended.crc == opened(data).crc


def test_a_batch_over_read_only_bytes_is_not_patched() -> None:
    batch = opened(bytes(two_records()))
    with pytest.raises(TypeError):
        batch.assign(1, 1)


def test_every_truncation_is_named() -> None:
    data = bytes(two_records())
    for size in range(len(data)):
        with pytest.raises(TruncatedBatch):
            read_batch(memoryview(data)[:size])


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 48])
def test_a_length_below_the_header_is_refused(length: int) -> None:
    data = two_records()
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(InvalidBatchLength, match=f"got {length}$"):
        batch_size_at(memoryview(data), 0)


@pytest.mark.parametrize("length", [1, 1_000, 2**31 - 1])
def test_a_length_past_the_buffer_is_a_truncation(length: int) -> None:
    data = two_records()
    struct.pack_into(">i", data, 8, len(data) - 12 + length if length < 2**31 - 1 else length)
    with pytest.raises(TruncatedBatch):
        read_batch(memoryview(data))


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_magics_are_refused(magic: int) -> None:
    data = two_records()
    data[16] = magic
    with pytest.raises(UnsupportedMagic, match=f"got magic {magic}$"):
        read_batch(memoryview(data))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_legacy_message_shorter_than_our_header_is_called_legacy(magic: int) -> None:
    body = struct.pack(">Ibb", 0, magic, 0) + b"\x00" * 8 * magic + struct.pack(">ii", -1, -1)
    message = struct.pack(">qi", 0, len(body)) + body
    assert len(message) < HEADER_SIZE
    with pytest.raises(UnsupportedMagic):
        read_batch(memoryview(message))


def test_batches_back_to_back() -> None:
    first, second = two_records(), build_batch([Record(2, 0, None, b"x")], base_offset=2)
    batches = list(iter_batches(memoryview(first + second)))
    assert [batch.base_offset for batch in batches] == [0, 2]
    assert [bytes(batch.data) for batch in batches] == [first, second]
    assert list(iter_batches(memoryview(b""))) == []


def test_a_cut_tail_ends_a_fetch_and_breaks_a_produce() -> None:
    whole = bytes(two_records())
    for size in range(1, len(whole)):
        cut = memoryview(whole + whole[:size])
        assert [batch.size for batch in iter_batches(cut, partial_tail=True)] == [len(whole)]
        with pytest.raises(TruncatedBatch):
            list(iter_batches(cut))


def test_a_lie_in_the_tail_is_not_taken_for_a_cut() -> None:
    whole = bytes(two_records())
    with pytest.raises(InvalidBatchLength):
        list(iter_batches(memoryview(whole + bytes(61)), partial_tail=True))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_batch_errors_only(data: bytes) -> None:
    try:
        batches = list(iter_batches(memoryview(data)))
    except BatchError:
        return
    assert sum(batch.size for batch in batches) == len(data)


@given(record_lists(), st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_any_batch_survives_assignment(records: list[Record], offset: int, epoch: int) -> None:
    data = build_batch(records)
    RecordBatch(memoryview(data)).assign(offset, epoch)
    moved = [record._replace(offset=record.offset + offset) for record in records]
    assert list(iter_records(opened(data))) == moved


def test_an_empty_batch_spans_no_offsets() -> None:
    batch = opened(BatchBuilder(base_offset=9).build())
    assert (batch.record_count, batch.next_offset, batch.max_timestamp) == (0, 9, -1)
