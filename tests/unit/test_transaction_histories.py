"""The judge of transactions (`support/transaction_histories.py`): what it must say, and must not.

Each anomaly by hand, one change away from a history that is good; then histories of a simulated
broker that works, which have none, and the same with one thing changed.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.transaction_histories import (
    Answer,
    Consumed,
    History,
    Kind,
    Position,
    Scan,
    Seen,
    Session,
    Transaction,
    Write,
    check,
)
from tests.support.transaction_recording import Recorder, read_history

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LAST: Final = 1000


def scan(
    partition: int,
    *records: tuple[int, str],
    at: int = LAST,
    committed: bool = True,
    start: int = 0,
    end: int = 20,
) -> Scan:
    seen = tuple(Seen(*record) for record in records)
    return Scan(f"reader {at}", committed, partition, at, start, end, seen)


def good() -> History:
    """A committed transaction, an aborted one, one nobody knows of, and one of a successor."""
    one = Session("one", "id", 1, 2)
    two = Session("two", "id", 50, 52)
    transactions = [
        Transaction(
            "committed",
            one,
            [Write(0, "a"), Write(1, "b"), Write(0, "c")],
            [Consumed("group", 0, 0, 3)],
            commit=True,
            asked_at=10,
            answer=Answer.OK,
            answered_at=11,
        ),
        Transaction("aborted", one, [Write(0, "d")], commit=False, answer=Answer.OK),
        Transaction(
            "unknown",
            one,
            [Write(0, "e"), Write(1, "f")],
            [Consumed("group", 0, 3, 5)],
            commit=True,
            asked_at=30,
        ),
        Transaction("abandoned", one, [Write(1, "g")]),
        Transaction(
            "successor",
            two,
            [Write(1, "h")],
            [Consumed("group", 0, 5, 6)],
            commit=True,
            asked_at=60,
            answer=Answer.OK,
            answered_at=61,
        ),
    ]
    scans = [
        scan(0, (0, "a"), (1, "c"), at=20, end=3),
        # The other partition of the same transaction later than that: no anomaly.
        scan(1, at=21, end=0),
        scan(0, (1, "c"), at=22, start=1, end=3),
        scan(0, (0, "a"), (1, "c"), (3, "d"), (5, "e"), at=900, committed=False, end=7),
        scan(1, (0, "b"), (2, "f"), (4, "g"), (6, "h"), at=901, committed=False, end=8),
        scan(0, (0, "a"), (1, "c"), (5, "e"), end=7),
        scan(1, (0, "b"), (2, "f"), (6, "h"), end=8),
    ]
    positions = [Position("group", 0, 3, 12, 13), Position("group", 0, 6, LAST, LAST)]
    return History(transactions, [one, two], scans, positions)


def with_scan(history: History, place: int, *records: tuple[int, str]) -> History:
    seen = tuple(Seen(*record) for record in records)
    history.scans[place] = history.scans[place]._replace(records=seen)
    return history


def with_position(history: History, place: int, offset: int) -> History:
    history.positions[place] = history.positions[place]._replace(offset=offset)
    return history


def kinds(history: History) -> set[Kind]:
    return {anomaly.kind for anomaly in check(history)}


def test_a_good_history() -> None:
    assert check(good()) == []
    assert check(History()) == []


def test_a_commit_without_an_answer_may_have_failed() -> None:
    history = with_scan(good(), 5, (0, "a"), (1, "c"))
    history = with_scan(history, 6, (0, "b"), (6, "h"))
    history.transactions[4].consumed = [Consumed("group", 0, 3, 6)]
    assert check(history) == []


def test_lost_write() -> None:
    history = with_scan(good(), 6, (0, "b"), (2, "f"))
    assert kinds(history) == {Kind.LOST_WRITE}
    (found,) = check(history)
    assert "'h'" in found.evidence
    assert "successor of two" in found.evidence


def test_aborted_read() -> None:
    for place, value, offset in ((5, "d", 3), (6, "g", 4)):
        history = good()
        records = sorted((*history.scans[place].records, Seen(offset, value)))
        assert kinds(with_scan(history, place, *records)) == {Kind.ABORTED_READ}


def test_read_of_a_refused_commit() -> None:
    history = good()
    history.transactions[4].answer = Answer.FAILED
    assert Kind.ABORTED_READ in kinds(history)


def test_torn() -> None:
    assert Kind.TORN in kinds(with_scan(good(), 5, (0, "a"), (1, "c")))
    assert Kind.TORN in kinds(with_scan(good(), 6, (0, "b"), (6, "h")))


def test_duplicate() -> None:
    history = with_scan(good(), 4, (0, "b"), (2, "f"), (4, "g"), (6, "h"), (7, "h"))
    assert kinds(history) == {Kind.DUPLICATE}


def test_phantom() -> None:
    assert kinds(with_scan(good(), 4, (0, "b"), (2, "f"), (3, "x"))) == {Kind.PHANTOM}
    assert kinds(with_scan(good(), 4, (0, "b"), (2, "f"), (3, "a"))) == {
        Kind.PHANTOM,
        Kind.REORDERED,
    }


def test_reordered() -> None:
    history = with_scan(good(), 3, (0, "c"), (1, "a"), (3, "d"), (5, "e"))
    assert kinds(history) == {Kind.REORDERED}


def test_zombie_write() -> None:
    history = with_scan(good(), 4, (0, "b"), (2, "f"), (6, "h"), (7, "g"))
    assert kinds(history) == {Kind.ZOMBIE_WRITE}


def test_fenced_commit() -> None:
    history = good()
    history.transactions[2].answer = Answer.OK
    history.transactions[2].asked_at, history.transactions[2].answered_at = 51, 54
    assert kinds(history) == set(), "the successor did not have the id yet"
    history.transactions[2].asked_at = 53
    assert kinds(history) == {Kind.FENCED_COMMIT}


@pytest.mark.parametrize(
    ("place", "records"),
    [(0, [(0, "a")]), (0, [(0, "a"), (2, "c")]), (0, []), (2, [])],
)
def test_unstable_prefix(place: int, records: list[tuple[int, str]]) -> None:
    assert kinds(with_scan(good(), place, *records)) == {Kind.UNSTABLE_PREFIX}


def test_an_end_that_goes_back() -> None:
    history = good()
    history.scans[0] = history.scans[0]._replace(end=8)
    assert Kind.UNSTABLE_PREFIX in kinds(history)


def test_offsets_without_outputs() -> None:
    assert kinds(with_position(good(), 1, 7)) == {Kind.OFFSETS_WITHOUT_OUTPUTS}
    assert kinds(with_position(good(), 0, 4)) == {Kind.OFFSETS_WITHOUT_OUTPUTS}
    history = good()
    history.transactions[2].consumed = []
    assert kinds(history) == {Kind.OFFSETS_WITHOUT_OUTPUTS}, "a gap"


def test_outputs_without_offsets() -> None:
    without = {Kind.OUTPUTS_WITHOUT_OFFSETS}
    assert kinds(with_position(good(), 1, 5)) == without
    assert kinds(with_position(good(), 0, 0)) == without, "a commit was answered before"
    history = good()
    history.positions.insert(1, Position("group", 0, 0, 14, 15))
    assert kinds(history) == without, "it went back"
    history = good()
    history.transactions[4].consumed = [Consumed("group", 0, 3, 6)]
    assert kinds(history) == without, "the same input twice"


# -- a broker that works --------------------------------------------------------------------------


class _Entry(NamedTuple):
    value: str
    transaction: Transaction


class Broker:
    """Two partitions, a group, and as many producers as there are ids, one step at a time."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._now = 0
        self._logs: dict[int, list[_Entry | None]] = {0: [], 1: []}
        self._open: dict[str, Transaction] = {}
        self._sessions: dict[str, Session] = {}
        self._happened: set[str] = set()
        self._position = 0
        self.history = History()

    def run(self, steps: int) -> History:
        for _ in range(steps):
            name = self._chance.choice("xyz")
            if name not in self._open:
                self._begin(name)
            elif self._chance.random() < 0.6:
                self._write(self._open[name])
            else:
                self._end(name)
            if self._chance.random() < 0.2:
                self._scan()
        for name in list(self._open):
            self._end(name)
        self._scan()
        self._see_position()
        return self.history

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def _begin(self, name: str) -> None:
        if name not in self._sessions or self._chance.random() < 0.3:
            number = len(self.history.sessions)
            session = Session(f"{name}{number}", name, self._tick(), self._tick())
            self._sessions[name] = session
            self.history.sessions.append(session)
        transaction = Transaction(f"t{len(self.history.transactions)}", self._sessions[name])
        self.history.transactions.append(transaction)
        self._open[name] = transaction
        self._write(transaction)

    def _write(self, transaction: Transaction) -> None:
        partition = self._chance.randrange(2)
        value = f"{transaction.name}-{len(transaction.writes)}"
        transaction.writes.append(Write(partition, value))
        self._logs[partition].append(_Entry(value, transaction))

    def _end(self, name: str) -> None:
        transaction = self._open.pop(name)
        transaction.commit = self._chance.choice([None, False, True, True, True])
        transaction.asked_at = self._tick()
        happens = bool(transaction.commit)
        if happens:
            transaction.answer = self._chance.choice(list(Answer))
            happens = transaction.answer is Answer.OK or (
                transaction.answer is Answer.UNKNOWN and self._chance.random() < 0.5
            )
        if happens and name == "x":
            end = self._position + self._chance.randint(1, 3)
            transaction.consumed.append(Consumed("group", 0, self._position, end))
            self._position = end
        transaction.answered_at = self._tick()
        for partition in {write.partition for write in transaction.writes}:
            self._logs[partition].append(None)
        if happens:
            self._happened.add(transaction.name)
            if self._chance.random() < 0.5:
                self._see_position()

    def _see_position(self) -> None:
        self.history.positions.append(
            Position("group", 0, self._position, self._tick(), self._tick())
        )

    def _scan(self) -> None:
        still = {transaction.name for transaction in self._open.values()}
        for partition, log in self._logs.items():
            stable = next(
                (at for at, entry in enumerate(log) if entry and entry.transaction.name in still),
                len(log),
            )
            seen = [
                Seen(at, entry.value)
                for at, entry in enumerate(log[:stable])
                if entry and entry.transaction.name in self._happened
            ]
            everything = [Seen(at, entry.value) for at, entry in enumerate(log) if entry]
            now = self._tick()
            self.history.scans += [
                scan(partition, *everything, at=now, committed=False, end=len(log)),
                scan(partition, *seen, at=now, end=stable),
            ]


def last_scan(history: History, partition: int) -> int:
    return max(
        place
        for place, one in enumerate(history.scans)
        if one.committed and one.partition == partition
    )


def lose(history: History, chance: random.Random) -> Kind:
    """A record of a committed transaction vanishes for the last reader."""
    sent = [
        write
        for transaction in history.transactions
        if transaction.is_committed
        for write in transaction.writes
    ]
    assume(sent)
    partition, value = chance.choice(sent)
    place = last_scan(history, partition)
    with_scan(history, place, *(one for one in history.scans[place].records if one.value != value))
    return Kind.LOST_WRITE


def show_aborted(history: History, _: random.Random) -> Kind:
    """The last reader of committed records sees all there is."""
    assume(any(transaction.is_aborted for transaction in history.transactions))
    for partition in (0, 1):
        place = last_scan(history, partition)
        with_scan(history, place, *history.scans[place - 1].records)
    return Kind.ABORTED_READ


def repeat(history: History, chance: random.Random) -> Kind:
    place = chance.choice([at for at, one in enumerate(history.scans) if one.records])
    one = history.scans[place]
    again = one.records[-1]._replace(offset=one.end)
    history.scans[place] = one._replace(records=(*one.records, again), end=one.end + 1)
    return Kind.DUPLICATE


def swap(history: History, chance: random.Random) -> Kind:
    """Two values of one session change places."""
    sessions = {
        write.value: transaction.session
        for transaction in history.transactions
        for write in transaction.writes
    }
    pairs = []
    for place, one in enumerate(history.scans):
        by_session = defaultdict(list)
        for at, seen in enumerate(one.records):
            by_session[sessions[seen.value]].append(at)
        pairs += [(place, *ats[:2]) for ats in by_session.values() if len(ats) > 1]
    assume(pairs)
    place, a, b = chance.choice(pairs)
    records = list(history.scans[place].records)
    records[a], records[b] = (
        Seen(records[a].offset, records[b].value),
        Seen(records[b].offset, records[a].value),
    )
    with_scan(history, place, *records)
    return Kind.REORDERED


def forget(history: History, chance: random.Random) -> Kind:
    """A reader before the last one misses a record."""
    lasts = {last_scan(history, 0), last_scan(history, 1)}
    places = [
        at
        for at, one in enumerate(history.scans)
        if one.committed and one.records and at not in lasts
    ]
    assume(places)
    place = chance.choice(places)
    records = list(history.scans[place].records)
    del records[chance.randrange(len(records))]
    with_scan(history, place, *records)
    return Kind.UNSTABLE_PREFIX


def advance(history: History, _: random.Random) -> Kind:
    with_position(history, -1, history.positions[-1].offset + 1)
    return Kind.OFFSETS_WITHOUT_OUTPUTS


def hold_back(history: History, _: random.Random) -> Kind:
    assume(history.positions[-1].offset > 0)
    with_position(history, -1, 0)
    return Kind.OUTPUTS_WITHOUT_OFFSETS


def take_over(history: History, chance: random.Random) -> Kind:
    """Somebody had the id when a commit was asked for, which was answered with success."""
    committed = [one for one in history.transactions if one.is_committed]
    assume(committed)
    fenced = chance.choice(committed)
    at = fenced.session.answered_at
    for one in history.transactions:
        one.asked_at = 3 * one.asked_at
    other = Session("other", fenced.session.transactional_id, at + 1, at + 1)
    assume(other.answered_at < fenced.asked_at)
    history.sessions.append(other)
    return Kind.FENCED_COMMIT


chances = st.integers(0, 2**32).map(random.Random)
histories = st.builds(lambda chance, steps: Broker(chance).run(steps), chances, st.integers(5, 40))


@given(histories)
def test_a_broker_that_works(history: History) -> None:
    assert check(history) == []


@pytest.mark.parametrize(
    "change", [lose, show_aborted, repeat, swap, forget, advance, hold_back, take_over]
)
@given(history=histories, chance=chances)
def test_one_change_is_found(
    change: Callable[[History, random.Random], Kind], history: History, chance: random.Random
) -> None:
    assert change(history, chance) in kinds(history)


def test_what_is_recorded_is_read_back(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "history")
    recorder.session("one", "id", 1)
    recorder.begin("t", "one")
    recorder.writes("t", [Write(0, "a"), Write(1, "b")])
    recorder.consumed("t", Consumed("group", 0, 0, 3))
    recorder.end("t", commit=True)
    recorder.answer("t", Answer.OK)
    recorder.begin("u", "one")
    recorder.scan(scan(0, (0, "a")))
    recorder.position(Position("group", 0, 3, 4, 5))
    with (tmp_path / "history").open("ab") as file:
        file.write(b'["answer", "u"')
    history = read_history(tmp_path / "history")
    committed, abandoned = history.transactions
    assert committed.writes == [Write(0, "a"), Write(1, "b")]
    assert committed.consumed == [Consumed("group", 0, 0, 3)]
    assert committed.is_committed
    assert committed.session.answered_at < committed.asked_at < committed.answered_at
    assert abandoned.is_aborted
    assert history.sessions == [committed.session]
    assert history.scans == [scan(0, (0, "a"))]
    assert history.positions == [Position("group", 0, 3, 4, 5)]
