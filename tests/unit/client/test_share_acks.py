"""The ledger of a share consumer against a model that keeps a word for each offset."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import ConnectionLost, KafkaError
from ottla.client.share.acks import Ledger
from ottla.client.share.delivery import (
    DONE,
    HELD,
    WAITING,
    Delivery,
    Sent,
    ack_batches,
    has_renewals,
)
from ottla.client.share.types import Kind, RecordNotHeld
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.share_fetch import AcknowledgementBatch, AcquiredRecords

TOPIC = b"t" * 16
KEY = (TOPIC, 0)
PARTITION = TopicPartition("t", 0)
NODE = 1


def delivery(number: int, *ranges: tuple[int, int], state: int = WAITING) -> Delivery:
    acquired = [AcquiredRecords(first, last, 1) for first, last in ranges]
    made = Delivery(number, NODE, KEY, PARTITION, acquired, expires=100.0)
    made.mark(0, 1 << 62, state)
    return made


def ledger_with(*ranges: tuple[int, int]) -> Ledger:
    """One whose delivery 1 was given to the caller."""
    ledger = Ledger()
    ledger.add(delivery(1, *ranges))
    ledger.give_all()
    return ledger


def sends(ledger: Ledger) -> list[AcknowledgementBatch]:
    return ack_batches(ledger.take(NODE)).get(KEY, [])


def test_neighbours_travel_together_and_mixed_ones_with_a_type_each() -> None:
    ledger = ledger_with((0, 2), (10, 12))
    for offset in (0, 1, 2, 12):
        ledger.acknowledge(1, offset, Kind.ACCEPT)
    ledger.acknowledge(1, 1, Kind.REJECT)
    assert sends(ledger) == [
        AcknowledgementBatch(0, 2, [1, 3, 1]),
        AcknowledgementBatch(12, 12, [1]),
    ]
    assert ledger.undecided == 2


def test_offsets_without_records_are_gaps() -> None:
    ledger = Ledger()
    with_gaps = delivery(1, (0, 9), state=Kind.GAP)
    with_gaps.mark(4, 6, WAITING)
    ledger.add(with_gaps)
    # Also before anything is said about the records between them.
    assert sends(ledger) == [AcknowledgementBatch(0, 3, [0]), AcknowledgementBatch(6, 9, [0])]


def test_what_is_on_its_way_cannot_be_changed() -> None:
    ledger = ledger_with((0, 0))
    ledger.acknowledge(1, 0, Kind.RELEASE)
    sent = ledger.take(NODE)
    with pytest.raises(RecordNotHeld):
        ledger.acknowledge(1, 0, Kind.ACCEPT)
    ledger.settle(sent, lambda _: None)
    with pytest.raises(RecordNotHeld):
        ledger.acknowledge(1, 0, Kind.ACCEPT)


def test_a_broker_that_could_not_write_leaves_the_record_held() -> None:
    ledger = ledger_with((0, 0))
    ledger.accept_held()
    error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "acknowledge")
    ledger.settle(ledger.take(NODE), lambda _: error)
    assert ledger.undecided == 1
    ledger.acknowledge(1, 0, Kind.ACCEPT)
    assert sends(ledger) == [AcknowledgementBatch(0, 0, [1])]


def test_a_renewed_record_is_held_and_stops_no_poll() -> None:
    ledger = ledger_with((0, 0))
    ledger.acknowledge(1, 0, Kind.RENEW)
    sent = ledger.take(NODE)
    assert has_renewals(sent)
    ledger.settle(sent, lambda _: None)
    assert ledger.undecided == 0
    ledger.accept_held()
    assert sends(ledger) == [], "an implicit acceptance is for what was not spoken about"
    ledger.acknowledge(1, 0, Kind.ACCEPT)
    assert not has_renewals(ledger.take(NODE))


def test_a_lost_record_fails_as_a_result() -> None:
    ledger = ledger_with((0, 1))
    ledger.acknowledge(1, 0, Kind.ACCEPT)
    ledger.lose(NODE)
    ledger.acknowledge(1, 1, Kind.ACCEPT)
    assert [one.first_offset for one in ledger.results] == [0, 1]
    assert {one.error.code for one in ledger.results if isinstance(one.error, KafkaError)} == {
        ErrorCode.INVALID_SHARE_SESSION_EPOCH
    }
    assert ledger.undecided == 0
    ledger.forget_lost()
    with pytest.raises(RecordNotHeld):
        ledger.acknowledge(1, 1, Kind.ACCEPT)


def test_a_newer_delivery_takes_the_record() -> None:
    ledger = ledger_with((0, 2))
    ledger.acknowledge(1, 1, Kind.ACCEPT)
    ledger.add(delivery(2, (1, 1)))
    [failed] = ledger.results
    assert (failed.first_offset, failed.last_offset) == (1, 1)
    assert failed.error is not None
    assert sends(ledger) == []
    with pytest.raises(RecordNotHeld):
        ledger.acknowledge(1, 1, Kind.ACCEPT)
    ledger.give_all()
    ledger.acknowledge_range(PARTITION, 0, 3, Kind.REJECT)
    assert sends(ledger) == [
        AcknowledgementBatch(0, 0, [3]),
        AcknowledgementBatch(1, 1, [3]),
        AcknowledgementBatch(2, 2, [3]),
    ]


def test_a_range_is_decided_as_a_whole_or_not_at_all() -> None:
    ledger = ledger_with((0, 3), (5, 9))
    with pytest.raises(RecordNotHeld):
        ledger.acknowledge_range(PARTITION, 2, 7, Kind.ACCEPT)
    assert sends(ledger) == []
    ledger.acknowledge_range(PARTITION, 6, 9, Kind.ACCEPT)
    assert sends(ledger) == [AcknowledgementBatch(6, 8, [1])]
    ledger.lose(NODE)
    ledger.acknowledge_range(PARTITION, 1, 3, Kind.RELEASE)
    [failed] = ledger.results
    assert (failed.first_offset, failed.last_offset, failed.kind) == (1, 2, "release")


def test_what_waits_too_long_is_never_accepted() -> None:
    ledger = Ledger()
    ledger.add(delivery(1, (0, 1)))
    ledger.give(1, 0)
    ledger.expire_waiting(100.0)
    ledger.give_all()
    ledger.accept_held()
    assert not ledger.is_waiting(1, 1)
    assert sends(ledger) == [AcknowledgementBatch(0, 0, [1])]


def test_what_was_not_given_can_be_given_back() -> None:
    ledger = Ledger()
    ledger.add(delivery(1, (0, 1)))
    ledger.give(1, 0)
    ledger.release_waiting()
    assert sends(ledger) == [AcknowledgementBatch(1, 1, [2])]


def test_what_was_on_its_way_does_not_come_back_from_a_newer_delivery() -> None:
    ledger = ledger_with((0, 1))
    ledger.accept_held()
    sent = ledger.take(NODE)
    ledger.add(delivery(2, (0, 0)))
    error = KafkaError(ErrorCode.NOT_COORDINATOR, "acknowledge")
    ledger.settle(sent, lambda _: error)
    assert ledger.undecided == 1
    ledger.give_all()
    ledger.accept_held()
    assert sends(ledger) == [AcknowledgementBatch(0, 0, [1]), AcknowledgementBatch(1, 1, [1])]


SAYABLE = [Kind.ACCEPT, Kind.RELEASE, Kind.REJECT, Kind.RENEW]
OFFSETS = range(40)


class Model(RuleBasedStateMachine):
    """States of offsets in a dict. What the broker would be told is compared at each request."""

    @initialize()
    def start(self) -> None:
        self.ledger = Ledger()
        self.numbers = 0
        self.states: dict[tuple[int, int], str | Kind] = {}
        self.given: set[tuple[int, int]] = set()
        self.lost: set[int] = set()
        self.on_the_way: list[tuple[list[Sent], dict[tuple[int, int], Kind]]] = []
        self.expected_results = 0

    @rule(first=st.sampled_from(OFFSETS), length=st.integers(1, 5), gap=st.booleans())
    def deliver(self, first: int, length: int, gap: bool) -> None:
        self.numbers += 1
        offsets = range(first, first + length)
        made = delivery(self.numbers, (first, first + length - 1))
        if gap:
            made.mark(first, first + 1, Kind.GAP)
        for number, offset in list(self.states):
            if offset in offsets:
                state = self.states[number, offset]
                self.expected_results += isinstance(state, Kind)
                del self.states[number, offset]
        self.ledger.add(made)
        for offset in offsets:
            is_gap = gap and offset == first
            self.states[self.numbers, offset] = Kind.GAP if is_gap else "waiting"

    @rule()
    def give_all(self) -> None:
        self.ledger.give_all()
        for place, state in self.states.items():
            if state == "waiting" and place[0] not in self.lost:
                self.states[place] = "held"
                self.given.add(place)

    @rule()
    def accept_held(self) -> None:
        self.ledger.accept_held()
        for place, state in self.states.items():
            if state == "held" and place[0] not in self.lost:
                self.states[place] = Kind.ACCEPT

    @precondition(lambda self: self.states)
    @rule(data=st.data(), kind=st.sampled_from(SAYABLE))
    def acknowledge(self, data: Any, kind: Kind) -> None:
        place: tuple[int, int] = data.draw(st.sampled_from(sorted(self.states)))
        state = self.states[place]
        if state in ("waiting", "sent", Kind.GAP):
            with pytest.raises(RecordNotHeld):
                self.ledger.acknowledge(place[0], place[1], kind)
            return
        self.ledger.acknowledge(place[0], place[1], kind)
        if place[0] in self.lost:
            self.expected_results += 1
            del self.states[place]
        else:
            self.states[place] = kind

    @rule()
    def send(self) -> None:
        sent = self.ledger.take(NODE)
        said = {place: kind for place, kind in self.states.items() if isinstance(kind, Kind)}
        told = {
            (one.delivery.number, one.first_offset + at): Kind(kind)
            for one in sent
            for at, kind in enumerate(one.kinds)
        }
        assert told == said
        assert all(place in self.given for place, kind in told.items() if kind is Kind.ACCEPT)
        batches = ack_batches(sent).get(KEY, [])
        ends = [(one.first_offset, one.last_offset) for one in batches]
        assert all(a[1] < b[0] for a, b in pairwise(ends))
        for place in said:
            self.states[place] = "sent"
        self.on_the_way.append((sent, said))

    @precondition(lambda self: self.on_the_way)
    @rule(outcome=st.sampled_from(["good", "bad", "still held"]))
    def settle(self, outcome: str) -> None:
        sent, said = self.on_the_way.pop(0)
        errors = {
            "good": None,
            "bad": ConnectionLost("gone"),
            "still held": KafkaError(ErrorCode.NOT_COORDINATOR, "acknowledge"),
        }
        self.ledger.settle(sent, lambda _: errors[outcome])
        for place, kind in said.items():
            if place not in self.states:
                continue  # it belongs to a newer delivery
            if outcome == "still held" and kind in (Kind.ACCEPT, Kind.RENEW):
                self.states[place] = "held"
            elif outcome == "good" and kind is Kind.RENEW:
                self.states[place] = "renewed"
            else:
                del self.states[place]
        self.expected_results += len(said)

    @rule()
    def lose(self) -> None:
        # A session ends when its one request has been settled.
        assume(not self.on_the_way)
        self.ledger.lose(NODE)
        self.lost |= {number for number, _ in self.states}
        for place, state in list(self.states.items()):
            if isinstance(state, Kind):
                self.expected_results += 1
                del self.states[place]

    @rule()
    def forget_lost(self) -> None:
        assume(not self.on_the_way)
        self.ledger.forget_lost()
        self.states = {at: state for at, state in self.states.items() if at[0] not in self.lost}

    @invariant()
    def heads_are_the_states_themselves(self) -> None:
        """What a consumer decides about by itself is what is held, in the place where it is."""
        held = {
            (number, first + at)
            for number, (first, states) in self.ledger.heads.items()
            for at, state in enumerate(states)
            if state == HELD
        }
        assert held == {
            place
            for place, state in self.states.items()
            if state == "held" and place[0] not in self.lost
        }

    @invariant()
    def counts_agree(self) -> None:
        held = [at for at, state in self.states.items() if state == "held"]
        assert self.ledger.undecided == len([at for at in held if at[0] not in self.lost])
        pending = any(isinstance(state, Kind) for state in self.states.values())
        assert self.ledger.nodes_with_pending() == ({NODE} if pending else set())
        told = sum(one.last_offset - one.first_offset + 1 for one in self.ledger.results)
        assert told == self.expected_results


TestModel = Model.TestCase


def test_marks_stay_within_what_was_acquired() -> None:
    made = delivery(1, (5, 6), (10, 10))
    made.mark(0, 6, HELD)
    made.mark(10, 100, DONE)
    assert [bytes(span.states) for span in made.spans] == [bytes([HELD, WAITING]), bytes([DONE])]
    assert made.span_of(7) is None
    assert made.span_of(4) is None


def test_locks_are_renewed_where_nothing_was_said_and_without_a_trace() -> None:
    ledger = ledger_with((0, 3))
    ledger.add(delivery(2, (10, 11)))
    ledger.acknowledge(1, 1, Kind.ACCEPT)
    assert ledger.renewals(NODE, before=100.0) == [], "they end later"
    renewals = ledger.renewals(NODE, before=100.1)
    ranges = [(batch.first_offset, batch.last_offset) for batch in ack_batches(renewals)[KEY]]
    assert ranges == [(0, 0), (2, 3), (10, 11)]
    assert all(set(one.kinds) == {Kind.RENEW} for one in renewals)
    # The caller can decide as before, and only that is sent.
    assert ledger.undecided == 3
    ledger.acknowledge(1, 0, Kind.REJECT)
    assert sends(ledger) == [AcknowledgementBatch(0, 1, [3, 1])]
    renewals[0].delivery.is_renewable = False
    assert {one.delivery.number for one in ledger.renewals(NODE, before=100.1)} == {2}
    ledger.lose(NODE)
    assert ledger.renewals(NODE, before=100.1) == []
