"""Transactional batches on their way into the log, on Ottla and on Apache Kafka."""

from __future__ import annotations

import pytest

from ottla.wire.error_codes import ErrorCode
from tests.support.raw_client import (
    LATEST,
    RawClient,
    batch,
    batches_of,
    produce_request,
    values_of,
)
from tests.support.raw_transactions import RawProducer, committed


def test_a_batch_without_a_transactional_id(raw: RawClient, topic: str) -> None:
    """All of the request is refused, also what would do by itself."""
    outlaw = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    answer = raw.ask("produce", 11, produce_request(topic, {0: batch(b"plain"), 1: outlaw}))
    codes = [each.error_code for each in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert raw.offset(topic, LATEST).offset == 0


@pytest.mark.parametrize(
    ("version", "code"),
    [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_a_partition_that_was_not_added(
    raw: RawClient, topic: str, producer: RawProducer, version: int, code: int
) -> None:
    assert producer.send(topic, 0, version=version).error_code == code
    producer.add_until_done(topic, 0)
    assert producer.send(topic, 0, version=version).error_code == 0
    assert producer.send(topic, 1, version=version).error_code == code
    assert producer.send(topic, 0, version=version).error_code == 0
    assert producer.end(commit=True).error_code == 0
    producer.wait_until("CompleteCommit")
    assert producer.send(topic, 0, version=version).error_code == code
    assert (raw.offset(topic, LATEST).offset, committed(raw, topic)) == (3, 3)


def test_two_producers_in_one_request(raw: RawClient, topic: str, producer: RawProducer) -> None:
    other = RawProducer(raw)
    other.init()
    producer.add_until_done(topic, 0)
    request = producer.request(topic, {0: producer.batch(topic, 0), 1: other.batch(topic, 1)})
    answer = raw.ask("produce", 11, request)
    codes = [each.error_code for each in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


def test_a_plain_batch_in_an_open_transaction(
    raw: RawClient, topic: str, producer: RawProducer
) -> None:
    producer.add_until_done(topic, 0)
    assert producer.send(topic).error_code == 0
    plain = batch(
        b"v", producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=1
    )
    assert raw.produce(topic, plain).error_code == ErrorCode.INVALID_TXN_STATE


def test_pipelined_batches_keep_their_order(
    raw: RawClient, topic: str, producer: RawProducer
) -> None:
    """The first of them waits for the coordinator, and with it those behind it."""
    producer.add_until_done(topic, 0, 1)
    for number in range(20):
        records = producer.batch(topic, number % 2, b"%d" % number)
        raw.send("produce", 11, producer.request(topic, {number % 2: records}))
    for number in range(20):
        _, answer = raw.receive("produce", 11)
        found = answer.responses[0].partition_responses[0]
        assert (found.error_code, found.base_offset) == (0, number // 2)
    assert values_of(raw.fetch_one(topic, 0)) == [b"%d" % number for number in range(0, 20, 2)]


def test_a_repeated_batch(raw: RawClient, topic: str, producer: RawProducer) -> None:
    producer.add_until_done(topic, 0)
    request = producer.request(topic, {0: producer.batch(topic)})
    for _ in range(2):
        found = raw.ask("produce", 11, request).responses[0].partition_responses[0]
        assert (found.error_code, found.base_offset) == (0, 0)


def test_t54_the_second_version(raw: RawClient, topic: str, producer: RawProducer) -> None:
    """Produce adds the partition, the end of a transaction bumps the epoch."""
    before = producer.producer_id, producer.epoch
    assert producer.send(topic, 0, version=12).error_code == 0
    assert producer.describe().transaction_state == "Ongoing"
    answer = producer.end(commit=True, version=5)
    assert (answer.error_code, answer.producer_id) == (0, before[0])
    assert answer.producer_epoch == before[1] + 1
    producer.wait_until("CompleteCommit")
    again = producer.end(commit=True, version=5)
    assert (again.error_code, again.producer_epoch) == (0, before[1] + 1)
    assert producer.end(commit=False, version=5).error_code == ErrorCode.INVALID_TXN_STATE
    producer.epoch, producer.sequences = answer.producer_epoch, {}
    # Without a pause: the transaction before may be ending still.
    for commit in (True, False) * 5:
        while (code := producer.send(topic, 1, version=12).error_code) != 0:
            assert code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert producer.end_and_go_on(commit=commit).error_code == 0
    assert producer.epoch == before[1] + 11
    producer.wait_until("CompleteAbort")
    assert [committed(raw, topic, index) for index in (0, 1)] == [2, 20]
    marker = batches_of(raw.fetch_one(topic, 0))[-1]
    assert (marker.is_control, marker.producer_epoch) == (True, before[1] + 1)


def test_t54_the_first_batch_has_the_first_sequence(
    raw: RawClient, topic: str, producer: RawProducer
) -> None:
    producer.sequences[topic, 0] = 1
    late = producer.send(topic, 0, version=12)
    assert late.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.sequences[topic, 0] = 0
    assert producer.send(topic, 0, version=12).error_code == 0
    assert producer.send(topic, 0, version=12).error_code == 0
