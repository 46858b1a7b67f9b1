"""Share groups and transactions: markers and aborted records are passed by.

The transactions are written into the log as their coordinator would; members see them by the wire.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from ottla.log.producer_state import Origin
from ottla.testing.embedded import EmbeddedBroker
from ottla.wire.records import ControlType
from tests.support.log_batches import batch_of, marker
from tests.support.share_member import ACCEPT, SHARE_CONFIG, WAIT_MS, described_offsets
from tests.support.share_queue import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.broker.running.node import Node
    from ottla.wire.batch import RecordBatch

PRODUCER = 7


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=SHARE_CONFIG) as broker:
        yield broker


class Transactions:
    """A transactional producer of one queue, and its coordinator."""

    def __init__(self, broker: EmbeddedBroker, queue: Queue) -> None:
        self._broker = broker
        self._queue = queue
        self._sequence = 0

    def write(self, records: int) -> None:
        values = [b"value"] * records
        batch = batch_of(
            *values, producer_id=PRODUCER, epoch=0, sequence=self._sequence, transactional=True
        )
        self._sequence += records
        self._append(batch, Origin.CLIENT)

    def end(self, kind: ControlType) -> None:
        self._append(marker(kind, PRODUCER, 0), Origin.COORDINATOR)

    def _append(self, batch: RecordBatch, origin: Origin) -> None:
        async def append(node: Node) -> None:
            hosted = await node.partitions.open(self._queue.topic, 0, write=True)
            now_ms = time.time_ns() // 1_000_000
            hosted.log.append(batch, leader_epoch=hosted.leader_epoch, now_ms=now_ms, origin=origin)
            node.durability.join([hosted])

        self._broker._call(append)


def test_38_a_marker_is_passed_without_an_acknowledgement(broker: EmbeddedBroker) -> None:
    queue = Queue(broker.bootstrap)
    transactions = Transactions(broker, queue)
    transactions.write(2)
    transactions.end(ControlType.COMMIT)
    with queue.member() as member:
        assert member.first().offsets == [0, 1]
        assert member.ack(0, 1, ACCEPT) == 0
        assert member.acquire(max_wait_ms=100).offsets == []
        queue.produce(1)
        assert member.acquire(max_wait_ms=WAIT_MS).offsets == [3]
        assert member.ack(3, 3, ACCEPT) == 0
        assert described_offsets(queue.client, queue.group)[queue.topic, 0].lag == 0
    queue.close()


def test_39_only_what_is_committed_is_delivered(broker: EmbeddedBroker) -> None:
    queue = Queue(broker.bootstrap, share_isolation_level="read_committed")
    transactions = Transactions(broker, queue)
    transactions.write(2)
    queue.produce(1)
    with queue.member() as member:
        assert member.first(max_wait_ms=200).offsets == []
        request = member.fetch_request(max_wait_ms=60_000)
        member.client.send("share_fetch", 2, request)
        transactions.end(ControlType.COMMIT)
        # The end of the transaction wakes who waits for it.
        row = member.fetched().responses[0].partitions[0]
        assert [tuple(one) for one in row.acquired_records] == [(0, 2, 1)]
        transactions.write(2)
        transactions.end(ControlType.ABORT)
        queue.produce(1)
        assert member.acquire(max_wait_ms=WAIT_MS).offsets == [7]
    queue.close()
