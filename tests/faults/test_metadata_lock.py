"""A metadata file that another process holds locked: changes wait or fail, all else goes on."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ottla.metadata.errors import StoreBusy
from ottla.metadata.names import CONSUMER_OFFSETS_TOPIC
from ottla.testing.embedded import EmbeddedBroker
from ottla.wire.builder import BatchBuilder
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.schema.init_producer_id import InitProducerIdRequest
from ottla.wire.schema.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.faults_client import PlainClient
from tests.support.metadata_lock import locked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PRODUCE, METADATA, FIND_COORDINATOR, CREATE_TOPICS, INIT_PRODUCER_ID, ALTER = 0, 3, 10, 19, 22, 44
TOPIC = 2


@contextmanager
def running(path: Path, clients: int = 1) -> Iterator[list[PlainClient]]:
    with EmbeddedBroker(path) as broker:
        port = int(broker.bootstrap.rpartition(":")[2])
        made = [PlainClient(port) for _ in range(clients)]
        try:
            yield made
        finally:
            for client in made:
                client.close()


def create(client: PlainClient, *topics: str) -> list[ErrorCode]:
    request = CreateTopicsRequest([CreatableTopic(topic, 1, -1) for topic in topics])
    return [ErrorCode(one.error_code) for one in client.ask(CREATE_TOPICS, 5, request).topics]


def produce(client: PlainClient, topic: str) -> ErrorCode:
    builder = BatchBuilder()
    builder.append(b"value", timestamp=time.time_ns() // 1_000_000)
    data = TopicProduceData(topic, partition_data=(PartitionProduceData(0, builder.build()),))
    answer = client.ask(PRODUCE, 9, ProduceRequest(None, -1, 1000, (data,)))
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def described(client: PlainClient, *topics: str, may_create: bool = False) -> dict[str, ErrorCode]:
    asked = [MetadataRequestTopic(name=topic) for topic in topics]
    answer = client.ask(METADATA, 9, MetadataRequest(asked, may_create))
    return {topic.name: ErrorCode(topic.error_code) for topic in answer.topics}


def test_other_clients_are_served_while_a_change_waits(tmp_path: Path) -> None:
    with running(tmp_path, clients=2) as (waiting, served):
        assert create(served, "orders") == [ErrorCode.NONE]
        with locked(tmp_path / "metadata.db") as release:
            answers: list[list[ErrorCode]] = []
            change = threading.Thread(target=lambda: answers.append(create(waiting, "late")))
            change.start()
            for _ in range(20):
                assert produce(served, "orders") == ErrorCode.NONE
                found = described(served, "orders", "late")
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                assert found == {"orders": ErrorCode.NONE, "late": unknown}
            assert not answers
            release()
            change.join()
        assert answers == [[ErrorCode.NONE]]
        assert described(served, "late") == {"late": ErrorCode.NONE}


def test_a_lock_that_stays_is_told_in_words_that_clients_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ottla.broker.running.node.CHANGE_WAIT_SECONDS", 0.3)

    def alter(client: PlainClient) -> ErrorCode:
        config = AlterableConfig("retention.ms", 0, "1000")
        resource = AlterConfigsResource(TOPIC, "orders", [config])
        answer = client.ask(ALTER, 1, IncrementalAlterConfigsRequest([resource]))
        return ErrorCode(answer.responses[0].error_code)

    def init_producer(client: PlainClient) -> Any:
        return client.ask(INIT_PRODUCER_ID, 4, InitProducerIdRequest(None))

    def coordinator(client: PlainClient) -> ErrorCode:
        answer = client.ask(FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["g"]))
        return ErrorCode(answer.coordinators[0].error_code)

    with running(tmp_path) as (client,):
        assert create(client, "orders") == [ErrorCode.NONE]
        many = [f"many-{number}" for number in range(50)]
        with locked(tmp_path / "metadata.db"):
            # Those of one request wait together: one after another they would take 15 s.
            assert set(create(client, *many)) == {ErrorCode.REQUEST_TIMED_OUT}
            assert alter(client) == ErrorCode.REQUEST_TIMED_OUT
            assert init_producer(client).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert coordinator(client) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            found = described(client, "auto", may_create=True)
            assert found == {"auto": ErrorCode.LEADER_NOT_AVAILABLE}
            assert produce(client, "orders") == ErrorCode.NONE
        (told,) = caplog.messages  # once, however many changes fail
        assert "takes no changes" in told
        assert "fuser -v" in told
        gone = described(client, *many, "auto", CONSUMER_OFFSETS_TOPIC)
        assert set(gone.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        # All in one request would wait for their turns together, on a slow machine too long.
        assert {code for one in many for code in create(client, one)} == {ErrorCode.NONE}
        assert alter(client) == ErrorCode.NONE
        assert init_producer(client).error_code == ErrorCode.NONE
        assert coordinator(client) == ErrorCode.NONE
        assert described(client, "auto", may_create=True) == {"auto": ErrorCode.NONE}
        assert [message for message in caplog.messages if "again" in message] == [
            "the metadata store takes changes again"
        ]


def test_a_broker_does_not_start_on_a_locked_file_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path) as (client,):
        assert create(client, "orders") == [ErrorCode.NONE]
    monkeypatch.setattr("ottla.metadata.stores.sqlite.LOCK_TIMEOUT_SECONDS", 0.1)
    with (
        locked(tmp_path / "metadata.db"),
        pytest.raises(StoreBusy, match=r"metadata\.db.*fuser -v"),
    ):
        EmbeddedBroker(tmp_path).start()
    with running(tmp_path) as (client,):
        assert described(client, "orders") == {"orders": ErrorCode.NONE}


def test_a_broker_stops_while_the_file_is_locked(tmp_path: Path) -> None:
    with locked_while_stopping(tmp_path):
        pass
    with running(tmp_path) as (client,):
        assert described(client, "orders") == {"orders": ErrorCode.NONE}
        assert create(client, "more") == [ErrorCode.NONE]


@contextmanager
def locked_while_stopping(path: Path) -> Iterator[None]:
    broker = EmbeddedBroker(path).start()
    try:
        broker.create_topic("orders")
        with locked(path / "metadata.db"):
            broker.stop()
        yield
    finally:
        broker.stop()
