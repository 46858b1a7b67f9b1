"""A table format in memory, and a shell for the machine of rounds that can die at every step."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ottla.tables import rounds
from ottla.tables.errors import CommitRefused
from ottla.tables.format import NewFile, TableState
from ottla.tables.rows import raw_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.tables.format import Commit, Hole, Offsets

Row = tuple[int, int]
"""Partition and offset."""
Outcome = Literal["done", "failed", "lost", "died before", "died after"]

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


@cache
def columns() -> pa.Schema:
    return raw_columns()


def table_state(**given: object) -> TableState:
    """A state of a table; what is not given is that of an empty one."""
    values: dict[str, object] = {
        "table": "ottla.orders",
        "location": "file:///w/ottla/orders",
        "metadata_location": "0",
        "snapshot": None,
        "topic": "orders",
        "topic_id": TOPIC_ID,
        "first": {0: 0},
        "next": {0: 0},
        "commit": None,
        "commits": frozenset(),
        "line_next": None,
        "holes": (),
        "columns": columns(),
        "partition": "day(_timestamp)",
        "has_deletes": False,
        "changed_ms": 0,
        "handle": None,
    }
    return TableState(**{**values, **given})  # type: ignore[arg-type]  # checked where it is used


@dataclass
class ModelSnapshot:
    id: int
    parent: int | None
    files: tuple[NewFile, ...]
    commit: str | None
    next: Offsets | None


@dataclass
class ModelTable:
    """One table: a line of snapshots, and properties that are set with them."""

    first: Offsets
    next: Offsets
    commit_id: str | None = None
    holes: tuple[Hole, ...] = ()
    main: int | None = None
    snapshots: dict[int, ModelSnapshot] = field(default_factory=dict)
    version: int = 0
    _ids: count[int] = field(default_factory=lambda: count(1))

    def load(self) -> TableState:
        return table_state(
            metadata_location=str(self.version),
            snapshot=self.main,
            first=self.first,
            next=self.next,
            commit=self.commit_id,
            commits=frozenset(
                one.commit for one in self.snapshots.values() if one.commit is not None
            ),
            line_next=next((one.next for one in self._line() if one.next is not None), None),
            holes=self.holes,
            handle=self.rows(),
        )

    def _line(self) -> list[ModelSnapshot]:
        found = []
        at = self.main
        while at in self.snapshots:
            found.append(self.snapshots[at])
            at = self.snapshots[at].parent
        return found

    def commit(self, state: TableState, commit: Commit) -> TableState:
        if state.snapshot != self.main:
            raise CommitRefused("main has moved")
        self.add(self.files() + commit.files, commit.id, commit.next)
        self.first, self.next, self.holes = commit.first, commit.next, commit.holes
        self.commit_id = commit.id
        return self.load()

    def add(
        self, files: tuple[NewFile, ...], commit: str | None = None, position: Offsets | None = None
    ) -> None:
        made = next(self._ids)
        self.snapshots[made] = ModelSnapshot(made, self.main, files, commit, position)
        self.main = made
        self.version += 1

    def expire(self) -> None:
        self.snapshots = {one: at for one, at in self.snapshots.items() if one == self.main}
        self.version += 1

    def files(self) -> tuple[NewFile, ...]:
        return () if self.main is None else self.snapshots[self.main].files

    def rows(self) -> list[Row]:
        return rows_of(self.files())


def rows_of(files: tuple[NewFile, ...]) -> list[Row]:
    return [row for one in files for row in one.footer]  # type: ignore[attr-defined]  # the model's own


@dataclass
class World:
    """A log of numbered records, a store of files, and two tables."""

    starts: dict[int, int] = field(default_factory=lambda: {0: 0})
    ends: dict[int, int] = field(default_factory=lambda: {0: 0})
    bad: set[Row] = field(default_factory=set)
    limit: int = 5
    store: set[str] = field(default_factory=set)
    table: ModelTable | None = None
    letters: ModelTable | None = None
    pointer: TableState | None = None
    names: count[int] = field(default_factory=count)

    def write(self, rows: list[Row]) -> tuple[NewFile, ...]:
        if not rows:
            return ()
        return (NewFile(f"file-{next(self.names)}", Path(), len(rows), 0, None, rows),)


class ModelWorker:
    """A shell: `step` does one effect, or half of it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.machine = rounds.Rounds(60.0)
        self.now = 0.0
        self.effects = self.machine.decide(rounds.Tick(), self.now)
        self.is_dead = False

    @property
    def is_waiting(self) -> bool:
        return isinstance(self.effects[0], rounds.Wait)

    def step(self, outcome: Outcome = "done") -> rounds.Effect:
        effect = self.effects.pop(0)
        if outcome == "died before":
            self.is_dead = True
            return effect
        event: rounds.Event
        can_fail = not isinstance(effect, rounds.Wait | rounds.Drop)
        if outcome == "failed" and can_fail:
            event = rounds.Failed("no answer")
        else:
            try:
                event = self._do(effect)
            except CommitRefused as error:
                event = rounds.Failed(str(error), is_refused=True)
            if outcome == "lost" and can_fail:
                event = rounds.Failed("the answer was lost")
        if outcome == "died after":
            self.is_dead = True
        elif not self.effects:
            self.effects = self.machine.decide(event, self.now)
        return effect

    def _do(self, effect: rounds.Effect) -> rounds.Event:  # noqa: C901  # one branch for each effect
        world = self.world
        match effect:
            case rounds.Load():
                log = rounds.LogView(TOPIC_ID, dict(world.starts), dict(world.ends), world.starts)
                return rounds.Loaded(
                    _loaded(world.table), _loaded(world.letters), log, f"c{next(world.names)}"
                )
            case rounds.Create():
                if world.table is None:
                    world.table = ModelTable(dict(effect.first), dict(effect.first))
                return rounds.Created()
            case rounds.Take():
                return self._take(effect)
            case rounds.Upload():
                world.store |= {one.url for one in effect.files}
                return rounds.Uploaded()
            case rounds.CommitLetters():
                if world.letters is None:
                    world.letters = ModelTable({}, {})
                world.letters.commit(effect.state or world.letters.load(), effect.commit)
                return rounds.LettersCommitted()
            case rounds.CommitRows():
                if world.table is None:
                    raise CommitRefused("dropped")
                return rounds.Committed(world.table.commit(effect.state, effect.commit))
            case rounds.Ask():
                return rounds.Asked(_loaded(world.letters if effect.letters else world.table))
            case rounds.Drop():
                world.store -= {one.url for one in effect.files}
                return rounds.Tick()
            case rounds.Publish():
                world.pointer = effect.state
                letters = _loaded(world.letters)
                return rounds.Published(None if letters is None else letters.metadata_location)
            case rounds.Mirror():
                return rounds.Mirrored()
            case rounds.Wait():
                self.now += effect.seconds
                return rounds.Tick()

    def _take(self, effect: rounds.Take) -> rounds.Event:
        decided = set() if effect.letters is None else set(_rows(effect.letters))
        taken: list[Row] = []
        position = {}
        for number, end in effect.stop.items():
            start = effect.start[number]
            if start < self.world.starts[number]:
                return rounds.Failed("deleted")
            position[number] = min(end, start + self.world.limit - len(taken))
            taken += [(number, at) for at in range(start, position[number])]
        fresh = [row for row in taken if row not in decided]
        return rounds.Taken(
            position,
            self.world.write([row for row in fresh if row not in self.world.bad]),
            self.world.write([row for row in fresh if row in self.world.bad]),
        )


def _loaded(table: ModelTable | None) -> TableState | None:
    return None if table is None else table.load()


def _rows(state: TableState) -> list[Row]:
    return state.handle  # type: ignore[return-value]  # the model's own
