"""Offsets in transactions as clients use them, and what a restart makes of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ottla import EmbeddedBroker
from ottla.broker.coordinators.markers import MarkerWriter
from ottla.broker.coordinators.transactions import TransactionService
from ottla.coordination.machine import Marker
from ottla.wire.error_codes import ErrorCode
from tests.support.raw_client import RawClient
from tests.support.raw_offsets import RawOffsets
from tests.support.raw_transactions import PATIENCE, RawProducer, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from confluent_kafka import Message

    from ottla.coordination.transactions.messages import AddPartitions, Partition

UNSTABLE: Final = ErrorCode.UNSTABLE_OFFSET_COMMIT


def go_on(producer: RawProducer, raw: RawClient) -> RawProducer:
    """The same producer on another connection."""
    same = RawProducer(raw, producer.name)
    same.producer_id, same.epoch = producer.producer_id, producer.epoch
    return same


@pytest.mark.parametrize(("commit", "then"), [(True, 9), (False, 5)])
def test_case_51_offsets_follow_after_a_crash_before_the_markers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: bool, then: int
) -> None:
    with EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as raw:
        broker.create_topic("t")
        producer, before = RawProducer(raw), RawOffsets(raw, "t")
        producer.init()
        assert before.commit(5) == 0
        assert before.commit_in(producer, 9, version=5) == 0
    with (
        EmbeddedBroker(tmp_path) as broker,
        RawClient(broker.bootstrap) as raw,
        monkeypatch.context() as patch,
    ):
        offsets = RawOffsets(raw, "t", before.name)
        assert (offsets.offset(), offsets.offset(stable=True)) == ((0, 5), (UNSTABLE, -1))

        async def never(*_: object) -> NoReturn:
            await asyncio.get_running_loop().create_future()
            raise AssertionError

        patch.setattr(MarkerWriter, "write", never)
        assert go_on(producer, raw).end(commit=commit).error_code == 0
        assert offsets.offset(stable=True) == (UNSTABLE, -1)
    with EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as raw:
        RawOffsets(raw, "t", before.name).wait_for_offset((0, then))


def test_a_marker_that_comes_while_the_coordinator_is_asked(
    raw: RawClient, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it said counts for the transaction before the marker; the offsets would never end."""
    producer, offsets = RawProducer(raw), RawOffsets(raw, new_topic())
    producer.init()
    ask = TransactionService.join

    async def join_and_mark(
        service: TransactionService, request: AddPartitions
    ) -> dict[Partition, ErrorCode]:
        answer = await ask(service, request)
        marker = Marker(request.producer_id, request.producer_epoch, 0, commit=False)
        codes = await service.markers.write(marker, request.partitions)
        assert set(codes.values()) == {ErrorCode.NONE}
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(TransactionService, "join", join_and_mark)
        assert offsets.commit_in(producer, 1, version=5) == ErrorCode.INVALID_TXN_STATE
    assert offsets.offset(stable=True) == (0, -1)
    assert offsets.commit_in(producer, 2, version=5) == 0
    assert producer.end_and_go_on(commit=True).error_code == 0
    offsets.wait_for_offset((0, 2))


def test_older_producers_are_believed_where_nothing_is_verified() -> None:
    config = {"transaction.partition.verification.enable": "false"}
    with EmbeddedBroker(config=config) as broker, RawClient(broker.bootstrap) as raw:
        broker.create_topic("t")
        producer, offsets = RawProducer(raw), RawOffsets(raw, "t")
        producer.init()
        assert offsets.commit_in(producer, 1, version=4) == 0
        assert producer.describe().transaction_state == "Empty"
        assert offsets.commit_in(producer, 2, version=5) == 0
        assert producer.describe().transaction_state == "Empty", "it had begun here"


def consumer(bootstrap: str, group: str, topic: str) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "heartbeat.interval.ms": 50,
            "session.timeout.ms": 30_000,
        }
    )
    made.subscribe([topic])
    return made


def transactional_producer(bootstrap: str, name: str) -> Producer:
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    made.init_transactions(PATIENCE)
    return made


def next_record(source: Consumer) -> Message:
    (found,) = source.consume(1, PATIENCE)
    assert found.error() is None, found.error()
    return found


def is_assigned(member: Consumer, partitions: int = 2) -> bool:
    assert member.poll(0.05) is None, "there is nothing to read"
    return len(member.assignment()) == partitions


def test_case_52_with_confluent_kafka(
    ottla_broker: EmbeddedBroker, raw: RawClient, new_topic: Callable[..., str]
) -> None:
    """Read, process, write: every other attempt is given up and made again."""
    bootstrap, topic = ottla_broker.bootstrap, new_topic()
    group, output = RawOffsets(raw, topic), f"{topic}-out"
    done: tuple[int, int] = (0, -1)
    sink = transactional_producer(bootstrap, f"{topic}-tx")
    sink.begin_transaction()
    for number in range(4):
        sink.produce(topic, b"%d" % number, partition=0)
    sink.commit_transaction(PATIENCE)
    source = consumer(bootstrap, group.name, topic)
    for attempt in range(8):
        record = next_record(source)
        offset = record.offset()
        assert offset is not None
        assert record.value() == b"%d" % (attempt // 2)
        sink.begin_transaction()
        sink.produce(output, record.value())
        position = TopicPartition(topic, 0, offset + 1)
        sink.send_offsets_to_transaction([position], source.consumer_group_metadata(), PATIENCE)
        assert (group.offset(), group.offset(stable=True)) == (done, (UNSTABLE, -1))
        if attempt % 2:
            sink.commit_transaction(PATIENCE)
            done = 0, offset + 1
        else:
            sink.abort_transaction(PATIENCE)
            source.seek(TopicPartition(topic, 0, offset))
        group.wait_for_offset(done)
    source.close()
    check = consumer(bootstrap, f"{group.name}-check", output)
    assert [next_record(check).value() for _ in range(4)] == [b"0", b"1", b"2", b"3"]
    check.close()


def refusal(sink: Producer, position: list[TopicPartition], metadata: object) -> int:
    try:
        sink.send_offsets_to_transaction(position, metadata, PATIENCE)
    except KafkaException as error:
        return int(error.args[0].code())
    return KafkaError.NO_ERROR


def test_case_53_with_confluent_kafka(
    ottla_broker: EmbeddedBroker, raw: RawClient, new_topic: Callable[..., str]
) -> None:
    """Who missed a rebalance may not commit; with what it learns from it, it may."""
    bootstrap, topic = ottla_broker.bootstrap, new_topic(2)
    group = RawOffsets(raw, topic)
    sink = transactional_producer(bootstrap, f"{topic}-tx")
    first = consumer(bootstrap, group.name, topic)
    wait_for(lambda: is_assigned(first))
    old = first.consumer_group_metadata()
    second = consumer(bootstrap, group.name, topic)
    wait_for(lambda: is_assigned(first, 1) and is_assigned(second, 1))
    position = [TopicPartition(topic, 0, 7)]
    sink.begin_transaction()
    assert refusal(sink, position, old) == KafkaError.ILLEGAL_GENERATION
    sink.abort_transaction(PATIENCE)
    sink.begin_transaction()
    sink.send_offsets_to_transaction(position, first.consumer_group_metadata(), PATIENCE)
    sink.commit_transaction(PATIENCE)
    group.wait_for_offset((0, 7))
    first.close()
    second.close()
