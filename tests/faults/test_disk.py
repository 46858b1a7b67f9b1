"""Disks that fail under a running broker.

The partition that is struck answers KAFKA_STORAGE_ERROR, all others go on, the broker says what is
wrong and lives. After a repair and a restart everything that was acknowledged is served.
"""

from __future__ import annotations

import errno
import time
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

import pytest

from ottla.broker.running import jobs
from ottla.log.journal.files import STATE_FILE
from ottla.testing.embedded import EmbeddedBroker
from ottla.wire.batch import iter_batches
from ottla.wire.builder import BatchBuilder
from ottla.wire.error_codes import ErrorCode
from ottla.wire.records import iter_records
from ottla.wire.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.schema.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.schema.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.wire.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.schema.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.faults_client import PlainClient
from tests.support.faults_disk import FaultyStorage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PRODUCE, FETCH, METADATA, CREATE_TOPICS, DELETE_RECORDS = 0, 1, 3, 19, 21
DESCRIBE_TOPIC_PARTITIONS = 75
ERRORS = (errno.EIO, errno.ENOSPC, errno.EROFS)


class Broker:
    """A broker whose disk can be broken, and a client of it."""

    def __init__(self, broker: EmbeddedBroker, client: PlainClient, disk: FaultyStorage) -> None:
        self.embedded = broker
        self.client = client
        self.disk = disk

    def produce(
        self, topic: str, value: bytes, *, key: bytes | None = None, later_ms: int = 0
    ) -> ErrorCode:
        builder = BatchBuilder()
        builder.append(value, key=key, timestamp=time.time_ns() // 1_000_000 + later_ms)
        partition = PartitionProduceData(0, builder.build())
        request = ProduceRequest(
            None, -1, 1000, (TopicProduceData(topic, partition_data=(partition,)),)
        )
        answer = self.client.ask(PRODUCE, 9, request)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def fetch(self, topic: str) -> list[bytes | None] | ErrorCode:
        partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_bytes=1 << 20, topics=(FetchTopic(topic, partitions=(partition,)),)
        )
        data = self.client.ask(FETCH, 11, request).responses[0].partitions[0]
        if data.error_code:
            return ErrorCode(data.error_code)
        batches = iter_batches(memoryview(data.records))
        return [record.value for batch in batches for record in iter_records(batch)]

    def described(self, topic: str) -> tuple[ErrorCode, int, list[int]]:
        """Error, leader and offline replicas of its partition, by both APIs that tell."""
        asked = MetadataRequest([MetadataRequestTopic(name=topic)])
        pages = DescribeTopicPartitionsRequest([TopicRequest(topic)])
        deadline = time.monotonic() + 30
        while True:
            (one,) = self.client.ask(METADATA, 12, asked).topics[0].partitions
            (row,) = self.client.ask(DESCRIBE_TOPIC_PARTITIONS, 0, pages).topics[0].partitions
            found, other = (
                (ErrorCode(told.error_code), told.leader_id, list(told.offline_replicas))
                for told in (one, row)
            )
            if found == other:
                return found
            assert time.monotonic() < deadline, (found, other)  # it may heal between them, once

    def create(self, topic: str, **configs: str) -> ErrorCode:
        settings = [
            CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()
        ]
        request = CreateTopicsRequest((CreatableTopic(topic, 1, -1, configs=settings),))
        (created,) = self.client.ask(CREATE_TOPICS, 5, request).topics
        return ErrorCode(created.error_code)


@contextmanager
def running(
    path: Path, disk: FaultyStorage, monkeypatch: pytest.MonkeyPatch, **config: str
) -> Iterator[Broker]:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    with monkeypatch.context() as patched:
        patched.setattr("ottla.broker.hosting.data.OsStorage", lambda: disk)
        broker = EmbeddedBroker(path, config=settings)
        broker.start()
    try:
        with PlainClient(int(broker.bootstrap.rpartition(":")[2])) as client:
            yield Broker(broker, client, disk)
    finally:
        broker.stop()


@pytest.mark.parametrize("error", ERRORS)
def test_a_log_that_cannot_be_synced_after_its_answers_is_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """With a journal logs are synced later. What was acknowledged is there at the next start."""
    disk = FaultyStorage()
    with running(tmp_path, disk, monkeypatch) as broker:
        for topic in ("struck", "spared"):
            assert broker.create(topic) == ErrorCode.NONE
        acknowledged = []
        for number in count():
            assert broker.produce("struck", b"%d" % number) == ErrorCode.NONE
            acknowledged.append(b"%d" % number)
            if (tmp_path / STATE_FILE).exists():
                break
        disk.break_("fdatasync", "/struck-0/", error)
        while broker.produce("struck", b"more") == ErrorCode.NONE:
            acknowledged.append(b"more")
            wait_for_a_checkpoint(broker)
        disk.repair()
        assert broker.fetch("struck") == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.produce("spared", b"fine") == ErrorCode.NONE
    with running(tmp_path, disk, monkeypatch) as broker:
        kept = broker.fetch("struck")
        assert isinstance(kept, list)
        assert kept[: len(acknowledged)] == acknowledged
        assert set(kept[len(acknowledged) :]) <= {b"more"}  # refused: there or not
        assert broker.fetch("spared") == [b"fine"]


def wait_for_a_checkpoint(broker: Broker) -> None:
    """Until the log is synced or offline."""
    node = broker.embedded._node
    assert node is not None
    log = node.partitions.find("struck", 0).log
    deadline = time.monotonic() + 30
    while log.online and log.recovery_point < log.log_end_offset:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("call", ["pwritev", "fdatasync"])
def test_a_log_that_cannot_be_written_is_offline_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: int
) -> None:
    disk = FaultyStorage()
    with running(tmp_path, disk, monkeypatch, ottla_flush_mode="group") as broker:
        for topic in ("struck", "spared"):
            assert broker.create(topic) == ErrorCode.NONE
            assert broker.produce(topic, b"before") == ErrorCode.NONE
        disk.break_(call, "/struck-0/", error)
        assert broker.produce("struck", b"refused") == ErrorCode.KAFKA_STORAGE_ERROR
        disk.repair()
        # Nobody knows what the disk holds, so nothing is tried again.
        assert broker.produce("struck", b"refused") == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.fetch("struck") == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.described("struck") == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1])
        assert broker.produce("spared", b"after") == ErrorCode.NONE
        assert broker.fetch("spared") == [b"before", b"after"]
        assert broker.described("spared") == (ErrorCode.NONE, 1, [])
    with running(tmp_path, disk, monkeypatch) as broker:
        kept = broker.fetch("struck")
        assert isinstance(kept, list)
        assert kept[0] == b"before"
        assert set(kept[1:]) <= {b"refused"}  # not acknowledged: there or not
        assert broker.produce("struck", b"again") == ErrorCode.NONE
        assert broker.fetch("struck") == [*kept, b"again"]
        assert broker.fetch("spared") == [b"before", b"after"]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("call", ["open", "pwritev", "fdatasync"])
def test_a_compaction_that_fails_costs_nothing_but_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: int
) -> None:
    disk = FaultyStorage()
    disk.break_(call, "/a-struck-0/00000000000000000000.log.", error)
    topics = ("a-struck", "spared")
    values = [b"%d" % number for number in range(5)]
    with running(tmp_path, disk, monkeypatch, log_cleaner_backoff_ms="10") as broker:
        for topic in topics:
            compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}
            assert broker.create(topic, segment_ms="1", **compacted) == ErrorCode.NONE
            for number, value in enumerate(values):
                produced = broker.produce(topic, value, key=b"k", later_ms=100 * number)
                assert produced == ErrorCode.NONE
        deadline = time.monotonic() + 30
        while len(list((tmp_path / "spared-0").glob("*.log"))) > 2 or not disk.struck:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert broker.fetch("a-struck") == values
        assert broker.produce("a-struck", b"last", key=b"k", later_ms=1000) == ErrorCode.NONE
        assert not list((tmp_path / "a-struck-0").glob("*.cleaned"))
    disk.repair()
    with running(tmp_path, disk, monkeypatch) as broker:
        assert broker.fetch("a-struck") == [*values, b"last"]
        assert broker.fetch("spared") == values[-2:]


def test_the_broker_says_which_log_is_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(jobs, "SWEEP_SECONDS", 0.01)
    disk = FaultyStorage()
    with running(tmp_path, disk, monkeypatch) as broker:
        broker.create("struck")
        broker.produce("struck", b"before")
        disk.break_("pwritev", "/struck-0/")
        broker.produce("struck", b"refused")
        deadline = time.monotonic() + 30
        while not (said := [r for r in caplog.messages if "is offline until" in r]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert said == ["<struck-0> is offline until the broker is restarted"]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("call", ["mkdir", "open", "rename", "fdatasync"])
def test_a_log_that_cannot_be_made_is_made_when_the_disk_is_well_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: int
) -> None:
    disk = FaultyStorage()
    with running(tmp_path, disk, monkeypatch) as broker:
        disk.break_(call, "/struck-0", error)
        assert broker.create("struck") == ErrorCode.NONE  # the topic is metadata, its log is not
        assert broker.create("spared") == ErrorCode.NONE
        assert broker.produce("struck", b"refused") == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.fetch("struck") == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.produce("spared", b"fine") == ErrorCode.NONE
        assert broker.produce("struck", b"refused") == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.described("struck") == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1])
        disk.repair()
        deadline = time.monotonic() + 30
        while broker.described("struck") != (ErrorCode.NONE, 1, []):  # so clients come back
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert broker.produce("struck", b"now") == ErrorCode.NONE
        assert broker.fetch("struck") == [b"now"]


def test_checkpoints_that_cannot_be_written_cost_a_recovery_and_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyStorage()
    with running(tmp_path, disk, monkeypatch) as broker:
        broker.create("orders")
        assert broker.produce("orders", b"one") == ErrorCode.NONE
        disk.break_("open", "recovery-point-offset-checkpoint", errno.ENOSPC)
    assert disk.struck
    assert any("checkpoints not written" in message for message in caplog.messages)
    disk.repair()
    with running(tmp_path, disk, monkeypatch) as broker:
        assert broker.fetch("orders") == [b"one"]


def test_a_log_start_that_cannot_be_written_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FaultyStorage()
    with running(tmp_path, disk, monkeypatch) as broker:
        broker.create("orders")
        broker.produce("orders", b"one")
        disk.break_("open", "log-start-offset-checkpoint", errno.ENOSPC)
        topic = DeleteRecordsTopic("orders", (DeleteRecordsPartition(0, 1),))
        answer = broker.client.ask(DELETE_RECORDS, 1, DeleteRecordsRequest((topic,)))
        code = answer.topics[0].partitions[0].error_code
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.repair()
        assert broker.produce("orders", b"two") == ErrorCode.NONE
