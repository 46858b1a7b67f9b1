"""The machine of rounds against a model: nothing lost, nothing twice, at whatever step it dies."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.tables import rounds
from tests.support.sizes import examples
from tests.support.table_model import (
    TOPIC_ID,
    ModelTable,
    ModelWorker,
    World,
    rows_of,
    table_state,
)

STEPS = (
    rounds.Load,
    rounds.Take,
    rounds.Upload,
    rounds.CommitLetters,
    rounds.CommitRows,
    rounds.Publish,
    rounds.Mirror,
)


def finish(world: World, patience: int = 500) -> ModelWorker:
    """A new worker, to which nothing happens, until it has nothing left to do."""
    worker = ModelWorker(world)
    for _ in range(patience):
        if worker.is_waiting and worker.machine.reached == position(world) == world.ends:
            return worker
        worker.step()
    raise AssertionError(f"still busy in {worker.machine.phase}: {worker.effects}")


def position(world: World) -> dict[int, int]:
    return {} if world.table is None else dict(world.table.next)


def check(world: World) -> None:
    """Every record below the position is in one place; every file of a snapshot exists."""
    table = world.table or ModelTable({}, {})
    letters = () if world.letters is None else world.letters.files()
    holes = [
        (hole.partition, offset) for hole in table.holes for offset in range(hole.start, hole.end)
    ]
    below = [row for row in rows_of(letters) if row[1] < table.next.get(row[0], 0)]
    # A letter whose record was deleted before the rows beside it were taken is in a hole, too.
    found = Counter(table.rows()) + (Counter(below) | Counter(holes))
    wanted = {
        (number, offset)
        for number, end in table.next.items()
        for offset in range(table.first[number], end)
    }
    assert found == Counter(wanted)
    assert len(set(rows_of(letters))) == len(rows_of(letters))
    assert {one.url for one in (*table.files(), *letters)} <= world.store


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("outcome", ["failed", "lost", "died before", "died after"])
def test_case_47_whatever_happens_at_one_step_each_record_is_taken_once(
    step: type[rounds.Effect], outcome: str
) -> None:
    world = World(ends={0: 12, 1: 3}, starts={0: 0, 1: 0}, bad={(0, 4), (1, 1)})
    worker = ModelWorker(world)
    while not isinstance(worker.effects[0], step):
        worker.step()
    worker.step(outcome)  # type: ignore[arg-type]  # one of the outcomes
    check(world)
    for _ in range(100):
        if worker.is_dead:
            break
        worker.step()
    finish(world)
    check(world)
    assert world.pointer is not None
    assert world.pointer.next == world.ends


def test_case_39_an_empty_topic_gets_a_table_and_a_pointer() -> None:
    world = World(starts={0: 7}, ends={0: 7})
    finish(world)
    assert world.table is not None
    assert (world.table.first, world.table.next, world.table.main) == ({0: 7}, {0: 7}, None)
    assert world.pointer is not None
    assert (world.letters, world.pointer.next) == (None, {0: 7})


def test_case_58_a_dead_letter_stays_one_although_it_could_be_decoded_later() -> None:
    world = World(ends={0: 3}, bad={(0, 1)})
    worker = ModelWorker(world)
    while not isinstance(worker.effects[0], rounds.CommitRows):
        worker.step()
    world.bad.clear()
    finish(world)
    assert world.table is not None
    assert world.letters is not None
    assert sorted(world.table.rows()) == [(0, 0), (0, 2)]
    assert world.letters.rows() == [(0, 1)]


@pytest.mark.parametrize("is_new", [False, True])
def test_case_54_dead_letters_of_another_topic_id_pause_the_table(is_new: bool) -> None:
    machine = rounds.Rounds(60.0)
    assert machine.decide(rounds.Tick(), 0.0) == [rounds.Load()]
    state = None if is_new else table_state()
    letters = table_state(table="ottla.orders__dlq", topic_id="BAAAAAAAAAAAAAAAAAAAAA")
    log = rounds.LogView(TOPIC_ID, {0: 0}, {0: 4}, {0: 0})
    [wait] = machine.decide(rounds.Loaded(state, letters, log, "c"), 0.0)
    assert isinstance(wait, rounds.Wait)
    assert wait.trouble is not None
    assert wait.trouble.name == "TopicReplaced"
    assert "ottla.orders__dlq belongs to topic id BAAAA" in wait.trouble.sentence
    assert machine.decide(rounds.Tick(), 60.0) == [rounds.Load()]


def test_no_second_table_is_made_for_a_topic_that_has_one_elsewhere() -> None:
    machine = rounds.Rounds(60.0)
    machine.decide(rounds.Tick(), 0.0)
    log = rounds.LogView(TOPIC_ID, {0: 0}, {0: 4}, {0: 0})
    [wait] = machine.decide(rounds.Loaded(None, None, log, "c", "file:///a/v1.json"), 0.0)
    assert isinstance(wait, rounds.Wait)
    assert wait.trouble is not None
    assert wait.trouble.name == "TableElsewhere"
    assert "readers use file:///a/v1.json; give the --warehouse" in wait.trouble.sentence


def test_the_pointer_is_published_again_when_upkeep_has_changed_the_letters() -> None:
    world = World(ends={0: 3}, bad={(0, 1)})
    worker = finish(world)
    for _ in range(4):
        assert not isinstance(worker.step(), rounds.Publish)
    assert world.letters is not None
    world.letters.expire()
    done = [type(worker.step()) for _ in range(8)]
    assert done.count(rounds.Publish) == 1


def test_case_49_a_commit_whose_answer_is_lost_is_not_done_again() -> None:
    world = World(ends={0: 3})
    worker = ModelWorker(world)
    while not isinstance(worker.effects[0], rounds.CommitRows):
        worker.step()
    worker.step("lost")
    while not worker.is_waiting:
        assert not isinstance(worker.effects[0], rounds.CommitRows)
        worker.step()
    check(world)


def test_case_48_the_loser_drops_its_files_and_steps_back_after_three_rounds() -> None:
    world = World(ends={0: 3})
    slow = ModelWorker(world)
    for _ in range(rounds.CONFLICTS):
        while not isinstance(slow.effects[0], rounds.CommitRows):
            slow.step()
        finish(world)
        while not isinstance(slow.effects[0], rounds.Load | rounds.Wait):
            slow.step()
        world.ends[0] += 2
    wait = slow.effects[0]
    assert isinstance(wait, rounds.Wait)
    assert wait.trouble is not None
    assert (wait.seconds, wait.trouble.name) == (rounds.STEP_BACK, "AnotherWorker")
    check(world)
    assert world.table is not None
    assert {one.url for one in world.table.files()} == world.store


def test_case_67_records_that_were_deleted_before_are_a_hole() -> None:
    world = World(ends={0: 4})
    finish(world)
    world.starts[0], world.ends[0] = 9, 12
    finish(world)
    assert world.table is not None
    assert [(hole.start, hole.end, hole.reason) for hole in world.table.holes] == [
        (4, 9, "deleted")
    ]
    check(world)


def test_a_hole_at_the_end_of_the_log_is_recorded_without_rows() -> None:
    world = World(ends={0: 4})
    finish(world)
    world.starts[0] = world.ends[0] = 9
    finish(world)
    assert world.table is not None
    assert (world.table.next, len(world.table.holes)) == ({0: 9}, 1)


def test_partitions_that_are_added_begin_at_their_start() -> None:
    world = World(ends={0: 4})
    finish(world)
    world.starts[1] = world.ends[1] = 0
    finish(world)
    assert world.table is not None
    assert world.table.first == {0: 0, 1: 0}
    world.ends[1] = 2
    finish(world)
    check(world)


def test_case_52_a_table_that_was_rolled_back_waits() -> None:
    world = World(ends={0: 4})
    finish(world)
    assert world.table is not None
    older = world.table.main
    world.ends[0] = 8
    finish(world)
    world.table.main = older
    worker = ModelWorker(world)
    worker.step()
    [wait] = worker.effects
    assert isinstance(wait, rounds.Wait)
    assert wait.trouble is not None
    assert wait.trouble.name == "RolledBack"


def test_a_catalogue_that_is_away_is_asked_with_growing_pauses() -> None:
    world = World(ends={0: 4})
    worker = ModelWorker(world)
    pauses: list[float] = []
    while len(pauses) < 9:
        effect = worker.effects[0]
        if isinstance(effect, rounds.Wait):
            pauses.append(effect.seconds)
        worker.step("failed")
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_commit_that_is_refused_for_ever_is_not_tried_in_a_hot_loop() -> None:
    world = World(ends={0: 4})
    worker = ModelWorker(world)
    commits, waits = 0, 0
    for _ in range(60):
        effect = worker.effects[0]
        commits += isinstance(effect, rounds.CommitRows)
        waits += isinstance(effect, rounds.Wait)
        worker.step("failed" if isinstance(effect, rounds.CommitRows) else "done")
    assert commits > 3
    assert waits >= commits - 2
    finish(world)
    check(world)


class Workers(RuleBasedStateMachine):
    """Two workers on one table, with faults at every step, and others that touch the table."""

    @initialize()
    def start(self) -> None:
        self.world = World()
        self.workers = [ModelWorker(self.world), ModelWorker(self.world)]
        self.highest: dict[int, int] = {}

    @rule(number=st.integers(0, 1), records=st.integers(1, 12), bad=st.booleans())
    def produce(self, number: int, records: int, bad: bool) -> None:
        end = self.world.ends.setdefault(number, 0)
        self.world.starts.setdefault(number, 0)
        self.world.ends[number] = end + records
        if bad:
            self.world.bad.add((number, end))

    @rule(which=st.integers(0, 1), steps=st.integers(1, 9))
    def work(self, which: int, steps: int) -> None:
        for _ in range(steps):
            self.workers[which].step()

    @rule(
        which=st.integers(0, 1),
        outcome=st.sampled_from(["failed", "lost", "died before", "died after"]),
    )
    def suffer(self, which: int, outcome: str) -> None:
        worker = self.workers[which]
        worker.step(outcome)  # type: ignore[arg-type]  # one of the outcomes
        if worker.is_dead:
            self.workers[which] = ModelWorker(self.world)

    @rule()
    def schema_is_registered(self) -> None:
        self.workers = [ModelWorker(self.world), ModelWorker(self.world)]
        self.world.bad.clear()

    @rule(number=st.integers(0, 1), records=st.integers(1, 6))
    def delete_records(self, number: int, records: int) -> None:
        if number in self.world.starts:
            self.world.starts[number] = min(
                self.world.ends[number], self.world.starts[number] + records
            )

    @rule(letters=st.booleans())
    def case_51_somebody_compacts(self, letters: bool) -> None:
        table = self.world.letters if letters else self.world.table
        if table is not None and table.files():
            merged = self.world.write(table.rows())
            self.world.store |= {one.url for one in merged}
            table.add(merged)

    @rule()
    def case_51_somebody_expires(self) -> None:
        if self.world.table is not None:
            self.world.table.expire()

    @invariant()
    def each_record_is_in_one_place(self) -> None:
        if hasattr(self, "world"):
            check(self.world)

    @invariant()
    def positions_only_grow(self) -> None:
        if hasattr(self, "world"):
            now = position(self.world)
            assert all(now[one] >= at for one, at in self.highest.items())
            self.highest = now

    def teardown(self) -> None:
        if hasattr(self, "world"):
            finish(self.world)
            check(self.world)


TestWorkers = Workers.TestCase
TestWorkers.settings = settings(max_examples=examples(60), stateful_step_count=40)
