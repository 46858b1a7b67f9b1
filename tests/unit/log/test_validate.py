"""The table of what Produce refuses, row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log import validate
from ottla.log.config import LogConfig
from ottla.log.errors import (
    CorruptMessage,
    InvalidRecordError,
    InvalidTimestamp,
    LogError,
    RecordListTooLarge,
    RecordTooLarge,
    UnsupportedCompression,
)
from ottla.log.partition import PartitionLog
from ottla.log.scrutiny import (
    BATCH_CREDIT_NS,
    BYTES_PER_CREDIT_NS,
    MAX_SKIPPED,
    MIN_SKIPPED,
    Scrutiny,
)
from ottla.log.validate import (
    QUICK_BYTES,
    QUICK_RECORDS,
    TakesLong,
    check_records,
    must_look,
    open_batch,
    validate_produce,
)
from ottla.wire.batch import HEADER, RecordBatch
from ottla.wire.compression import Codec
from ottla.wire.kernels.validate import validate_records
from ottla.wire.records import ControlType, Record, iter_records
from tests.support.build import build_batch
from tests.support.foreign import LIBRARIES
from tests.support.log_batches import batch_of, marker
from tests.support.plain_records import Record as PlainRecord
from tests.support.plain_records import encode_batch, encode_record
from tests.support.sizes import examples

if TYPE_CHECKING:
    from pathlib import Path

NOW = 10_000_000_000
HOUR = 3_600_000
CONFIG = LogConfig()
FIELDS = (
    "base_offset",
    "batch_length",
    "partition_leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)


def good(*values: bytes, timestamp: int = NOW) -> bytearray:
    values = values or (b"a", b"b")
    return bytearray(batch_of(*values, timestamps=[timestamp] * len(values)).data)


def with_fields(data: bytearray, **changes: int) -> memoryview:
    """The batch with header fields changed and its CRC made right again."""
    fields = dict(zip(FIELDS, HEADER.unpack_from(data), strict=True)) | changes
    HEADER.pack_into(data, 0, *fields.values())
    if "crc" not in changes:
        data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    return memoryview(data)


def check(
    data: memoryview | bytearray, config: LogConfig = CONFIG, *, zstd_allowed: bool = True
) -> RecordBatch:
    return validate_produce(memoryview(data), config, now_ms=NOW, zstd_allowed=zstd_allowed)


def enveloped(payload: bytes, count: int, codec: Codec = Codec.NONE) -> memoryview:
    """A batch with a right header and CRC around what may be no records at all."""
    data = encode_batch(
        payload, count, attributes=codec, base_timestamp=NOW, max_timestamp=NOW, producer_id=-1
    )
    return memoryview(bytearray(data))


def test_a_sound_batch_passes() -> None:
    assert check(good()).record_count == 2


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param(b"", InvalidRecordError, id="empty"),
        pytest.param(good()[:11], CorruptMessage, id="no length"),
        pytest.param(good()[:-1], CorruptMessage, id="cut short"),
        pytest.param(good() + good(), InvalidRecordError, id="two batches"),
        pytest.param(good() + b"x", InvalidRecordError, id="trailing byte"),
        pytest.param(with_fields(good(), batch_length=48), CorruptMessage, id="length 48"),
        pytest.param(with_fields(good(), batch_length=-1), CorruptMessage, id="negative length"),
        pytest.param(with_fields(good(), batch_length=9999), CorruptMessage, id="length past end"),
        pytest.param(with_fields(good(), crc=1), CorruptMessage, id="CRC"),
        pytest.param(with_fields(good(), magic=0), InvalidRecordError, id="magic 0"),
        pytest.param(with_fields(good(), magic=1), InvalidRecordError, id="magic 1"),
        pytest.param(with_fields(good(), base_offset=5), InvalidRecordError, id="base offset"),
        pytest.param(with_fields(good(), record_count=3), InvalidRecordError, id="count"),
        pytest.param(with_fields(good(), record_count=0), InvalidRecordError, id="no records"),
        pytest.param(with_fields(good(), last_offset_delta=0), InvalidRecordError, id="delta"),
        pytest.param(with_fields(good(), attributes=0x20), InvalidRecordError, id="control bit"),
        pytest.param(with_fields(good(), attributes=0x40), InvalidRecordError, id="horizon bit"),
        pytest.param(with_fields(good(), attributes=0x08), InvalidTimestamp, id="append time bit"),
        pytest.param(with_fields(good(), attributes=5), UnsupportedCompression, id="codec 5"),
        pytest.param(with_fields(good(), attributes=7), UnsupportedCompression, id="codec 7"),
        pytest.param(
            with_fields(good(), producer_id=4, producer_epoch=0),
            InvalidRecordError,
            id="producer without sequence",
        ),
        pytest.param(marker(ControlType.COMMIT, 1, 0).data, InvalidRecordError, id="marker"),
        pytest.param(good(timestamp=NOW + 2 * HOUR), InvalidTimestamp, id="2 h ahead"),
    ],
)
def test_what_is_refused(data: bytearray, error: type[LogError]) -> None:
    with pytest.raises(error):
        check(data)


def test_an_append_after_a_refusal_finds_the_log_unchanged(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, CONFIG, now_ms=0)
    with pytest.raises(CorruptMessage):
        log.append(check(with_fields(good(), crc=1)), leader_epoch=0, now_ms=NOW)
    assert log.log_end_offset == 0


def test_producer_id_minus_one_may_come_with_sequence_zero() -> None:
    assert check(with_fields(good(), base_sequence=0)).producer_id == -1


def test_size_limits_are_inclusive() -> None:
    data = good()
    size = len(data)
    check(data, replace(CONFIG, max_message_bytes=size, segment_bytes=size))
    with pytest.raises(RecordTooLarge):
        check(data, replace(CONFIG, max_message_bytes=size - 1))
    with pytest.raises(RecordListTooLarge):
        check(data, replace(CONFIG, segment_bytes=size - 1))


def test_zstd_needs_a_new_request() -> None:
    data = batch_of(b"a" * 100, timestamps=[NOW], codec=Codec.ZSTD).data
    assert check(data).codec == Codec.ZSTD
    with pytest.raises(UnsupportedCompression):
        check(data, zstd_allowed=False)


def test_timestamp_limits() -> None:
    check(good(timestamp=NOW + 59 * 60_000))
    check(good(timestamp=-1), replace(CONFIG, message_timestamp_before_max_ms=HOUR))
    check(good(timestamp=NOW - HOUR), replace(CONFIG, message_timestamp_before_max_ms=HOUR))
    with pytest.raises(InvalidTimestamp):
        check(good(timestamp=NOW - HOUR - 1), replace(CONFIG, message_timestamp_before_max_ms=HOUR))
    check(good(timestamp=NOW + 9 * HOUR), replace(CONFIG, message_timestamp_type="LogAppendTime"))


@pytest.mark.parametrize("codec", list(Codec))
def test_compacted_topics_need_keys(codec: Codec) -> None:
    compacted = replace(CONFIG, cleanup_policy=frozenset({"compact", "delete"}))
    check(batch_of(b"a", None, timestamps=[NOW, NOW], codec=codec).data, compacted)
    keyless = batch_of(b"a", b"b", timestamps=[NOW, NOW], key=None, codec=codec).data
    check(keyless)
    with pytest.raises(InvalidRecordError) as caught:
        check(keyless, compacted)
    assert [index for index, _ in caught.value.record_errors] == [0, 1]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("compiled", [False, True])
def test_records_that_no_client_can_read_are_refused(
    codec: Codec, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CRC is right in all of them: it is what the client sent."""
    monkeypatch.setattr(validate, "_compiled", validate_records if compiled else None)
    body = encode_record(PlainRecord(0, 0, b"key", b"value" * 20))
    two = body + encode_record(PlainRecord(0, 1, b"key", b"value" * 20))
    check(enveloped(two, 2, codec))
    for payload, count in (
        (bytes(range(256)), 2),  # the poison of the review: garbage
        (two[:-1], 2),
        (two + b"\0", 2),
        (two, 1),
        (two, 3),
        (body + body, 2),  # offset deltas 0, 0
        (two[:2] + b"\x80" + two[3:], 2),  # attributes
        (two.replace(b"\x06key", b"\xff" * 4, 1), 2),
    ):
        with pytest.raises(InvalidRecordError):
            check(enveloped(payload, count, codec))
    if codec:
        with pytest.raises(InvalidRecordError):
            check(with_fields(good(), attributes=codec))


def test_the_largest_timestamp_is_put_right_as_kafka_does() -> None:
    data = bytearray(batch_of(b"a", b"b", timestamps=[NOW, NOW + 7]).data)
    wrong = with_fields(data, max_timestamp=NOW - 5)
    stored = check(wrong)
    assert stored.max_timestamp == NOW + 7
    stored.verify_crc()
    assert [r.timestamp for r in iter_records(stored)] == [NOW, NOW + 7]
    assert RecordBatch(wrong).max_timestamp == NOW - 5, "the request's bytes are left alone"


def test_every_record_has_to_keep_the_limits_of_time() -> None:
    ahead = with_fields(
        bytearray(batch_of(b"a", b"b", timestamps=[NOW, NOW + 2 * HOUR]).data), max_timestamp=NOW
    )
    with pytest.raises(InvalidTimestamp):
        check(ahead)
    behind = batch_of(b"a", b"b", timestamps=[NOW, NOW - 2 * HOUR]).data
    check(behind)
    with pytest.raises(InvalidTimestamp):
        check(behind, replace(CONFIG, message_timestamp_before_max_ms=HOUR))
    with pytest.raises(InvalidRecordError, match="64 bits"):
        check(
            with_fields(
                bytearray(batch_of(b"a", b"b", timestamps=[NOW, NOW + 1]).data),
                base_timestamp=2**63 - 1,
                max_timestamp=2**63 - 1,
            ),
            replace(CONFIG, message_timestamp_after_max_ms=2**63 - 1),
        )


def test_what_grows_too_much_is_told_to_be_split() -> None:
    bomb = batch_of(bytes(1 << 25), timestamps=[NOW], codec=Codec.ZSTD).data
    with pytest.raises(RecordTooLarge):
        check(bomb)


# -- how many are looked into ------------------------------------------------------------------


def open_(data: memoryview) -> RecordBatch:
    return open_batch(data, CONFIG, now_ms=NOW)


def test_a_topic_says_which_batches_are_looked_into_always() -> None:
    plain = open_(memoryview(good(*[b"v"] * 100)))
    packed = open_(batch_of(b"a", timestamps=[NOW], codec=Codec.ZSTD).data)
    for mode, expected in (("all", True), ("sampled", False), ("none", False)):
        config = replace(CONFIG, ottla_validate_records=mode)
        assert config.leaves_records is not expected
        for batch in (plain, packed):
            assert must_look(batch, config) is expected
    off = replace(CONFIG, ottla_validate_records="none")
    for stricter in (
        replace(off, cleanup_policy=frozenset({"compact"})),
        replace(off, compression_type="gzip"),
    ):
        assert not stricter.leaves_records
        assert must_look(plain, stricter)
    uncompressed = replace(off, compression_type="uncompressed")
    assert not must_look(plain, uncompressed)
    assert must_look(packed, uncompressed)


@given(st.lists(st.tuples(st.integers(100, 10**6), st.integers(0, 10**6)), min_size=1, max_size=9))
def test_looking_takes_what_batches_of_that_size_earn(looks: list[tuple[int, int]]) -> None:
    scrutiny = Scrutiny()
    for size, price in looks:
        assert scrutiny.wants(), "the first batch of a connection, and the one after a pause"
        scrutiny.took(price, size)
        skipped = 0
        while not scrutiny.wants():
            skipped += 1
        assert MIN_SKIPPED <= skipped <= MAX_SKIPPED
        earned = (skipped + 1) * (BATCH_CREDIT_NS + size // BYTES_PER_CREDIT_NS)
        assert price <= earned or skipped == MAX_SKIPPED


def test_a_connection_that_was_refused_is_not_trusted_again() -> None:
    scrutiny = Scrutiny()
    assert scrutiny.wants()
    scrutiny.took(20_000, 100)
    assert not scrutiny.wants()
    scrutiny.distrust()
    for _ in range(100):
        assert scrutiny.wants()
        scrutiny.took(10**9, 100)


def test_what_takes_long_is_not_done_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "_compiled", None)  # a broker in this process may have loaded it
    record = encode_record(PlainRecord(0, 0, None, b""))
    many = b"".join(encode_record(PlainRecord(0, i, None, b"")) for i in range(QUICK_RECORDS + 1))
    large = encode_record(PlainRecord(0, 0, None, bytes(QUICK_BYTES)))
    for payload, count, codec in (
        (many, QUICK_RECORDS + 1, Codec.NONE),
        (large, 1, Codec.LZ4),
        (large, 1, Codec.ZSTD),
    ):
        batch = open_batch(
            enveloped(payload, count, codec), replace(CONFIG, max_message_bytes=2**25), now_ms=NOW
        )
        with pytest.raises(TakesLong):
            check_records(batch, CONFIG, now_ms=NOW, quick=True)
        check_records(batch, CONFIG, now_ms=NOW)
    check_records(open_(enveloped(record, 1)), CONFIG, now_ms=NOW, quick=True)


# -- what is accepted can be read --------------------------------------------------------------


@st.composite
def batches_with_faults(draw: st.DrawFn) -> memoryview:
    """A sound batch with some bytes of its records or its header's counts changed, CRC right."""
    records = draw(
        st.lists(
            st.builds(
                PlainRecord,
                st.one_of(st.integers(-3, 100), st.integers(-(2**63), 2**63 - 1)),
                st.just(0),
                st.one_of(st.none(), st.binary(max_size=70)),
                st.one_of(st.none(), st.binary(max_size=70)),
                st.lists(
                    st.tuples(st.just(b"h"), st.one_of(st.none(), st.binary(max_size=3))),
                    max_size=2,
                ).map(tuple),
            ),
            min_size=1,
            max_size=5,
        )
    )
    payload = bytearray(
        b"".join(encode_record(r._replace(offset_delta=i)) for i, r in enumerate(records))
    )
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(payload) - 1))
        match draw(st.sampled_from(["set", "cut", "add"])):
            case "set":
                payload[at] = draw(st.integers(0, 255))
            case "cut":
                del payload[at : at + draw(st.integers(1, 3))]
            case "add":
                payload[at:at] = draw(st.binary(min_size=1, max_size=3))
        if not payload:
            payload += b"\0"
    data = enveloped(bytes(payload), len(records), draw(st.sampled_from(Codec)))
    if draw(st.booleans()) and data[22] & 7:
        # In the compressed block, behind the header that xerial puts before snappy: readers
        # differ in what they make of its version.
        at = draw(st.integers(77, max(77, len(data) - 1)).filter(lambda at: at < len(data)))
        data[at] = draw(st.integers(0, 255))
        _fix_crc(data.obj)  # type: ignore[arg-type]
    return data


@settings(max_examples=examples(400))
@given(batches_with_faults())
def test_what_is_accepted_can_be_read_by_all_clients(data: memoryview) -> None:
    config = replace(CONFIG, message_timestamp_after_max_ms=2**63 - 1)
    try:
        stored = check(data, config)
    except LogError:
        return
    ours = list(iter_records(stored))
    assert [record.offset for record in ours] == list(range(stored.record_count))
    if "\ufffd" in "".join(key for record in ours for key, _ in record.headers):
        return  # Kafka stores header keys that are not UTF-8, and so do we; these libraries fail
    for library in LIBRARIES.values():
        theirs = [(r.offset, r.key, r.value) for r in library.open(bytearray(stored.data))]
        assert theirs == [(r.offset, r.key, r.value) for r in ours]


@pytest.mark.parametrize("sent", Codec)
@pytest.mark.parametrize("name", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_may_choose_the_codec(sent: Codec, name: str) -> None:
    records = [Record(i, NOW, b"key", b"value" * 50) for i in range(5)]
    data = memoryview(
        build_batch(records, codec=sent, producer_id=7, producer_epoch=0, base_sequence=3)
    )
    stored = validate_produce(data, LogConfig(compression_type=name), now_ms=NOW)
    stored.verify_crc()
    assert stored.codec == (Codec.NONE if name == "uncompressed" else Codec.named(name))
    assert list(iter_records(stored)) == records
    assert (stored.producer_id, stored.base_sequence) == (7, 3)


def test_a_block_that_cannot_be_read_cannot_be_recompressed() -> None:
    records = [Record(0, NOW, b"key", b"value" * 50)]
    data = build_batch(records, codec=Codec.ZSTD)
    data[-20:] = bytes(20)
    _fix_crc(data)
    with pytest.raises(InvalidRecordError):
        validate_produce(memoryview(data), LogConfig(compression_type="gzip"), now_ms=NOW)


def _fix_crc(data: bytearray) -> None:
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
