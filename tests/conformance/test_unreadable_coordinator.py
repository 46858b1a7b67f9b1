"""A partition of coordinators that cannot be read: its keys have no coordinator, all others do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.coordination.partitioner import partition_for
from ottla.metadata.names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.testing.embedded import EmbeddedBroker
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema import offset_commit, offset_fetch, txn_offset_commit
from ottla.wire.schema.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.schema.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.schema.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.schema.delete_groups import DeleteGroupsRequest
from ottla.wire.schema.describe_groups import DescribeGroupsRequest
from ottla.wire.schema.describe_transactions import DescribeTransactionsRequest
from ottla.wire.schema.end_txn import EndTxnRequest
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.heartbeat import HeartbeatRequest
from ottla.wire.schema.init_producer_id import InitProducerIdRequest
from ottla.wire.schema.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.schema.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.schema.list_groups import ListGroupsRequest
from ottla.wire.schema.list_transactions import ListTransactionsRequest
from ottla.wire.schema.share_group_describe import ShareGroupDescribeRequest
from ottla.wire.schema.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.wire.schema.sync_group import SyncGroupRequest
from tests.support.raw_client import RawClient
from tests.support.raw_transactions import RawProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PARTITIONS = 4
CONFIG = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "transaction.state.log.num.partitions": str(PARTITIONS),
}
BAD = "bad"
GOOD, OTHER = [
    name
    for name in (f"good-{number}" for number in range(100))
    if partition_for(name, PARTITIONS) != partition_for(BAD, PARTITIONS)
][:2]
TOPIC = "t"


def commit(raw: RawClient, group: str) -> int:
    partition = offset_commit.OffsetCommitRequestPartition(0, 7)
    topic = offset_commit.OffsetCommitRequestTopic(TOPIC, partitions=[partition])
    request = offset_commit.OffsetCommitRequest(group, topics=[topic])
    answer = raw.ask("offset_commit", 8, request)
    return int(answer.topics[0].partitions[0].error_code)


def fetch(raw: RawClient, group: str) -> tuple[int, int]:
    """Error and offset."""
    topic = offset_fetch.OffsetFetchRequestTopics(TOPIC, partition_indexes=[0])
    asked = offset_fetch.OffsetFetchRequestGroup(group, topics=[topic])
    (found,) = raw.ask("offset_fetch", 8, offset_fetch.OffsetFetchRequest(groups=[asked])).groups
    if found.error_code:
        return found.error_code, -1
    return 0, found.topics[0].partitions[0].committed_offset


def damage(data_dir: Path, topic: str, partition: int) -> None:
    """A bit of the first batch turns over."""
    (segment,) = sorted((data_dir / f"{topic}-{partition}").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[70] ^= 1
    segment.write_bytes(data)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    data_dir = tmp_path_factory.mktemp("data")
    with EmbeddedBroker(data_dir, config=CONFIG) as broker, RawClient(broker.bootstrap) as client:
        assert client.topic(TOPIC, create=True).error_code in (0, 5)
        for key in (BAD, GOOD):
            client.ask("find_coordinator", 4, FindCoordinatorRequest(coordinator_keys=[key]))
            assert commit(client, key) == 0
            assert RawProducer(client, key).init().error_code == 0
    for topic in (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
        damage(data_dir, topic, partition_for(BAD, PARTITIONS))
    with EmbeddedBroker(data_dir, config=CONFIG) as broker, RawClient(broker.bootstrap) as client:
        yield client


REQUESTS: dict[str, tuple[int, Any, Callable[[Any], int]]] = {
    "heartbeat": (4, HeartbeatRequest(BAD, 1, "m"), lambda a: a.error_code),
    "join_group": (
        5,
        JoinGroupRequest(
            BAD, 6000, 6000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")]
        ),
        lambda a: a.error_code,
    ),
    "sync_group": (3, SyncGroupRequest(BAD, 1, "m"), lambda a: a.error_code),
    "leave_group": (
        3,
        LeaveGroupRequest(BAD, members=[MemberIdentity("m")]),
        lambda a: a.error_code,
    ),
    "describe_groups": (5, DescribeGroupsRequest([BAD]), lambda a: a.groups[0].error_code),
    "delete_groups": (2, DeleteGroupsRequest([BAD]), lambda a: a.results[0].error_code),
    "consumer_group_heartbeat": (
        1,
        ConsumerGroupHeartbeatRequest(
            BAD,
            "m",
            0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        ),
        lambda a: a.error_code,
    ),
    "consumer_group_describe": (
        1,
        ConsumerGroupDescribeRequest([BAD]),
        lambda a: a.groups[0].error_code,
    ),
    "share_group_heartbeat": (
        1,
        ShareGroupHeartbeatRequest(BAD, "m", 0, subscribed_topic_names=[TOPIC]),
        lambda a: a.error_code,
    ),
    "share_group_describe": (
        1,
        ShareGroupDescribeRequest([BAD]),
        lambda a: a.groups[0].error_code,
    ),
    "init_producer_id": (5, InitProducerIdRequest(BAD, 60_000), lambda a: a.error_code),
    "end_txn": (4, EndTxnRequest(BAD, 1, 0, committed=True), lambda a: a.error_code),
    "add_offsets_to_txn": (
        3,
        AddOffsetsToTxnRequest(BAD, 1, 0, "any"),
        lambda a: a.error_code,
    ),
    "describe_transactions": (
        0,
        DescribeTransactionsRequest([BAD]),
        lambda a: a.transaction_states[0].error_code,
    ),
}


@pytest.mark.parametrize("api", sorted(REQUESTS))
def test_a_key_without_a_readable_coordinator_is_told_so(raw: RawClient, api: str) -> None:
    version, request, error_of = REQUESTS[api]
    answer = raw.ask(api, version, request)
    assert error_of(answer) == ErrorCode.COORDINATOR_NOT_AVAILABLE, answer


def test_its_offsets_can_neither_be_read_nor_written(raw: RawClient) -> None:
    assert commit(raw, BAD) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert fetch(raw, BAD) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


def test_a_transaction_cannot_write_its_offsets(raw: RawClient) -> None:
    producer = RawProducer(raw, GOOD)
    assert producer.init().error_code == 0
    assert producer.add_offsets(BAD) == 0
    partition = txn_offset_commit.TxnOffsetCommitRequestPartition(0, 7)
    topic = txn_offset_commit.TxnOffsetCommitRequestTopic(TOPIC, [partition])
    who = producer.producer_id, producer.epoch
    request = txn_offset_commit.TxnOffsetCommitRequest(GOOD, BAD, *who, topics=[topic])
    answer = raw.ask("txn_offset_commit", 3, request)
    code = answer.topics[0].partitions[0].error_code
    assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE, answer


def test_other_groups_and_transactions_are_served(raw: RawClient) -> None:
    assert fetch(raw, GOOD) == (0, 7)
    assert commit(raw, GOOD) == 0
    producer = RawProducer(raw, OTHER)
    assert producer.init().error_code == 0
    assert producer.add(TOPIC, 0) == [0]
    assert producer.end(commit=True).error_code == 0


def test_lists_have_what_can_be_read(raw: RawClient) -> None:
    groups = raw.ask("list_groups", 5, ListGroupsRequest())
    assert groups.error_code == 0
    assert [group.group_id for group in groups.groups] == [GOOD]
    transactions = raw.ask("list_transactions", 1, ListTransactionsRequest())
    assert transactions.error_code == 0
    listed = {one.transactional_id for one in transactions.transaction_states}
    assert GOOD in listed
    assert BAD not in listed
