"""Columns of record batches: what is read, what is left out, and the way back."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st
from tests.support.plain_records import (
    Record,
    batch_of,
    decode_batch,
    encode_batch,
    encode_record,
    random_batch,
)
from tests.support.rows import rows_of

from ottla.wire.arrow import (
    COLUMNS,
    SCHEMA,
    ColumnTooLarge,
    NullHeaderKey,
    RecordTooLarge,
    UnknownColumn,
    UnsupportedColumn,
    arrow_to_batches,
    batches_to_arrow,
    next_offset,
)
from ottla.wire.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    RecordBatch,
    read_batch,
)
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

if TYPE_CHECKING:
    from collections.abc import Iterable

HEADERS_TYPE = SCHEMA.field("headers").type
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


# Reading.


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


# Writing.

maybe_bytes = st.none() | st.binary(max_size=40)
headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=9), "value": maybe_bytes}), max_size=3
)
timestamps = st.none() | st.integers(-(2**50), 2**50)
rows_strategy = st.lists(st.tuples(maybe_bytes, maybe_bytes, headers, timestamps), max_size=60)
NOW = 1_700_000_000_000


def table_of(rows: Iterable[tuple[Any, Any, Any, Any]]) -> pa.RecordBatch:
    keys, values, lists, times = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(lists, HEADERS_TYPE),
            "timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
        }
    )


@pytest.mark.parametrize("codec", CODECS)
@given(
    rows=rows_strategy,
    limit=st.integers(400, 2000),
    start=st.integers(0, 3),
    stop=st.integers(0, 3),
)
def test_columns_come_back_from_batches(
    codec: Codec, rows: list[tuple[Any, Any, Any, Any]], limit: int, start: int, stop: int
) -> None:
    whole = table_of(rows)
    table = whole.slice(start, max(whole.num_rows - start - stop, 0))
    kept = rows[start : start + table.num_rows]
    batches = arrow_to_batches(
        table,
        now_ms=NOW,
        key="key",
        headers="headers",
        timestamp="timestamp",
        codec=codec,
        max_batch_bytes=limit,
    )
    assert all(len(batch) <= limit for batch in batches)
    plain = [row for batch in batches for row in decode_batch(bytes(batch))]
    got = batches_to_arrow(batches, "t", 0, columns=COLUMNS)
    assert rows_of(got) == plain
    assert [(row.key, row.value, row.timestamp, row.headers) for row in plain] == [
        (
            key,
            value,
            NOW if timestamp is None else timestamp,
            tuple((header["key"], header["value"]) for header in headers or ()),
        )
        for key, value, headers, timestamp in kept
    ]
    for data in batches:
        batch = read_batch(data)
        batch.verify_crc()
        times = [row.timestamp for row in decode_batch(bytes(data))]
        assert (batch.base_timestamp, batch.max_timestamp) == (times[0], max(times))
        assert batch.last_offset_delta == batch.record_count - 1
        assert [row.offset for row in decode_batch(bytes(data))] == list(range(len(times)))


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int8(), pa.binary()),
    ],
    ids=str,
)
def test_every_kind_of_bytes_and_text_is_written(kind: pa.DataType) -> None:
    values = ["", None, "a text that is longer than a view's inline part", "é", None, "z"]
    plain_kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    array = pa.array(values, pa.string()).cast(plain_kind)
    if pa.types.is_dictionary(kind):
        array = array.dictionary_encode().cast(kind)
    sliced = pa.record_batch({"value": array}).slice(1, 4)
    (batch,) = arrow_to_batches(sliced, now_ms=NOW, key="value")
    expected = [None if value is None else value.encode() for value in values[1:5]]
    rows = decode_batch(bytes(batch))
    assert [row.value for row in rows] == expected
    assert [row.key for row in rows] == expected


def test_fixed_size_and_null_columns_are_written() -> None:
    table = pa.table({"value": pa.array([b"ab", b"cd"], pa.binary(2)), "none": pa.nulls(2)})
    (batch,) = arrow_to_batches(table, now_ms=NOW, key="none", headers="none")
    assert [row[1:] for row in decode_batch(bytes(batch))] == [
        (NOW, 0, None, b"ab", ()),
        (NOW, 0, None, b"cd", ()),
    ]


def test_the_chunks_of_a_table_share_batches() -> None:
    chunks = [table_of([(None, bytes((n,)), None, n)]) for n in range(5)]
    table = pa.Table.from_batches(chunks)
    (batch,) = arrow_to_batches(table, now_ms=NOW)
    assert [row.value for row in decode_batch(bytes(batch))] == [bytes((n,)) for n in range(5)]
    assert arrow_to_batches(table.slice(0, 0), now_ms=NOW) == []


@pytest.mark.parametrize(
    ("kind", "value", "milliseconds"),
    [
        (pa.timestamp("s"), 7, 7000),
        (pa.timestamp("ms"), 7, 7),
        (pa.timestamp("us"), 7999, 7),
        (pa.timestamp("us"), -1, -1),
        (pa.timestamp("ns"), 7_999_999, 7),
        (pa.int64(), 7, 7),
    ],
    ids=str,
)
def test_timestamps_of_any_unit_are_written(
    kind: pa.DataType, value: int, milliseconds: int
) -> None:
    times = pa.array([value, None, value], pa.int64()).cast(kind)
    table = pa.record_batch({"value": pa.nulls(3), "when": times}).slice(1)
    (batch,) = arrow_to_batches(table, now_ms=NOW, timestamp="when")
    assert [row.timestamp for row in decode_batch(bytes(batch))] == [NOW, milliseconds]


def test_producer_fields_go_into_every_batch_and_sequences_wrap() -> None:
    table = pa.table({"value": pa.array([bytes(100)] * 5)})
    batches = arrow_to_batches(
        table,
        now_ms=NOW,
        producer_id=77,
        producer_epoch=3,
        base_sequence=2**31 - 2,
        transactional=True,
        max_batch_bytes=300,
    )
    views = [read_batch(batch) for batch in batches]
    assert [view.base_sequence for view in views] == [2**31 - 2, 0, 2]
    assert [view.last_sequence for view in views] == [2**31 - 1, 1, 2]
    assert {(view.producer_id, view.producer_epoch) for view in views} == {(77, 3)}
    assert all(view.is_transactional and view.base_offset == 0 for view in views)


def test_batches_are_filled_up_to_the_limit() -> None:
    table = pa.table({"value": pa.array([bytes(100)] * 10)})
    record = len(encode_record(Record(value=bytes(100))))
    batches = arrow_to_batches(table, now_ms=NOW, max_batch_bytes=HEADER_SIZE + 4 * record)
    assert [read_batch(batch).record_count for batch in batches] == [4, 4, 2]


def test_a_record_larger_than_a_batch_is_named() -> None:
    table = pa.table({"value": pa.array([b"small", bytes(500), b"small"])})
    with pytest.raises(RecordTooLarge, match="row 1"):
        arrow_to_batches(table, now_ms=NOW, max_batch_bytes=500)
    exactly = len(encode_record(Record(value=bytes(500)))) + HEADER_SIZE
    assert len(arrow_to_batches(table, now_ms=NOW, max_batch_bytes=exactly)) == 3


def test_what_does_not_compress_goes_out_as_it_is() -> None:
    table = pa.table({"value": pa.array([random.Random(0).randbytes(1000)])})
    (batch,) = arrow_to_batches(table, now_ms=NOW, codec=Codec.GZIP)
    assert read_batch(batch).codec == Codec.NONE
    (batch,) = arrow_to_batches(
        pa.table({"value": pa.array([bytes(1000)])}), now_ms=NOW, codec=Codec.GZIP
    )
    assert read_batch(batch).codec == Codec.GZIP


@pytest.mark.parametrize("lists", [[[{"key": None, "value": b""}]], [[None]]])
def test_a_header_without_a_key_is_named(lists: list[Any]) -> None:
    array = pa.array([None, *lists], HEADERS_TYPE)
    table = pa.table({"value": pa.nulls(2), "headers": array})
    with pytest.raises(NullHeaderKey, match="row 1"):
        arrow_to_batches(table, now_ms=NOW, headers="headers")


@pytest.mark.parametrize(
    "names",
    [
        {"value": "number"},
        {"key": "number"},
        {"headers": "number"},
        {"headers": "numbers"},
        {"timestamp": "text"},
    ],
    ids=str,
)
def test_a_column_of_another_type_is_named(names: dict[str, str]) -> None:
    columns = {
        "value": pa.array(["x"]),
        "text": pa.array(["x"]),
        "number": pa.array([1]),
        "numbers": pa.array([[1]]),
    }
    with pytest.raises(UnsupportedColumn, match=f"column {next(iter(names.values()))}: expected"):
        arrow_to_batches(pa.table(columns), now_ms=NOW, **names)  # type: ignore[arg-type]


# Against another implementation.


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


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_read_by_aiokafka(codec: Codec) -> None:
    rows = [
        (None if n % 3 == 0 else b"k%d" % n, bytes(n), [{"key": "h", "value": None}] * (n % 3), n)
        for n in range(200)
    ]
    batches = arrow_to_batches(
        table_of(rows), now_ms=NOW, key="key", headers="headers", timestamp="timestamp", codec=codec
    )
    found = MemoryRecords(b"".join(batches))
    seen = []
    while found.has_next():
        batch = found.next_batch()
        assert batch.validate_crc()
        seen += [(r.key, r.value, r.timestamp, list(r.headers)) for r in batch]
    assert seen == [(k, v, t, [("h", None)] * len(lists)) for k, v, lists, t in rows]
