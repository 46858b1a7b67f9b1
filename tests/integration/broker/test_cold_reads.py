"""Old records that are on disk alone: workers read them, and the event loop never waits.

Case 47 of the performance specification, and what it stands for: a consumer of old data does not
slow down others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import confluent_kafka
import pytest

from ottla import EmbeddedBroker, Secured
from ottla.log.producer_state import Origin
from ottla.sync import Reader
from ottla.wire.records import ControlType
from tests.support.cold_disk import ColdDisk
from tests.support.log_batches import batch_of, marker
from tests.support.raw_client import RawClient, batch, fetch_request, records_of, values_of
from tests.support.share_member import (
    ACCEPT,
    SHARE_CONFIG,
    WAIT_MS,
    Acquired,
    ShareMember,
    partitions_of,
)
from tests.support.share_queue import Queue
from tests.support.topics import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.broker.running.node import Node

KIB: Final = 1024
CONFIG: Final = {**SHARE_CONFIG, "ottla.tail.cache.bytes": "0"}
PARTITIONS: Final = 3
BATCHES: Final = 8  # of each partition, in four segments


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> ColdDisk:
    return ColdDisk.install(monkeypatch)


@pytest.fixture
def broker(disk: ColdDisk, tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path, config=CONFIG) as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as client:
        yield client


def fill(
    broker: EmbeddedBroker, client: RawClient, topic: str, partitions: int = PARTITIONS
) -> list[list[bytes]]:
    """Batches of several sizes, some larger than what a partition may give."""
    written: list[list[bytes]] = []
    for index in range(partitions):
        values = [bytes([index, number]) * (30 + 10 * number) * KIB for number in range(BATCHES)]
        for number, value in enumerate(values):
            if number and number % 2 == 0:
                roll(broker, topic, index)
            assert client.produce(topic, batch(value), partition=index).error_code == 0
        written.append(values)
    return written


def read_all(client: RawClient, topic: str, **limits: int) -> list[list[bytes | None]]:
    """All partitions in each request, as a consumer asks for them."""
    found: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
    while any(len(values) < BATCHES for values in found):
        offsets = {(topic, index): len(values) for index, values in enumerate(found)}
        answer = client.fetch(fetch_request(offsets, max_wait_ms=5000, **limits))
        rows = answer.responses[0].partitions
        assert any(row.records for row in rows)
        for row in rows:
            assert row.error_code == 0
            found[row.partition_index] += values_of(row)
    return found


@pytest.mark.parametrize(
    ("isolation_level", "partition_max_bytes", "max_bytes"),
    [(0, 1, 1 << 24), (0, 70 * KIB, 100 * KIB), (0, 70 * KIB, 1 << 24), (1, 1 << 20, 1 << 24)],
)
def test_47_no_read_of_the_loop_waits_for_the_disk(
    broker: EmbeddedBroker,
    client: RawClient,
    disk: ColdDisk,
    isolation_level: int,
    partition_max_bytes: int,
    max_bytes: int,
) -> None:
    """Neither what a worker was not asked for, nor the next segment, nor a batch over the limit."""
    broker.create_topic("orders", partitions=PARTITIONS)
    written = fill(broker, client, "orders")
    disk.drop(broker)
    found = read_all(
        client,
        "orders",
        isolation_level=isolation_level,
        partition_max_bytes=partition_max_bytes,
        max_bytes=max_bytes,
    )
    assert found == written
    assert disk.read_by_workers
    assert not disk.waits, disk.waits[0]
    before = disk.read_by_workers
    again = read_all(client, "orders", isolation_level=isolation_level)
    assert again == written
    assert disk.read_by_workers == before
    assert not disk.waits, disk.waits[0]


def test_47_nor_does_a_read_for_a_connection_with_tls(disk: ColdDisk, tmp_path: Path) -> None:
    secured = Secured(users={"bob": "secret"}, acls=["allow bob read,write,describe topic:orders"])
    values = [bytes([number]) * 50 * KIB for number in range(20)]
    with EmbeddedBroker(tmp_path, config=CONFIG, security=secured) as broker:
        broker.create_topic("orders")
        producer = confluent_kafka.Producer(broker.properties("bob"))
        for value in values:
            producer.produce("orders", value)
            if value[0] % 5 == 4:
                assert producer.flush(PATIENCE) == 0
                roll(broker, "orders")
        disk.drop(broker)
        security = broker.security("bob")
        with Reader(broker.bootstrap, "orders", stop="latest", security=security) as reader:
            assert [record.value for record in reader.records()] == values
    assert disk.read_by_workers
    assert not disk.waits, disk.waits[0]


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_47_nor_does_a_share_group(
    broker: EmbeddedBroker, disk: ColdDisk, isolation_level: str
) -> None:
    queue = Queue(broker.bootstrap, share_isolation_level=isolation_level)
    member = queue.member()
    try:
        [written] = fill(broker, queue.client, queue.topic, 1)
        disk.drop(broker)
        assert take_all(member) == written
    finally:
        queue.close()
    assert disk.read_by_workers
    assert not disk.waits, disk.waits[0]


def take_all(member: ShareMember) -> list[bytes | None]:
    """The records of a member that accepts each answer with its next request."""
    found: list[bytes | None] = []
    acks: dict[int, list[tuple[int, int, int]]] = {}
    while len(found) < BATCHES:
        answer = member.fetch((0,) if not found else (), acks, max_wait_ms=10_000, max_records=2)
        row = partitions_of(answer)[0]
        assert row.error_code == row.acknowledge_error_code == 0
        acks = {0: [(first, last, ACCEPT) for first, last, _ in row.acquired_records]}
        found += values_of(row)
    return found


def write_transactions(broker: EmbeddedBroker, topic: str) -> None:
    """Three that are committed and two that are aborted, each in a segment of its own."""

    async def write(node: Node) -> None:
        hosted = await node.partitions.open(topic, 0, write=True)
        log = hosted.log
        for number in range(5):
            told = batch_of(b"v", producer_id=7, epoch=0, sequence=number, transactional=True)
            log.append(told, leader_epoch=0, now_ms=0)
            kind = ControlType.ABORT if number % 2 else ControlType.COMMIT
            log.append(marker(kind, 7, 0), leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR)
            log.roll(0)
        await node.durability.sync([hosted])

    broker._call(write)


def test_47_nor_does_a_look_at_aborted_transactions(
    broker: EmbeddedBroker, client: RawClient, disk: ColdDisk
) -> None:
    """Their index is a file, too; a consumer of committed records needs it."""
    broker.create_topic("orders")
    write_transactions(broker, "orders")
    disk.drop(broker)
    request = fetch_request({("orders", 0): 0}, isolation_level=1, max_wait_ms=5000)
    [row] = client.fetch(request).responses[0].partitions
    assert len(records_of(row)) == 10
    assert row.aborted_transactions == ((7, 2), (7, 6))
    assert disk.read_by_workers
    assert not disk.waits, disk.waits[0]


def test_47_nor_does_that_of_a_share_group(broker: EmbeddedBroker, disk: ColdDisk) -> None:
    queue = Queue(broker.bootstrap, share_isolation_level="read_committed")
    member = queue.member()
    try:
        write_transactions(broker, queue.topic)
        disk.drop(broker)
        found = member.first()
        while len(found.offsets) < 3:
            found = Acquired(found.ranges + member.acquire(max_wait_ms=WAIT_MS).ranges)
    finally:
        queue.close()
    assert found.offsets == [0, 4, 8]
    assert disk.read_by_workers
    assert not disk.waits, disk.waits[0]


def roll(broker: EmbeddedBroker, topic: str, index: int = 0) -> None:
    """Begin a segment."""

    async def begin(node: Node) -> None:
        node.partitions.find(topic, index).log.roll(0)

    broker._call(begin)
