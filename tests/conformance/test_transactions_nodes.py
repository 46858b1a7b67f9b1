"""Transactions across restarts and nodes: what was decided is carried out, by whoever can.

Two nodes share one metadata file. Partition 0 of a topic is led by node 1, partition 1 by node 2,
and a transaction's coordinator is on either: verification and markers go over the wire between.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

import ottla
from ottla.broker.coordinators.markers import MarkerWriter
from ottla.broker.topics import create_topic
from ottla.coordination.partitioner import partition_for
from ottla.metadata.names import TRANSACTION_STATE_TOPIC
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.schema.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.held_broker import copy_as_killed
from tests.support.raw_client import LATEST, RawClient
from tests.support.raw_transactions import RawProducer, producers_of
from tests.support.share_nodes import Nodes, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC: Final = "t"
GROUP: Final = "g"
READ_COMMITTED: Final = 1


def stable(raw: RawClient, partition: int = 0) -> int:
    return raw.offset(TOPIC, LATEST, partition=partition, isolation_level=READ_COMMITTED).offset


def commit_offset(producer: RawProducer, offset: int) -> int:
    """In the transaction, of partition 0."""
    request = TxnOffsetCommitRequest(
        producer.name,
        GROUP,
        producer.producer_id,
        producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(TOPIC, [TxnOffsetCommitRequestPartition(0, offset)])],
    )
    answer = producer.raw.ask("txn_offset_commit", 3, request)
    code: int = answer.topics[0].partitions[0].error_code
    return code


def fetch_offset(raw: RawClient) -> int:
    """The stable one; -1 for none, -88 while a transaction may change it."""
    asked = OffsetFetchRequestGroup(
        GROUP, topics=[OffsetFetchRequestTopics(TOPIC, partition_indexes=[0])]
    )
    request = OffsetFetchRequest(groups=[asked], require_stable=True)
    (group,) = raw.ask("offset_fetch", 8, request).groups
    (found,) = group.topics[0].partitions
    return int(-found.error_code or found.committed_offset)


@pytest.mark.parametrize("commit", [True, False])
def test_t51_a_crash_before_the_markers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: bool
) -> None:
    """What is prepared is carried out by the broker that starts from what the crash left."""
    crashed = tmp_path / "crashed"

    async def never(*_: object) -> dict[tuple[str, int], ErrorCode]:
        await asyncio.Event().wait()
        raise AssertionError

    with (
        monkeypatch.context() as held,
        ottla.EmbeddedBroker(tmp_path / "data") as broker,
        RawClient(broker.bootstrap) as raw,
    ):
        held.setattr(MarkerWriter, "write", never)
        broker.create_topic(TOPIC, partitions=2)
        producer = RawProducer(raw)
        producer.init()
        raw.ask("find_coordinator", 4, FindCoordinatorRequest(coordinator_keys=[GROUP]))
        producer.add_until_done(TOPIC, 0, 1)
        assert producer.add_offsets(GROUP) == 0
        for partition in (0, 1):
            assert producer.send(TOPIC, partition).error_code == 0
        assert commit_offset(producer, 7) == 0
        assert fetch_offset(raw) == -ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert producer.end(commit=commit).error_code == 0
        assert producer.describe().transaction_state.startswith("Prepare")
        assert producer.add(TOPIC, 0) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert [stable(raw, partition) for partition in (0, 1)] == [0, 0]
        copy_as_killed(tmp_path / "data", crashed)
    with ottla.EmbeddedBroker(crashed) as broker, RawClient(broker.bootstrap) as raw:
        producer.raw = raw
        producer.wait_until("CompleteCommit" if commit else "CompleteAbort")
        assert [stable(raw, partition) for partition in (0, 1)] == [2, 2]
        assert fetch_offset(raw) == (7 if commit else -1)
        aborted = raw.fetch_one(TOPIC, 0, isolation_level=READ_COMMITTED).aborted_transactions
        assert bool(aborted) != commit
        producer.add_until_done(TOPIC, 0)
        assert producer.send(TOPIC).error_code == 0


def test_an_open_transaction_outlives_a_restart(tmp_path: Path) -> None:
    with ottla.EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as raw:
        broker.create_topic(TOPIC)
        producer = RawProducer(raw)
        producer.init()
        producer.add_until_done(TOPIC, 0)
        assert producer.send(TOPIC).error_code == 0
    with ottla.EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as raw:
        producer.raw = raw
        assert stable(raw) == 0
        assert producer.send(TOPIC).error_code == 0
        assert producer.end(commit=True).error_code == 0
        producer.wait_until("CompleteCommit")
        assert stable(raw) == 3


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    try:
        nodes.start(1)
        nodes.start(2)
        wait_for(lambda: len(nodes.running[1].image.brokers) == 2)
        first = nodes.running[1]
        nodes.do(lambda: create_topic(first.cluster, TOPIC, partitions=2))
        wait_for(lambda: nodes.running[2].image.topic(TOPIC) is not None)
        yield nodes
    finally:
        nodes.close()


def producer_of(nodes: Nodes, coordinator: int, raw: RawClient) -> RawProducer:
    """One whose transactions are coordinated by that node, to which `raw` is connected."""
    image = nodes.running[1].image
    if image.topic(TRANSACTION_STATE_TOPIC) is None:
        nodes.do(lambda: nodes.running[1].services.transactions().coordinator_of("any"))
    topic = nodes.running[1].image.topics_by_name[TRANSACTION_STATE_TOPIC]
    wait_for(lambda: nodes.running[2].image.topic(TRANSACTION_STATE_TOPIC) is not None)
    names = (f"name-{number}" for number in range(1000))
    count = len(topic.partitions)
    name = next(n for n in names if topic.partitions[partition_for(n, count)].leader == coordinator)
    producer = RawProducer(raw, name)
    assert producer.init().error_code == 0
    return producer


@pytest.mark.parametrize("coordinator", [1, 2])
def test_partitions_of_two_nodes(nodes: Nodes, coordinator: int) -> None:
    with RawClient(nodes.bootstrap(1)) as first, RawClient(nodes.bootstrap(2)) as second:
        raws = {0: first, 1: second}
        own = raws[coordinator - 1]
        producer = producer_of(nodes, coordinator, own)

        def send(partition: int, version: int) -> int:
            producer.raw = raws[partition]
            code = producer.send(TOPIC, partition, version=version).error_code
            producer.raw = own
            return code

        # The first version of the protocol: verified by the leader, wherever the coordinator is.
        assert [send(partition, 11) for partition in (0, 1)] == [
            ErrorCode.TRANSACTION_ABORTABLE
        ] * 2
        producer.add_until_done(TOPIC, 0, 1)
        assert [send(partition, 11) for partition in (0, 1)] == [0, 0]
        assert producer.end(commit=True).error_code == 0
        producer.wait_until("CompleteCommit")
        assert [stable(raws[partition], partition) for partition in (0, 1)] == [2, 2]
        # The second: the leader adds the partition.
        assert producer.end_and_go_on(commit=False).error_code == 0
        assert [send(partition, 12) for partition in (0, 1)] == [0, 0]
        assert producer.end_and_go_on(commit=False).error_code == 0
        producer.wait_until("CompleteAbort")
        for partition, raw in raws.items():
            assert stable(raw, partition) == 4
            found = producers_of(raw, TOPIC, partition)[producer.producer_id]
            assert found.producer_epoch == producer.epoch


def test_markers_wait_for_a_node_that_is_away(nodes: Nodes) -> None:
    with RawClient(nodes.bootstrap(1)) as first:
        producer = producer_of(nodes, 1, first)
        producer.add_until_done(TOPIC, 0, 1)
        with RawClient(nodes.bootstrap(2)) as second:
            assert producer.send(TOPIC, 0).error_code == 0
            producer.raw = second
            assert producer.send(TOPIC, 1).error_code == 0
            producer.raw = first
        nodes.stop(2)
        assert producer.end(commit=True).error_code == 0
        wait_for(lambda: stable(first, 0) == 2)
        assert producer.describe().transaction_state == "PrepareCommit"
        nodes.start(2)
        producer.wait_until("CompleteCommit")
        with RawClient(nodes.bootstrap(2)) as second:
            assert stable(second, 1) == 2


def test_a_partition_that_is_no_more_needs_no_marker(nodes: Nodes) -> None:
    with RawClient(nodes.bootstrap(1)) as first:
        producer = producer_of(nodes, 1, first)
        node = nodes.running[1]
        nodes.do(lambda: create_topic(node.cluster, "short-lived", partitions=1))
        producer.add_until_done("short-lived", 0)
        producer.add_until_done(TOPIC, 0)
        assert producer.send(TOPIC, 0).error_code == 0
        deleted = DeleteTopicsRequest(topics=[DeleteTopicState("short-lived")], timeout_ms=10_000)
        assert first.ask("delete_topics", 6, deleted).responses[0].error_code == 0
        assert producer.end(commit=True).error_code == 0
        producer.wait_until("CompleteCommit")
        assert stable(first, 0) == 2
