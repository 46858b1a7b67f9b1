"""The table of what Produce refuses, row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c

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
from ottla.log.validate import validate_produce
from ottla.wire.batch import HEADER, RecordBatch
from ottla.wire.builder import build_batch
from ottla.wire.compression import Codec
from ottla.wire.records import ControlType, Record, iter_records
from tests.support.log_batches import batch_of, marker

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


def test_compacted_topics_read_every_record() -> None:
    compacted = replace(CONFIG, cleanup_policy=frozenset({"compact"}))
    broken = with_fields(good(b"a"), record_count=2, last_offset_delta=1)
    check(broken)
    with pytest.raises(InvalidRecordError):
        check(broken, compacted)
    not_gzip = with_fields(good(b"a"), attributes=1)
    with pytest.raises(CorruptMessage):
        check(not_gzip, compacted)


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
    with pytest.raises(CorruptMessage):
        validate_produce(memoryview(data), LogConfig(compression_type="gzip"), now_ms=NOW)


def _fix_crc(data: bytearray) -> None:
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
