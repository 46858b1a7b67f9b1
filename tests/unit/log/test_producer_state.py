"""Idempotence: the rules by example, against an independent oracle, and by exhaustive search."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.log.appending import AppendResult
from ottla.log.config import LogConfig
from ottla.log.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    LogError,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from ottla.log.partition import PartitionLog
from ottla.log.producer_state import CorruptSnapshot, Origin, Producer, ProducerStates
from ottla.wire.batch import HEADER, MAX_SEQUENCE, TRANSACTIONAL, RecordBatch
from ottla.wire.builder import BatchBuilder
from ottla.wire.records import ControlType
from tests.support.log_batches import batch_of, marker
from tests.support.log_faults import MemoryStorage
from tests.support.sizes import examples

HOME = Path("/data/t-0")


def sent(
    pid: int, epoch: int, sequence: int, count: int = 1, *, txn: bool = False, timestamp: int = 0
) -> RecordBatch:
    """A header is all that the rules look at."""
    attributes = TRANSACTIONAL if txn else 0
    fields = (attributes, count - 1, timestamp, timestamp, pid, epoch, sequence, count)
    return RecordBatch(memoryview(HEADER.pack(0, 49, 0, 2, 0, *fields)))


class Feed:
    """A partition in miniature: checks, applies, gives offsets."""

    def __init__(self, states: ProducerStates | None = None) -> None:
        self.states = ProducerStates() if states is None else states
        self.end = 0

    def __call__(self, batch: RecordBatch, origin: Origin = Origin.CLIENT) -> int:
        duplicate = self.states.check(batch, origin)
        if duplicate is not None:
            return duplicate.base_offset
        base = self.end
        self.states.update(batch, base)
        self.end += batch.last_offset_delta + 1
        return base


def test_each_of_the_last_five_is_a_duplicate_and_the_sixth_is_out_of_order() -> None:
    feed = Feed()
    offsets = [feed(sent(7, 0, sequence, 2)) for sequence in range(0, 12, 2)]
    assert offsets == [0, 2, 4, 6, 8, 10]
    assert [feed(sent(7, 0, sequence, 2)) for sequence in range(2, 12, 2)] == offsets[1:]
    with pytest.raises(OutOfOrderSequence):
        feed(sent(7, 0, 0, 2))
    assert feed.end == 12


@pytest.mark.parametrize("sequence", [0, 3, 5, 1000, MAX_SEQUENCE])
def test_gaps_and_repeats_are_out_of_order(sequence: int) -> None:
    feed = Feed()
    feed(sent(7, 0, 0, 4))
    with pytest.raises(OutOfOrderSequence):
        feed(sent(7, 0, sequence))
    assert feed(sent(7, 0, 4)) == 4


def test_a_resend_of_another_length_is_no_duplicate() -> None:
    feed = Feed()
    feed(sent(7, 0, 0, 4))
    with pytest.raises(OutOfOrderSequence):
        feed(sent(7, 0, 0, 3))


def test_sequences_wrap() -> None:
    feed = Feed()
    feed(sent(7, 0, MAX_SEQUENCE - 1, 2))
    assert feed(sent(7, 0, 0)) == 2
    other = Feed()
    other(sent(7, 0, MAX_SEQUENCE, 3))  # MAX, 0, 1
    assert other(sent(7, 0, 2)) == 3
    assert other(sent(7, 0, MAX_SEQUENCE, 3)) == 0


def test_epochs() -> None:
    feed = Feed()
    feed(sent(7, 3, 0, 2))
    with pytest.raises(InvalidProducerEpoch):
        feed(sent(7, 2, 2))
    with pytest.raises(OutOfOrderSequence):
        feed(sent(7, 4, 2))
    assert feed(sent(7, 4, 0)) == 2
    with pytest.raises(InvalidProducerEpoch):
        feed(sent(7, 3, 0, 2))


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert Feed()(sent(7, 5, 7)) == 0


def test_coordinators_have_no_sequences() -> None:
    feed = Feed()
    assert [feed(sent(7, 0, -1), Origin.COORDINATOR) for _ in range(3)] == [0, 1, 2]
    feed(sent(7, 1, -1), Origin.COORDINATOR)
    with pytest.raises(InvalidProducerEpoch):
        feed(sent(7, 0, -1), Origin.COORDINATOR)


class TestTransactions:
    def test_lso_waits_for_the_marker_and_the_high_watermark(self) -> None:
        feed = Feed()
        assert feed.states.first_unstable_offset(0) is None
        feed(sent(1, 0, 0))
        feed(sent(2, 0, 0, txn=True))
        feed(sent(3, 0, 0, txn=True))
        assert feed.states.first_unstable_offset(3) == 1
        feed(marker(ControlType.COMMIT, 2, 0), Origin.COORDINATOR)
        assert feed.states.first_unstable_offset(3) == 1
        assert feed.states.first_unstable_offset(4) == 2
        feed(marker(ControlType.ABORT, 3, 0), Origin.COORDINATOR)
        assert feed.states.first_unstable_offset(5) is None

    def test_an_abort_is_reported_once(self) -> None:
        states = ProducerStates()
        states.update(sent(1, 0, 0, txn=True), 10)
        states.update(sent(2, 0, 0, txn=True), 11)
        states.update(sent(2, 0, 1, txn=True), 12)
        aborted = states.update(marker(ControlType.ABORT, 2, 0), 13)
        assert aborted == (2, 11, 13, 10)
        assert states.update(marker(ControlType.ABORT, 2, 0), 14) is None
        assert states.update(marker(ControlType.ABORT, 1, 0), 15) == (1, 10, 15, 16)

    def test_a_batch_outside_the_open_transaction(self) -> None:
        feed = Feed()
        feed(sent(1, 0, 0, txn=True))
        with pytest.raises(InvalidTxnState):
            feed(sent(1, 0, 1))
        feed(marker(ControlType.COMMIT, 1, 0), Origin.COORDINATOR)
        assert feed(sent(1, 0, 1)) == 2

    def test_old_coordinators_are_fenced(self) -> None:
        feed = Feed()
        feed(sent(1, 0, 0, txn=True))
        feed(marker(ControlType.COMMIT, 1, 0, coordinator_epoch=5), Origin.COORDINATOR)
        with pytest.raises(TransactionCoordinatorFenced):
            feed(marker(ControlType.ABORT, 1, 0, coordinator_epoch=4), Origin.COORDINATOR)
        with pytest.raises(InvalidProducerEpoch):
            Feed(feed.states)(marker(ControlType.ABORT, 1, -1, coordinator_epoch=9))

    def test_a_marker_of_a_newer_epoch_starts_sequences_anew(self) -> None:
        feed = Feed()
        feed(sent(1, 0, 0, txn=True))
        feed(marker(ControlType.COMMIT, 1, 1), Origin.COORDINATOR)
        assert feed(sent(1, 1, 0, txn=True)) == 2

    def test_other_control_batches_end_nothing(self) -> None:
        builder = BatchBuilder(producer_id=1, producer_epoch=0, transactional=True, control=True)
        builder.append(b"", key=b"\0\0\0\2", timestamp=0)
        feed = Feed()
        feed(sent(1, 0, 0, txn=True))
        feed(RecordBatch(memoryview(builder.build())), Origin.COORDINATOR)
        assert feed.states.first_unstable_offset(2) == 0

    def test_an_empty_batch_left_by_compaction_opens_nothing(self) -> None:
        states = ProducerStates()
        batch = sent(1, 0, 0, 3, txn=True)
        batch.record_count = 0
        states.update(batch, 0)
        assert states.first_unstable_offset(3) is None
        assert states.check(sent(1, 0, 3, txn=True), Origin.CLIENT) is None


def test_expiry_spares_open_transactions() -> None:
    feed = Feed()
    feed(sent(1, 0, 0, timestamp=100))
    feed(sent(2, 0, 0, timestamp=100, txn=True))
    feed(sent(3, 0, 0, timestamp=150))
    assert feed.states.expire(199, 100) == 0
    assert feed.states.expire(200, 100) == 1
    assert [producer.producer_id for producer in feed.states] == [2, 3]


def test_the_cap_drops_the_longest_idle_outside_transactions() -> None:
    feed = Feed(ProducerStates(max_producers=3))
    feed(sent(1, 0, 0, txn=True))
    feed(sent(2, 0, 0))
    feed(sent(3, 0, 0))
    feed(sent(2, 0, 1))
    feed(sent(4, 0, 0))
    assert {producer.producer_id for producer in feed.states} == {1, 2, 4}


class TestSnapshot:
    GOLDEN = bytes.fromhex(
        "0001 1b8bffe6 00000002"
        "0000000000000007 0003 00000004 0000000000000004 00000002 00000000000003e8 ffffffff"
        "ffffffffffffffff"
        "0000000000000008 0000 ffffffff ffffffffffffffff 00000000 00000000000003e8 00000002"
        "ffffffffffffffff"
    )

    def states(self) -> ProducerStates:
        states = ProducerStates()
        states.update(sent(7, 3, 0, 2, timestamp=900), 0)
        states.update(sent(7, 3, 2, 3, timestamp=1000), 2)
        states.update(marker(ControlType.COMMIT, 8, 0, coordinator_epoch=2), 5)
        return states

    def test_golden_bytes(self) -> None:
        assert self.states().encode().hex() == self.GOLDEN.hex()

    def test_the_last_batch_of_each_producer_survives(self) -> None:
        states = ProducerStates.decode(self.GOLDEN)
        assert states.encode() == self.GOLDEN
        duplicate = states.check(sent(7, 3, 2, 3), Origin.CLIENT)
        assert duplicate is not None
        assert duplicate.base_offset == 2
        assert states.check(sent(7, 3, 5), Origin.CLIENT) is None
        with pytest.raises(OutOfOrderSequence):
            states.check(sent(7, 3, 0, 2), Origin.CLIENT)
        assert states.check(sent(8, 0, 0), Origin.CLIENT) is None

    def test_a_count_that_does_not_fit(self) -> None:
        body = bytearray(self.GOLDEN[6:])
        body[3] = 3
        with pytest.raises(CorruptSnapshot, match="do not fit"):
            ProducerStates.decode(b"\0\1" + crc32c(body).to_bytes(4, "big") + body)

    def test_open_transactions_survive(self) -> None:
        states = ProducerStates()
        states.update(sent(1, 0, 0, txn=True), 4)
        assert ProducerStates.decode(states.encode()).first_unstable_offset(9) == 4

    def test_any_flipped_bit_and_any_cut_is_noticed(self) -> None:
        for position in range(len(self.GOLDEN)):
            damaged = bytearray(self.GOLDEN)
            damaged[position] ^= 1
            for data in (bytes(damaged), self.GOLDEN[:position]):
                with pytest.raises(CorruptSnapshot):
                    ProducerStates.decode(data)

    @pytest.mark.parametrize("clean", [True, False])
    def test_duplicates_are_known_after_a_restart(self, *, clean: bool) -> None:
        storage = MemoryStorage()
        config = LogConfig(segment_bytes=400)
        log = PartitionLog.open(HOME, config, now_ms=0, storage=storage)
        batches = [
            batch_of(b"x" * 50, b"y" * 50, producer_id=7, epoch=0, sequence=2 * number)
            for number in range(9)
        ]
        for batch in batches:
            log.append(batch, leader_epoch=0, now_ms=0)
        log.close(clean=clean)
        again = PartitionLog.open(HOME, config, now_ms=0, storage=storage, clean=clean)
        result = again.append(batches[-1], leader_epoch=0, now_ms=0)
        assert result == AppendResult(16, 17, -1, 0, duplicate=True)
        assert again.log_end_offset == 18
        with pytest.raises(OutOfOrderSequence):
            again.append(batches[0], leader_epoch=0, now_ms=0)


# The oracle keeps the whole history and derives every answer from it; it shares no code and no
# representation with the state machine.


class Accepted(NamedTuple):
    epoch: int
    first: int
    records: int
    offset: int


class Oracle:
    def __init__(self) -> None:
        self.history: dict[int, list[Accepted]] = {}
        self.open: set[int] = set()
        self.end = 0

    def answer(self, pid: int, epoch: int, first: int, count: int, *, txn: bool) -> int | str:
        past = self.history.get(pid, [])
        if past:
            current = past[-1].epoch
            if epoch < current:
                return "47"
            same = [batch for batch in past if batch.epoch == epoch]
            for batch in same[-5:]:
                if (batch.first, batch.records) == (first, count):
                    return batch.offset
            expected = (same[-1].first + same[-1].records) % 2**31 if same else 0
            if first != expected:
                return "45"
            if pid in self.open and not txn:
                return "48"
        offset = self.end
        self.history.setdefault(pid, []).append(Accepted(epoch, first, count, offset))
        self.end += count
        if txn:
            self.open.add(pid)
        return offset

    def commit(self, pid: int) -> None:
        self.open.discard(pid)
        self.end += 1


def outcome(feed: Feed, batch: RecordBatch) -> int | str:
    try:
        return feed(batch)
    except LogError as error:
        return str(error.code)


class AgainstOracle(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.feed = Feed()
        self.oracle = Oracle()

    @rule(
        pid=st.integers(0, 2),
        epoch=st.integers(0, 2),
        first=st.integers(0, 6) | st.integers(MAX_SEQUENCE - 2, MAX_SEQUENCE),
        count=st.integers(1, 3),
        txn=st.booleans(),
    )
    def any_batch(self, pid: int, epoch: int, first: int, count: int, *, txn: bool) -> None:
        expected = self.oracle.answer(pid, epoch, first, count, txn=txn)
        assert outcome(self.feed, sent(pid, epoch, first, count, txn=txn)) == expected

    @rule(pid=st.integers(0, 2), count=st.integers(1, 3), txn=st.booleans())
    def next_batch(self, pid: int, count: int, *, txn: bool) -> None:
        past = self.oracle.history.get(pid)
        if past:
            first = (past[-1].first + past[-1].records) % 2**31
            self.any_batch(pid, past[-1].epoch, first, count, txn=txn)

    @rule(pid=st.integers(0, 2), back=st.integers(1, 7))
    def resend(self, pid: int, back: int) -> None:
        past = self.oracle.history.get(pid, [])
        if len(past) >= back:
            batch = past[-back]
            self.any_batch(pid, batch.epoch, batch.first, batch.records, txn=True)

    @rule(pid=st.integers(0, 2), commit=st.booleans())
    def end_transaction(self, pid: int, *, commit: bool) -> None:
        if pid in self.oracle.open:
            kind = ControlType.COMMIT if commit else ControlType.ABORT
            epoch = self.oracle.history[pid][-1].epoch
            self.feed(marker(kind, pid, epoch), Origin.COORDINATOR)
            self.oracle.commit(pid)

    @invariant()
    def same_end(self) -> None:
        assert self.feed.end == self.oracle.end


TestAgainstOracle = AgainstOracle.TestCase
TestAgainstOracle.settings = settings(max_examples=examples(60), stateful_step_count=40)


Step = tuple[int, int, int, bool] | None  # epoch, sequence, records, transactional; None = marker
SEARCH_STATES = 4645


def test_exhaustive_search() -> None:
    """Every input in every reachable state that the rules can tell apart, until none is new."""
    seen = {_decisive(Oracle())}
    level: list[tuple[Step, ...]] = [()]
    while level:
        following = []
        for path in level:
            pair = _replayed(path)
            for step in (*_BATCHES, None):
                end = pair[1].end
                _step(*pair, step)
                if pair[1].end == end:
                    continue  # refused: the same pair must answer the next input as if unasked
                state = _decisive(pair[1])
                if state not in seen:
                    seen.add(state)
                    following.append((*path, step))
                pair = _replayed(path)
        level = following
    assert len(seen) == SEARCH_STATES


def _decisive(oracle: Oracle) -> tuple[object, ...]:
    """What the next answer depends on; offsets only grow and are left out."""
    past = oracle.history.get(1, [])
    recent = [(b.epoch, b.first, b.records) for b in past if b.epoch == past[-1].epoch][-5:]
    return (*recent, 1 in oracle.open)


def _replayed(path: tuple[Step, ...]) -> tuple[Feed, Oracle]:
    feed, oracle = Feed(), Oracle()
    for step in path:
        _step(feed, oracle, step)
    return feed, oracle


def _step(feed: Feed, oracle: Oracle, step: Step) -> None:
    if step is not None:
        expected = oracle.answer(1, *step[:3], txn=step[3])
        assert outcome(feed, _BATCHES[step]) == expected
    elif 1 in oracle.open:
        feed(_COMMITS[oracle.history[1][-1].epoch], Origin.COORDINATOR)
        oracle.commit(1)
    assert feed.end == oracle.end


_COMMITS = [marker(ControlType.COMMIT, 1, epoch) for epoch in (0, 1, 2)]
_BATCHES = {
    (epoch, first, records, txn): sent(1, epoch, first, records, txn=txn)
    for epoch in (0, 1, 2)
    for first in (0, 1, 2, 3, 4, 5, 6, 7, MAX_SEQUENCE)
    for records in (1, 2, 3)
    for txn in (False, True)
}


def test_producers_are_described(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, LogConfig(), now_ms=0)
    batch = batch_of(b"x", timestamps=[55], producer_id=7, epoch=2, sequence=4, transactional=True)
    log.append(batch, leader_epoch=0, now_ms=0)
    (producer,) = log.producers()
    assert isinstance(producer, Producer)
    assert (producer.producer_id, producer.epoch, producer.last_sequence) == (7, 2, 4)
    assert (producer.last_timestamp, producer.current_txn_first_offset) == (55, 0)
    assert producer.coordinator_epoch == -1
    assert log.expire_producers(1 << 40, 1000) == 0
    log.append(marker(ControlType.COMMIT, 7, 2), leader_epoch=0, now_ms=0)
    assert log.expire_producers(1 << 40, 1000) == 1
    assert log.producers() == []
