"""Produce on the wire: what is refused and how, and that a refusal leaves the log as it was."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c

from ottla.wire.builder import BatchBuilder
from ottla.wire.compression import Codec
from ottla.wire.error_codes import ErrorCode
from tests.support.raw_client import (
    EARLIEST,
    LATEST,
    RawClient,
    batch,
    batches_of,
    now_ms,
    produce_request,
    records_of,
    values_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla import EmbeddedBroker

HOUR_MS = 3_600_000


def patched(data: bytearray, position: int, form: str, value: int) -> bytearray:
    """The batch with one field changed and its CRC made to match."""
    struct.pack_into(form, data, position, value)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return data


def crc_flipped() -> bytearray:
    data = batch(b"v")
    data[-1] ^= 1
    return data


def keyless_on_compacted() -> bytearray:
    builder = BatchBuilder()
    for key in (b"k", None, b"l", None):
        builder.append(b"v", key=key, timestamp=now_ms())
    return builder.build()


REFUSED: dict[str, tuple[Callable[[], bytes | bytearray | None], ErrorCode]] = {
    "no records": (lambda: None, ErrorCode.INVALID_RECORD),
    "empty records": (lambda: b"", ErrorCode.INVALID_RECORD),
    "CRC flip": (crc_flipped, ErrorCode.CORRUPT_MESSAGE),
    "length 48": (lambda: patched(batch(b"v"), 8, ">i", 48), ErrorCode.CORRUPT_MESSAGE),
    "length -1": (lambda: patched(batch(b"v"), 8, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
    "length past the field": (
        lambda: patched(b := batch(b"v"), 8, ">i", len(b)),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "magic 1": (lambda: patched(batch(b"v"), 16, ">b", 1), ErrorCode.INVALID_RECORD),
    "magic 3": (lambda: patched(batch(b"v"), 16, ">b", 3), ErrorCode.INVALID_RECORD),
    "count mismatch": (lambda: patched(batch(b"v"), 57, ">i", 2), ErrorCode.INVALID_RECORD),
    "count 0": (lambda: patched(batch(b"v"), 57, ">i", 0), ErrorCode.INVALID_RECORD),
    "last delta too large": (
        lambda: patched(batch(b"v"), 23, ">i", 0x7FFFFFFF),
        ErrorCode.INVALID_RECORD,
    ),
    "two batches": (lambda: batch(b"v") + batch(b"w"), ErrorCode.INVALID_RECORD),
    "trailing byte": (lambda: batch(b"v") + b"\0", ErrorCode.INVALID_RECORD),
    "base offset 5": (lambda: batch(b"v", base_offset=5), ErrorCode.INVALID_RECORD),
    "control bit": (lambda: batch(b"v", control=True), ErrorCode.INVALID_RECORD),
    "log-append time": (lambda: patched(batch(b"v"), 21, ">h", 8), ErrorCode.INVALID_TIMESTAMP),
    "codec 5": (
        lambda: patched(batch(b"v"), 21, ">h", 5),
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ),
    "2 h ahead": (
        lambda: batch(b"v", timestamp=now_ms() + 2 * HOUR_MS),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "over max.message.bytes": (lambda: batch(b"x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_batch_is_not_appended(
    raw: RawClient, new_topic: Callable[..., str], case: str
) -> None:
    topic = new_topic()
    assert raw.produce(topic, batch(b"before")).base_offset == 0
    make, error = REFUSED[case]
    answer = raw.produce(topic, make())
    assert (answer.error_code, answer.base_offset) == (error, -1)
    assert answer.error_message
    assert raw.offset(topic, LATEST).offset == 1
    assert raw.produce(topic, batch(b"after")).base_offset == 1


def test_keyless_records_on_a_compacted_topic(
    raw: RawClient, new_topic: Callable[..., str]
) -> None:
    """Each is named in record_errors; a broker that takes them never gets rid of them."""
    topic = new_topic(cleanup_policy="compact")
    answer = raw.produce(topic, keyless_on_compacted())
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1, 3]
    assert raw.produce(topic, batch(b"v", b"w")).error_code == 0


def test_59_minutes_ahead_passes(raw: RawClient, new_topic: Callable[..., str]) -> None:
    answer = raw.produce(new_topic(), batch(b"v", timestamp=now_ms() + HOUR_MS - 60_000))
    assert answer.error_code == 0


def test_max_message_bytes_is_exact(raw: RawClient, new_topic: Callable[..., str]) -> None:
    fits = batch(b"x" * 500)
    topic = new_topic(max_message_bytes=str(len(fits)))
    assert raw.produce(topic, fits).error_code == 0
    assert raw.produce(topic, batch(b"x" * 501)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_larger_than_a_segment(raw: RawClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(segment_bytes=str(1024 * 1024), max_message_bytes="3000000")
    answer = raw.produce(topic, batch(b"x" * 1024 * 1024))
    assert answer.error_code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_one_bad_partition_does_not_affect_the_others(
    raw: RawClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(3)
    request = produce_request(topic, {0: batch(b"a"), 1: crc_flipped(), 2: batch(b"c"), 3: b""})
    (answer,) = raw.ask("produce", 9, request).responses
    assert [(p.index_, p.error_code) for p in answer.partition_responses] == [
        (0, ErrorCode.NONE),
        (1, ErrorCode.CORRUPT_MESSAGE),
        (2, ErrorCode.NONE),
        (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [raw.offset(topic, LATEST, partition=p).offset for p in range(3)] == [1, 0, 1]


@pytest.mark.parametrize("acks", [-2, 2, 3])
def test_other_acks_are_refused_for_every_partition(
    raw: RawClient, new_topic: Callable[..., str], acks: int
) -> None:
    topic = new_topic(2)
    request = produce_request(topic, {0: batch(b"a"), 1: batch(b"b")}, acks=acks)
    (answer,) = raw.ask("produce", 9, request).responses
    assert [p.error_code for p in answer.partition_responses] == [21, 21]
    assert raw.offset(topic, LATEST).offset == 0


def test_acks_0_is_silent(raw: RawClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    raw.send("produce", 9, produce_request(topic, {0: batch(b"quiet")}, acks=0))
    # The next answer on the wire is the one to the next request.
    assert values_of(raw.fetch_one(topic, 0, max_wait_ms=10_000)) == [b"quiet"]


@pytest.mark.parametrize("partition", [0, 1])
def test_acks_0_that_fails_closes(
    raw: RawClient, new_topic: Callable[..., str], partition: int
) -> None:
    bad = {partition: crc_flipped() if partition == 0 else batch(b"no such partition")}
    raw.send("produce", 9, produce_request(new_topic(), bad, acks=0))
    assert raw.closed()


def test_by_topic_id(raw: RawClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    topic_id = raw.topic(topic).topic_id
    request = produce_request("", {0: batch(b"v")})
    for wanted, error in ((topic_id, 0), (b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID)):
        data = [request.topic_data[0]._replace(topic_id=wanted)]
        (answer,) = raw.ask("produce", 13, request._replace(topic_data=data)).responses
        assert (answer.topic_id, answer.partition_responses[0].error_code) == (wanted, error)
    assert raw.offset(topic, LATEST).offset == 1


def test_zstd_needs_produce_v7(raw: RawClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    data = batch(b"v" * 100, codec=Codec.ZSTD)
    refused = raw.produce(topic, data, version=6)
    assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert raw.produce(topic, data, version=7).error_code == 0


def test_sequence_0_without_a_producer_id(raw: RawClient, new_topic: Callable[..., str]) -> None:
    """aiokafka without idempotence sends just that, again and again."""
    topic = new_topic()
    for expected in range(3):
        answer = raw.produce(topic, batch(b"v", producer_epoch=-1, base_sequence=0))
        assert (answer.error_code, answer.base_offset) == (0, expected)


def test_log_append_time(raw: RawClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = now_ms()
    answer = raw.produce(topic, batch(b"a", b"b", timestamp=1000, codec=Codec.LZ4))
    assert before <= answer.log_append_time_ms <= now_ms()
    data = raw.fetch_one(topic, 0)
    (stored,) = batches_of(data)
    assert stored.is_log_append_time
    assert {r.timestamp for r in records_of(data)} == {answer.log_append_time_ms}


def test_create_time(raw: RawClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    assert raw.produce(topic, batch(b"a", timestamp=1000)).log_append_time_ms == -1
    assert [r.timestamp for r in records_of(raw.fetch_one(topic, 0))] == [1000]


def test_the_leader_epoch_is_written_into_the_batch(
    raw: RawClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    raw.produce(topic, batch(b"v", partition_leader_epoch=77))
    (stored,) = batches_of(raw.fetch_one(topic, 0))
    assert stored.partition_leader_epoch == raw.topic(topic).partitions[0].leader_epoch


def test_clients_cannot_write_to_internal_topics(raw: RawClient, group: str) -> None:
    from ottla.wire.schema.find_coordinator import FindCoordinatorRequest

    raw.ask("find_coordinator", 2, FindCoordinatorRequest(group, 0))  # makes the topic
    answer = raw.produce("__consumer_offsets", batch(b"v"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_log_start_offset_is_told(
    raw: RawClient, ottla_broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    assert raw.produce(topic, batch(b"v")).log_start_offset == 0
    assert raw.offset(topic, EARLIEST).offset == 0
