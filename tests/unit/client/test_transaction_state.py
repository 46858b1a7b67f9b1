"""The machine of a producer's transactions, held against what a coordinator would allow.

`Coordinator` is a model of one that knows one producer: it says of every request whether it may
come now. The rules are in `transaction_state`.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import ClientError, RequestTimedOut
from ottla.client.producer.batches import Identity
from ottla.client.transactions.state import Phase, TransactionState
from ottla.client.transactions.types import (
    AbortableTransactionError,
    ProducerFenced,
    TransactionAborted,
    TransactionUnresolved,
    WrongTransactionState,
)
from ottla.wire.error_codes import ErrorCode

PARTITIONS = [TopicPartition("t", number) for number in range(4)]
LOST = RequestTimedOut("not acknowledged")
ABORTABLE = AbortableTransactionError(ErrorCode.TRANSACTION_ABORTABLE, "send")
FENCED = ProducerFenced(ErrorCode.PRODUCER_FENCED, "commit")
UNRESOLVED = TransactionUnresolved("commit: no answer")


def opened() -> TransactionState:
    state = TransactionState()
    state.initialised(Identity(7, 0))
    state.begin()
    return state


class Producing(RuleBasedStateMachine):
    """Any order of calls and answers, with a coordinator that answers at once or later."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0
        self.start()

    def start(self) -> None:
        self.state = TransactionState()
        # What the coordinator knows of the transaction that is open.
        self.coordinator: set[TopicPartition] = set()
        self.coordinator_is_open = False
        self.asking: frozenset[TopicPartition] | None = None
        self.tickets: list[int] = []
        self.lost = False

    @precondition(lambda self: self.state.phase is Phase.IDLE)
    @rule()
    def begin(self) -> None:
        assert not self.coordinator_is_open, "the last one was not ended"
        assert self.asking is None
        if self.state.wants_identity:
            self.epoch += 1
            self.lost = False
            self.state.initialised(Identity(7, self.epoch))
        assert not self.lost, "sequences are in doubt"
        self.state.begin()
        self.tickets.append(self.state.ticket())
        self.coordinator = set()

    @precondition(lambda self: self.state.phase in (Phase.OPEN, Phase.COMMITTING))
    @rule(ready=st.sets(st.sampled_from(PARTITIONS)))
    def pump(self, ready: set[TopicPartition]) -> None:
        admitted = self.state.admit(sorted(ready))
        assert set(admitted) <= self.coordinator, "a batch leaves before its partition is added"
        asked = self.state.to_add()
        if asked:
            assert self.asking is None, "two requests at once"
            assert not asked & self.coordinator, "added twice"
            self.asking = asked
        if self.state.failure is None:
            assert ready <= set(admitted) | (self.asking or set()) | self.state._wanted

    @precondition(lambda self: self.asking is not None)
    @rule()
    def add(self) -> None:
        assert self.asking is not None
        self.coordinator |= self.asking
        self.coordinator_is_open = True
        self.asking = None
        self.state.added()

    @precondition(lambda self: self.asking is not None)
    @rule()
    def refuse_to_add(self) -> None:
        self.asking = None
        self.state.failed(ABORTABLE)

    @precondition(lambda self: self.state.phase is Phase.OPEN and self.state.failure is None)
    @rule()
    def send_offsets(self) -> None:
        self.state.touch(self.state.number)
        self.coordinator_is_open = True

    @precondition(lambda self: self.state.phase in (Phase.OPEN, Phase.COMMITTING, Phase.ABORTING))
    @rule()
    def lose_a_batch(self) -> None:
        self.lost = True
        self.state.failed(LOST)
        assert self.state.admit(PARTITIONS) == []
        assert not self.state.to_add()

    @precondition(lambda self: self.state.phase is not Phase.OVER and self.tickets)
    @rule(data=st.data())
    def hand_over(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.tickets))
        current = ticket == self.tickets[-1] and self.state.phase is Phase.OPEN
        if not current:
            with pytest.raises(WrongTransactionState):
                self.state.check(ticket)
        elif self.state.failure is not None:
            with pytest.raises(TransactionAborted):
                self.state.check(ticket)
        else:
            self.state.check(ticket)

    @precondition(lambda self: self.state.phase is Phase.OPEN)
    @rule()
    def commit(self) -> None:
        self.state.commit(self.state.number)

    @precondition(lambda self: self.state.phase in (Phase.OPEN, Phase.COMMITTING))
    @rule(loses=st.booleans())
    def abort(self, loses: bool) -> None:
        self.lost = self.lost or loses
        self.state.abort(loses_records=loses)
        assert self.state.admit(PARTITIONS) == []

    def may_end(self) -> bool:
        if self.asking is not None or self.state.phase not in (Phase.COMMITTING, Phase.ABORTING):
            return False
        return self.state.phase is Phase.ABORTING or self.state.failure is None

    @precondition(may_end)
    @rule()
    def end(self) -> None:
        assert self.state.is_known or not self.coordinator_is_open, "the coordinator must hear"
        self.coordinator_is_open = False
        self.state.ended()
        assert self.state.phase is Phase.IDLE

    @precondition(lambda self: self.state.phase in (Phase.OPEN, Phase.COMMITTING, Phase.ABORTING))
    @rule(error=st.sampled_from([FENCED, UNRESOLVED]))
    def end_for_good(self, error: ClientError) -> None:
        self.state.failed(error)
        self.state.abort(loses_records=True)
        self.state.ended()
        for call in (self.state.refuse_to_begin, self.state.ticket):
            with pytest.raises(type(error)):
                call()
        assert type(self.state.loss()) is type(error)
        self.start()

    @invariant()
    def only_open_ones_take_records(self) -> None:
        if self.state.phase is not Phase.OPEN:
            with pytest.raises(ClientError):
                self.state.ticket()


TestProducing = Producing.TestCase


def test_before_the_first_transaction_an_identity_is_needed() -> None:
    state = TransactionState()
    assert state.wants_identity
    with pytest.raises(WrongTransactionState, match=r"async with producer\.transaction"):
        state.ticket()


def test_one_request_adds_all_that_wait_for_it() -> None:
    state = opened()
    assert state.admit(PARTITIONS[:2]) == []
    assert state.to_add() == {*PARTITIONS[:2]}
    assert state.admit(PARTITIONS) == []
    assert state.to_add() == frozenset()
    state.added()
    assert state.admit(PARTITIONS) == PARTITIONS[:2]
    assert state.to_add() == {*PARTITIONS[2:]}


def test_what_nobody_added_is_over_without_a_request() -> None:
    state = opened()
    state.commit(state.number)
    assert not state.is_known


def test_a_clean_abort_keeps_the_epoch() -> None:
    state = opened()
    state.abort(loses_records=False)
    state.ended()
    assert not state.wants_identity


@pytest.mark.parametrize("loses", [True, False])
def test_records_that_are_lost_raise_the_epoch(loses: bool) -> None:
    state = opened()
    if not loses:
        state.failed(LOST)
    state.abort(loses_records=loses)
    state.ended()
    assert state.wants_identity


def test_the_first_failure_is_the_one_that_is_told() -> None:
    state = opened()
    state.failed(LOST)
    state.failed(ABORTABLE)
    with pytest.raises(TransactionAborted, match="not acknowledged") as told:
        state.ticket()
    assert told.value.__cause__ is LOST


def test_two_at_a_time_are_refused() -> None:
    with pytest.raises(WrongTransactionState, match="a transaction of this producer is open"):
        opened().refuse_to_begin()


def test_a_guest_sends_and_neither_begins_nor_loses_its_identity() -> None:
    state = TransactionState(Identity(9, 3))
    assert state.ticket() == 0
    with pytest.raises(WrongTransactionState, match="joined the transaction of another"):
        state.refuse_to_begin()
    state.failed(LOST)
    with pytest.raises(TransactionAborted):
        state.ticket()
    assert state.identity == Identity(9, 3)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda state: state.check(0), "await every send inside of it"),
        (lambda state: state.touch(0), "await every send inside of it"),
    ],
)
def test_what_comes_late_is_not_put_into_the_next(call: Any, sentence: str) -> None:
    with pytest.raises(WrongTransactionState, match=sentence):
        call(opened())
