"""Columns written as record batches: what every row becomes, and how batches are cut."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.arrow import (
    SCHEMA,
    NullHeaderKey,
    RecordTooLarge,
    UnsupportedColumn,
    arrow_to_batches,
    batches_to_arrow,
)
from ottla.wire.batch import (
    HEADER_SIZE,
    read_batch,
)
from ottla.wire.columns import COLUMNS
from ottla.wire.compression import Codec
from tests.support.plain_records import (
    Record,
    decode_batch,
    encode_record,
)
from tests.support.rows import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable

HEADERS_TYPE = SCHEMA.field("headers").type
CODECS = list(Codec)

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


def test_headers_in_large_lists_and_in_another_order_are_written() -> None:
    kind = pa.large_list(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())]))
    lists = [None, [{"key": "a", "value": b"1"}], [], [{"key": "b", "value": None}] * 2]
    table = pa.record_batch({"value": pa.nulls(4), "headers": pa.array(lists, kind)}).slice(1)
    (batch,) = arrow_to_batches(table, now_ms=NOW, headers="headers")
    expected = [(("a", b"1"),), (), (("b", None), ("b", None))]
    assert [row.headers for row in decode_batch(bytes(batch))] == expected


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
