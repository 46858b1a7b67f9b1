"""Metadata, DescribeTopicPartitions and FindCoordinator on the wire."""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING

import pytest

from ottla import EmbeddedBroker
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module")
def quiet_broker() -> Iterator[EmbeddedBroker]:
    """A broker of our own: no other test makes topics on it, and nobody by asking for them."""
    with EmbeddedBroker(config={"auto.create.topics.enable": "false"}) as broker:
        broker.create_topic("a", partitions=2)
        broker.create_topic("b")
        yield broker


@pytest.fixture
def quiet(quiet_broker: EmbeddedBroker) -> Iterator[RawClient]:
    with RawClient(quiet_broker.bootstrap) as client:
        yield client


def names(client: RawClient, version: int, request: MetadataRequest) -> list[str | None]:
    return sorted(topic.name for topic in client.ask("metadata", version, request).topics)


def test_all_topics_some_and_none(quiet: RawClient) -> None:
    assert names(quiet, 0, MetadataRequest(())) == ["a", "b"]
    assert names(quiet, 1, MetadataRequest(None)) == ["a", "b"]
    assert names(quiet, 13, MetadataRequest(None)) == ["a", "b"]
    assert names(quiet, 1, MetadataRequest(())) == []
    assert names(quiet, 13, MetadataRequest(())) == []
    assert names(quiet, 4, MetadataRequest([MetadataRequestTopic(name="b")])) == ["b"]


@pytest.mark.parametrize(
    ("version", "flags"), [(9, "01 00 00"), (10, "00 00 00"), (12, "01 00"), (13, "00 00")]
)
def test_all_topics_as_librdkafka_asks_for_them(quiet: RawClient, version: int, flags: str) -> None:
    """It writes the null array in four bytes where one is due; Kafka takes no notice."""
    header = struct.pack(">hhih", 3, version, 9, -1)
    quiet.send_frame(header + bytes.fromhex(f"00 00 00 00 00 {flags} 00"))
    correlation_id, answer = quiet.receive("metadata", version)
    assert correlation_id == 9
    assert sorted(topic.name for topic in answer.topics) == ["a", "b"]


def test_brokers_controller_and_partitions(quiet_broker: EmbeddedBroker, quiet: RawClient) -> None:
    answer = quiet.ask("metadata", 12, MetadataRequest([MetadataRequestTopic(name="a")]))
    (broker,) = answer.brokers
    assert f"{broker.host}:{broker.port}" == quiet_broker.bootstrap
    assert answer.controller_id == broker.node_id
    assert answer.cluster_id
    (topic,) = answer.topics
    assert [p.partition_index for p in topic.partitions] == [0, 1]
    for partition in topic.partitions:
        assert (partition.leader_id, partition.error_code) == (broker.node_id, 0)
        assert list(partition.replica_nodes) == list(partition.isr_nodes) == [broker.node_id]
        assert partition.leader_epoch >= 0
    assert topic.topic_authorized_operations == -2147483648


def test_by_id(quiet: RawClient) -> None:
    topic_id = quiet.topic("a").topic_id
    known = MetadataRequest([MetadataRequestTopic(topic_id, None)])
    assert names(quiet, 12, known) == ["a"]
    unknown = uuid.uuid4().bytes
    request = MetadataRequest([MetadataRequestTopic(unknown, None)])
    (topic,) = quiet.ask("metadata", 12, request).topics
    assert (topic.error_code, topic.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, unknown)
    assert topic.name is None


@pytest.mark.parametrize("version", [10, 11])
def test_ids_before_v12_are_refused_not_fatal(quiet: RawClient, version: int) -> None:
    request = MetadataRequest([MetadataRequestTopic(uuid.uuid4().bytes, "")])
    (topic,) = quiet.ask("metadata", version, request).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST


def test_unknown_and_impossible_names(quiet: RawClient) -> None:
    assert quiet.topic("c", create=True).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for name in ("", "a b", "..", "x" * 250):
        assert quiet.topic(name, create=True).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert names(quiet, 12, MetadataRequest(None)) == ["a", "b"]


def test_auto_creation_takes_the_setting_and_the_flag() -> None:
    with (
        EmbeddedBroker(config={"num.partitions": "3"}) as broker,
        RawClient(broker.bootstrap) as client,
    ):
        refused = client.topic("new", create=False)
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        client.topic("new", create=True)
        made = client.topic("new")
        assert (made.error_code, len(made.partitions)) == (0, 3)
        # Before v4 there was no flag, and asking meant creating.
        client.ask("metadata", 3, MetadataRequest([MetadataRequestTopic(name="old")], False))
        assert client.topic("old").error_code == 0


def pages(client: RawClient, topics: list[str], limit: int) -> Iterator[dict[str, list[int]]]:
    cursor = None
    while True:
        request = DescribeTopicPartitionsRequest(
            [TopicRequest(name) for name in topics], limit, cursor
        )
        answer = client.ask("describe_topic_partitions", 0, request)
        yield {t.name: [p.partition_index for p in t.partitions] for t in answer.topics}
        if answer.next_cursor is None:
            return
        cursor = RequestCursor(answer.next_cursor.topic_name, answer.next_cursor.partition_index)


@pytest.mark.parametrize(("limit", "count"), [(700, 8), (1_000_000, 3)])
def test_five_thousand_partitions_come_page_by_page(
    quiet_broker: EmbeddedBroker, quiet: RawClient, limit: int, count: int
) -> None:
    sizes = {"paged-1": 1300, "paged-2": 1, "paged-3": 3699}
    if quiet.topic("paged-1").error_code:
        for name, size in sizes.items():
            quiet_broker.create_topic(name, partitions=size)
    found: dict[str, list[int]] = {}
    read = list(pages(quiet, list(sizes), limit))
    for page in read:
        assert sum(map(len, page.values())) <= min(limit, 2000)
        for name, indexes in page.items():
            found.setdefault(name, []).extend(indexes)
    assert found == {name: list(range(size)) for name, size in sizes.items()}
    assert len(read) == count


def test_five_hundred_coordinators_at_once(raw: RawClient) -> None:
    keys = [f"g-{number}" for number in range(499)] + [""]
    answer = raw.ask("find_coordinator", 6, FindCoordinatorRequest("", 0, keys))
    assert [c.key for c in answer.coordinators] == keys
    *found, refused = answer.coordinators
    assert {(c.node_id, c.port > 0, c.error_code) for c in found} == {(found[0].node_id, True, 0)}
    assert refused.error_code == ErrorCode.INVALID_GROUP_ID


def test_the_coordinator_is_in_the_metadata(raw: RawClient, new_topic: Callable[..., str]) -> None:
    old = raw.ask("find_coordinator", 2, FindCoordinatorRequest("some-group", 0))
    answer = raw.ask("metadata", 12, MetadataRequest([MetadataRequestTopic(name=new_topic())]))
    assert (old.node_id, old.host, old.port) == (
        answer.brokers[0].node_id,
        answer.brokers[0].host,
        answer.brokers[0].port,
    )
