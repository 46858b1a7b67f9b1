"""What Produce checks on the records of one partition before they may be appended.

Only the 61-byte header and the CRC are looked at, whatever the number of records. Compacted topics
are the exception: a record without a key would stay for ever, so every record is read. A topic
with a compression.type of its own gets the batch in that codec; the records are not touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.errors import (
    CorruptMessage,
    InvalidRecordError,
    InvalidTimestamp,
    RecordListTooLarge,
    RecordTooLarge,
    UnsupportedCompression,
)
from ottla.log.rewrite import recompress_batch
from ottla.wire.batch import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    RecordBatch,
    read_batch,
)
from ottla.wire.compression import Codec
from ottla.wire.errors import BatchError, RecordError, UnsupportedMagic
from ottla.wire.records import NO_TIMESTAMP, iter_records

if TYPE_CHECKING:
    from ottla.log.config import LogConfig

_BROKER_ONLY = CONTROL | DELETE_HORIZON


def validate_produce(
    records: memoryview, config: LogConfig, *, now_ms: int, zstd_allowed: bool = True
) -> RecordBatch:
    """The one batch in `records`, or the LogError that the client is told.

    `zstd_allowed` is false for Produce versions before 7.
    """
    batch = _the_batch(records)
    if batch.size > config.max_message_bytes:
        raise RecordTooLarge(
            f"batch of {batch.size} bytes, max.message.bytes is {config.max_message_bytes}"
        )
    if batch.size > config.segment_bytes:
        raise RecordListTooLarge(
            f"batch of {batch.size} bytes, segment.bytes is {config.segment_bytes}"
        )
    try:
        batch.verify_crc()
    except BatchError as error:
        raise CorruptMessage(str(error)) from error
    _check_header(batch)
    codec = batch.codec
    if codec > Codec.ZSTD or (codec == Codec.ZSTD and not zstd_allowed):
        raise UnsupportedCompression(f"compression codec {codec} cannot be used in this request")
    if not config.log_append_time:
        _check_time(batch, config, now_ms)
    if config.compacts:
        _check_keys(batch)
    if config.compression_type != "producer":
        return _in_codec(batch, config.compression_type)
    return batch


def _in_codec(batch: RecordBatch, name: str) -> RecordBatch:
    """What is stored when the topic's compression.type is not the producer's choice."""
    codec = Codec.NONE if name == "uncompressed" else Codec.named(name)
    try:
        return recompress_batch(batch, codec)
    except BatchError as error:
        raise CorruptMessage(str(error)) from error


def _the_batch(records: memoryview) -> RecordBatch:
    if not records:
        raise InvalidRecordError("no records")
    try:
        batch = read_batch(records)
    except UnsupportedMagic as error:
        raise InvalidRecordError(str(error)) from error
    except BatchError as error:
        raise CorruptMessage(str(error)) from error
    if batch.size != len(records):
        raise InvalidRecordError(
            f"{len(records) - batch.size} bytes after the batch; a request carries one batch"
        )
    return batch


def _check_header(batch: RecordBatch) -> None:
    if batch.base_offset != 0:
        raise InvalidRecordError(f"base offset {batch.base_offset}, a client sends 0")
    if batch.attributes & _BROKER_ONLY:
        raise InvalidRecordError(f"attributes {batch.attributes:#x} are not a client's to set")
    if batch.attributes & LOG_APPEND_TIME:
        raise InvalidTimestamp("a client cannot stamp records with log-append time")
    if batch.record_count < 1 or batch.last_offset_delta != batch.record_count - 1:
        raise InvalidRecordError(
            f"{batch.record_count} records with a last offset delta of {batch.last_offset_delta}"
        )
    if batch.producer_id >= 0 and (batch.base_sequence < 0 or batch.producer_epoch < 0):
        raise InvalidRecordError(
            f"producer {batch.producer_id} with epoch {batch.producer_epoch} "
            f"and sequence {batch.base_sequence}"
        )


def _check_time(batch: RecordBatch, config: LogConfig, now_ms: int) -> None:
    latest = batch.max_timestamp
    if latest - now_ms > config.message_timestamp_after_max_ms:
        raise InvalidTimestamp(f"timestamp {latest} is too far after the broker's {now_ms}")
    first = batch.base_timestamp
    if first != NO_TIMESTAMP and now_ms - first > config.message_timestamp_before_max_ms:
        raise InvalidTimestamp(f"timestamp {first} is too far before the broker's {now_ms}")


def _check_keys(batch: RecordBatch) -> None:
    try:
        keyless = [index for index, record in enumerate(iter_records(batch)) if record.key is None]
    except RecordError as error:
        raise InvalidRecordError(str(error)) from error
    except BatchError as error:
        raise CorruptMessage(str(error)) from error
    if keyless:
        raise InvalidRecordError(
            "a compacted topic needs a key in every record",
            tuple((index, "the record has no key") for index in keyless),
        )
