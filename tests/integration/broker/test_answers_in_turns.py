"""Answers about thousands of partitions leave room for other requests while they are made."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pytest

from ottla.broker.handlers import configs, log_dirs
from ottla.broker.handlers import metadata as metadata_handler
from ottla.broker.handlers.configs import describe_configs
from ottla.broker.handlers.log_dirs import describe_log_dirs
from ottla.broker.handlers.metadata import metadata
from ottla.broker.running.node import Node
from ottla.broker.serving.context import Peer, RequestContext
from ottla.broker.topics import create_topic, delete_topic, existing
from ottla.metadata.config.broker import load_broker_config
from ottla.wire.error_codes import ErrorCode
from ottla.wire.messages import Codec, read_response, request_parts
from ottla.wire.schema.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.schema.describe_log_dirs import DescribeLogDirsRequest
from ottla.wire.schema.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

METADATA: Final = 3
A_TURN: Final = 20  # rows, instead of thousands
TOPICS: Final = {"few": 3, "large": 3 * A_TURN + 7, "more": A_TURN - 1, "one": 1}
TOTAL: Final = sum(TOPICS.values())


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(metadata_handler, "SHOWN_AT_ONCE", A_TURN)
    monkeypatch.setattr(log_dirs, "MEASURED_AT_ONCE", A_TURN)
    monkeypatch.setattr(configs, "DESCRIBED_AT_ONCE", A_TURN)
    node = await Node.start(
        load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"]), tmp_path
    )
    for name, count in TOPICS.items():
        await create_topic(node.cluster, name, partitions=count)
    yield node
    await node.stop()


def context(version: int) -> RequestContext:
    return RequestContext(Peer("", "PLAINTEXT"), METADATA, version, None)


def counting(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[int]:
    """Counts the calls of a method or function in the one number of the list."""
    called = [0]
    method: Callable[..., Any] = getattr(owner, name)

    def counted(*args: Any) -> Any:
        called[0] += 1
        return method(*args)

    monkeypatch.setattr(owner, name, counted)
    return called


async def most_a_turn(answer: Awaitable[Any], called: list[int]) -> tuple[Any, int]:
    """The answer, and the most calls in one turn of the loop."""
    answering = asyncio.ensure_future(answer)
    seen = [0]
    while not answering.done():
        await asyncio.sleep(0)
        seen.append(called[0])
    return answering.result().response, max(after - before for before, after in pairwise(seen))


@pytest.mark.parametrize("all_topics", [True, False])
async def test_metadata(node: Node, monkeypatch: pytest.MonkeyPatch, *, all_topics: bool) -> None:
    """Fault: 100,000 partitions took one turn of the loop of more than 100 ms."""
    looks = counting(monkeypatch, node.partitions, "is_offline")
    asked = [MetadataRequestTopic(name=name) for name in (*TOPICS, "unknown")]
    request = MetadataRequest(None if all_topics else asked, False)
    asking: Any = metadata(context(12), request, node.cluster, node.settings, node.partitions)
    answer, most = await most_a_turn(asking, looks)
    assert (looks[0], most) == (TOTAL, A_TURN)
    assert [broker.node_id for broker in answer.brokers] == [node.node_id]
    assert answer.cluster_id == node.image.cluster_id
    found = {topic.name: topic for topic in answer.topics}
    if not all_topics:
        assert found.pop("unknown").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {
        name: [row.partition_index for row in topic.partitions] for name, topic in found.items()
    } == {name: [*range(count)] for name, count in TOPICS.items()}


async def test_metadata_is_of_one_moment(node: Node) -> None:
    """Topics that come and go while it is made are shown as they were at its beginning."""
    asking: Any = metadata(
        context(12), MetadataRequest(None, False), node.cluster, node.settings, node.partitions
    )
    await delete_topic(node.cluster, lambda image: existing(image, "one"))
    await create_topic(node.cluster, "two", partitions=2)
    answer = (await asking).response
    assert sorted(topic.name for topic in answer.topics) == sorted(TOPICS)


async def test_log_directories(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = counting(monkeypatch, node.data, "has")
    answer, most = await most_a_turn(
        describe_log_dirs(
            context(4),
            DescribeLogDirsRequest(None),
            node.cluster,
            node.data,
            node.partitions,
            node.workers,
        ),
        looks,
    )
    assert looks[0] == 2 * TOTAL
    assert most <= A_TURN
    (result,) = answer.results
    assert {topic.name: len(topic.partitions) for topic in result.topics} == TOPICS


async def test_configs(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    described = counting(monkeypatch, configs, "resolve_topic_config")
    names = [*TOPICS] * A_TURN
    request = DescribeConfigsRequest([DescribeConfigsResource(2, name, None) for name in names])
    asking: Any = describe_configs(context(4), request, node.cluster)
    answer, most = await most_a_turn(asking, described)
    assert (described[0], most) == (len(names), A_TURN)
    assert [result.resource_name for result in answer.results] == names
    assert all(result.configs for result in answer.results)


async def test_a_large_answer_is_encoded_by_a_worker(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoders: list[threading.Thread] = []
    response = Codec.response

    def noted(self: Codec, correlation_id: int, body: Any) -> Any:
        encoders.append(threading.current_thread())
        return response(self, correlation_id, body)

    monkeypatch.setattr(Codec, "response", noted)
    frame = b"".join(request_parts(METADATA, 12, 7, None, MetadataRequest(None, False)))[4:]
    answering: Any = node.dispatcher.dispatch(memoryview(frame), Peer("", "PLAINTEXT"))
    parts = b"".join(await answering)
    correlation_id, answer = read_response(METADATA, 12, memoryview(parts)[4:])
    assert correlation_id == 7
    assert {topic.name: len(topic.partitions) for topic in answer.topics} == TOPICS
    (encoder,) = encoders
    assert encoder is not threading.current_thread()
