"""A transactional producer that sends each request only when told to, in any version of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.schema.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.schema.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.schema.describe_transactions import DescribeTransactionsRequest
from ottla.wire.schema.end_txn import EndTxnRequest
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.init_producer_id import InitProducerIdRequest
from ottla.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.names import fresh
from tests.support.raw_client import LATEST, batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.wire.schema.describe_producers import ProducerState
    from ottla.wire.schema.describe_transactions import TransactionState
    from ottla.wire.schema.end_txn import EndTxnResponse
    from ottla.wire.schema.init_producer_id import InitProducerIdResponse
    from ottla.wire.schema.produce import PartitionProduceResponse
    from tests.support.raw_client import RawClient

PATIENCE: Final = 60.0
TRANSACTION: Final = 1
READ_COMMITTED: Final = 1

# Of a broker for tests: few partitions to load, no waiting for what a scan finds now and then.
CONFIG: Final = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "transaction.max.timeout.ms": "400000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
}


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class RawProducer:
    """`init` first; the rest of the protocol in any order. One broker is coordinator and leader."""

    def __init__(self, raw: RawClient, transactional_id: str | None = None) -> None:
        self.raw = raw
        self.name = transactional_id or fresh("raw")
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, timeout_ms: int = 60_000, *, version: int = 5) -> InitProducerIdResponse:
        """Once whatever was going on has ended."""
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.try_init(timeout_ms, version=version)
            again = (
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
            )
            if answer.error_code not in again or time.monotonic() > deadline:
                break
            if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                self._find()
            time.sleep(0.02)
        if answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer

    def try_init(
        self, timeout_ms: int = 60_000, *, version: int = 5, identity: tuple[int, int] = (-1, -1)
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(self.name, timeout_ms, *identity)
        answer: InitProducerIdResponse = self.raw.ask("init_producer_id", version, request)
        return answer

    def _find(self) -> None:
        request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[self.name])
        self.raw.ask("find_coordinator", 4, request)

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[int]:
        """The error of each partition, in the order of their numbers."""
        request = AddPartitionsToTxnRequest(
            self.name,
            self.producer_id,
            self.epoch,
            [AddPartitionsToTxnTopic(topic, partitions)],
        )
        answer = self.raw.ask("add_partitions_to_txn", version, request)
        (found,) = answer.results_by_topic_v3_and_below
        results = sorted(found.results_by_partition)
        return [result.partition_error_code for result in results]

    def ask_as_broker(
        self, topic: str, *partitions: int, verify_only: bool, version: int = 5
    ) -> list[int]:
        """As the leader of partitions asks, from version 4 on."""
        transaction = AddPartitionsToTxnTransaction(
            self.name,
            self.producer_id,
            self.epoch,
            verify_only,
            [AddPartitionsToTxnTopic(topic, partitions)],
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        answer = self.raw.ask("add_partitions_to_txn", version, request)
        assert answer.error_code == 0
        (found,) = answer.results_by_transaction
        assert found.transactional_id == self.name
        (results,) = found.topic_results
        return [result.partition_error_code for result in sorted(results.results_by_partition)]

    def add_until_done(self, topic: str, *partitions: int) -> None:
        """Add partitions, once the transaction before has ended."""
        deadline = time.monotonic() + PATIENCE
        while ErrorCode.CONCURRENT_TRANSACTIONS in (codes := self.add(topic, *partitions)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert set(codes) == {0}, codes

    def add_offsets(self, group: str, *, version: int = 3) -> int:
        request = AddOffsetsToTxnRequest(self.name, self.producer_id, self.epoch, group)
        code: int = self.raw.ask("add_offsets_to_txn", version, request).error_code
        return code

    def batch(self, topic: str, partition: int = 0, *values: bytes, **settings: Any) -> bytes:
        """The next one of this producer in a partition."""
        values = values or (b"v",)
        sequence = self.sequences.get((topic, partition), 0)
        self.sequences[topic, partition] = sequence + len(values)
        return bytes(
            batch(
                *values,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
                transactional=True,
                **settings,
            )
        )

    def request(self, topic: str, batches: dict[int, bytes]) -> ProduceRequest:
        data = [PartitionProduceData(index, records) for index, records in batches.items()]
        return ProduceRequest(self.name, -1, 10_000, [TopicProduceData(topic, partition_data=data)])

    def send(
        self,
        topic: str,
        partition: int = 0,
        *values: bytes,
        version: int = 11,
        **settings: Any,
    ) -> PartitionProduceResponse:
        records = self.batch(topic, partition, *values, **settings)
        answer = self.raw.ask("produce", version, self.request(topic, {partition: records}))
        response: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        if response.error_code:
            self.sequences[topic, partition] -= max(len(values), 1)
        return response

    def end(self, *, commit: bool, version: int = 4) -> EndTxnResponse:
        request = EndTxnRequest(self.name, self.producer_id, self.epoch, commit)
        answer: EndTxnResponse = self.raw.ask("end_txn", version, request)
        return answer

    def end_and_go_on(self, *, commit: bool) -> EndTxnResponse:
        """In version 5, which gives the producer a new identity."""
        answer = self.end(commit=commit, version=5)
        if answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer

    def describe(self) -> TransactionState:
        return describe(self.raw, self.name)

    def wait_until(self, state: str) -> TransactionState:
        deadline = time.monotonic() + PATIENCE
        while (found := self.describe()).transaction_state != state:
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        return found


def describe(raw: RawClient, transactional_id: str) -> TransactionState:
    answer = raw.ask("describe_transactions", 0, DescribeTransactionsRequest([transactional_id]))
    found: TransactionState = answer.transaction_states[0]
    return found


def producers_of(raw: RawClient, topic: str, partition: int = 0) -> dict[int, ProducerState]:
    request = DescribeProducersRequest([TopicRequest(topic, [partition])])
    found = raw.ask("describe_producers", 0, request).topics[0].partitions[0]
    assert found.error_code == 0, found
    return {producer.producer_id: producer for producer in found.active_producers}


def committed(raw: RawClient, topic: str, partition: int = 0) -> int:
    """Where readers of committed records stop."""
    return raw.offset(topic, LATEST, partition=partition, isolation_level=READ_COMMITTED).offset
