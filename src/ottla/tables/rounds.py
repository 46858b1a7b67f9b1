"""The rounds of one table, as a pure machine: events in, effects out, time an argument.

    IDLE -Tick-> LOADING -Loaded-> TAKING -Taken-> UPLOADING -Uploaded-> (LETTERS ->) COMMITTING
         -Committed-> PUBLISHING -Published-> MIRRORING -Mirrored-> IDLE

Rules:

- The table's own position is where a round starts; the machine remembers none between rounds. So a
  worker that died at any step goes on where the table is.
- Dead letters are committed before the rows: what they have is decided, and a worker that starts
  keeps these offsets out of both tables.
- Dead letters of another topic id are not this topic's: the table pauses, as it does if it is of
  another one itself.
- No second table is made for a topic whose pointer names one: readers would follow whichever worker
  came last, and miss what only the other table has.
- A commit that failed or was not answered is settled by loading the table again
  (`position.settle`), for as long as it takes; nothing more is taken before.
- Files of a commit that was certainly refused are dropped at once. Others stay: the commit may have
  gone through although no snapshot that is still kept names it.
- The pointer is published after each commit, also one of upkeep, and once after a start: a worker
  may have died before it could. A pointer that is late is a smaller archive, never a wrong one.
- A round that found more than it may take is followed by the next at once.
- Every list of effects ends with the one whose event continues the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.tables.format import Commit, Hole
from ottla.tables.position import Trouble, Verdict, replaced, settle, trouble

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from ottla.tables.format import NewFile, Offsets, TableState

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds between attempts, doubling: a catalogue or store that is away is asked for ever."""
PAUSED_CHECK: Final = 60.0
"""Seconds after which a paused table is looked at again, in case somebody has mended it."""
CONFLICTS: Final = 3
"""Rounds in a row that another worker took first, before this one steps back."""
STEP_BACK: Final = 300.0
"""Seconds that it steps back for."""
ANOTHER_WORKER: Final = "AnotherWorker"
"""The trouble of a worker that steps back."""


@dataclass(frozen=True, slots=True)
class LogView:
    """The topic at one moment. `ends` are last stable offsets; a new table begins at `begin`."""

    topic_id: str
    starts: Offsets
    ends: Offsets
    begin: Offsets


# -- events ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of the last `Wait` has come, or the worker starts."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The table, its dead letters and the log; `commit` is an id nobody used before.

    `elsewhere` is the metadata of the table that readers of this topic use, if this catalogue has
    none.
    """

    state: TableState | None
    letters: TableState | None
    log: LogView
    commit: str
    elsewhere: str | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """The table exists now."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Records up to `next` are in these files, or were none.

    `columns` are those of the files, if the table has to get them.
    """

    next: Offsets
    files: tuple[NewFile, ...]
    letters: tuple[NewFile, ...] = ()
    columns: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class Uploaded:
    """The files are in the store."""


@dataclass(frozen=True, slots=True)
class LettersCommitted:
    """The dead letters are in their table."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit went through; the table is like this now."""

    state: TableState


@dataclass(frozen=True, slots=True)
class Asked:
    """What the table, or that of dead letters, says after a commit of unknown fate."""

    state: TableState | None


@dataclass(frozen=True, slots=True)
class Published:
    """Readers can find the snapshot, and dead letters with this metadata."""

    letters: str | None = None


@dataclass(frozen=True, slots=True)
class Mirrored:
    """Tools can see the position."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The effect failed, in a way that may pass.

    A commit that was not certainly refused may have gone through, or may still do so. One that is
    stale cannot be repeated with its files.
    """

    why: str
    is_refused: bool = False
    is_stale: bool = False


Event: TypeAlias = (
    Tick
    | Loaded
    | Created
    | Taken
    | Uploaded
    | LettersCommitted
    | Committed
    | Asked
    | Published
    | Mirrored
    | Failed
)


# -- effects ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Load:
    """Load the table, its dead letters and the log."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create the table, empty, with this position."""

    topic_id: str
    first: Offsets


@dataclass(frozen=True, slots=True)
class Take:
    """Read, convert and write to the spool: from `start` up to `stop` or a limit."""

    state: TableState
    letters: TableState | None
    commit: str
    start: Offsets
    stop: Offsets


@dataclass(frozen=True, slots=True)
class Upload:
    """Copy files of the spool to the store."""

    files: tuple[NewFile, ...]


@dataclass(frozen=True, slots=True)
class CommitLetters:
    """Add the dead letters, if their table is as it was loaded."""

    state: TableState | None
    commit: Commit


@dataclass(frozen=True, slots=True)
class CommitRows:
    """Add the rows and move the position."""

    state: TableState
    commit: Commit


@dataclass(frozen=True, slots=True)
class Ask:
    """Load the table, or that of dead letters, again."""

    letters: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """Delete files of a dead commit, from the spool and from the store."""

    files: tuple[NewFile, ...]


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the pointer."""

    state: TableState


@dataclass(frozen=True, slots=True)
class Mirror:
    """Commit the position to the group."""

    position: Offsets


@dataclass(frozen=True, slots=True)
class Wait:
    """Sleep; `trouble` says what went wrong, or why the table is paused."""

    seconds: float
    trouble: Trouble | None = None


Effect: TypeAlias = (
    Load
    | Create
    | Take
    | Upload
    | CommitLetters
    | CommitRows
    | Ask
    | Drop
    | Publish
    | Mirror
    | Wait
)


class Phase(Enum):
    IDLE = auto()
    LOADING = auto()
    CREATING = auto()
    TAKING = auto()
    UPLOADING = auto()
    LETTERS = auto()
    ASKING_LETTERS = auto()
    COMMITTING = auto()
    ASKING = auto()
    PUBLISHING = auto()
    MIRRORING = auto()


@dataclass(frozen=True, slots=True)
class _Round:
    """What a round has loaded and written."""

    state: TableState
    letters: TableState | None
    topic_id: str
    commit: Commit
    stop: Offsets
    letter_files: tuple[NewFile, ...] = ()

    @property
    def files(self) -> tuple[NewFile, ...]:
        return self.letter_files + self.commit.files


class Rounds:
    """Hand each event to `decide`, do the effects in turn, hand back the last one's event."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.phase = Phase.IDLE
        self.reached: Offsets = {}
        """The position that was last published or found published."""
        self._round: _Round | None = None
        self._published: tuple[str, str | None] | None = None
        self._due = 0.0
        self._failures = 0
        self._why = ""
        self._may_be_through = False
        self._conflicts = 0
        self._is_behind = False

    def decide(self, event: Event, now: float) -> list[Effect]:  # noqa: C901, PLR0911, RUF100  # the table of transitions
        """What to do next."""
        match self.phase, event:
            case Phase.IDLE, Tick():
                return self._load(now)
            case ((Phase.ASKING | Phase.ASKING_LETTERS), Tick()):
                return [Ask(letters=self.phase is Phase.ASKING_LETTERS)]
            case Phase.LETTERS, Tick():
                return self._commit_letters()
            case Phase.COMMITTING, Tick():
                return self._commit()
            case Phase.PUBLISHING, Tick():
                return self._publish(self._current.state)
            case Phase.LOADING, Loaded():
                return self._loaded(event, now)
            case Phase.CREATING, Created():
                return self._load(now)
            case Phase.TAKING, Taken():
                return self._taken(event)
            case Phase.UPLOADING, Uploaded():
                return self._uploaded()
            case Phase.LETTERS, LettersCommitted():
                return self._commit()
            case Phase.COMMITTING, Committed():
                return self._committed(event.state)
            case ((Phase.LETTERS | Phase.COMMITTING), Failed()):
                return self._not_committed(event, now)
            case Phase.ASKING_LETTERS, Asked():
                return self._settle_letters(event.state, now)
            case Phase.ASKING, Asked():
                return self._settle(event.state, now)
            case Phase.PUBLISHING, Published():
                self._published = self._current.state.metadata_location, event.letters
                self.reached = self._current.state.next
                self.phase = Phase.MIRRORING
                return [Mirror(self._current.state.next)]
            case Phase.MIRRORING, (Mirrored() | Failed()):
                # The group decides nothing; the next round writes it again.
                return self._finished(now)
            case ((Phase.TAKING | Phase.UPLOADING), Failed()):
                return [*self._abandoned(), self._again_later(event.why)]
            case ((Phase.LOADING | Phase.CREATING), Failed()):
                self.phase = Phase.IDLE
                return [self._again_later(event.why)]
            case ((Phase.ASKING | Phase.ASKING_LETTERS | Phase.PUBLISHING), Failed()):
                return [self._again_later(event.why)]
            case _:
                raise AssertionError(f"{event!r} in {self.phase}")

    @property
    def _current(self) -> _Round:
        assert self._round is not None
        return self._round

    def _load(self, now: float) -> list[Effect]:
        self.phase = Phase.LOADING
        self._round = None
        self._may_be_through = False
        self._due = now + self.interval
        return [Load()]

    def _loaded(self, event: Loaded, now: float) -> list[Effect]:
        state, letters, log = event.state, event.letters, event.log
        why = None if state is None else trouble(state, log.topic_id)
        if why is None and letters is not None:
            # Offsets of another log say nothing about this one.
            why = replaced(letters, log.topic_id)
        if why is None and state is None and event.elsewhere is not None:
            why = _elsewhere(event.elsewhere)
        if why is not None:
            self.phase = Phase.IDLE
            return [Wait(PAUSED_CHECK, why)]
        if state is None:
            self.phase = Phase.CREATING
            return [Create(log.topic_id, log.begin)]
        self._is_behind = False
        start, holes = _starts(state, log)
        added = {one: offset for one, offset in start.items() if one not in state.next}
        first = {**state.first, **added}
        commit = Commit(event.commit, state.next, start, first, (*state.holes, *holes), ())
        self._round = _Round(state, letters, log.topic_id, commit, log.ends)
        stop = {
            one: log.ends[one] for one, offset in start.items() if log.ends.get(one, 0) > offset
        }
        if stop:
            self.phase = Phase.TAKING
            return [Take(state, letters, event.commit, start, stop)]
        if holes or added:
            return self._commit()
        of_letters = None if letters is None else letters.metadata_location
        if (state.metadata_location, of_letters) != self._published:
            return self._publish(state)
        return self._finished(now)

    def _taken(self, event: Taken) -> list[Effect]:
        current = self._current
        # Partitions that had nothing new stay where they start.
        position = {**current.commit.next, **event.next}
        commit = replace(current.commit, next=position, files=event.files, columns=event.columns)
        self._round = replace(current, commit=commit, letter_files=event.letters)
        self._is_behind = any(position.get(one, 0) < end for one, end in current.stop.items())
        if not self._current.files:
            return self._commit()
        self.phase = Phase.UPLOADING
        return [Upload(self._current.files)]

    def _uploaded(self) -> list[Effect]:
        current = self._current
        return self._commit_letters() if current.letter_files else self._commit()

    def _commit_letters(self) -> list[Effect]:
        self.phase = Phase.LETTERS
        current = self._current
        mine = replace(current.commit, files=current.letter_files, columns=None)
        return [CommitLetters(current.letters, mine)]

    def _commit(self) -> list[Effect]:
        self.phase = Phase.COMMITTING
        return [CommitRows(self._current.state, self._current.commit)]

    def _committed(self, state: TableState) -> list[Effect]:
        self._conflicts = 0
        return self._publish(state)

    def _not_committed(self, event: Failed, now: float) -> list[Effect]:
        self._why = event.why
        self._may_be_through |= not event.is_refused
        if event.is_stale:
            return [*self._abandoned(), *self._load(now)]
        letters = self.phase is Phase.LETTERS
        self.phase = Phase.ASKING_LETTERS if letters else Phase.ASKING
        return [Ask(letters)]

    def _publish(self, state: TableState) -> list[Effect]:
        current = self._current
        self._round = replace(current, state=state)
        self.phase = Phase.PUBLISHING
        return [Publish(state)]

    def _finished(self, now: float) -> list[Effect]:
        self.phase = Phase.IDLE
        self._failures = 0
        if self._is_behind:
            return self._load(now)
        return [Wait(max(0.0, self._due - now))]

    def _settle_letters(self, state: TableState | None, now: float) -> list[Effect]:
        current = self._current
        mine = current.commit.id
        if state is not None and (mine == state.commit or mine in state.commits):
            self._may_be_through = False
            return self._commit()
        if _snapshot(state) != _snapshot(current.letters):
            # They may be of another worker, for the same offsets: start over and see them.
            return self._beaten(now)
        self._round = replace(current, letters=state)
        self.phase = Phase.LETTERS
        return self._once_more(self._commit_letters)

    def _settle(self, state: TableState | None, now: float) -> list[Effect]:
        current = self._current
        # If it is gone, somebody dropped it.
        verdict = None if state is None else settle(state, current.commit, current.topic_id)
        if state is not None and verdict is Verdict.DONE:
            return self._committed(state)
        if state is not None and verdict is Verdict.AGAIN:
            self._round = replace(current, state=state)
            self.phase = Phase.COMMITTING
            return self._once_more(self._commit)
        if verdict is Verdict.TAKEN:
            return self._beaten(now)
        # Loading it tells the reason, and pauses.
        return [*self._abandoned(), *self._load(now)]

    def _once_more(self, step: Callable[[], list[Effect]]) -> list[Effect]:
        """At once for the first time, then with pauses."""
        if self._failures:
            return [self._again_later(self._why)]
        self._failures = 1
        return step()

    def _beaten(self, now: float) -> list[Effect]:
        self._conflicts += 1
        dropped = self._abandoned()
        if self._conflicts < CONFLICTS:
            return [*dropped, *self._load(now)]
        self._conflicts = 0
        sentence = (
            f"another worker took the records of {CONFLICTS} rounds in a row; "
            "one worker a table is enough"
        )
        return [*dropped, Wait(STEP_BACK, Trouble(ANOTHER_WORKER, sentence))]

    def _abandoned(self) -> list[Effect]:
        """Give the round up. Its dead letters stay if their commit went through."""
        files = self._current.commit.files
        if self.phase in (Phase.TAKING, Phase.UPLOADING, Phase.ASKING_LETTERS):
            files = self._current.files
        self.phase = Phase.IDLE
        self._round = None
        return [Drop(files)] if files and not self._may_be_through else []

    def _again_later(self, why: str) -> Wait:
        seconds = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._failures)
        self._failures = min(self._failures + 1, 16)
        return Wait(seconds, Trouble("Failed", why))


def _elsewhere(metadata_location: str) -> Trouble:
    return Trouble(
        "TableElsewhere",
        f"this catalogue has no table of the topic, and readers use {metadata_location}; give the "
        "--warehouse and --catalog of that table (they are directories of where a worker was "
        "started, unless they are named), or have it forgotten with ottla table drop",
    )


def _starts(state: TableState, log: LogView) -> tuple[dict[int, int], tuple[Hole, ...]]:
    """Where to take each partition from, and what was gone before it could be taken."""
    start = {one: state.next.get(one, offset) for one, offset in log.starts.items()}
    holes = tuple(
        Hole(one, offset, log.starts[one], "deleted")
        for one, offset in sorted(start.items())
        if offset < log.starts[one]
    )
    gone = {hole.partition: hole.end for hole in holes}
    # Partitions that the log does not name at the moment keep their position.
    return {**state.next, **start, **gone}, holes


def _snapshot(state: TableState | None) -> int | None:
    return None if state is None else state.snapshot
