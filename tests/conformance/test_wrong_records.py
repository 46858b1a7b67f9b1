"""Batches with a right CRC and wrong records: refused, so that no consumer stops at them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from ottla.log.scrutiny import MAX_SKIPPED, MIN_SKIPPED
from ottla.log.validate import QUICK_RECORDS
from ottla.wire.batch import read_batch
from ottla.wire.compression import Codec
from ottla.wire.error_codes import ErrorCode
from ottla.wire.records import iter_records
from tests.support.plain_records import Record, encode_batch, encode_record
from tests.support.python_clients import take_confluent
from tests.support.raw_client import RawClient, batch, now_ms, produce_request, values_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla import EmbeddedBroker

    NewTopic = Callable[..., str]

CASES = 150
GARBAGE = bytes(range(1, 200))


def enveloped(payload: bytes, count: int, codec: Codec = Codec.NONE) -> bytes:
    now = now_ms()
    return encode_batch(payload, count, attributes=codec, base_timestamp=now, max_timestamp=now)


def damaged(rng: random.Random, codec: Codec) -> bytes:
    """A few records with up to three bytes changed before they are compressed, CRC right."""
    records = [
        Record(
            rng.randint(0, 200), i, rng.choice((None, b"key")), rng.randbytes(rng.randint(0, 90))
        )
        for i in range(rng.randint(1, 4))
    ]
    payload = bytearray(b"".join(map(encode_record, records)))
    for _ in range(rng.randint(1, 3)):
        payload[rng.randrange(len(payload))] = rng.randrange(256)
    return enveloped(bytes(payload), len(records), codec)


@pytest.mark.parametrize("codec", Codec)
def test_librdkafka_reads_all_that_is_accepted(
    ottla_broker: EmbeddedBroker, raw: RawClient, new_topic: NewTopic, codec: Codec
) -> None:
    topic = new_topic(ottla_validate_records="all")
    rng = random.Random(f"damaged {codec}")
    expected = []
    refused = 0
    for number in range(CASES):
        data = damaged(rng, codec)
        answer = raw.produce(topic, data)
        if answer.error_code == ErrorCode.NONE:
            expected += [record.value for record in iter_records(read_batch(memoryview(data)))]
        else:
            assert answer.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)
            refused += 1
        if number % 10 == 0:
            assert not raw.produce(topic, batch(b"sound %d" % number)).error_code
            expected.append(b"sound %d" % number)
    assert refused
    assert len(expected) > CASES // 10
    consumer = Consumer(
        {"bootstrap.servers": ottla_broker.bootstrap, "group.id": "g", "check.crcs": True}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        found = take_confluent(consumer, len(expected))
    finally:
        consumer.close()
    assert [record.value() for record in found] == expected


@pytest.mark.parametrize("codec", Codec)
def test_the_default_notices_an_encoder_that_goes_wrong_later(
    raw: RawClient, new_topic: NewTopic, codec: Codec
) -> None:
    """Some wrong batches are stored until one is looked into; from then on none is."""
    topic = new_topic(ottla_validate_records="sampled")
    assert not raw.produce(topic, batch(b"v", codec=codec)).error_code
    wrong = enveloped(GARBAGE, 9, codec)
    codes: list[int] = []
    while len(codes) <= MAX_SKIPPED and ErrorCode.INVALID_RECORD not in codes:
        codes.append(raw.produce(topic, wrong).error_code)
    assert len(codes) > MIN_SKIPPED
    assert codes[-1] == ErrorCode.INVALID_RECORD
    for _ in range(MIN_SKIPPED):
        assert raw.produce(topic, wrong).error_code == ErrorCode.INVALID_RECORD


def test_a_compacted_topic_has_every_batch_looked_into(raw: RawClient, new_topic: NewTopic) -> None:
    plain, compacted = new_topic(), new_topic(cleanup_policy="compact")
    assert not raw.produce(plain, batch(b"v")).error_code  # the one that is always looked into
    wrong = enveloped(GARBAGE, 9)
    assert not raw.produce(plain, wrong).error_code
    assert raw.produce(compacted, wrong).error_code == ErrorCode.INVALID_RECORD


def test_the_first_batch_of_a_connection_is_looked_into_compressed_or_not(
    ottla_broker: EmbeddedBroker, new_topic: NewTopic
) -> None:
    topic = new_topic(ottla_validate_records="sampled")
    sound = b"".join(encode_record(Record(0, i, None, bytes(100))) for i in range(100))
    for codec in Codec:
        with RawClient(ottla_broker.bootstrap) as fresh:
            answer = fresh.produce(topic, enveloped(sound[:-1] + b"\7", 100, codec))
            assert answer.error_code == ErrorCode.INVALID_RECORD
            assert "100" in (answer.error_message or "") or "99" in (answer.error_message or "")
            # All that a connection sends after a refusal is looked into.
            for _ in range(30):
                assert not fresh.produce(topic, enveloped(sound, 100, codec)).error_code
                wrong = enveloped(sound + b"\0", 100, codec)
                assert fresh.produce(topic, wrong).error_code == ErrorCode.INVALID_RECORD


def test_a_topic_may_do_without(raw: RawClient, new_topic: NewTopic) -> None:
    topic = new_topic(ottla_validate_records="none")
    assert not raw.produce(topic, batch(b"v", codec=Codec.ZSTD)).error_code
    for codec in Codec:
        assert not raw.produce(topic, enveloped(GARBAGE, 9, codec)).error_code


@pytest.mark.parametrize("validation", ["all", "sampled"])
def test_long_batches_are_looked_into_by_a_worker_and_keep_their_place(
    raw: RawClient, new_topic: NewTopic, validation: str
) -> None:
    topic = new_topic(ottla_validate_records=validation)
    count = 2 * QUICK_RECORDS
    many = b"".join(encode_record(Record(0, i, None, b"long")) for i in range(count))
    wrong = many[:-6] + b"\1" * 6
    for payload in (many, wrong, many):
        raw.send("produce", 11, produce_request(topic, {0: enveloped(payload, count)}))
        raw.send("produce", 11, produce_request(topic, {0: batch(b"short")}))
    answers = [raw.receive("produce", 11)[1].responses[0] for _ in range(6)]
    codes = [answer.partition_responses[0].error_code for answer in answers]
    offsets = [answer.partition_responses[0].base_offset for answer in answers]
    refused = codes[2]
    assert codes == [0, 0, refused, 0, 0, 0]
    if validation == "all":
        assert refused == ErrorCode.INVALID_RECORD
        assert offsets == [0, count, -1, count + 1, count + 2, 2 * count + 2]
    assert values_of(raw.fetch_one(topic, offsets[-1])) == [b"short"]


def test_one_refusal_among_several_partitions(raw: RawClient, new_topic: NewTopic) -> None:
    """The long one is answered in its place, after the others have been appended."""
    topic = new_topic(3, ottla_validate_records="all")
    count = QUICK_RECORDS + 1
    many = b"".join(encode_record(Record(0, i, None, b"long")) for i in range(count))
    request = produce_request(
        topic, {0: enveloped(many, count), 1: enveloped(GARBAGE, 2), 2: batch(b"v")}
    )
    answer = raw.ask("produce", 11, request).responses[0].partition_responses
    assert [one.index_ for one in answer] == [0, 1, 2]
    assert [one.error_code for one in answer] == [0, ErrorCode.INVALID_RECORD, 0]
