"""The accumulator against a model of brokers that fail in every way a cluster does.

Records carry numbers that rise with each record of a partition. Whatever happens, a partition's log
holds rising numbers (order kept, nothing twice), and whoever is told an offset finds the record
there. Who is told of a failure may find it or not, as the failure says.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ottla.client.cluster.retry import Stale
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import ClientClosed, ConnectionLost, KafkaError, RequestTimedOut
from ottla.client.producer.accumulator import FORGOTTEN_AFTER, MAX_IN_FLIGHT, Accumulator, Limits
from ottla.client.producer.batches import Batch, Delivered, Identity, Outcome, Settled
from ottla.client.producer.types import Outgoing, record_bound
from ottla.wire.batch import HEADER_SIZE, MAX_SEQUENCE, read_batch
from ottla.wire.error_codes import ErrorCode
from ottla.wire.records import Record, iter_records
from tests.support.build import build_batch
from tests.support.sizes import examples

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
            record = Outgoing(value)
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
                batches, _ = self.machine.take(led, node, self.now, hurry=hurry)
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
            self.now += FORGOTTEN_AFTER
            self.tell(self.machine.expire(self.now))
            self.logs[partition].producers.clear()

    @rule(seconds=st.sampled_from([0.1, 0.6, 2.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: not self.zombies)
    @rule()
    def lose_patience(self) -> None:
        """Up to the next deadline, so that some batches are late and some are not."""
        deadlines = [batch.deadline for batch in self.machine if not batch.given_up]
        self.now = max([self.now, *deadlines[:1]])
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


Cluster.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=60)
OneAtATime.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=40)
TestIdempotent = Cluster.TestCase
TestWithoutIdempotence = OneAtATime.TestCase


# The rules one by one; brokers that check sequences would hide some of them above.


ONE = PARTITIONS[0]


class Bench:
    """A machine with one busy partition, led by broker 1."""

    def __init__(self, **changes: Any) -> None:
        self.machine: Accumulator[int] = Accumulator(replace(LIMITS, **changes), lambda: 0.0)
        self.machine.identified(Identity(7, 0))
        self.count = 0

    def add(self, now: float = 0.0) -> Batch[int]:
        data = build_batch([Record(0, 0, None, b"v")])
        assert self.machine.reserve(len(data))
        batch = self.machine.add(ONE, data, 1, len(data), now)
        batch.tokens.append(self.count)
        self.count += 1
        return batch

    def take(self, now: float = 0.0, node: int = 1) -> Batch[int] | None:
        taken, _ = self.machine.take([ONE], node, now)
        return taken[0] if taken else None

    def established(self) -> None:
        batch = self.add()
        assert self.take() is batch
        self.machine.settle(batch, Delivered(0, -1), 0.0)


def sequence(batch: Batch[int]) -> tuple[int, int]:
    header = read_batch(memoryview(batch.data))
    header.verify_crc()
    return header.producer_id, header.base_sequence


def test_one_batch_until_the_broker_knows_the_producer_then_five() -> None:
    bench = Bench()
    batches = [bench.add() for _ in range(8)]
    assert bench.take() is batches[0]
    assert bench.take() is None
    bench.machine.settle(batches[0], Delivered(0, -1), 0.0)
    assert [bench.take() for _ in range(6)] == [*batches[1:6], None]
    assert [sequence(batch)[1] for batch in batches[:6]] == [0, 1, 2, 3, 4, 5]


def test_after_a_long_silence_the_first_batch_leaves_alone_again() -> None:
    bench = Bench()
    bench.established()
    batches = [bench.add(now=FORGOTTEN_AFTER) for _ in range(3)]
    assert bench.take(now=FORGOTTEN_AFTER) is batches[0]
    assert bench.take(now=FORGOTTEN_AFTER) is None
    bench.machine.settle(batches[0], Delivered(1, -1), FORGOTTEN_AFTER)
    assert [bench.take(now=FORGOTTEN_AFTER) for _ in range(2)] == batches[1:]


def test_what_comes_back_leaves_alone_and_first() -> None:
    bench = Bench()
    bench.established()
    first, second, third = (bench.add() for _ in range(3))
    assert (bench.take(), bench.take()) == (first, second)
    failure = refusal(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert bench.machine.settle(first, failure, 0.0) == (None, Stale.NOTHING)
    assert bench.take(now=9.0) is None  # the second is still under way
    bench.machine.settle(second, refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0.0)
    assert bench.take(now=0.0) is None  # too early
    assert bench.take(now=9.0) is first
    assert bench.take(now=9.0) is None
    bench.machine.settle(first, Delivered(1, -1), 9.0)
    assert (bench.take(now=9.0), sequence(second)) == (second, (7, 2))
    bench.machine.settle(second, Delivered(2, -1), 9.0)
    assert bench.take(now=9.0) is third


def test_a_partition_is_at_one_broker_at_a_time() -> None:
    bench = Bench()
    bench.established()
    first, second = bench.add(), bench.add()
    assert bench.take(node=1) is first
    assert bench.take(node=2) is None
    bench.machine.settle(first, refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER), 0.0)
    assert bench.take(node=2, now=9.0) is first
    bench.machine.settle(first, Delivered(1, -1), 9.0)
    assert bench.take(node=2, now=9.0) is second


def test_broken_seals_are_made_anew_under_another_identity() -> None:
    bench = Bench()
    bench.established()
    first, second = bench.add(), bench.add()
    assert (bench.take(), bench.take()) == (first, second)
    misplaced = refusal(ErrorCode.UNKNOWN_PRODUCER_ID)
    bench.machine.settle(first, misplaced, 0.0)
    bench.machine.settle(second, ConnectionLost("gone"), 0.0)
    assert bench.take(now=9.0) is None
    assert bench.machine.wants_identity
    bench.machine.identified(Identity(8, 0))
    assert (bench.take(now=9.0), sequence(first)) == (first, (8, 0))
    bench.machine.settle(first, Delivered(1, -1), 9.0)
    assert (bench.take(now=9.0), sequence(second)) == (second, (8, 1))


def test_in_a_transaction_only_the_oldest_batch_can_be_misplaced() -> None:
    bench = Bench(transactional=True)
    bench.established()
    first, second = bench.add(), bench.add()
    assert (bench.take(), bench.take()) == (first, second)
    misplaced = refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.machine.settle(first, refusal(ErrorCode.NOT_ENOUGH_REPLICAS), 0.0)
    assert bench.machine.settle(second, misplaced, 0.0) == (None, Stale.NOTHING)
    assert bench.take(now=9.0) is first
    bench.machine.settle(first, Delivered(1, -1), 9.0)
    assert (bench.take(now=9.0), sequence(second)) == (second, (7, 2))
    assert read_batch(memoryview(second.data)).is_transactional
    done, _ = bench.machine.settle(second, misplaced, 9.0)
    assert done == Settled([2], misplaced)
    assert not bench.machine.wants_identity
    bench.machine.restart(Identity(7, 1))
    third = bench.add()
    assert (bench.take(now=9.0), sequence(third)) == (third, (7, 0))


def test_what_is_given_up_under_way_is_not_sent_again() -> None:
    bench = Bench()
    batch = bench.add()
    assert bench.take() is batch
    [(tokens, error)] = bench.machine.expire(DELIVERY_TIMEOUT)
    assert tokens == [0]
    assert isinstance(error, RequestTimedOut)
    assert bench.machine.used > 0
    assert bench.machine.ready(DELIVERY_TIMEOUT) == ([], math.inf)
    done, stale = bench.machine.settle(batch, ConnectionLost("gone"), DELIVERY_TIMEOUT)
    assert done == Settled([], done.outcome if done else error)
    assert stale == Stale.EVERYTHING
    assert bench.machine.used == 0


def test_sequences_wrap() -> None:
    bench = Bench()
    bench.established()
    bench.machine._known[ONE].next_sequence = MAX_SEQUENCE
    first, second = bench.add(), bench.add()
    assert (bench.take(), bench.take()) == (first, second)
    assert [sequence(first)[1], sequence(second)[1]] == [MAX_SEQUENCE, 0]


def test_what_is_abandoned_is_told_so() -> None:
    bench = Bench()
    bench.add()
    gone = ClientClosed("closed")
    assert bench.machine.abandon(gone, lambda one: one.topic == "other") == []
    assert bench.machine.abandon(gone) == [Settled([0], gone)]
    assert bench.machine.used == 0


@pytest.mark.parametrize("hurry", [False, True])
def test_a_batch_that_may_grow_lingers_unless_there_is_a_hurry(hurry: bool) -> None:
    bench = Bench()
    assert bench.machine.reserve(40)
    bench.machine.append(ONE, Outgoing(b"v"), 0, 40, 0.0)
    assert bench.machine.ready(0.0, hurry=hurry)[0] == ([ONE] if hurry else [])
    assert bench.machine.ready(0.0)[1] == LIMITS.linger
    assert bench.machine.ready(LIMITS.linger)[0] == [ONE]
