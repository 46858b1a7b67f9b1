"""The share source's machine: sums of ranges, and crashes at every place of a micro-batch.

The broker of the model is naive: a dict of offsets. Spark is its two logs. Whatever crashes, each
offset is in exactly one committed batch, and what is accepted is in one.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.client.cluster.view import TopicPartition
from ottla.spark.errors import BadCheckpoint
from ottla.spark.share import machine as module
from ottla.spark.share import ranges as sums
from ottla.spark.share.machine import ShareMachine, initial_offset, parse_offset
from ottla.spark.share.ranges import Span, Spans

if TYPE_CHECKING:
    from ottla.spark.backend import Offset

PLACES = [TopicPartition("t", 0), TopicPartition("t", 10)]
GROUP = "g"


def spans_of(offsets: dict[tuple[TopicPartition, int], int]) -> Spans:
    found: Spans = {}
    for place, offset in sorted(offsets):
        one = {place: [Span(offset, offset, offsets[place, offset])]}
        found = sums.plus(found, one)
    return found


def counts(spans: Spans) -> dict[tuple[TopicPartition, int], int]:
    return {
        (place, offset): one.deliveries
        for place, some in spans.items()
        for one in some
        for offset in range(one.first, one.last + 1)
    }


SETS = st.dictionaries(
    st.tuples(st.sampled_from(PLACES), st.integers(0, 25)), st.integers(1, 2), max_size=30
)


@given(SETS, SETS)
def test_sums_are_those_of_sets(
    one: dict[tuple[TopicPartition, int], int], other: dict[tuple[TopicPartition, int], int]
) -> None:
    first, second = spans_of(one), spans_of(other)
    assert counts(first) == one
    assert counts(sums.plus(first, second)) == {**one, **other}
    assert counts(sums.minus(first, second)) == {k: c for k, c in one.items() if k not in other}
    assert counts(sums.common(first, second)) == {k: c for k, c in one.items() if k in other}
    assert sums.size(first) == len(one)
    assert sums.from_json(json.loads(json.dumps(sums.to_json(first)))) == first
    for some in sums.plus(first, second).values():
        for left, right in itertools.pairwise(some):
            assert left.last < right.first
            assert left.last + 1 < right.first or left.deliveries != right.deliveries


@given(SETS, st.integers(1, 20), st.integers(1, 6))
def test_a_part_keeps_to_its_limits(
    one: dict[tuple[TopicPartition, int], int], records: int, most: int
) -> None:
    whole = spans_of(one)
    taken = sums.part(whole, records, most)
    assert not sums.minus(taken, whole)
    assert bool(taken) == bool(whole)
    assert sums.pieces(taken) <= most
    assert sums.size(taken) <= records + len(PLACES)


def test_below_cuts_at_the_ends() -> None:
    spans = {PLACES[0]: [Span(0, 4), Span(6, 9)], PLACES[1]: [Span(0, 9)]}
    assert sums.below(spans, {PLACES[0]: 8}) == {PLACES[0]: [Span(0, 4), Span(6, 7)]}


def test_a_checkpoint_of_another_query_is_refused() -> None:
    with pytest.raises(BadCheckpoint, match="checkpointLocation of its own"):
        parse_offset({"t": {"0": 4}}, GROUP)
    with pytest.raises(BadCheckpoint):
        ShareMachine(GROUP, "m").to_settle(initial_offset("other"))


def test_case_36_ranges_are_capped_with_ghosts_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RANGES", 10)
    machine = ShareMachine(GROUP, "m")
    start = initial_offset(GROUP)
    machine.settled(start, {PLACES[0]: [Span(1000 + 2 * n, 1000 + 2 * n) for n in range(4)]})
    machine.acquired({PLACES[0]: [Span(2 * n, 2 * n) for n in range(20)]})
    end = machine.end(start, 1_000_000)
    assert sums.pieces(parse_offset(end, GROUP).ranges) == 6
    assert sums.pieces(machine.waiting) == 14
    assert machine.end(start, 1_000_000) == end, "the end of a start is decided once"


def test_case_36_a_full_offset_is_small() -> None:
    machine = ShareMachine(GROUP, "m")
    far = 10_000_000
    machine.acquired({PLACES[0]: [Span(far + 2 * n, far + 2 * n) for n in range(20_000)]})
    end = machine.end(initial_offset(GROUP), 1_000_000)
    assert sums.pieces(parse_offset(end, GROUP).ranges) == 10_000
    assert len(json.dumps(end, separators=(",", ":"))) < 300_000


# -- crashes ---------------------------------------------------------------------------------------


@dataclass
class Entry:
    """An offset as the broker sees it."""

    owner: str | None = None
    accepted: bool = False
    deliveries: int = 0


class Crashes(RuleBasedStateMachine):
    """One query, which dies wherever it likes; the broker may end locks whenever it likes."""

    @initialize()
    def begin(self) -> None:
        self.broker: dict[tuple[TopicPartition, int], Entry] = {}
        self.logged: list[Offset] = []
        self.committed = 0
        self.names = 0
        self.grace = False
        self.start_process()

    def start_process(self) -> None:
        self.names += 1
        self.machine = ShareMachine(GROUP, f"m{self.names}")
        if len(self.logged) > self.committed:
            self.machine.adopt(self.logged[-1])

    @property
    def start(self) -> Offset:
        return self.logged[self.committed - 1] if self.committed else initial_offset(GROUP)

    def accept(self, spans: Spans) -> Spans:
        """Range by range, as the broker does; what is refused."""
        refused: Spans = {}
        for place, some in spans.items():
            for one in some:
                entries = [self.broker[place, at] for at in range(one.first, one.last + 1)]
                if all(e.owner == self.machine.member for e in entries):
                    for entry in entries:
                        entry.owner, entry.accepted = None, True
                else:
                    refused = sums.plus(refused, {place: [one]})
        return refused

    @rule(place=st.sampled_from(PLACES), count=st.integers(1, 4))
    def produce(self, place: TopicPartition, count: int) -> None:
        first = sum(1 for at in self.broker if at[0] == place)
        for number in range(count):
            self.broker[place, first + number] = Entry()

    @precondition(lambda self: len(self.logged) == self.committed)
    @rule(data=st.data())
    def next_offset(self, data: st.DataObject) -> None:
        """latestOffset, and the write to the offset log, in either of which a crash may come."""
        crash = data.draw(st.sampled_from(["settle", "acquire", "log", "no", "no", "no"]))
        owed = self.machine.to_settle(self.start)
        refused = self.accept(owed)
        if crash == "settle":
            return self.crash()
        if self.start != self.machine._settled:
            self.machine.settled(self.start, refused)
        again = self.machine.acquired(self.deliver(data.draw(st.integers(1, 9))))
        if crash == "acquire":
            return self.crash()
        self.machine.laid(sums.minus(again, self.accept(again)))
        end = self.machine.end(self.start, data.draw(st.integers(1, 8)))
        if crash == "log":
            return self.crash()
        if end != self.start:
            self.logged.append(json.loads(json.dumps(end)))
        return None

    def deliver(self, most: int) -> Spans:
        found: dict[tuple[TopicPartition, int], int] = {}
        for at, entry in sorted(self.broker.items()):
            if len(found) < most and entry.owner is None and not entry.accepted:
                entry.owner = self.machine.member
                entry.deliveries += 1
                found[at] = entry.deliveries
        return spans_of(found)

    @precondition(lambda self: len(self.logged) > self.committed)
    @rule()
    def commit(self) -> None:
        self.committed += 1

    @rule()
    def crash(self) -> None:
        """Without a grace the broker ends the locks at once; with one, when it likes."""
        for entry in self.broker.values():
            if not self.grace:
                entry.owner = None
        self.start_process()

    @rule()
    def change_grace(self) -> None:
        self.grace = not self.grace

    @rule(data=st.data())
    def locks_end(self, data: st.DataObject) -> None:
        held = sorted(at for at, entry in self.broker.items() if entry.owner)
        if held:
            gone = data.draw(st.lists(st.sampled_from(held)))
            for at in gone:
                self.broker[at].owner = None
            if data.draw(st.booleans()):  # a renewal finds out
                self.machine.unlocked(spans_of(dict.fromkeys(gone, 1)))

    @invariant()
    def each_offset_is_in_one_batch(self) -> None:
        batches = [set(sums.offsets(parse_offset(end, GROUP).ranges)) for end in self.logged]
        assert sum(map(len, batches)) == len(set().union(*batches)), "in two batches"
        done = {at for at, entry in self.broker.items() if entry.accepted}
        assert done <= set().union(*batches[: self.committed]), "accepted, and not processed"

    def teardown(self) -> None:
        """Undisturbed, the query comes to the end of everything."""
        if not hasattr(self, "broker"):
            return
        for _ in range(2 * len(self.broker) + 3):
            self.committed = len(self.logged)
            owed = self.machine.to_settle(self.start)
            if self.start != self.machine._settled:
                self.machine.settled(self.start, self.accept(owed))
            for entry in self.broker.values():
                if entry.owner and entry.owner != self.machine.member:
                    entry.owner = None
            again = self.machine.acquired(self.deliver(100))
            self.machine.laid(sums.minus(again, self.accept(again)))
            end = self.machine.end(self.start, 100)
            if end != self.start:
                self.logged.append(end)
            held = sums.plus(self.machine.held, self.machine.waiting)
            for at, entry in self.broker.items():
                if entry.owner and at not in set(sums.offsets(held)):
                    entry.owner = None
        self.each_offset_is_in_one_batch()
        seen = {at for one in self.logged for at in sums.offsets(parse_offset(one, GROUP).ranges)}
        assert seen == set(self.broker), "lost"
        assert all(entry.accepted for entry in self.broker.values())


TestCrashes = Crashes.TestCase
TestCrashes.settings = settings(stateful_step_count=40)
