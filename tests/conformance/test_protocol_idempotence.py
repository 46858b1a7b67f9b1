"""Idempotent producers on the wire, across restarts too."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ottla import EmbeddedBroker
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.init_producer_id import InitProducerIdRequest
from tests.support.held_broker import copy_as_killed
from tests.support.raw_client import LATEST, RawClient, batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.wire.schema.produce import PartitionProduceResponse

MAX_SEQUENCE = 2147483647


class IdempotentProducer:
    def __init__(self, raw: RawClient, topic: str, producer_id: int | None = None) -> None:
        self._raw = raw
        self._topic = topic
        if producer_id is None:
            producer_id = new_producer_id(raw)
        self.producer_id = producer_id
        self.epoch = 0

    def send(self, sequence: int, *values: bytes) -> PartitionProduceResponse:
        return self._raw.produce(
            self._topic,
            batch(
                *(values or (b"v",)),
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
            ),
        )


def new_producer_id(raw: RawClient) -> int:
    answer = raw.ask("init_producer_id", 4, InitProducerIdRequest(None, 60_000))
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    producer_id: int = answer.producer_id
    return producer_id


def test_each_of_the_last_five_batches_may_come_again(
    raw: RawClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    producer = IdempotentProducer(raw, topic)
    for sequence in range(0, 12, 2):
        assert producer.send(sequence, b"a", b"b").base_offset == sequence
    for sequence in range(2, 12, 2):
        again = producer.send(sequence, b"a", b"b")
        assert (again.error_code, again.base_offset) == (0, sequence)
    forgotten = producer.send(0, b"a", b"b")
    assert forgotten.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert raw.offset(topic, LATEST).offset == 12


def test_a_part_of_a_batch_is_no_duplicate(raw: RawClient, new_topic: Callable[..., str]) -> None:
    producer = IdempotentProducer(raw, new_topic())
    producer.send(0, b"a", b"b")
    assert producer.send(0, b"a").error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_gaps_wrap_and_epochs(raw: RawClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    producer = IdempotentProducer(raw, topic)
    assert producer.send(0).error_code == 0
    assert producer.send(2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.epoch = 1
    assert producer.send(1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(0).error_code == 0
    producer.epoch = 0
    assert producer.send(1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert raw.offset(topic, LATEST).offset == 2


def test_sequences_wrap(raw: RawClient, new_topic: Callable[..., str]) -> None:
    producer = IdempotentProducer(raw, new_topic())
    assert producer.send(MAX_SEQUENCE - 1, b"a").error_code == 0
    assert producer.send(MAX_SEQUENCE, b"b", b"c").error_code == 0
    assert producer.send(1).error_code == 0


def test_an_unknown_producer_may_start_anywhere(
    raw: RawClient, new_topic: Callable[..., str]
) -> None:
    producer = IdempotentProducer(raw, new_topic())
    assert producer.send(7).error_code == 0
    assert producer.send(8).error_code == 0


def test_a_producer_id_without_a_sequence(raw: RawClient, new_topic: Callable[..., str]) -> None:
    answer = raw.produce(new_topic(), batch(b"v", producer_id=3, producer_epoch=0))
    assert answer.error_code == ErrorCode.INVALID_RECORD


def test_kip_360_bumps_the_epoch(raw: RawClient) -> None:
    producer_id = new_producer_id(raw)
    request = InitProducerIdRequest(None, 60_000, producer_id, 4)
    answer = raw.ask("init_producer_id", 4, request)
    assert (answer.producer_id, answer.producer_epoch) == (producer_id, 5)


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    found = []
    for _ in range(3):
        with EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as client:
            found += [new_producer_id(client) for _ in range(5)]
    assert all(before < after for before, after in pairwise(found))


def test_duplicates_are_known_after_a_restart(tmp_path: Path) -> None:
    """A broker that forgets its producers appends a retried batch a second time."""
    with EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("t")
        producer = IdempotentProducer(client, "t")
        for sequence in range(3):
            assert producer.send(sequence).base_offset == sequence
    with EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        again = IdempotentProducer(client, "t", producer.producer_id)
        duplicate = again.send(2)
        assert (duplicate.error_code, duplicate.base_offset) == (0, 2)
        assert again.send(4).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert again.send(3).base_offset == 3


def test_duplicates_are_known_after_a_crash(tmp_path: Path) -> None:
    """No clean-shutdown mark, no snapshot at the end: the state is replayed from the log."""
    with EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("t")
        producer = IdempotentProducer(client, "t")
        for sequence in range(3):
            assert producer.send(sequence).base_offset == sequence
        crashed = tmp_path.parent / f"{tmp_path.name}-crashed"
        copy_as_killed(tmp_path, crashed)
    with EmbeddedBroker(crashed) as broker, RawClient(broker.bootstrap) as client:
        again = IdempotentProducer(client, "t", producer.producer_id)
        for sequence in range(3):
            assert again.send(sequence).base_offset == sequence
        assert again.send(3).base_offset == 3
        assert client.offset("t", LATEST).offset == 4
