"""KIP-951: whoever asks a node that does not lead a partition is told who does, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from ottla import EmbeddedBroker
from ottla.wire.error_codes import ErrorCode
from tests.support.cluster_clients import Writer, read_all
from tests.support.raw_client import RawClient, batch, fetch_request, produce_request

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC: Final = "led"
NOBODY: Final = (-1, -1)


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(nodes=2) as broker:
        broker.create_topic(TOPIC, partitions=2)
        broker.move(TOPIC, 0, 1)
        broker.move(TOPIC, 1, 2)
        yield broker


def epoch(broker: EmbeddedBroker) -> int:
    """Of partition 1, which node 2 leads."""
    with RawClient(broker.nodes[1]) as client:
        return client.topic(TOPIC).partitions[1].leader_epoch


def told(answer: Any) -> list[tuple[int, str]]:
    return [(one.node_id, f"{one.host}:{one.port}") for one in answer.node_endpoints]


def test_produce_names_the_leader(shared: EmbeddedBroker) -> None:
    request = produce_request(TOPIC, dict.fromkeys((0, 1), bytes(batch(b"value"))))
    with RawClient(shared.nodes[1]) as client:
        answer = client.ask("produce", 10, request)
        own, other = answer.responses[0].partition_responses
        assert (own.error_code, own.current_leader) == (0, NOBODY)
        assert other.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert other.current_leader == (2, epoch(shared))
        assert told(answer) == [(2, shared.nodes[2])]


def test_produce_by_topic_id_names_the_leader(shared: EmbeddedBroker) -> None:
    request = produce_request(TOPIC, {1: bytes(batch(b"value"))})
    with RawClient(shared.nodes[1]) as client:
        topic_id = client.topic(TOPIC).topic_id
        by_id = request.topic_data[0]._replace(name="", topic_id=topic_id)
        answer = client.ask("produce", 13, request._replace(topic_data=[by_id]))
        (row,) = answer.responses[0].partition_responses
        assert row.current_leader == (2, epoch(shared))
        assert told(answer) == [(2, shared.nodes[2])]


@pytest.mark.parametrize("version", [9, 10])
def test_what_nobody_leads_has_no_leader(shared: EmbeddedBroker, version: int) -> None:
    """Nor has anything in a version that does not know the fields."""
    partition = 1 if version == 9 else 7
    with RawClient(shared.nodes[1]) as client:
        request = produce_request(TOPIC, {partition: bytes(batch(b"value"))})
        answer = client.ask("produce", version, request)
        (row,) = answer.responses[0].partition_responses
        assert row.error_code != 0
        assert (row.current_leader, told(answer)) == (NOBODY, [])


@pytest.mark.parametrize(("version", "is_told"), [(17, True), (15, False)])
def test_fetch_names_the_leader(shared: EmbeddedBroker, version: int, is_told: bool) -> None:
    with RawClient(shared.nodes[1]) as client:
        topic_id = client.topic(TOPIC).topic_id
        wanted = fetch_request({(TOPIC, 0): 0, (TOPIC, 1): 0}, max_wait_ms=30_000)
        by_id = wanted.topics[0]._replace(topic="", topic_id=topic_id)
        answer = client.fetch(wanted._replace(topics=[by_id]), version=version)
        own, other = answer.responses[0].partitions
        assert (own.error_code, own.current_leader) == (0, NOBODY)
        assert other.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert other.current_leader == ((2, epoch(shared)) if is_told else NOBODY)
        assert told(answer) == ([(2, shared.nodes[2])] if is_told else [])


def test_a_fetch_with_an_old_epoch_is_told_the_new_one(shared: EmbeddedBroker) -> None:
    shared.move(TOPIC, 1, 1)
    shared.move(TOPIC, 1, 2)
    with RawClient(shared.nodes[2]) as client:
        topic_id = client.topic(TOPIC).topic_id
        wanted = fetch_request({(TOPIC, 1): 0}, leader_epoch=0)
        by_id = wanted.topics[0]._replace(topic="", topic_id=topic_id)
        answer = client.fetch(wanted._replace(topics=[by_id]), version=16)
        (row,) = answer.responses[0].partitions
        assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert row.current_leader == (2, epoch(shared))
        assert told(answer) == [(2, shared.nodes[2])]


def test_librdkafka_reads_the_answers_and_goes_on() -> None:
    """It asks for metadata less often then: seldom, where it did so after every move."""
    with EmbeddedBroker(nodes=2) as broker:
        broker.create_topic(TOPIC)
        broker.move(TOPIC, 0, 1)
        writer = Writer(broker.bootstrap, TOPIC)
        for turn in range(4):
            writer.write(1, [0])
            broker.move(TOPIC, 0, 2 - turn % 2)
        assert read_all(broker.bootstrap, TOPIC, 0) == writer.acked[0]
