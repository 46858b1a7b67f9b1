"""Runs flows until they are done, stopped or failed for good.

Rules:

- A failed flow is restarted after a pause (`supervision`), unless a retry cannot help (`failures`).
- If the session is lost, so are its queries: `run` raises `SessionLost` and may be called again
  with a new session, in which flows continue from their checkpoints.
- With `once` a flow starts when the flows that it reads are done, so that one run processes records
  in all flows.
- The first request to stop lets running batches end, the second does not.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.spark.pipelines.errors import SessionLost
from ottla.spark.pipelines.failures import Failure, explain
from ottla.spark.pipelines.graph import upstream_of
from ottla.spark.pipelines.progress import parse
from ottla.spark.pipelines.supervision import Supervision

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.spark.pipelines.board import Board, State
    from ottla.spark.pipelines.model import Definition, Flow

POLL_SECONDS: Final = 0.1
# With --once, fail soon instead of retrying for hours.
RESTARTS_ONCE: Final = 3
# Status messages of a query between the plan of a batch and its end.
IN_A_BATCH: Final = frozenset(
    {"Writing offsets to log", "Processing new data", "No new data but cleaning up state"}
)
ENDED: Final = ("done", "stopped", "failed")
ENDED_FIRST: Final = "Spark ended before the flow; the next run repeats a batch that was under way"


class Query(Protocol):
    """The part of Spark's StreamingQuery that the runner uses."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802  # Spark's name
    @property
    def status(self) -> dict[str, Any]: ...
    @property
    def recentProgress(self) -> Sequence[Any]: ...  # noqa: N802  # Spark's name
    def exception(self) -> Exception | None: ...
    def stop(self) -> None: ...


class Session(Protocol):
    """Starts queries; `lives` tells whether the session still can."""

    def start(self, flow: Flow) -> Query: ...
    def lives(self) -> bool: ...


@dataclass(slots=True)
class _Run:
    flow: Flow
    supervision: Supervision
    query: Query | None = None
    due: float | None = None
    counted: int = 0
    waits_for: Sequence[str] = field(default_factory=tuple)
    batch_to_end: int | None = None


class Runner:
    """One run of a pipeline."""

    def __init__(
        self,
        definition: Definition,
        flows: Sequence[Flow],
        board: Board,
        *,
        once: bool = False,
        seconds: float | None = None,
        max_restarts: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_failure: Callable[[BaseException], object] | None = None,
    ) -> None:
        names = {flow.name for flow in flows}
        most = RESTARTS_ONCE if once and max_restarts is None else max_restarts
        self._runs = {
            flow.name: _Run(
                flow,
                Supervision(most),
                waits_for=[
                    name for name in upstream_of(definition, flow) if once and name in names
                ],
            )
            for flow in flows
        }
        self._sessions = Supervision(most)
        self._board = board
        self._clock = clock
        self._seconds = seconds
        self._ends: float | None = None
        self._on_failure = on_failure
        self._stops = 0
        self._woken = threading.Event()

    def stop(self) -> None:
        """First call: stop after the running batches; second: now. Safe in a signal handler."""
        self._stops += 1
        self._woken.set()

    def run(self, session: Session) -> bool:
        """True if no flow has failed for good."""
        while not self.step(session):
            self._woken.wait(POLL_SECONDS)
            self._woken.clear()
        return self.is_well

    @property
    def is_well(self) -> bool:
        """No flow has failed for good."""
        return all(view.state != "failed" for view in self._board.views())

    def pause_after_loss(self) -> float | None:
        """Seconds to wait before the next session; None: give up."""
        return self._sessions.failed(0.0, for_good=False)

    def wait(self, seconds: float) -> bool:
        """Wait; returns False if the run was stopped meanwhile, after ending its flows."""
        ends = self._clock() + seconds
        while not self._must_stop() and (left := ends - self._clock()) > 0:
            self._woken.wait(min(left, POLL_SECONDS))
            self._woken.clear()
        if self._stops:
            for run in self._unfinished():
                self._enter(run, "stopped")
        return not self._stops

    def step(self, session: Session) -> bool:
        """Look at each flow once; True if all have ended."""
        if self._ends is None and self._seconds is not None:
            self._ends = self._clock() + self._seconds  # time counts from the start of the session
        self._must_stop()
        now = self._clock()
        try:
            for run in self._unfinished():
                if run.query is None:
                    self._begin(run, session, now)
                else:
                    self._watch(run, run.query, session, now)
        except SessionLost as lost:
            self._lose(lost)
        except Exception as error:  # noqa: BLE001  # what watching a query raises is not the query's
            if self._on_failure is not None:
                self._on_failure(error)
            self._lose(SessionLost(explain(error).sentence))
        return not self._unfinished()

    def _must_stop(self) -> bool:
        if self._ends is not None and self._clock() >= self._ends and not self._stops:
            self._stops = 1
        return self._stops > 0

    def _unfinished(self) -> list[_Run]:
        return [run for run in self._runs.values() if self._state(run) not in ENDED]

    def _lose(self, lost: SessionLost) -> None:
        """Mark flows as waiting for a session; this does not count as a failure of theirs."""
        for run in self._unfinished():
            if run.query is not None:
                run.supervision.restarts += 1
            run.query = run.due = run.batch_to_end = None
            if self._stops:  # a signal for all processes, such as that of systemd, ends the JVM too
                self._enter(run, "stopped", ENDED_FIRST)
            else:
                self._enter(run, "pausing", str(lost))
        if not self._stops:
            raise lost

    def _state(self, run: _Run) -> State:
        return self._board.view(run.flow.name).state

    def _begin(self, run: _Run, session: Session, now: float) -> None:
        if self._stops:
            self._enter(run, "stopped")
            return
        before = [self._board.view(name).state for name in run.waits_for]
        if any(state in ("failed", "stopped") for state in before):
            self._enter(run, "stopped")
        elif all(state == "done" for state in before) and (run.due is None or now >= run.due):
            self._enter(run, "starting")
            try:
                run.query = session.start(run.flow)
            except Exception as error:  # noqa: BLE001  # whatever Spark or the user's code raises
                self._failed(run, error, session, now)
            else:
                self._enter(run, "running")

    def _watch(self, run: _Run, query: Query, session: Session, now: float) -> None:
        is_active = query.isActive
        if not is_active:
            self._catch_up(query)
        batches = self._board.view(run.flow.name).batches
        while run.counted < batches:
            run.counted += 1
            run.supervision.batch_done()
            self._sessions.batch_done()
        if not is_active:
            self._ended(run, query.exception(), session, now)
        elif self._stops and self._may_stop(run, query, batches):
            query.stop()
            self._catch_up(query)
            run.query = None
            self._enter(run, "stopped")

    def _ended(self, run: _Run, error: BaseException | None, session: Session, now: float) -> None:
        if self._stops:
            run.query = None
            said = None if error is None else explain(error).sentence
            self._enter(run, "stopped", said if session.lives() else ENDED_FIRST)
        elif error is not None:
            self._failed(run, error, session, now)
        elif session.lives():
            run.query = None
            self._enter(run, "done")
        else:
            raise SessionLost("the Spark session was stopped")

    def _catch_up(self, query: Query) -> None:
        """Report batches from the query itself: events come late, or never if the session ends."""
        for report in query.recentProgress:
            self._board.report(parse(json.loads(report.json)))

    def _may_stop(self, run: _Run, query: Query, batches: int) -> bool:
        """Whether a query may stop: between batches, or at once after a second Ctrl-C."""
        if self._stops > 1:
            return True
        if run.batch_to_end is None:
            # A batch that is done but not reported yet need not be waited for.
            self._catch_up(query)
            run.batch_to_end = batches = self._board.view(run.flow.name).batches
        return batches > run.batch_to_end or query.status.get("message") not in IN_A_BATCH

    def _failed(self, run: _Run, error: BaseException, session: Session, now: float) -> None:
        if self._on_failure is not None:
            self._on_failure(error)
        failure: Failure = explain(error)
        if failure.breaks_session or not session.lives():
            raise SessionLost(failure.sentence) from error
        run.query = None
        run.due = run.supervision.failed(now, for_good=failure.for_good)
        state: State = "failed" if run.due is None else "pausing"
        self._enter(run, state, failure.sentence)

    def _enter(self, run: _Run, state: State, error: str | None = None) -> None:
        self._board.enter(run.flow.name, state, error, run.supervision.restarts)
