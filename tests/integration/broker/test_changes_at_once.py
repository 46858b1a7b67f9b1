"""Requests that change the cluster at the same time: each gets the answer that fits."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ottla.broker.handlers.configs import incremental_alter_configs
from ottla.broker.handlers.find_coordinator import find_coordinator
from ottla.broker.handlers.metadata import metadata
from ottla.broker.handlers.producer_ids import init_producer_id
from ottla.broker.handlers.topics import create_partitions, create_topics, delete_topics
from ottla.broker.running.node import Node
from ottla.broker.serving.context import Peer, RequestContext
from ottla.metadata.changes.nodes import RegisterBroker, SetBrokerFenced
from ottla.metadata.config.broker import load_broker_config
from ottla.metadata.names import CONSUMER_OFFSETS_TOPIC
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.schema.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.schema.init_producer_id import InitProducerIdRequest
from ottla.wire.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SET, DELETE, APPEND = 0, 1, 2
TOPIC, BROKER = 2, 4


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = await Node.start(
        load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"]), tmp_path, ephemeral=True
    )
    yield node
    await node.stop()


def context(version: int) -> RequestContext:
    return RequestContext(Peer("127.0.0.1", "PLAINTEXT"), 0, version, None)


async def create(node: Node, name: str) -> int:
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1)])
    return (await create_topics(context(7), request, node.cluster, node.clock)).topics[0].error_code


async def grow(node: Node, name: str, count: int) -> int:
    request = CreatePartitionsRequest([CreatePartitionsTopic(name, count, None)])
    return (
        (await create_partitions(context(3), request, node.cluster, node.clock))
        .results[0]
        .error_code
    )


async def delete(node: Node, name: str) -> int:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name)])
    return (
        (await delete_topics(context(6), request, node.cluster, node.clock)).responses[0].error_code
    )


async def alter(node: Node, kind: int, name: str, *configs: AlterableConfig) -> int:
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, configs)])
    answer = await incremental_alter_configs(context(1), request, node.cluster)
    return answer.responses[0].error_code


async def test_a_topic_that_is_created_twice_exists_once(node: Node) -> None:
    codes = await asyncio.gather(*(create(node, "t") for _ in range(10)))
    assert Counter(codes) == {ErrorCode.NONE: 1, ErrorCode.TOPIC_ALREADY_EXISTS: 9}


async def test_a_topic_that_is_deleted_twice_is_gone_once(node: Node) -> None:
    await create(node, "t")
    codes = await asyncio.gather(*(delete(node, "t") for _ in range(3)))
    assert Counter(codes) == {ErrorCode.NONE: 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 2}


async def test_partitions_that_are_added_twice_are_added_once(node: Node) -> None:
    await create(node, "t")
    codes = await asyncio.gather(*(grow(node, "t", 4) for _ in range(3)))
    assert Counter(codes) == {ErrorCode.NONE: 1, ErrorCode.INVALID_PARTITIONS: 2}
    assert len(node.image.topics_by_name["t"].partitions) == 4


async def test_a_topic_that_goes_while_it_grows(node: Node) -> None:
    await create(node, "t")
    codes = tuple(await asyncio.gather(delete(node, "t"), grow(node, "t", 4), create(node, "t")))
    assert codes == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE)
    assert len(node.image.topics_by_name["t"].partitions) == 1


async def test_an_answer_tells_of_the_topic_as_it_was_created(node: Node) -> None:
    """It may be gone, or be another one, by the time of the answer."""
    request = CreateTopicsRequest([CreatableTopic("t", 3, 1)])
    created, gone, again = await asyncio.gather(
        create_topics(context(7), request, node.cluster, node.clock),
        delete(node, "t"),
        create(node, "t"),
    )
    assert (gone, again) == (ErrorCode.NONE, ErrorCode.NONE)
    assert created.topics[0].num_partitions == 3
    assert created.topics[0].topic_id != node.image.topics_by_name["t"].topic_id.bytes


async def test_a_topic_that_many_ask_for_is_created_once(node: Node) -> None:
    async def ask() -> MetadataResponse:
        request = MetadataRequest([MetadataRequestTopic(name="t")], True)
        answer = metadata(context(12), request, node.cluster, node.settings, node.partitions)
        told = answer if isinstance(answer, MetadataResponse) else await answer
        assert isinstance(told, MetadataResponse)
        return told

    answers = await asyncio.gather(*(ask() for _ in range(20)))
    (topic,) = {(one.topics[0].error_code, one.topics[0].topic_id) for one in answers}
    assert topic == (ErrorCode.NONE, node.image.topics_by_name["t"].topic_id.bytes)
    # Nothing to create, nothing to wait for.
    known = metadata(
        context(12), MetadataRequest(None), node.cluster, node.settings, node.partitions
    )
    assert isinstance(known, MetadataResponse)


async def test_an_internal_topic_that_many_need_is_created_once(node: Node) -> None:
    services = node.services
    moves: list[int] = []
    node.metadata.watch(lambda before, after: moves.append(after.version))
    answers = await asyncio.gather(
        *(
            find_coordinator(
                context(4),
                FindCoordinatorRequest(coordinator_keys=[f"g{number}", "h"]),
                node.cluster,
                services.groups,
                services.transactions,
                services.persister,
            )
            for number in range(50)
        )
    )
    found = {one.error_code for answer in answers for one in answer.coordinators}
    assert found == {ErrorCode.NONE}
    assert len(moves) == 1
    assert node.image.topic(CONSUMER_OFFSETS_TOPIC) is not None


async def test_producers_that_come_at_once_get_ids_of_their_own(node: Node) -> None:
    answers = await asyncio.gather(
        *(
            init_producer_id(
                context(4), InitProducerIdRequest(None), node.cluster, node.services.transactions
            )
            for _ in range(30)
        )
    )
    assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
    assert len({answer.producer_id for answer in answers}) == 30


async def test_what_is_appended_to_a_list_at_once_is_all_there(node: Node) -> None:
    await create(node, "t")
    key = "leader.replication.throttled.replicas"
    codes = await asyncio.gather(
        *(alter(node, TOPIC, "t", AlterableConfig(key, APPEND, f"{n}:1")) for n in range(10))
    )
    assert set(codes) == {ErrorCode.NONE}
    assert set(node.image.topic_configs["t"][key].split(",")) == {f"{n}:1" for n in range(10)}


async def test_a_key_that_is_not_set_can_be_deleted(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """kafka-reassign-partitions --verify and --cancel do, and end with status 1 otherwise."""
    rates = [
        AlterableConfig(f"{side}.replication.throttled.rate", DELETE, None)
        for side in ("leader", "follower")
    ]
    before = node.image
    assert await alter(node, BROKER, "1", *rates) == ErrorCode.NONE
    assert await alter(node, BROKER, "", AlterableConfig("no.such.key", DELETE, None)) == 0
    assert node.image is before
    assert not caplog.messages


async def test_a_setting_of_kafkas_without_meaning_here_is_taken_with_a_warning(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    rate = "leader.replication.throttled.rate"
    assert await alter(node, BROKER, "1", AlterableConfig(rate, SET, "1000")) == ErrorCode.NONE
    (warning,) = caplog.messages
    assert warning.endswith(rate)
    assert await alter(node, BROKER, "1", AlterableConfig(rate, DELETE, None)) == ErrorCode.NONE
    assert node.image.broker_configs == {}
    typo = AlterableConfig("log.cleaner.thread", SET, "2")
    assert await alter(node, BROKER, "1", typo) == ErrorCode.INVALID_CONFIG


async def test_a_node_that_is_fenced_meanwhile_places_nothing_on_itself(node: Node) -> None:
    epoch = node.image.brokers[1].epoch
    fencing = node.metadata.change(SetBrokerFenced(1, epoch, fenced=True))
    _, code = await asyncio.gather(fencing, create(node, "t"))
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    await node.metadata.change(RegisterBroker(2, {}))
    assert await create(node, "t") == ErrorCode.NONE
    assert node.image.topics_by_name["t"].partitions[0].leader == 2
