"""Columns of record batches: what is read, what is left out, what is refused."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from ottla.wire.arrow import SCHEMA, ColumnTooLarge, batches_to_arrow
from ottla.wire.batch import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    RecordBatch,
)
from ottla.wire.columns import COLUMNS, UnknownColumn
from ottla.wire.compression import Codec
from ottla.wire.errors import (
    CrcMismatch,
    DecompressedTooLarge,
    InvalidVarint,
    RecordCountMismatch,
    RecordError,
    TruncatedBatch,
    UnknownCodec,
)
from ottla.wire.selection import next_offset
from tests.support.plain_records import (
    Record,
    batch_of,
    decode_batch,
    encode_batch,
    encode_record,
    random_batch,
)
from tests.support.rows import rows_of

NOW = 1_700_000_000_000
CODECS = list(Codec)


def offsets(batch: pa.RecordBatch) -> list[int]:
    found: list[int] = batch.column("offset").to_pylist()
    return found


def numbered(base_offset: int, count: int, **fields: int) -> bytes:
    records = [Record(0, delta, None, b"value") for delta in range(count)]
    return batch_of(*records, base_offset=base_offset, **fields)


def marker(base_offset: int, producer_id: int, kind: int) -> bytes:
    record = Record(key=bytes((0, 0, 0, kind)), value=bytes(6))
    return batch_of(
        record,
        base_offset=base_offset,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
    )


def test_the_schema_is_that_of_the_kafka_source_of_spark() -> None:
    assert [(field.name, str(field.type)) for field in SCHEMA] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int32"),
        ("offset", "int64"),
        ("timestamp", "timestamp[us, tz=UTC]"),
        ("timestampType", "int32"),
        ("headers", "list<element: struct<key: string, value: binary>>"),
    ]
    assert batches_to_arrow(b"", "t", 0).schema == pa.schema(list(SCHEMA)[:-1])
    assert batches_to_arrow([], "t", 0, columns=COLUMNS).schema == SCHEMA


@pytest.mark.parametrize("codec", CODECS)
def test_many_batches_in_many_buffers_read_as_the_plain_decoder_reads(codec: Codec) -> None:
    rng = random.Random(f"buffers {codec}")
    for _ in range(50):
        batches = [random_batch(rng, base_offset=100 * n, codec=codec) for n in range(6)]
        cut = rng.randrange(7)
        buffers: list[Any] = [b"".join(batches[:cut]), bytearray(b"".join(batches[cut:]))]
        got = batches_to_arrow(buffers, "t", 0, columns=COLUMNS)
        assert rows_of(got) == [row for batch in batches for row in decode_batch(batch)]


def test_topic_and_partition_are_in_every_row() -> None:
    got = batches_to_arrow(numbered(0, 3), "orders", 7, columns=["partition", "topic"])
    assert got.to_pylist() == [{"partition": 7, "topic": "orders"}] * 3


@pytest.mark.parametrize("count", [0, 1, 2])
def test_any_selection_of_columns_is_the_same_as_selecting_later(count: int) -> None:
    data = random_batch(random.Random("columns"))
    whole = batches_to_arrow(data, "t", 1, columns=COLUMNS)
    for columns in itertools.permutations(COLUMNS, count):
        assert batches_to_arrow(data, "t", 1, columns=columns).equals(whole.select(columns))


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(UnknownColumn, match="nonsense"):
        batches_to_arrow(b"", "t", 0, columns=["value", "nonsense"])


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, range(10, 20)),
        (12, None, range(12, 20)),
        (None, 13, range(10, 13)),
        (12, 17, range(12, 17)),
        (15, 15, range(0)),
        (0, 10, range(0)),
        (20, 99, range(0)),
    ],
)
def test_rows_are_clipped_to_the_asked_offsets(
    start: int | None, end: int | None, expected: range
) -> None:
    data = numbered(10, 5) + numbered(15, 5)
    got = batches_to_arrow(data, "t", 0, start_offset=start, end_offset=end)
    assert offsets(got) == list(expected)


def test_batches_outside_the_asked_offsets_are_not_looked_into() -> None:
    broken = bytearray(numbered(0, 5))
    broken[-1] ^= 1
    assert offsets(batches_to_arrow(bytes(broken) + numbered(5, 1), "t", 0, start_offset=5)) == [5]


def test_what_compaction_leaves_is_read() -> None:
    gaps = batch_of(
        Record(offset_delta=2), Record(offset_delta=7), base_offset=10, last_offset_delta=9
    )
    bare = encode_batch(b"", 0, base_offset=20, last_offset_delta=9)
    bare_compressed = bytearray(bare)
    codec_only = RecordBatch(memoryview(bare_compressed))
    codec_only.attributes |= Codec.ZSTD
    codec_only.set_max_timestamp(0, log_append_time=False)
    data = gaps + bare + bytes(bare_compressed)
    assert offsets(batches_to_arrow(data, "t", 0)) == [12, 17]
    assert next_offset(data) == 30
    assert next_offset(b"") is None


def test_timestamps_of_each_kind() -> None:
    record = Record(timestamp_delta=5)
    data = (
        batch_of(record, base_timestamp=100, max_timestamp=900)
        + batch_of(record, base_timestamp=100, max_timestamp=900, attributes=LOG_APPEND_TIME)
        + batch_of(record, base_timestamp=100, max_timestamp=900, attributes=DELETE_HORIZON)
        + batch_of(Record(), base_timestamp=-1)
    )
    got = batches_to_arrow(data, "t", 0, columns=["timestamp", "timestampType"])
    assert got.column(0).cast(pa.int64()).to_pylist() == [105_000, 900_000, 105_000, -1_000]
    assert got.column(1).to_pylist() == [0, 1, 0, 0]


def test_a_timestamp_without_microseconds_is_refused_only_where_it_is_asked_for() -> None:
    data = batch_of(Record(), base_timestamp=2**62)
    with pytest.raises(RecordError, match=str(2**62)):
        batches_to_arrow(data, "t", 0)
    assert offsets(batches_to_arrow(data, "t", 0, columns=["offset"])) == [0]


def test_control_batches_give_no_rows() -> None:
    data = numbered(0, 2) + marker(2, 1, 1) + numbered(3, 1) + marker(4, 1, 0)
    assert offsets(batches_to_arrow(data, "t", 0)) == [0, 1, 3]
    assert next_offset(data) == 5


def test_aborted_transactions_are_left_out_up_to_their_marker() -> None:
    transactional = {"attributes": TRANSACTIONAL}
    data = (
        numbered(0, 1, producer_id=1, **transactional)  # before the aborted one began
        + marker(1, 1, 1)
        + numbered(2, 1, producer_id=1, **transactional)  # aborted
        + numbered(3, 1, producer_id=2, **transactional)  # of another producer
        + numbered(4, 1, producer_id=1)  # not of a transaction
        + marker(5, 2, 1)
        + numbered(6, 1, producer_id=1, **transactional)  # still aborted
        + marker(7, 1, 0)
        + numbered(8, 1, producer_id=1, **transactional)  # the next transaction
        + numbered(9, 1, producer_id=2, **transactional)  # aborted, its marker not yet here
    )
    aborted = [(2, 9), (1, 2), (1, 2)]
    assert offsets(batches_to_arrow(data, "t", 0, aborted=aborted)) == [0, 3, 4, 8]
    assert offsets(batches_to_arrow(data, "t", 0)) == [0, 2, 3, 4, 6, 8, 9]


def test_a_partial_tail_is_left_out_when_allowed() -> None:
    data = numbered(0, 2) + numbered(2, 2)
    for cut in range(len(data) // 2 + 1, len(data)):
        assert offsets(batches_to_arrow(data[:cut], "t", 0, partial_tail=True)) == [0, 1]
        with pytest.raises(TruncatedBatch, match=r"^truncated record batch in t-0: "):
            batches_to_arrow(data[:cut], "t", 0)


def test_a_wrong_crc_names_topic_partition_and_offset() -> None:
    data = bytearray(numbered(1234, 2))
    data[-2] ^= 1
    with pytest.raises(CrcMismatch, match="orders-3: batch at offset 1234"):
        batches_to_arrow(data, "orders", 3)
    assert offsets(batches_to_arrow(data, "orders", 3, verify_crc=False)) == [1234, 1235]


def test_a_bad_record_names_where_it_is_whatever_is_selected() -> None:
    payload = encode_record(Record(value=b"x" * 20)) + b"\xff" * 20
    for columns in (["offset"], ["topic"], COLUMNS):
        with pytest.raises(InvalidVarint, match="t-0: batch at offset 9, record 1, byte 27"):
            batches_to_arrow(encode_batch(payload, 2, base_offset=9), "t", 0, columns=columns)


def test_a_hostile_count_costs_no_memory() -> None:
    data = encode_batch(encode_record(Record()), 2**31 - 1)
    with pytest.raises(RecordCountMismatch, match="0 to 1 records"):
        batches_to_arrow(data, "t", 0)


def test_an_unknown_codec_is_refused() -> None:
    batch = RecordBatch(memoryview(bytearray(numbered(0, 1))))
    batch.attributes |= 5
    batch.set_max_timestamp(0, log_append_time=False)
    with pytest.raises(UnknownCodec):
        batches_to_arrow(batch.data, "t", 0)


def test_the_decompressed_size_of_a_call_is_bounded() -> None:
    data = batch_of(Record(value=bytes(4000)), attributes=Codec.ZSTD)
    assert len(batches_to_arrow([data] * 2, "t", 0, decompressed_limit=8100)) == 2
    with pytest.raises(DecompressedTooLarge):
        batches_to_arrow([data] * 3, "t", 0, decompressed_limit=8100)


def test_a_column_over_two_gibibytes_is_refused_before_it_is_made() -> None:
    data = batch_of(Record(value=bytes(2**20)))
    with pytest.raises(ColumnTooLarge, match=str(2**31 - 1)):
        batches_to_arrow([data] * 2048, "t", 0, columns=["value"], verify_crc=False)


def test_a_header_key_that_is_not_utf_8_reads_with_replacements() -> None:
    data = batch_of(Record(headers=((b"a\xffb", b"1"), ("é".encode(), None))))
    (row,) = rows_of(batches_to_arrow(data, "t", 0, columns=COLUMNS))
    assert row.headers == (("a\N{REPLACEMENT CHARACTER}b", b"1"), ("é", None))


@pytest.mark.parametrize("codec", CODECS)
def test_batches_built_by_aiokafka_are_read(codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, 0, 1 << 20)
    records = [
        (
            None if n % 3 == 0 else b"k%d" % n,
            None if n % 5 == 0 else bytes(n),
            [("h", b"v")] * (n % 3),
        )
        for n in range(200)
    ]
    for n, (key, value, lists) in enumerate(records):
        builder.append(n, NOW + n, key, value, lists)
    rows = rows_of(batches_to_arrow(builder.build(), "t", 0, columns=COLUMNS))
    assert rows == [
        (n, NOW + n, 0, key, value, tuple(lists)) for n, (key, value, lists) in enumerate(records)
    ]
