"""Single records: the round trip, every lie a record can tell, control batches, the builder."""

from __future__ import annotations

import contextlib
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.batch import HEADER_SIZE, read_batch
from ottla.wire.builder import BatchBuilder, build_control_batch
from ottla.wire.compression import Codec, compress
from ottla.wire.errors import (
    BatchError,
    DecompressedTooLarge,
    DecompressionFailed,
    InvalidVarint,
    LengthPastEnd,
    NegativeLength,
    RecordCountMismatch,
    RecordError,
    UnknownCodec,
)
from ottla.wire.records import (
    ControlRecord,
    ControlType,
    Record,
    _read_plain,
    _RecordReader,
    iter_fields,
    iter_records,
    read_control_record,
)
from tests.support.batches import opened, record_lists
from tests.support.build import build_batch

SAMPLE = [
    Record(0, 1_000, b"key", b"value", (("a", b"1"), ("a", None), ("", b""))),
    Record(1, 990, None, None),
    Record(2, 1_000_000_000_000, b"", b"x" * 300),
]


def varint(value: int) -> bytes:
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    groups = []
    while raw > 0x7F:
        groups.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*groups, raw])


def with_payload(payload: bytes, *, count: int = 1, attributes: int = 0) -> bytearray:
    """A batch with a sound header and CRC around `payload`."""
    data = build_batch([Record(0, 1_000, None, None)])[:HEADER_SIZE] + payload
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, attributes)
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return data


def record(body: bytes, *, length: int | None = None) -> bytes:
    return varint(len(body) if length is None else length) + body


def read(data: bytearray) -> list[Record]:
    return list(iter_records(opened(data)))


START = b"\x00" + varint(0) + varint(0)  # attributes, timestamp delta, offset delta
EMPTY = START + varint(-1) + varint(-1) + varint(0)


@pytest.mark.parametrize("codec", Codec)
def test_round_trip(codec: Codec) -> None:
    assert read(build_batch(SAMPLE, codec=codec)) == SAMPLE


@given(record_lists(max_size=6), st.sampled_from(Codec), st.integers(0, 2**60))
def test_round_trip_of_anything(records: list[Record], codec: Codec, base_offset: int) -> None:
    placed = [one._replace(offset=one.offset + base_offset) for one in records]
    batch = opened(build_batch(placed, codec=codec, base_offset=base_offset))
    assert list(iter_records(batch)) == placed
    assert batch.record_count == len(records)
    assert batch.last_offset_delta == len(records) - 1
    assert batch.base_timestamp == (records[0].timestamp if records else -1)
    assert batch.max_timestamp == max((one.timestamp for one in records), default=-1)


def test_the_bytes_of_a_record() -> None:
    """Written out by hand, so that reader and writer cannot be wrong together."""
    data = build_batch([Record(0, 5, b"k", b"vv", (("h", None),)), Record(3, 4, None, b"")])
    first = bytes([24, 0, 0, 0, 2]) + b"k" + bytes([4]) + b"vv" + bytes([2, 2]) + b"h" + b"\x01"
    second = bytes([12, 0, 1, 6, 1, 0, 0])
    assert data[HEADER_SIZE:] == first + second
    header = struct.unpack(">qiibIhiqqqhii", data[:HEADER_SIZE])
    crc = crc32c(data[21:])
    assert header == (0, len(data) - 12, -1, 2, crc, 0, 3, 5, 5, -1, -1, -1, 2)


def test_records_are_bytes_of_their_own() -> None:
    data = build_batch(SAMPLE)
    first, *_ = read(data)
    data[:] = bytes(len(data))
    assert first == SAMPLE[0]
    assert type(first.key) is type(first.value) is bytes


def test_gaps_left_by_compaction_are_read() -> None:
    records = [Record(5, 0, b"a", b"1"), Record(9, 0, b"b", b"2")]
    assert read(build_batch(records, base_offset=3)) == records


def test_log_append_time_covers_every_record() -> None:
    data = build_batch(SAMPLE)
    opened(data).set_max_timestamp(77, log_append_time=True)
    assert [one.timestamp for one in read(data)] == [77, 77, 77]


def test_deltas_count_from_the_delete_horizon_when_there_is_one() -> None:
    data = with_payload(record(b"\x00" + varint(-5) + varint(0) + EMPTY[3:]), attributes=0x40)
    (one,) = read(data)
    assert one.timestamp == 1_000 - 5


def test_a_header_key_that_is_not_utf8_does_not_stop_a_consumer() -> None:
    body = START + varint(-1) + varint(-1) + varint(1) + varint(2) + b"a\xff" + varint(-1)
    (one,) = read(with_payload(record(body)))
    assert one.headers == (("a\ufffd", None),)


def test_varints_with_needless_groups_are_read() -> None:
    body = b"\x00" + b"\x80\x00" + b"\x80\x80\x80\x80\x00" + EMPTY[3:]
    assert read(with_payload(record(body))) == [Record(0, 1_000, None, None)]


LIES = {
    "record length negative": (record(EMPTY, length=-1), NegativeLength),
    "record length past the batch": (record(EMPTY, length=len(EMPTY) + 1), LengthPastEnd),
    "record length huge": (record(EMPTY, length=2**31 - 1), LengthPastEnd),
    "record length of six groups": (b"\x80\x80\x80\x80\x80\x00", InvalidVarint),
    "record length of 33 bits": (b"\x80\x80\x80\x80\x10", InvalidVarint),
    "record length cut": (b"\x80", InvalidVarint),
    "record of no bytes": (record(b""), LengthPastEnd),
    "attributes alone": (record(b"\x00"), InvalidVarint),
    "timestamp of eleven groups": (record(b"\x00" + b"\x80" * 10 + b"\x00"), InvalidVarint),
    "timestamp of 65 bits": (record(b"\x00" + b"\x80" * 9 + b"\x02" + EMPTY[2:]), InvalidVarint),
    "offset delta of six groups": (record(b"\x00\x00" + b"\xff" * 6 + EMPTY[3:]), InvalidVarint),
    "offset delta negative": (record(b"\x00\x00" + varint(-1) + EMPTY[3:]), RecordError),
    "offset delta past the last": (record(b"\x00\x00" + varint(1) + EMPTY[3:]), RecordError),
    "key length below null": (record(START + varint(-2) + EMPTY[4:]), NegativeLength),
    "key past the record": (record(START + varint(3) + EMPTY[4:]), LengthPastEnd),
    "value length below null": (record(START + varint(-1) + varint(-2) + b"\0"), NegativeLength),
    "value past the record": (record(START + varint(-1) + varint(2) + b"\0"), LengthPastEnd),
    "value into the next record": (
        record(START + varint(-1) + varint(3)) + record(EMPTY),
        LengthPastEnd,
    ),
    "header count missing": (record(EMPTY[:-1]), InvalidVarint),
    "header count negative": (record(EMPTY[:-1] + varint(-1)), NegativeLength),
    "header count huge": (record(EMPTY[:-1] + varint(2**31 - 1)), InvalidVarint),
    "header key null": (record(EMPTY[:-1] + varint(1) + varint(-1)), NegativeLength),
    "header key past the record": (record(EMPTY[:-1] + varint(1) + varint(1)), LengthPastEnd),
    "header value below null": (
        record(EMPTY[:-1] + varint(1) + varint(0) + varint(-2)),
        NegativeLength,
    ),
    "header value past the record": (
        record(EMPTY[:-1] + varint(1) + varint(0) + varint(1)),
        LengthPastEnd,
    ),
    "bytes after the headers": (record(EMPTY + b"\x00"), RecordError),
    "no record": (b"", RecordCountMismatch),
    "one record too many": (record(EMPTY) * 2, RecordCountMismatch),
    "a byte after the records": (record(EMPTY) + b"\x00", RecordCountMismatch),
}


@pytest.mark.parametrize(("payload", "error"), LIES.values(), ids=LIES)
def test_every_lie_has_a_name(payload: bytes, error: type[RecordError]) -> None:
    with pytest.raises(error) as caught:
        read(with_payload(payload))
    assert type(caught.value) is error


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_lies_are_found_behind_compression(codec: Codec) -> None:
    payload = bytes(compress(codec, record(EMPTY, length=-1)))
    with pytest.raises(NegativeLength):
        read(with_payload(payload, attributes=codec))


@pytest.mark.parametrize("count", [-1, -(2**31), 0, 2, 2**31 - 1])
def test_a_record_count_that_lies(count: int) -> None:
    with pytest.raises(RecordCountMismatch):
        read(with_payload(record(EMPTY), count=count))


def test_a_negative_record_count_is_no_empty_batch() -> None:
    with pytest.raises(RecordCountMismatch):
        read(with_payload(b"", count=-1))


def test_offsets_that_do_not_rise_are_refused() -> None:
    data = build_batch([Record(0, 0, None, None), Record(1, 0, None, None)])
    data[-4] = 0  # the second offset delta
    with pytest.raises(RecordError, match="expected an offset delta of 1 to 1, got 0"):
        list(iter_records(read_batch(memoryview(data))))


def test_errors_say_where() -> None:
    data = with_payload(record(EMPTY) + record(b""), count=2)
    opened(data).assign(40, 0)
    with pytest.raises(LengthPastEnd, match="in record at byte 7 of batch at offset 40: expected"):
        read(data)


def test_compression_errors_pass_through() -> None:
    with pytest.raises(UnknownCodec):
        read(with_payload(record(EMPTY), attributes=5))
    with pytest.raises(DecompressionFailed, match="batch at offset 0"):
        read(with_payload(record(EMPTY), attributes=Codec.ZSTD))
    bomb = opened(build_batch([Record(0, 0, None, bytes(2_000))], codec=Codec.LZ4))
    with pytest.raises(DecompressedTooLarge):
        list(iter_records(bomb, limit=1_000))


@given(
    record_lists(max_size=8), st.sets(st.integers(0, 7)), st.integers(0, 12), st.integers(0, 200)
)
def test_records_before_an_offset_can_be_passed_over(
    records: list[Record], gone: set[int], first: int, size: int
) -> None:
    """With gaps of compaction and lengths of one, two and three bytes."""
    large = [one._replace(value=bytes(size * size)) for one in records]
    kept = [one for one in large if one.offset not in gone]
    batch = opened(build_batch(kept))
    found = [one for one in iter_fields(batch, first_offset=first) if one[0] >= first]
    assert found == [tuple(one) for one in kept if one.offset >= first]


@given(st.binary(max_size=60), st.integers(-3, 10), st.integers(0, 12))
def test_passing_over_nonsense_raises_record_errors_only(
    payload: bytes, count: int, first: int
) -> None:
    batch = read_batch(memoryview(with_payload(payload, count=count)))
    with contextlib.suppress(RecordError):
        list(iter_fields(batch, first_offset=first))


MUTATION = st.tuples(st.integers(16, 500), st.integers(0, 255))


@given(
    record_lists(min_size=1, max_size=3),
    st.sampled_from(Codec),
    st.lists(MUTATION, min_size=1, max_size=5),
    st.booleans(),
)
def test_mutated_batches_raise_batch_errors_only(
    records: list[Record], codec: Codec, mutations: list[tuple[int, int]], inside: bool
) -> None:
    data = build_batch(records, codec=codec)
    if inside:  # damage the records before they are compressed, so that the damage is reached
        payload = build_batch(records)[HEADER_SIZE:]
        for position, byte in mutations:
            payload[position % len(payload)] = byte
        data = with_payload(bytes(compress(codec, payload)), count=len(records), attributes=codec)
    else:
        for position, byte in mutations:
            data[16 + position % (len(data) - 16)] = byte
    with contextlib.suppress(BatchError):
        list(iter_records(read_batch(memoryview(data))))


@given(st.binary(max_size=100), st.integers(-3, 10))
def test_arbitrary_payloads_raise_record_errors_only(payload: bytes, count: int) -> None:
    with contextlib.suppress(RecordError):
        assert len(read(with_payload(payload, count=count))) == count


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_transaction_markers(kind: ControlType) -> None:
    data = build_control_batch(
        kind,
        producer_id=7,
        producer_epoch=3,
        coordinator_epoch=12,
        timestamp=1_000,
        base_offset=40,
        partition_leader_epoch=2,
    )
    batch = opened(data)
    assert batch.attributes == 0x30
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, -1)
    assert (batch.record_count, batch.last_offset_delta) == (1, 0)
    assert batch.partition_leader_epoch == 2
    assert read_control_record(batch) == ControlRecord(40, 1_000, kind, 12)
    (raw,) = iter_records(batch)
    assert raw.key == bytes([0, 0, 0, kind])
    assert raw.value == bytes([0, 0, 0, 0, 0, 12])


def control(key: bytes | None, value: bytes | None, *, records: int = 1) -> bytearray:
    builder = BatchBuilder(control=True)
    for _ in range(records):
        builder.append(value, key=key, timestamp=0)
    return builder.build()


@pytest.mark.parametrize(("number", "kind"), [(2, ControlType.LEADER_CHANGE), (99, -1), (-7, -1)])
def test_other_control_records(number: int, kind: int) -> None:
    data = control(struct.pack(">hh", 0, number), None)
    assert read_control_record(opened(data)) == ControlRecord(0, 0, ControlType(kind), None)


def test_broken_control_batches() -> None:
    abort = b"\x00\x00\x00\x00"
    cases = [
        (build_batch(SAMPLE[:1]), RecordError),
        (control(abort, bytes(6), records=0), RecordCountMismatch),
        (control(abort, bytes(6), records=2), RecordCountMismatch),
        (control(None, bytes(6)), LengthPastEnd),
        (control(abort[:3], bytes(6)), LengthPastEnd),
        (control(abort, None), LengthPastEnd),
        (control(abort, bytes(5)), LengthPastEnd),
    ]
    for data, error in cases:
        with pytest.raises(error):
            read_control_record(opened(data))


def test_a_transaction_cannot_end_in_a_leader_change() -> None:
    with pytest.raises(ValueError, match="COMMIT or ABORT, not in LEADER_CHANGE"):
        build_control_batch(
            ControlType.LEADER_CHANGE,
            producer_id=1,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=0,
        )


def test_the_builder_numbers_records_and_goes_on_after_a_build() -> None:
    builder = BatchBuilder(base_offset=10)
    assert builder.append(b"a", timestamp=1) == 10
    assert builder.append(b"b", timestamp=2, offset=15) == 15
    first = builder.build()
    assert len(first) == builder.uncompressed_size
    assert builder.append(b"c", timestamp=0, headers=[("h", b"")]) == 16
    assert len(builder) == 3
    assert read(first) == [Record(10, 1, None, b"a"), Record(15, 2, None, b"b")]
    assert read(builder.build())[2] == Record(16, 0, None, b"c", (("h", b""),))


@pytest.mark.parametrize("offset", [9, 10, 10 + 2**31])
def test_the_builder_refuses_offsets_that_do_not_fit(offset: int) -> None:
    builder = BatchBuilder(base_offset=10)
    builder.append(b"a", timestamp=0)
    with pytest.raises(ValueError, match="the next is 11"):
        builder.append(b"b", timestamp=0, offset=offset)
    assert len(builder) == 1


def test_levels_reach_the_codec() -> None:
    records = [Record(i, i, None, b"user%d likes %d" % (i * i % 977, i % 13)) for i in range(500)]
    fast, small = (build_batch(records, codec=Codec.ZSTD, level=level) for level in (1, 19))
    assert len(small) < len(fast)
    assert read(small) == records


sizes = st.one_of(st.integers(0, 20), st.integers(60, 70), st.integers(8185, 8200))
contents = st.one_of(st.none(), sizes.map(bytes))


@given(
    key=contents,
    value=contents,
    times=st.lists(st.integers(0, 20_000), min_size=1, max_size=3),
    headers=st.lists(st.tuples(st.text(max_size=3), contents), max_size=1),
    at=st.integers(0, 40),
    byte=st.integers(0, 255),
    cut=st.integers(0, 3),
)
def test_the_short_way_through_a_record_is_the_long_one(
    key: bytes | None,
    value: bytes | None,
    times: list[int],
    headers: list[tuple[str, bytes | None]],
    at: int,
    byte: int,
    cut: int,
) -> None:
    """Bytes that are changed or cut included: what one finds, the other finds too."""
    records = [
        Record(offset * 7, time, key, value, tuple(headers)) for offset, time in enumerate(times)
    ]
    payload = bytearray(opened(build_batch(records)).payload)
    payload[at % len(payload)] = byte
    data = bytes(payload[: len(payload) - cut])
    short = _read_plain(data, 0)
    reader = _RecordReader(memoryview(data), "here")
    if short is not None:
        found = reader.read()
        assert (*short, ()) == (reader.position, *found)
