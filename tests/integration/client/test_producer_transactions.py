"""Transactions of the producer: what it asks, in which order, and what it does when that fails.

The brokers are stand-ins, so that a failure comes at a chosen moment.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ottla import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.client.cluster.cluster import Client
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import BadArgument, KafkaError
from ottla.client.producer.batches import Identity
from ottla.client.producer.producer import Producer
from ottla.client.producer.types import ProducerRecord
from ottla.client.transactions.requests import TransactionCoordinator
from ottla.client.transactions.types import (
    AbortableTransactionError,
    FatalTransactionError,
    ProducerFenced,
    TransactionAborted,
    TransactionUnresolved,
    WrongTransactionState,
)
from ottla.wire.batch import read_batch
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.schema.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.schema.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.schema.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.wire.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.schema.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.wire.schema.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.support.client_broker import Instead, ScriptedBroker, describe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OF_TRANSACTIONS = (
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    ProduceRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    EndTxnRequest,
)


class Cluster:
    """Two brokers; the first one coordinates, and leads partition 0 of t, the second leads 1."""

    def __init__(self, brokers: dict[int, ScriptedBroker]) -> None:
        self.brokers = brokers
        self.coordinator, self.other = brokers[1], brokers[2]
        self.epoch = -1
        describe(brokers, {"t": [1, 2], "one": [1]})
        found = Coordinator(node_id=1, host="127.0.0.1", port=self.coordinator.port)
        for broker in brokers.values():
            broker.script(FindCoordinatorRequest, FindCoordinatorResponse(coordinators=[found]))
            broker.script(ProduceRequest, taken)
        self.coordinator.script(InitProducerIdRequest, self.initialise)
        self.coordinator.script(AddPartitionsToTxnRequest, adding())
        self.coordinator.script(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse())
        self.coordinator.script(TxnOffsetCommitRequest, committing())
        self.coordinator.script(EndTxnRequest, EndTxnResponse())

    def initialise(self, _: InitProducerIdRequest) -> InitProducerIdResponse:
        self.epoch += 1
        return InitProducerIdResponse(producer_id=7, producer_epoch=self.epoch)

    def producer(self, **options: Any) -> Producer:
        settings = {"transactional_id": "x", "random": lambda: 0.0, **options}
        return Producer(self.coordinator.bootstrap, **settings)

    def asked(self, kind: type) -> list[Any]:
        return [one for broker in self.brokers.values() for one in broker.asked(kind)]

    def story(self) -> list[str]:
        """What the coordinator was asked about transactions, one letter for each request."""
        names = dict(zip(OF_TRANSACTIONS, "IAPOTE", strict=True))
        found = []
        for one in self.coordinator.requests:
            if type(one) in names:
                end = ("c" if one.committed else "a") if isinstance(one, EndTxnRequest) else ""
                found.append(names[type(one)] + end)
        return found


def answer_each(request: ProduceRequest, code: int = 0) -> ProduceResponse:
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                partition_responses=[
                    PartitionProduceResponse(one.index_, code) for one in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def taken(request: ProduceRequest) -> ProduceResponse:
    return answer_each(request)


def refusing(code: int) -> Any:
    return lambda request: answer_each(request, code)


def adding(code: int = 0) -> Any:
    def answer(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    topic.name,
                    [AddPartitionsToTxnPartitionResult(one, code) for one in topic.partitions],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    return answer


def committing(code: int = 0) -> Any:
    def answer(request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    topic.name,
                    [
                        TxnOffsetCommitResponsePartition(one.partition_index, code)
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


def seals(requests: list[ProduceRequest]) -> list[tuple[int, int, int, bool]]:
    found = []
    for request in requests:
        for topic in request.topic_data:
            for one in topic.partition_data:
                assert isinstance(one.records, memoryview)
                batch = read_batch(one.records)
                found.append(
                    (
                        batch.producer_id,
                        batch.producer_epoch,
                        batch.base_sequence,
                        batch.is_transactional,
                    )
                )
    return found


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        found = {node: await stack.enter_async_context(ScriptedBroker()) for node in (1, 2)}
        yield Cluster(found)


async def test_a_transaction_is_what_the_protocol_wants(cluster: Cluster) -> None:
    async with cluster.producer() as producer:
        async with producer.transaction() as transaction:
            await producer.send("one", b"a")
            await producer.send_arrow("one", pa.table({"value": [b"b", b"c"]}))
            await transaction.send_offsets("g", {TopicPartition("in", 0): 4})
        async with producer.transaction():
            await producer.send_many("one", [ProducerRecord(b"d")])
    assert cluster.story() == ["I", "A", "P", "P", "O", "T", "Ec", "A", "P", "Ec"]
    sent = cluster.asked(ProduceRequest)
    assert {one.transactional_id for one in sent} == {"x"}
    assert seals(sent) == [(7, 0, 0, True), (7, 0, 1, True), (7, 0, 3, True)]
    assert max(v for name, v in cluster.coordinator.versions_used if name == "produce") == 11
    used = dict(cluster.coordinator.versions_used)
    assert (used["add_partitions_to_txn"], used["end_txn"], used["txn_offset_commit"]) == (3, 4, 4)


async def test_one_request_adds_the_partitions_of_one_turn(cluster: Cluster) -> None:
    async with cluster.producer() as producer:
        async with producer.transaction():
            await producer.send("one", b"")
            await producer.send("t", b"", partition=0)
        async with producer.transaction():
            await asyncio.gather(
                producer.send("one", b""),
                *(producer.send("t", b"%d" % n, partition=n % 2) for n in range(10)),
            )
            await producer.send("t", b"again", partition=1)
    _, _, asked = cluster.asked(AddPartitionsToTxnRequest)
    assert asked.v3_and_below_topics == (("one", (0,)), ("t", (0, 1)))


async def test_nothing_is_asked_for_nothing(cluster: Cluster) -> None:
    async with cluster.producer() as producer:
        async with producer.transaction():
            pass
        with pytest.raises(KeyError):
            async with producer.transaction():
                raise KeyError
    assert cluster.story() == ["I"]


async def test_an_exception_aborts_and_goes_on(cluster: Cluster) -> None:
    async with cluster.producer() as producer:

        async def work() -> None:
            async with producer.transaction():
                await producer.send("one", b"a")
                raise KeyError

        with pytest.raises(KeyError):
            await work()
        async with producer.transaction():
            await producer.send("one", b"b")
    # Everything was acknowledged, so that sequences go on.
    assert cluster.story() == ["I", "A", "P", "Ea", "A", "P", "Ec"]
    assert [one[2] for one in seals(cluster.asked(ProduceRequest))] == [0, 1]


async def test_sends_outside_are_refused(cluster: Cluster) -> None:
    async with cluster.producer() as producer:
        for call in (
            producer.send("one", b""),
            producer.send_many("one", [ProducerRecord(b"")]),
            producer.send_arrow("one", pa.table({"value": [b""]})),
        ):
            with pytest.raises(WrongTransactionState, match="sends in transactions only"):
                await call
        async with producer.transaction() as first:
            with pytest.raises(WrongTransactionState, match="is open; end it first"):
                async with producer.transaction():
                    pass
        async with producer.transaction():
            with pytest.raises(WrongTransactionState, match="has ended"):
                await first.send_offsets("g", {})


async def test_a_send_that_is_late_is_not_put_into_the_next_transaction(cluster: Cluster) -> None:
    # There is memory for one of the records, so that the second waits for the first.
    options = {"buffer_memory": 1000, "max_request_size": 1000}
    async with cluster.producer(**options) as producer:
        async with producer.transaction():
            await producer.send("one", b"")
            cluster.coordinator.script(ProduceRequest, Instead.HANG_UP, taken)
            first = asyncio.create_task(producer.send("one", b"v" * 800))
            late = asyncio.create_task(producer.send("one", b"w" * 800))
            await asyncio.sleep(0)
        async with producer.transaction():
            await producer.send("one", b"next")
        await first
        with pytest.raises(WrongTransactionState, match="has ended before"):
            await late


async def test_a_failed_send_dooms_the_transaction(cluster: Cluster) -> None:
    cluster.coordinator.script(ProduceRequest, refusing(ErrorCode.INVALID_RECORD), taken)
    async with cluster.producer() as producer:

        async def work() -> None:
            async with producer.transaction():
                with pytest.raises(KafkaError):
                    await producer.send("one", b"a")
                with pytest.raises(TransactionAborted):
                    await producer.send("one", b"b")

        with pytest.raises(TransactionAborted, match="do its work again") as told:
            await work()
        assert isinstance(told.value.__cause__, KafkaError)
        async with producer.transaction():
            await producer.send("one", b"c")
    assert cluster.story() == ["I", "A", "P", "Ea", "I", "A", "P", "Ec"]
    again = cluster.asked(InitProducerIdRequest)[1]
    assert (again.producer_id, again.producer_epoch) == (7, 0)
    assert seals(cluster.asked(ProduceRequest)) == [(7, 0, 0, True), (7, 1, 0, True)]


@pytest.mark.parametrize(
    "code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_TXN_STATE]
)
async def test_what_a_partition_cannot_place_is_aborted(cluster: Cluster, code: ErrorCode) -> None:
    cluster.coordinator.script(ProduceRequest, refusing(code))
    async with cluster.producer() as producer:
        with pytest.raises(KafkaError, match=code.name):
            async with producer.transaction():
                await producer.send("one", b"a")
    assert cluster.story() == ["I", "A", "P", "Ea"]


async def test_all_who_wait_hear_of_a_failure(cluster: Cluster) -> None:
    cluster.other.script(ProduceRequest, Instead.SILENCE)
    cluster.coordinator.script(ProduceRequest, taken, refusing(ErrorCode.INVALID_RECORD))
    async with cluster.producer() as producer:

        async def work() -> None:
            async with producer.transaction():
                await producer.send("t", b"", partition=0)
                under_way = asyncio.create_task(producer.send("t", b"", partition=1))
                await cluster.other.until(lambda: bool(cluster.other.asked(ProduceRequest)))
                with pytest.raises(KafkaError):
                    await producer.send("t", b"", partition=0)
                with pytest.raises(TransactionAborted):
                    await under_way
                assert cluster.story()[-1] == "P", "the end is asked for when nothing is under way"
                cluster.other.hang_up()

        with pytest.raises(TransactionAborted):
            await work()
    assert cluster.story() == ["I", "A", "P", "A", "P", "Ea"]


@pytest.mark.parametrize("where", ["add", "send", "offsets", "end"])
async def test_a_fenced_producer_is_over(cluster: Cluster, where: str) -> None:
    code = ErrorCode.INVALID_PRODUCER_EPOCH
    match where:
        case "add":
            cluster.coordinator.script(AddPartitionsToTxnRequest, adding(code))
        case "send":
            cluster.coordinator.script(ProduceRequest, refusing(code))
        case "offsets":
            cluster.coordinator.script(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse(0, code))
        case "end":
            cluster.coordinator.script(EndTxnRequest, EndTxnResponse(error_code=code))
    async with cluster.producer() as producer:

        async def work() -> None:
            async with producer.transaction() as transaction:
                await producer.send("one", b"a")
                await transaction.send_offsets("g", {TopicPartition("in", 0): 4})

        for _ in range(2):
            with pytest.raises(ProducerFenced, match="make a new producer"):
                await work()
        with pytest.raises(ProducerFenced):
            await producer.send("one", b"a")
    assert cluster.asked(EndTxnRequest) == [("x", 7, 0, True)] * (where == "end")


async def test_a_transaction_that_cannot_be_committed_is_aborted(cluster: Cluster) -> None:
    code = ErrorCode.TRANSACTION_ABORTABLE
    cluster.coordinator.script(EndTxnRequest, EndTxnResponse(error_code=code), EndTxnResponse())
    async with cluster.producer() as producer:
        with pytest.raises(TransactionAborted, match="TRANSACTION_ABORTABLE"):
            async with producer.transaction():
                await producer.send("one", b"a")
        async with producer.transaction():
            pass
    assert cluster.story() == ["I", "A", "P", "Ec", "Ea", "I"]


async def test_stale_members_cannot_commit_offsets(cluster: Cluster) -> None:
    cluster.coordinator.script(TxnOffsetCommitRequest, committing(ErrorCode.ILLEGAL_GENERATION))
    member = ConsumerGroupMetadata("g", 3, "me", "static")
    async with cluster.producer() as producer:
        offsets = {TopicPartition("in", 2): OffsetAndMetadata(9, "note", 5)}
        with pytest.raises(AbortableTransactionError, match="left its group"):
            async with producer.transaction() as transaction:
                await transaction.send_offsets(member, offsets)
    [asked] = cluster.asked(TxnOffsetCommitRequest)
    topics = (("in", ((2, 9, 5, "note"),)),)
    assert asked == ("x", "g", 7, 0, 3, "me", "static", topics)
    assert cluster.story() == ["I", "O", "T", "Ea"]


async def test_what_passes_is_waited_out(cluster: Cluster) -> None:
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    moved = ErrorCode.NOT_COORDINATOR
    cluster.coordinator.script(
        InitProducerIdRequest, InitProducerIdResponse(error_code=busy), cluster.initialise
    )
    cluster.coordinator.script(AddPartitionsToTxnRequest, adding(busy), adding())
    cluster.coordinator.script(
        EndTxnRequest,
        EndTxnResponse(error_code=moved),
        Instead.HANG_UP,
        EndTxnResponse(error_code=busy),
        EndTxnResponse(),
    )
    async with cluster.producer() as producer, producer.transaction():
        await producer.send("one", b"a")
    assert cluster.story() == ["I", "I", "A", "A", "P", "Ec", "Ec", "Ec", "Ec"]


async def test_an_end_nobody_confirms_ends_the_producer(cluster: Cluster) -> None:
    cluster.coordinator.script(
        EndTxnRequest, EndTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
    )
    async with cluster.producer(max_block_ms=300) as producer:
        for _ in range(2):
            with pytest.raises(TransactionUnresolved, match="ask for the same once more"):
                async with producer.transaction():
                    await producer.send("one", b"a")


async def test_who_is_fenced_after_a_lost_answer_may_have_committed(cluster: Cluster) -> None:
    cluster.coordinator.script(
        EndTxnRequest, Instead.HANG_UP, EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
    )
    async with cluster.producer() as producer:
        with pytest.raises(TransactionUnresolved, match="perhaps it took place"):
            async with producer.transaction():
                await producer.send("one", b"a")
    assert cluster.story() == ["I", "A", "P", "Ec", "Ec"]


async def test_to_cancel_is_to_abort(cluster: Cluster) -> None:
    async with cluster.producer() as producer:
        inside = asyncio.Event()

        async def work() -> None:
            async with producer.transaction():
                await producer.send("one", b"a")
                inside.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cluster.story() == ["I", "A", "P", "Ea"]


async def test_to_cancel_a_commit_that_waits_for_records_is_to_abort(cluster: Cluster) -> None:
    cluster.other.script(ProduceRequest, Instead.SILENCE)
    async with cluster.producer() as producer:

        async def work() -> None:
            async with producer.transaction():
                calls.append(asyncio.create_task(producer.send("t", b"a", partition=1)))
                await asyncio.sleep(0)

        calls: list[asyncio.Task[Any]] = []
        async with producer.transaction():
            await producer.send("t", b"a", partition=0)
        task = asyncio.create_task(work())
        await cluster.other.until(lambda: bool(cluster.other.asked(ProduceRequest)))
        task.cancel()
        with pytest.raises(TransactionAborted):
            await calls[0]
        cluster.other.hang_up()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert cluster.story() == ["I", "A", "P", "Ec", "A", "Ea"]


async def test_an_end_is_seen_through_whoever_waits_for_it(cluster: Cluster) -> None:
    cluster.coordinator.script(
        EndTxnRequest, *[EndTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)] * 2
    )
    async with cluster.producer() as producer:

        async def work() -> None:
            async with producer.transaction():
                await producer.send("one", b"a")

        task = asyncio.create_task(work())
        await cluster.coordinator.until(lambda: bool(cluster.asked(EndTxnRequest)))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cluster.coordinator.script(EndTxnRequest, EndTxnResponse())
        async with producer.transaction():
            await producer.send("one", b"b")
    assert [one for one in cluster.story() if one[0] != "E"] == ["I", "A", "P", "A", "P"]
    assert {one.committed for one in cluster.asked(EndTxnRequest)} == {True}


async def test_close_aborts_what_is_open(cluster: Cluster) -> None:
    producer = cluster.producer()
    await producer.transaction().__aenter__()
    await producer.send("one", b"a")
    await producer.close()
    assert cluster.story() == ["I", "A", "P", "Ea"]
    await cluster.coordinator.until_left()


async def test_close_and_cancel_at_the_same_time_end_one_transaction(cluster: Cluster) -> None:
    producer = cluster.producer()
    inside = asyncio.Event()

    async def work() -> None:
        async with producer.transaction():
            await producer.send("one", b"a")
            inside.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    async with asyncio.timeout(20):
        ended = await asyncio.gather(task, producer.close(), return_exceptions=True)
    assert isinstance(ended[0], asyncio.CancelledError)
    assert cluster.story() == ["I", "A", "P", "Ea"]


async def test_close_inside_the_block_is_said(cluster: Cluster) -> None:
    async with cluster.producer() as producer:
        with pytest.raises(WrongTransactionState, match="close it afterwards"):
            async with producer.transaction():
                await producer.close()


async def test_without_its_offsets_nothing_is_committed(cluster: Cluster) -> None:
    """Even if nobody waits any more for the answer that says so."""
    cluster.coordinator.script(AddOffsetsToTxnRequest, Instead.HANG_UP, AddOffsetsToTxnResponse())
    cluster.coordinator.script(TxnOffsetCommitRequest, committing(ErrorCode.ILLEGAL_GENERATION))
    async with cluster.producer() as producer:

        async def work() -> None:
            async with producer.transaction() as transaction:
                offsets = {TopicPartition("in", 0): 1}
                call = asyncio.create_task(transaction.send_offsets("g", offsets))
                await cluster.coordinator.until(lambda: bool(cluster.asked(AddOffsetsToTxnRequest)))
                call.cancel()

        with pytest.raises(TransactionAborted, match="ILLEGAL_GENERATION"):
            await work()
    assert cluster.story() == ["I", "O", "O", "T", "Ea"]


async def test_close_ends_in_time_without_a_coordinator(cluster: Cluster) -> None:
    cluster.coordinator.script(EndTxnRequest, Instead.SILENCE)
    producer = cluster.producer()
    await producer.transaction().__aenter__()
    await producer.send("one", b"a")
    await producer.close(timeout=0.1)
    await cluster.coordinator.until_left()


async def test_to_connect_is_to_fence(cluster: Cluster) -> None:
    async with cluster.producer() as producer:
        await producer.connect()
        assert cluster.story() == ["I"]
        async with producer.transaction():
            await producer.connect()
    async with cluster.producer(identity=Identity(40, 2)) as guest:
        await guest.connect()
    assert cluster.story() == ["I"]


async def test_guests_use_the_identity_they_were_given(cluster: Cluster) -> None:
    async with cluster.producer(identity=Identity(40, 2)) as guest:
        await guest.send("one", b"a")
        await guest.send_arrow("one", pa.table({"value": [b"b"]}))
        with pytest.raises(WrongTransactionState, match="joined the transaction of another"):
            async with guest.transaction():
                pass
    assert cluster.story() == ["A", "P", "P"]
    assert seals(cluster.asked(ProduceRequest)) == [(40, 2, 0, True), (40, 2, 1, True)]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.UNKNOWN_PRODUCER_ID, KafkaError),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFenced),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, FatalTransactionError),
    ],
)
async def test_guests_never_get_another_identity(
    cluster: Cluster, code: ErrorCode, error: type[Exception]
) -> None:
    cluster.coordinator.script(ProduceRequest, refusing(code))
    async with cluster.producer(identity=Identity(40, 2)) as guest:
        with pytest.raises(error, match=code.name):
            await guest.send("one", b"a")
        with pytest.raises(TransactionAborted if error is KafkaError else error):
            await guest.send("one", b"a")
    assert cluster.story() == ["A", "P"]


async def test_fatal_answers_say_what_to_do(cluster: Cluster) -> None:
    for code, advice in (
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, "lower transaction_timeout_ms"),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "ask for an ACL"),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, "make a new producer"),
    ):
        cluster.coordinator.script(InitProducerIdRequest, InitProducerIdResponse(error_code=code))
        async with Client(cluster.coordinator.bootstrap) as client:
            with pytest.raises(FatalTransactionError, match=advice):
                await TransactionCoordinator(client, "x").init(1000)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"transactional_id": ""}, "expected a name"),
        ({"enable_idempotence": False}, "do not disable it"),
        ({"transactional_id": None, "identity": Identity(1, 0)}, "give the transactional_id"),
        ({"transaction_timeout_ms": 0}, "expected 1 or more"),
    ],
)
async def test_settings_that_cannot_be(
    cluster: Cluster, options: dict[str, Any], advice: str
) -> None:
    with pytest.raises(BadArgument, match=advice):
        cluster.producer(**options)


async def test_without_an_id_there_are_no_transactions(cluster: Cluster) -> None:
    async with cluster.producer(transactional_id=None) as producer:
        with pytest.raises(WrongTransactionState, match="has no transactional_id"):
            producer.transaction()
