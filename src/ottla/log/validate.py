"""What Produce checks on the records of one partition before they may be appended.

Two steps:

- `open_batch` checks the 61 bytes of the header and the CRC; it does not look at single records.
- `check_records` checks the records, as Kafka's LogValidator does: every length, varint, offset
  delta, timestamp and (on compacted topics) key. Every client can read a batch that passes.

A CRC only says that the bytes are those the client sent. A client that sends garbage under a right
CRC would otherwise stop every consumer of the partition: librdkafka delivers nothing behind it.

To look into every batch in plain Python takes 0.6 microseconds a record, a third of the CPU of a
produce request of 32 records, and a fifth of that of one: code that a request runs once costs more
than a loop over it shows. So the topic's `ottla.validate.records` says how many are:

- `sampled`, the default: the first batch of a connection, then one of 64 or fewer (`Scrutiny`).
- `all`: every batch. With the `arrow` extra by compiled code, for a twentieth of the CPU and
  130 MB of memory (`use_compiled`).
- `none`: no batch, except on compacted topics, which must know their keys.

A batch that is stored in another codec, for the topic's compression.type, is looked into always.
"""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Final

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
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    RecordBatch,
    read_batch,
)
from ottla.wire.compression import DECOMPRESSION_HARD_LIMIT, Codec, decompress
from ottla.wire.errors import BatchError, DecompressedTooLarge, UnsupportedMagic
from ottla.wire.records import NO_TIMESTAMP, iter_records
from ottla.wire.walk import walk_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.log.config import LogConfig
    from ottla.wire.walk import RecordsSummary

SAMPLED: Final = "sampled"
ALL: Final = "all"
NONE: Final = "none"

FEW_RECORDS: Final = 2
"""Walked in less time than it takes to call compiled code."""

COPIED_BYTES: Final = 2048
"""A record's size up to which a batch is copied to be walked."""
QUICK_RECORDS: Final = 8_192
"""Records that plain Python walks in 5 ms; more must not run on the event loop."""
QUICK_BYTES: Final = 1 << 20
"""Bytes (de)compressed in a few milliseconds; more must not run on the loop."""

_BROKER_ONLY = CONTROL | DELETE_HORIZON
_INT64: Final = 1 << 63
_WHERE: Final = "the batch"

_SMALLEST: Final = b"\x0c\0\0\0\1\1\0"  # a record without key, value and headers

# Compiled code belongs to the process and is shared by all brokers in it.
_compiled: Callable[..., RecordsSummary] | None = None
_asked_for_compiled = False


class TakesLong(Exception):
    """The batch is too large to be looked into on the event loop; do so in a worker thread."""


def use_compiled() -> None:
    """From a second or so on let `check_records` use compiled code, if there is any.

    Imports and compiles in a thread of its own, once in a process; until then, and without the
    `arrow` extra, plain Python does the work.
    """
    global _asked_for_compiled  # noqa: PLW0603
    if not _asked_for_compiled:
        _asked_for_compiled = True
        Thread(target=_load_compiled, name="ottla-compile", daemon=True).start()


def _load_compiled() -> None:
    global _compiled  # noqa: PLW0603
    try:
        from ottla.wire.kernels.validate import validate_records
    except ImportError:
        return
    validate_records(_SMALLEST, 1)  # compiles it, or loads it from numba's cache
    _compiled = validate_records


def validate_produce(
    records: memoryview, config: LogConfig, *, now_ms: int, zstd_allowed: bool = True
) -> RecordBatch:
    """Run both steps completely, ignoring the topic's sampling and the time it takes."""
    batch = open_batch(records, config, now_ms=now_ms, zstd_allowed=zstd_allowed)
    return check_records(batch, config, now_ms=now_ms)


def open_batch(
    records: memoryview, config: LogConfig, *, now_ms: int, zstd_allowed: bool = True
) -> RecordBatch:
    """The one batch in `records`; raises the LogError for the client.

    `zstd_allowed` is false for Produce versions before 7.
    """
    size = len(records)
    if size < HEADER_SIZE:
        raise _no_batch(records)
    batch = RecordBatch(records)
    if batch.magic != MAGIC or batch.batch_length + LENGTH_OVERHEAD != size:
        raise _no_batch(records)
    if size > config.max_message_bytes:
        raise RecordTooLarge(
            f"batch of {size} bytes, max.message.bytes is {config.max_message_bytes}"
        )
    if size > config.segment_bytes:
        raise RecordListTooLarge(f"batch of {size} bytes, segment.bytes is {config.segment_bytes}")
    try:
        batch.verify_crc()
    except BatchError as error:
        raise CorruptMessage(str(error)) from error
    _check_header(batch)
    codec = batch.attributes & CODEC_MASK
    if codec >= Codec.ZSTD and (codec > Codec.ZSTD or not zstd_allowed):
        raise UnsupportedCompression(f"compression codec {codec} cannot be used in this request")
    if not config.log_append_time:
        _check_time(batch.base_timestamp, batch.max_timestamp, config, now_ms)
    return batch


def must_look(batch: RecordBatch, config: LogConfig) -> bool:
    """Whether the records of an opened batch must be checked, regardless of sampling."""
    return (
        config.ottla_validate_records == ALL
        or config.compacts
        or (config.compression_type != "producer" and _target_codec(config) != batch.codec)
    )


def check_records(
    batch: RecordBatch, config: LogConfig, *, now_ms: int, quick: bool = False
) -> RecordBatch:
    """Check the records of an opened batch; return the batch to store, or raise the LogError.

    With `quick`, TakesLong if that is nothing for the event loop.
    """
    if quick and batch.record_count > QUICK_RECORDS and _compiled is None:
        raise TakesLong
    limit = QUICK_BYTES if quick else DECOMPRESSION_HARD_LIMIT
    block = batch.data[HEADER_SIZE:]
    try:
        if batch.codec:
            block = decompress(Codec(batch.codec), block, limit=limit, where=_WHERE)
        summary = _walk(block, batch.record_count)
    except DecompressedTooLarge as error:
        if quick:
            raise TakesLong from error
        # Producers split the batch and retry after this error.
        raise RecordTooLarge(str(error)) from error
    except BatchError as error:
        raise InvalidRecordError(str(error)) from error
    if summary.null_keys and config.compacts:
        raise _keyless(batch)
    if not config.log_append_time:
        batch = _with_true_times(batch, summary, config, now_ms)
    if config.compression_type == "producer":
        return batch
    codec = _target_codec(config)
    if codec == batch.codec:
        return batch
    if quick and len(block) > QUICK_BYTES:
        raise TakesLong
    return recompress_batch(batch, codec)


def _walk(block: memoryview, count: int) -> RecordsSummary:
    if _compiled is not None and count > FEW_RECORDS:
        return _compiled(block, count, where=_WHERE)
    whole = block.obj
    if isinstance(whole, bytearray) and len(whole) == len(block):  # just decompressed
        return walk_records(whole, count, where=_WHERE)
    # To index bytes is quicker than to index a view, unless it takes a copy of large records.
    data = bytes(block) if len(block) <= COPIED_BYTES * count else block
    return walk_records(data, count, where=_WHERE)


def _target_codec(config: LogConfig) -> Codec:
    """What batches are stored in, unless the topic leaves that to the producer."""
    name = config.compression_type
    return Codec.NONE if name == "uncompressed" else Codec.named(name)


def _with_true_times(
    batch: RecordBatch, summary: RecordsSummary, config: LogConfig, now_ms: int
) -> RecordBatch:
    """The batch, its largest timestamp put right if the records say otherwise, as Kafka does."""
    latest = batch.base_timestamp + summary.max_timestamp_delta
    oldest = batch.base_timestamp + summary.min_timestamp_delta
    if latest == batch.max_timestamp and oldest == batch.base_timestamp:
        return batch
    if oldest < -_INT64 or latest >= _INT64:
        raise InvalidRecordError(f"timestamps {oldest} to {latest} do not fit into 64 bits")
    _check_time(oldest, latest, config, now_ms)
    if latest == batch.max_timestamp:
        return batch
    copy = RecordBatch(memoryview(bytearray(batch.data)))
    copy.set_max_timestamp(latest, log_append_time=False)
    return copy


def _no_batch(records: memoryview) -> InvalidRecordError | CorruptMessage:
    """What is wrong with the bytes."""
    size = len(records)
    if not size:
        return InvalidRecordError("no records")
    try:
        batch = read_batch(records)
    except UnsupportedMagic as error:
        return InvalidRecordError(str(error))
    except BatchError as error:
        return CorruptMessage(str(error))
    return InvalidRecordError(
        f"{size - batch.size} bytes after the batch; a request carries one batch"
    )


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


def _check_time(first: int, latest: int, config: LogConfig, now_ms: int) -> None:
    if latest - now_ms > config.message_timestamp_after_max_ms:
        raise InvalidTimestamp(f"timestamp {latest} is too far after the broker's {now_ms}")
    if first != NO_TIMESTAMP and now_ms - first > config.message_timestamp_before_max_ms:
        raise InvalidTimestamp(f"timestamp {first} is too far before the broker's {now_ms}")


def _keyless(batch: RecordBatch) -> InvalidRecordError:
    return InvalidRecordError(
        "a compacted topic needs a key in every record",
        tuple(
            (index, "the record has no key")
            for index, record in enumerate(iter_records(batch))
            if record.key is None
        ),
    )
