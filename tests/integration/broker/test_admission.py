"""Which transactional batches a partition takes while their coordinator is being asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.core import CollectorRegistry

from ottla.broker.coordinators import admission
from ottla.broker.coordinators.markers import append_marker
from ottla.broker.handlers.produce import produce
from ottla.broker.running.metrics import NodeCollector
from ottla.broker.running.node import Node
from ottla.broker.serving.context import Ack, Peer, RequestContext
from ottla.broker.topics import create_topic
from ottla.coordination.machine import Marker
from ottla.coordination.transactions import messages as m
from ottla.metadata.config.broker import load_broker_config
from ottla.wire.error_codes import ErrorCode
from ottla.wire.messages import codec, read_response, request_parts
from ottla.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.acks import durable
from tests.support.raw_client import batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

TOPIC = "t"
PRODUCER = 5
PRODUCE = 0


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    config = load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"])
    node = await Node.start(config, tmp_path)
    await create_topic(node.cluster, TOPIC, partitions=1)
    yield node
    await node.stop()


class Coordinator:
    """In place of the transaction's coordinator: answers what it is told to, when it is told."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: list[ErrorCode] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked: list[m.AddPartitions] = []
        self._node = node
        monkeypatch.setattr(node.services.transactions(), "join", self.join)

    async def join(self, request: m.AddPartitions) -> dict[m.Partition, ErrorCode]:
        self.asked.append(request)
        await self.may_answer.wait()
        code = self.answers.pop(0) if self.answers else ErrorCode.NONE
        return dict.fromkeys(request.partitions, code)

    def mark(self, *, epoch: int = 0) -> None:
        hosted = self._node.partitions.find(TOPIC, 0)
        append_marker(hosted, Marker(PRODUCER, epoch, 0, commit=False), now_ms=0)
        self._node.durability.join([hosted])


@pytest.fixture
def coordinator(node: Node, monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    return Coordinator(node, monkeypatch)


def request(
    sequence: int = 0, *, producer_id: int = PRODUCER, epoch: int = 0, transactional: bool = True
) -> ProduceRequest:
    records = batch(
        b"v",
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    data = PartitionProduceData(0, memoryview(records))
    return ProduceRequest("id", -1, 1000, [TopicProduceData(TOPIC, partition_data=[data])])


async def send(node: Node, asked: ProduceRequest, version: int = 11) -> ErrorCode:
    context = RequestContext(Peer("", "PLAINTEXT"), PRODUCE, version, None)
    answer: Any = produce(
        context,
        asked,
        node.cluster,
        node.partitions,
        node.durability,
        node.workers,
        node.clock,
        node.services.transactions,
        node.settings,
    )
    if asyncio.iscoroutine(answer):
        answer = await answer
    if isinstance(answer, Ack):
        answer.seal(codec(PRODUCE, version), 1)
        answer = await durable(answer)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # what is waited for tells nobody
            await asyncio.sleep(0.001)


async def test_a_marker_that_comes_while_the_coordinator_is_asked(
    node: Node, coordinator: Coordinator
) -> None:
    """Appended after it, the batch would belong to a transaction that nobody ends."""
    coordinator.may_answer.clear()
    sending = asyncio.ensure_future(send(node, request()))
    await until(lambda: bool(coordinator.asked))
    coordinator.mark()
    coordinator.may_answer.set()
    assert await sending == ErrorCode.INVALID_TXN_STATE
    log = node.partitions.find(TOPIC, 0).log
    assert (log.log_end_offset, log.last_stable_offset <= 1) == (1, True)
    assert await send(node, request()) == ErrorCode.NONE


async def test_a_marker_of_the_transaction_before(node: Node, coordinator: Coordinator) -> None:
    """In the second version the coordinator waits for its end; that is no reason to refuse."""
    coordinator.may_answer.clear()
    sending = asyncio.ensure_future(send(node, request(epoch=1), version=12))
    await until(lambda: bool(coordinator.asked))
    coordinator.mark(epoch=1)
    coordinator.may_answer.set()
    assert await sending == ErrorCode.NONE
    assert len(coordinator.asked) == 2


async def test_the_coordinator_is_asked_once_for_each_transaction(
    node: Node, coordinator: Coordinator
) -> None:
    for sequence in range(3):
        assert await send(node, request(sequence)) == ErrorCode.NONE
    assert len(coordinator.asked) == 1
    coordinator.mark()
    assert await send(node, request(3)) == ErrorCode.NONE
    assert len(coordinator.asked) == 2
    assert coordinator.asked[0].verify_only
    coordinator.mark(epoch=1)
    assert await send(node, request(epoch=1), version=12) == ErrorCode.NONE
    assert (coordinator.asked[2].verify_only, coordinator.asked[2].version_2) == (False, True)


async def test_what_comes_behind_a_refused_batch_does_not_overtake_it(
    node: Node, coordinator: Coordinator
) -> None:
    """The producer is new to the log, which would take any sequence for its first."""
    coordinator.answers = [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert await send(node, request(7)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert await send(node, request(8)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await send(node, request(7)) == ErrorCode.NONE
    assert await send(node, request(8)) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.PRODUCER_FENCED, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NOT_COORDINATOR, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 12, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_refusals_in_the_words_of_the_version(
    node: Node, coordinator: Coordinator, said: ErrorCode, version: int, told: ErrorCode
) -> None:
    coordinator.answers = [said]
    assert await send(node, request(), version) == told
    assert node.partitions.find(TOPIC, 0).log.log_end_offset == 0


async def test_invented_producers_cost_bounded_memory(
    node: Node, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MAX_VERIFICATIONS", 3)
    coordinator.answers = [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 10
    for producer_id in range(10):
        await send(node, request(producer_id=producer_id))
    assert list(node.partitions.find(TOPIC, 0).verifications) == [7, 8, 9]


class Client:
    """A connection that sends and receives Produce v11."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.sent = self.received = 0

    @classmethod
    async def connect(cls, node: Node) -> Client:
        return cls(*await asyncio.open_connection(*node.addresses["PLAINTEXT"]))

    def send(self, asked: ProduceRequest) -> None:
        self.sent += 1
        self._writer.writelines(request_parts(PRODUCE, 11, self.sent, None, asked))

    async def receive(self) -> tuple[int, ErrorCode]:
        """The offset and the error of the next answer, which is in the order of the requests."""
        self.received += 1
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        frame = await self._reader.readexactly(size)
        number, answer = read_response(PRODUCE, 11, memoryview(frame))
        assert number == self.received
        found = answer.responses[0].partition_responses[0]
        return found.base_offset, ErrorCode(found.error_code)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def test_only_the_connection_that_asks_waits(node: Node, coordinator: Coordinator) -> None:
    coordinator.may_answer.clear()
    waits, goes_on = await Client.connect(node), await Client.connect(node)
    for sequence in range(4):
        waits.send(request(sequence))
    await until(lambda: bool(coordinator.asked))
    for _ in range(2):
        goes_on.send(request(producer_id=-1, epoch=-1, sequence=-1, transactional=False))
    assert [await goes_on.receive() for _ in range(2)] == [(0, ErrorCode.NONE), (1, ErrorCode.NONE)]
    assert len(coordinator.asked) == 1
    coordinator.may_answer.set()
    answers = [await waits.receive() for _ in range(4)]
    assert answers == [(offset, ErrorCode.NONE) for offset in (2, 3, 4, 5)]
    assert len(coordinator.asked) == 1
    await waits.close()
    await goes_on.close()


async def test_a_client_that_goes_away_meanwhile(node: Node, coordinator: Coordinator) -> None:
    coordinator.may_answer.clear()
    client = await Client.connect(node)
    client.send(request())
    await until(lambda: bool(coordinator.asked))
    await client.close()
    await until(lambda: not node.dispatcher.connections)
    coordinator.may_answer.set()
    await asyncio.sleep(0)
    assert node.partitions.find(TOPIC, 0).log.log_end_offset == 0


def samples(node: Node) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(NodeCollector(node))
    return {
        sample.labels.get("state", sample.name): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if metric.name.startswith("ottla_transaction")
    }


async def test_metrics(node: Node) -> None:
    assert samples(node) == {
        "ottla_transaction_open_seconds_max": 0,
        "ottla_transactions_ending": 0,
        "ottla_transactions_timed_out_total": 0,
    }
    assert "transactions" not in vars(node)
    service = node.services.transactions()
    await service.coordinator_of("id")
    begun = await service.ask("id", m.InitProducerId("id", 50, 9), m.InitProducerIdResponse)
    assert samples(node)["Empty"] == 1
    joining = m.AddPartitions("id", 9, begun.producer_epoch, frozenset({(TOPIC, 0)}))
    assert set((await service.join(joining)).values()) == {ErrorCode.NONE}
    await until(lambda: samples(node).get("CompleteAbort") == 1)
    assert samples(node)["ottla_transactions_timed_out_total"] == 1
    await until(lambda: samples(node)["ottla_transactions_ending"] == 0)
