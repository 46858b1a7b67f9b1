"""Clients that write while a broker is killed under them, and know what was promised to them.

What was acknowledged must be there after every restart. What was asked without an answer may be
there or not, but nothing else may. Each worker runs in a thread; `error` says what it found wrong.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import Producer

from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.schema.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.schema.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.schema.metadata import MetadataRequest
from ottla.wire.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.schema.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.support.faults_client import ConnectionLost, PlainClient

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import KafkaError, Message

METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 3, 8, 9, 10
CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS, ALTER_CONFIGS = 19, 20, 32, 44
TOPIC: Final = 2  # as a resource type
RETRY_SECONDS: Final = 0.02
LOADING: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR})


@contextmanager
def at_work(workers: Sequence[Worker]) -> Iterator[None]:
    """They work during the block, and have finished after it."""
    for worker in workers:
        worker.start()
    try:
        yield
    except BaseException:
        for worker in workers:
            worker.abandon()
        raise
    for worker in workers:
        worker.stop()


class Worker(ABC):
    """A thread that works until it is stopped, or finds that a promise was broken."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._abandoned = False
        self._thread = threading.Thread(target=self._guarded, name=type(self).__name__)
        self.error: BaseException | None = None

    @abstractmethod
    def _run(self) -> None:
        """Work until `_stopping`."""

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001  # raised again in the test's own thread
            self.error = error

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish what is under way; the broker has to be up."""
        self._stopping.set()
        self._thread.join()
        self.check()

    def abandon(self) -> None:
        """Stop without finishing."""
        self._abandoned = True
        self._stopping.set()
        self._thread.join()

    def check(self) -> None:
        if self.error is not None:
            raise self.error


class SequenceProducer(Worker):
    """Sends 0, 1, 2, ... to each partition of a topic and notes what was acknowledged where."""

    MAX_UNACKED: Final = 400
    BURST: Final = 10  # records to one partition, then the next
    PAUSE_SECONDS: Final = 0.002  # after a burst: the more kills meet an append, the better

    def __init__(
        self, name: str, bootstrap: str, topic: str, partitions: int, options: dict[str, object]
    ) -> None:
        super().__init__()
        self.name = name
        self.topic = topic
        self.sent = [0] * partitions
        self.acked: list[dict[int, int]] = [{} for _ in range(partitions)]  # sequence -> offset
        self._unacked = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 0,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "log_level": 0,
                "error_cb": self._failed,
                **options,
            }
        )

    @property
    def acknowledged(self) -> int:
        return sum(map(len, self.acked))

    def _failed(self, error: KafkaError) -> None:
        # Lost connections are what this is about; only a fatal error is one.
        if error.fatal():
            self.error = AssertionError(f"{self.name}: {error}")

    def _run(self) -> None:
        while not self._stopping.is_set() and self.error is None:
            if self._unacked >= self.MAX_UNACKED:
                self._producer.poll(0.01)
                continue
            self._burst(sum(self.sent) // self.BURST % len(self.sent))
            self._producer.poll(self.PAUSE_SECONDS)
        if self._abandoned:
            self._producer.purge()
            return
        assert self._producer.flush(60) == 0, f"{self.name}: not everything was acknowledged"

    def _burst(self, partition: int) -> None:
        for _ in range(self.BURST):
            self._producer.produce(
                self.topic,
                value=f"{self.name} {self.sent[partition]}".encode(),
                partition=partition,
                on_delivery=self._delivered,
            )
            self.sent[partition] += 1
        self._unacked += self.BURST

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.error = self.error or AssertionError(f"{self.name}: {error}")
            return
        self._unacked -= 1
        value = message.value()
        partition, offset = message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        self.acked[partition][int(value.split()[1])] = offset


class PlainWorker(Worker):
    """One that asks one thing at a time, and after every lost connection looks what is there."""

    def __init__(self, port: int, seed: int) -> None:
        super().__init__()
        self._port = port
        self.random = random.Random(seed)
        self.acknowledged = 0
        self.looks = 0

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._session()
            except ConnectionLost:
                time.sleep(RETRY_SECONDS)
        if not self._abandoned:
            with PlainClient(self._port) as client:
                self._look(client)

    def _session(self) -> None:
        with PlainClient(self._port) as client:
            self._look(client)
            self.looks += 1
            while not self._stopping.is_set():
                self._work(client)
                self.acknowledged += 1

    @abstractmethod
    def _look(self, client: PlainClient) -> None:
        """Compare what is there with what was promised."""

    @abstractmethod
    def _work(self, client: PlainClient) -> None:
        """Ask for one change."""


class Committer(PlainWorker):
    """Commits growing offsets for some groups."""

    GROUPS: Final = ("north", "east", "south", "west")

    def __init__(self, port: int, seed: int, topic: str) -> None:
        super().__init__(port, seed)
        self._topic = topic
        self._committed = dict.fromkeys(self.GROUPS, -1)
        self._attempted = dict.fromkeys(self.GROUPS, -1)

    def _look(self, client: PlainClient) -> None:
        for group in self.GROUPS:
            client.ask(FIND_COORDINATOR, 3, FindCoordinatorRequest(group))
            found = self._fetch(client, group)
            known = self._committed[group], self._attempted[group]
            assert found in known, f"group {group} has {found}, committed and attempted: {known}"
            self._committed[group] = self._attempted[group] = found

    def _fetch(self, client: PlainClient, group: str) -> int:
        topics = (OffsetFetchRequestTopic(self._topic, (0,)),)
        while True:
            answer = client.ask(OFFSET_FETCH, 7, OffsetFetchRequest(group, topics))
            if answer.error_code not in LOADING:
                assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
                offset: int = answer.topics[0].partitions[0].committed_offset
                return offset
            time.sleep(RETRY_SECONDS)

    def _work(self, client: PlainClient) -> None:
        group = self.random.choice(self.GROUPS)
        offset = self._attempted[group] = self._attempted[group] + 1
        partition = OffsetCommitRequestPartition(0, offset)
        topic = OffsetCommitRequestTopic(self._topic, partitions=(partition,))
        answer = client.ask(OFFSET_COMMIT, 8, OffsetCommitRequest(group, topics=(topic,)))
        code = answer.topics[0].partitions[0].error_code
        assert code == ErrorCode.NONE, ErrorCode(code)
        self._committed[group] = offset


class State(NamedTuple):
    """A topic as an administrator sees it; None in its place means there is none."""

    partitions: int
    retention_ms: str


class Administrator(PlainWorker):
    """Creates, alters and deletes topics."""

    NAMES: Final = ("spring", "summer", "autumn", "winter")
    RETENTION: Final = "retention.ms"

    def __init__(self, port: int, seed: int) -> None:
        super().__init__(port, seed)
        self._now: dict[str, State | None] = dict.fromkeys(self.NAMES)
        self._asked: dict[str, State | None] = dict(self._now)

    def _look(self, client: PlainClient) -> None:
        for name in self.NAMES:
            found = self._describe(client, name)
            known = self._now[name], self._asked[name]
            assert found in known, f"topic {name} is {found}, was and should be: {known}"
            self._now[name] = self._asked[name] = found

    def _describe(self, client: PlainClient, name: str) -> State | None:
        metadata = client.ask(METADATA, 1, MetadataRequest(None))
        counts = {topic.name: len(topic.partitions) for topic in metadata.topics}
        if name not in counts:
            return None
        resource = DescribeConfigsResource(TOPIC, name, (self.RETENTION,))
        answer = client.ask(DESCRIBE_CONFIGS, 1, DescribeConfigsRequest((resource,)))
        (config,) = answer.results[0].configs
        return State(counts[name], config.value)

    def _work(self, client: PlainClient) -> None:
        name = self.random.choice(self.NAMES)
        state = self._now[name]
        if state is None:
            wanted = State(self.random.randint(1, 5), str(self.random.randint(1, 10**9)))
            self._asked[name] = wanted
            self._create(client, name, wanted)
        elif self.random.random() < 0.5:
            self._asked[name] = None
            request = DeleteTopicsRequest(topics=(DeleteTopicState(name),))
            self._expect_none(client.ask(DELETE_TOPICS, 6, request).responses)
        else:
            wanted = state._replace(retention_ms=str(self.random.randint(1, 10**9)))
            self._asked[name] = wanted
            self._alter(client, name, wanted)
        self._now[name] = self._asked[name]

    def _create(self, client: PlainClient, name: str, wanted: State) -> None:
        config = CreatableTopicConfig(self.RETENTION, wanted.retention_ms)
        topic = CreatableTopic(name, wanted.partitions, -1, configs=(config,))
        self._expect_none(client.ask(CREATE_TOPICS, 5, CreateTopicsRequest((topic,))).topics)

    def _alter(self, client: PlainClient, name: str, wanted: State) -> None:
        config = AlterableConfig(self.RETENTION, 0, wanted.retention_ms)
        request = IncrementalAlterConfigsRequest((AlterConfigsResource(TOPIC, name, (config,)),))
        self._expect_none(client.ask(ALTER_CONFIGS, 1, request).responses)

    @staticmethod
    def _expect_none(results: Any) -> None:
        (result,) = results
        assert result.error_code == ErrorCode.NONE, ErrorCode(result.error_code)
