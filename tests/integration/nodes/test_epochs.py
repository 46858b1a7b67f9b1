"""Leader epochs in which nothing was written: consumers at the end of a log ask for them."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from ottla import EmbeddedBroker
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.cluster_clients import PATIENCE, QUICK, Writer
from tests.support.raw_client import RawClient

LATEST = -1


def ended(client: RawClient, epoch: int) -> EpochEndOffset:
    asked = OffsetForLeaderPartition(0, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic("orders", [asked])])
    (topic,) = client.ask("offset_for_leader_epoch", 4, request).topics
    found: EpochEndOffset
    (found,) = topic.partitions
    assert found.error_code == ErrorCode.NONE
    return found


def test_an_epoch_without_records_ends_where_the_log_does() -> None:
    with EmbeddedBroker(nodes=2) as broker:
        broker.create_topic("orders")
        broker.move("orders", 0, 2)
        broker.move("orders", 0, 1)
        with RawClient(broker.nodes[1]) as client:
            now = client.offset("orders", LATEST).leader_epoch
            for epoch in range(now + 1):  # nothing was ever written
                assert ended(client, epoch)[2:] == (epoch, 0)
        writer = Writer(broker.bootstrap, "orders")
        writer.write(3, [0])
        broker.move("orders", 0, 2)
        broker.move("orders", 0, 1)
        with RawClient(broker.nodes[1]) as client:
            latest = client.offset("orders", LATEST)
            assert (latest.offset, latest.leader_epoch) == (3, now + 2)
            assert ended(client, now + 2)[2:] == (now + 2, 3)
            assert ended(client, now + 1)[2:] == (now, 3)
            assert ended(client, now)[2:] == (now, 3)
            assert ended(client, now - 1)[2:] == (now - 1, 0)
            assert ended(client, now + 3)[2:] == (-1, -1)  # nobody has led in it yet


@pytest.mark.parametrize("policy", ["latest", "earliest", "error"])
def test_a_consumer_at_the_end_misses_nothing_when_the_leader_changes(policy: str) -> None:
    """Fault: to the consumer the log seemed cut off, and it began anew: at the end of that time."""
    with EmbeddedBroker(nodes=2) as broker:
        broker.create_topic("orders")
        writer = Writer(broker.bootstrap, "orders")
        broker.move("orders", 0, 1)
        writer.write(3, [0])
        broker.move("orders", 0, 2)  # an epoch in which nothing is written
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "late",
                "enable.auto.commit": False,
                "auto.offset.reset": policy,
                "enable.partition.eof": True,
                **QUICK,
            }
        )
        consumer.assign([TopicPartition("orders", 0, OFFSET_END)])
        deadline = time.monotonic() + PATIENCE
        while consumer.poll(0.1) is None:  # the end
            assert time.monotonic() < deadline
        broker.move("orders", 0, 1)
        writer.write(5, [0])
        found: list[object] = []
        while len(found) < 5:
            assert time.monotonic() < deadline
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.append(message.value())
        consumer.close()
        assert found == writer.acked[0][3:]
