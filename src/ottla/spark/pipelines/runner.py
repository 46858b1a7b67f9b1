"""Runs flows until they are done, stopped or beyond help.

Rules:

- A flow that fails is started again after a pause (`supervision`), unless its failure is one that
  stays (`failures`).
- With `once` a flow starts when those it reads are done, so that one run carries records all the
  way through.
- The first request to stop lets running batches end, the second does not.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.spark.pipelines.failures import Failure, explain
from ottla.spark.pipelines.graph import upstream_of
from ottla.spark.pipelines.progress import parse
from ottla.spark.pipelines.supervision import Supervision

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.spark.pipelines.board import Board, State
    from ottla.spark.pipelines.model import Definition, Flow

POLL_SECONDS: Final = 0.1
# A job that is run by a timer should fail while somebody looks at it.
RESTARTS_ONCE: Final = 3
# What a query says of itself between the plan of a batch and its end.
IN_A_BATCH: Final = frozenset(
    {"Writing offsets to log", "Processing new data", "No new data but cleaning up state"}
)
ENDED: Final = ("done", "stopped", "failed")


class Query(Protocol):
    """What the runner needs of Spark's StreamingQuery."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802  # Spark's name
    @property
    def status(self) -> dict[str, Any]: ...
    @property
    def recentProgress(self) -> Sequence[Any]: ...  # noqa: N802  # Spark's name
    def exception(self) -> Exception | None: ...
    def stop(self) -> None: ...


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
        start: Callable[[Flow], Query],
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
        self._start = start
        self._board = board
        self._clock = clock
        self._ends = None if seconds is None else clock() + seconds
        self._on_failure = on_failure
        self._stops = 0
        self._woken = threading.Event()

    def stop(self) -> None:
        """Once: after the running batches. Twice: now. May be called by a signal handler."""
        self._stops += 1
        self._woken.set()

    def run(self) -> bool:
        """True if no flow has failed for good."""
        while not self._step():
            self._woken.wait(POLL_SECONDS)
            self._woken.clear()
        return all(view.state != "failed" for view in self._board.views())

    def _step(self) -> bool:
        now = self._clock()
        if self._ends is not None and now >= self._ends and not self._stops:
            self._stops = 1
        for run in self._runs.values():
            if self._state(run) in ENDED:
                continue
            if run.query is None:
                self._begin(run, now)
            else:
                self._watch(run, run.query, now)
        return all(self._state(run) in ENDED for run in self._runs.values())

    def _state(self, run: _Run) -> State:
        return self._board.view(run.flow.name).state

    def _begin(self, run: _Run, now: float) -> None:
        if self._stops:
            self._enter(run, "stopped")
            return
        before = [self._board.view(name).state for name in run.waits_for]
        if any(state in ("failed", "stopped") for state in before):
            self._enter(run, "stopped")
        elif all(state == "done" for state in before) and (run.due is None or now >= run.due):
            self._enter(run, "starting")
            try:
                run.query = self._start(run.flow)
            except Exception as error:  # noqa: BLE001  # whatever Spark or the user's code raises
                self._failed(run, error, now)
            else:
                self._enter(run, "running")

    def _watch(self, run: _Run, query: Query, now: float) -> None:
        is_active = query.isActive
        if not is_active:
            self._catch_up(query)
        batches = self._board.view(run.flow.name).batches
        while run.counted < batches:
            run.counted += 1
            run.supervision.batch_done()
        if not is_active:
            error = query.exception()
            run.query = None
            if error is None:
                self._enter(run, "stopped" if self._stops else "done")
            elif self._stops:
                self._enter(run, "stopped", explain(error).sentence)
            else:
                self._failed(run, error, now)
        elif self._stops and self._may_stop(run, query, batches):
            query.stop()
            self._catch_up(query)
            run.query = None
            self._enter(run, "stopped")

    def _catch_up(self, query: Query) -> None:
        """The listener's events come late, and not at all when the session ends before them."""
        for report in query.recentProgress:
            self._board.report(parse(json.loads(report.json)))

    def _may_stop(self, run: _Run, query: Query, batches: int) -> bool:
        """Between batches, or at once if somebody insists."""
        if self._stops > 1:
            return True
        if run.batch_to_end is None:
            run.batch_to_end = batches
        return batches > run.batch_to_end or query.status.get("message") not in IN_A_BATCH

    def _failed(self, run: _Run, error: BaseException, now: float) -> None:
        if self._on_failure is not None:
            self._on_failure(error)
        failure: Failure = explain(error)
        run.due = run.supervision.failed(now, for_good=failure.for_good)
        state: State = "failed" if run.due is None else "pausing"
        self._enter(run, state, failure.sentence)

    def _enter(self, run: _Run, state: State, error: str | None = None) -> None:
        self._board.enter(run.flow.name, state, error, run.supervision.restarts)
