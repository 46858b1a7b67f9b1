"""The accumulator against a model of brokers that fail in every way a cluster does.

Records carry numbers that rise with each record of a partition. Whatever happens, a partition's log
holds rising numbers (order kept, nothing twice), and whoever is told an offset finds the record
there. Who is told of a failure may find it or not, as the failure says.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ottla.client.accumulator import (
    MAX_IN_FLIGHT,
    Accumulator,
    Batch,
    Delivered,
    Identity,
    Limits,
    Outcome,
    Settled,
)
from ottla.client.cluster_view import TopicPartition
from ottla.client.errors import ConnectionLost, KafkaError, RequestTimedOut
from ottla.client.producer_types import ProducerRecord, record_bound
from ottla.wire.batch import HEADER_SIZE, MAX_SEQUENCE, read_batch
from ottla.wire.error_codes import ErrorCode
from ottla.wire.records import Record, build_batch, iter_records

PARTITIONS = [TopicPartition("t", index) for index in range(2)]
NODES = (1, 2)
DELIVERY_TIMEOUT = 100.0
LIMITS = Limits(
    batch_size=HEADER_SIZE + 3 * (record_bound(None, b"12345", ())),
    linger=0.5,
    buffer_memory=10_000,
    max_request_size=400,
    delivery_timeout=DELIVERY_TIMEOUT,
)


def refusal(code: ErrorCode) -> KafkaError:
    return KafkaError(code, "send")


class Written(NamedTuple):
    first: int
    last: int
    offset: int


class Log:
    """A partition with the producer state that Kafka's brokers keep."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.producers: dict[int, deque[Written]] = {}
        self.asks_for_unknown = False

    def append(self, data: bytes, *, idempotent: bool) -> Outcome:
        batch = read_batch(memoryview(bytearray(data)))
        batch.verify_crc()
        offset = len(self.numbers)
        if idempotent:
            assert batch.producer_id >= 0
            first, last = batch.base_sequence, batch.last_sequence
            known = self.producers.get(batch.producer_id)
            if known is None:
                if self.asks_for_unknown and first != 0:
                    return refusal(ErrorCode.UNKNOWN_PRODUCER_ID)
                known = self.producers[batch.producer_id] = deque(maxlen=MAX_IN_FLIGHT)
            for one in known:
                if (one.first, one.last) == (first, last):
                    return Delivered(one.offset, -1)
            if known and first != (known[-1].last + 1) & MAX_SEQUENCE:
                return refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            known.append(Written(first, last, offset))
        else:
            assert batch.producer_id == -1
        self.numbers += [int(record.value or b"") for record in iter_records(batch)]
        return Delivered(offset, -1)


class Sent(NamedTuple):
    batches: list[Batch[int]]
    data: list[bytes]


class Cluster(RuleBasedStateMachine):
    """Two brokers that lead two partitions in turns."""

    idempotent = True

    @initialize(asks=st.booleans(), established=st.booleans())
    def start(self, asks: bool, established: bool) -> None:
        self.now = 0.0
        self.machine: Accumulator[int] = Accumulator(
            Limits(
                LIMITS.batch_size,
                LIMITS.linger,
                LIMITS.buffer_memory,
                LIMITS.max_request_size,
                LIMITS.delivery_timeout,
                idempotent=self.idempotent,
            ),
            lambda: 0.5,
        )
        self.logs = {partition: Log() for partition in PARTITIONS}
        for log in self.logs.values():
            log.asks_for_unknown = asks
        self.leaders = dict(zip(PARTITIONS, NODES, strict=True))
        self.requests: dict[int, deque[Sent]] = defaultdict(deque)
        self.answers: dict[int, deque[tuple[Sent, list[Outcome]]]] = defaultdict(deque)
        self.zombies: list[tuple[TopicPartition, bytes]] = []
        self.places: dict[int, tuple[TopicPartition, int]] = {}
        self.told: dict[int, Outcome] = {}
        self.refused: set[int] = set()
        self.next_number = 0
        self.next_id = 1000
        if established:
            for partition in PARTITIONS:
                self.send(partition, 1, leave=True)
            self.all_is_well()

    # What a producer does.

    @rule(partition=st.sampled_from(PARTITIONS), count=st.integers(1, 4), leave=st.booleans())
    def send(self, partition: TopicPartition, count: int, leave: bool) -> None:
        for _ in range(count):
            value = b"%d" % self.next_number
            size = record_bound(None, value, ())
            if not self.machine.reserve(size):
                break
            record = ProducerRecord(value)
            batch, index = self.machine.append(partition, record, 0, size, self.now)
            self.accepted(batch, [index])
        if leave:
            self.pump(hurry=True)

    @rule(partition=st.sampled_from(PARTITIONS), count=st.integers(1, 4), leave=st.booleans())
    def add(self, partition: TopicPartition, count: int, leave: bool) -> None:
        numbers = range(self.next_number, self.next_number + count)
        records = [Record(at, 0, None, b"%d" % number) for at, number in enumerate(numbers)]
        data = build_batch(records)
        if self.machine.reserve(len(data)):
            batch = self.machine.add(partition, data, count, len(data), self.now)
            self.accepted(batch, list(range(count)))
        if leave:
            self.pump(hurry=True)

    def accepted(self, batch: Batch[int], indexes: list[int]) -> None:
        for index in indexes:
            self.places[self.next_number] = batch.partition, index
            batch.tokens.append(self.next_number)
            self.next_number += 1

    @rule(hurry=st.booleans())
    def pump(self, hurry: bool) -> None:
        self.tell(self.machine.expire(self.now))
        ready, wake = self.machine.ready(self.now, hurry=hurry)
        assert wake > self.now
        for node in NODES:
            led = [one for one in ready if self.leaders[one] == node]
            while len(self.requests[node]) + len(self.answers[node]) < MAX_IN_FLIGHT:
                batches = self.machine.take(led, node, self.now, hurry=hurry)
                if not batches:
                    break
                data = [bytes(batch.data) for batch in batches]
                assert len(data) == 1 or sum(map(len, data)) <= LIMITS.max_request_size
                assert len({batch.partition for batch in batches}) == len(batches)
                self.requests[node].append(Sent(batches, data))

        if self.machine.wants_identity:
            self.next_id += 1
            self.machine.identified(Identity(self.next_id, 0))

    # What a cluster does.

    @rule(
        node=st.sampled_from(NODES),
        fault=st.sampled_from(
            [
                None,
                None,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                ErrorCode.INVALID_TIMESTAMP,
            ]
        ),
    )
    def serve(self, node: int, fault: ErrorCode | None) -> None:
        if self.requests[node]:
            sent = self.requests[node].popleft()
            outcomes = [
                self.write(node, batch, data, fault)
                for batch, data in zip(sent.batches, sent.data, strict=True)
            ]
            self.answers[node].append((sent, outcomes))

    def write(self, node: int, batch: Batch[int], data: bytes, fault: ErrorCode | None) -> Outcome:
        if self.leaders[batch.partition] != node:
            return refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if fault in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_TIMESTAMP):
            if fault == ErrorCode.INVALID_TIMESTAMP and batch.attempts > 1:
                # What is wrong with a batch is wrong the first time.
                return refusal(ErrorCode.NOT_ENOUGH_REPLICAS)
            return refusal(fault)
        outcome = self.logs[batch.partition].append(data, idempotent=self.idempotent)
        if fault == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND and self.idempotent:
            return refusal(fault)
        return outcome

    @rule(node=st.sampled_from(NODES))
    def answer(self, node: int) -> None:
        if self.answers[node]:
            sent, outcomes = self.answers[node].popleft()
            for batch, outcome in zip(sent.batches, outcomes, strict=True):
                self.settle(batch, outcome)

    @precondition(lambda self: self.idempotent)
    @rule(node=st.sampled_from(NODES), later=st.booleans())
    def hang_up(self, node: int, later: bool) -> None:
        """The connection ends; what was not served is lost, or is served some time later."""
        unserved = list(self.requests[node])
        waiting = [sent for sent, _ in self.answers[node]] + unserved
        self.requests[node].clear()
        self.answers[node].clear()
        for sent in waiting:
            for batch in sent.batches:
                self.settle(batch, ConnectionLost("hung up"))
        if later:
            self.zombies += [
                (batch.partition, data)
                for sent in unserved
                for batch, data in zip(sent.batches, sent.data, strict=True)
            ]

    @precondition(lambda self: self.zombies)
    @rule()
    def serve_what_was_left(self) -> None:
        partition, data = self.zombies.pop(0)
        self.logs[partition].append(data, idempotent=self.idempotent)

    @rule(partition=st.sampled_from(PARTITIONS))
    def move_leader(self, partition: TopicPartition) -> None:
        self.leaders[partition] = 3 - self.leaders[partition]

    @precondition(lambda self: not any(batch.attempts for batch in self.machine))
    @rule(partition=st.sampled_from(PARTITIONS))
    def forget_producers(self, partition: TopicPartition) -> None:
        """After a long silence, as brokers do; a doubtful batch would be beyond help."""
        if not self.zombies:
            self.logs[partition].producers.clear()

    @rule(seconds=st.sampled_from([0.1, 0.6, 2.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: not self.zombies)
    @rule()
    def lose_patience(self) -> None:
        self.now += DELIVERY_TIMEOUT
        self.tell(self.machine.expire(self.now))

    def all_is_well(self) -> None:
        self.pump(hurry=True)
        self.pump(hurry=True)  # now with an identity
        for node in NODES:
            while self.requests[node]:
                self.serve(node, None)
            while self.answers[node]:
                self.answer(node)
        self.now += 1.0

    def settle(self, batch: Batch[int], outcome: Outcome) -> None:
        numbers = set(batch.tokens)
        done, _ = self.machine.settle(batch, outcome, self.now)
        if done is not None:
            self.tell([done])
        if isinstance(outcome, KafkaError) and outcome.code == ErrorCode.INVALID_TIMESTAMP:
            assert done is not None
            self.refused |= numbers

    def tell(self, settled: list[Settled[int]]) -> None:
        for tokens, outcome in settled:
            for number in tokens:
                assert number not in self.told, "told twice"
                self.told[number] = outcome
                if isinstance(outcome, Delivered):
                    partition, index = self.places[number]
                    assert self.logs[partition].numbers[outcome.base_offset + index] == number
                else:
                    assert isinstance(outcome, KafkaError | RequestTimedOut | ConnectionLost)

    @invariant()
    def logs_are_in_order(self) -> None:
        for log in self.logs.values():
            assert log.numbers == sorted(set(log.numbers))
            assert not self.refused & set(log.numbers)

    @invariant()
    def memory_is_what_is_not_settled(self) -> None:
        assert self.machine.used == sum(batch.reserved for batch in self.machine)
        assert self.machine.used <= LIMITS.buffer_memory

    def teardown(self) -> None:
        """With all faults gone, everything is settled, and nothing but what failed is missing."""
        if not hasattr(self, "machine"):
            return
        for batch in self.machine:
            batch.deadline = math.inf  # a machine that is stuck is not to be saved by the clock
        for _ in range(200):
            self.all_is_well()
            self.logs_are_in_order()
        assert self.told.keys() == self.places.keys()
        assert self.machine.used == 0
        for number, outcome in self.told.items():
            partition, _ = self.places[number]
            if isinstance(outcome, Delivered):
                assert number in self.logs[partition].numbers


class OneAtATime(Cluster):
    """Without idempotence order holds as well; what a lost answer doubles is not modelled."""

    idempotent = False


Cluster.TestCase.settings = settings(max_examples=150, stateful_step_count=60)
OneAtATime.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestIdempotent = Cluster.TestCase
TestWithoutIdempotence = OneAtATime.TestCase
