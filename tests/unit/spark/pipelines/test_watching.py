"""Progress, failures, supervision and the runner, with queries that are not Spark's."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.pipelines.board import Board
from ottla.spark.pipelines.errors import DefinitionError, EnvironmentProblem, SessionLost
from ottla.spark.pipelines.failures import explain
from ottla.spark.pipelines.model import Definition, Flow, Hook, Source, ToConsole, ToTopic
from ottla.spark.pipelines.progress import Progress, parse
from ottla.spark.pipelines.renewal import run_in_sessions
from ottla.spark.pipelines.runner import ENDED_FIRST, Runner
from ottla.spark.pipelines.supervision import FIRST_PAUSE, LONGEST_PAUSE, Supervision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REPORT: dict[str, Any] = {
    "id": "i",
    "runId": "r",
    "name": "totals",
    "timestamp": "2026-01-01T00:00:00.000Z",
    "batchId": 7,
    "durationMs": {
        "latestOffset": 3,
        "getBatch": 1,
        "queryPlanning": 20,
        "walCommit": 5,
        "addBatch": 40,
        "commitOffsets": 6,
        "triggerExecution": 80,
    },
    "sources": [
        {
            "startOffset": None,
            "numInputRows": 30,
            "inputRowsPerSecond": 10.0,
            "processedRowsPerSecond": 60.0,
            "endOffset": {"orders": {"0": 10, "1": 20}, "@initial": {"orders": {"0": 1}}},
            "latestOffset": {"orders": {"0": 15, "1": 20, "2": 4}},
        }
    ],
}


def report(batch: int, flow: str = "totals", run: str = "r") -> dict[str, Any]:
    return {**REPORT, "batchId": batch, "name": flow, "runId": run}


def test_a_report_in_our_words() -> None:
    found = parse(REPORT)
    assert (found.flow, found.batch, found.rows, found.lag) == ("totals", 7, 30, 9)
    assert (found.plan_ms, found.run_ms, found.log_ms, found.total_ms) == (24, 40, 11, 80)
    assert (found.locks_held, found.locks_lost) == (None, None)
    assert found.is_batch
    assert json.loads(json.dumps(found.as_json()))["event"] == "progress"


def test_a_report_of_a_queue_counts_locks() -> None:
    end = {"ranges": {"orders": {"0": [[0, 9, 1], [20, 20, 2]]}}, "ghosts": {"orders": {"1": []}}}
    found = parse({**REPORT, "sources": [{"endOffset": end, "latestOffset": None}]})
    assert (found.locks_held, found.locks_lost, found.lag) == (11, 0, None)


@pytest.mark.parametrize("offset", [None, "text", 12, [], {"logOffset": 3}, {"a": {"b": "c"}}])
def test_reports_of_other_sources_have_no_lag(offset: object) -> None:
    found = parse({**REPORT, "sources": [{"endOffset": offset, "latestOffset": offset}]})
    assert found.lag is None


def test_an_empty_report_is_no_batch() -> None:
    assert not parse({"name": None, "id": "x"}).is_batch


class AnalysisException(Exception):  # Spark's name
    """Told by its name alone, since this has to work without Spark."""


class StreamingQueryException(Exception):  # Spark's name
    pass


WRAPPED = """[STREAM_FAILED] Query [id = x] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform \
latestOffset: Traceback (most recent call last):
  File "readers.py", line 1, in latestOffset
    return backend.advance(start)
ottla.spark.errors.{error}: {said}
 SQLSTATE: 38000
\tat org.apache.spark.Foo.bar(Foo.scala:1)
"""


@pytest.mark.parametrize(
    ("error", "sentence", "for_good"),
    [
        (
            AnalysisException("[UNRESOLVED_COLUMN] no x\n;\n'Project"),
            "[UNRESOLVED_COLUMN] no",
            True,
        ),
        (DefinitionError("flow a returned None"), "flow a returned None", True),
        (
            StreamingQueryException(WRAPPED.format(error="NoProgress", said="nothing for 2 s")),
            "nothing for 2 s",
            False,
        ),
        (
            StreamingQueryException(WRAPPED.format(error="DataLoss", said="0-9 are gone")),
            "0-9 are gone",
            True,
        ),
        (
            StreamingQueryException("Job aborted\n  File x\nZeroDivisionError: division by zero\n"),
            "ZeroDivisionError: division by zero",
            False,
        ),
        (
            RuntimeError(
                "An error occurred while calling o269.start.\n: java.io.IOException: no chmod\n"
                "\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)\n"
            ),
            "java.io.IOException: no chmod",
            False,
        ),
        (
            RuntimeError("[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema ..."),
            "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE]",
            True,
        ),
        (
            RuntimeError("ottla.spark.errors.SchemaChanged: subject s has a newer schema"),
            "subject s has a newer schema",
            False,
        ),
        (RuntimeError(""), "RuntimeError", False),
        (RuntimeError("x" * 5000), "xxx", False),
    ],
)
def test_errors_are_sentences(error: Exception, sentence: str, for_good: bool) -> None:
    failure = explain(error)
    assert failure.sentence.startswith(sentence)
    assert len(failure.sentence) <= 700
    assert failure.for_good == for_good


def test_an_output_mode_that_does_not_fit_is_told_with_the_fix() -> None:
    text = "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: append."
    assert "another mode=" in explain(AnalysisException(text)).sentence


def test_pauses_double_up_to_a_minute() -> None:
    one = Supervision()
    pauses = [one.failed(0.0, for_good=False) for _ in range(9)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    for _ in range(9):
        one.batch_done()
    assert one.failed(0.0, for_good=False) == LONGEST_PAUSE
    for _ in range(10):
        one.batch_done()
    assert one.failed(0.0, for_good=False) == FIRST_PAUSE


def test_a_failure_that_stays_is_not_tried_again() -> None:
    assert Supervision().failed(0.0, for_good=True) is None
    two = Supervision(most_restarts=2)
    assert [two.failed(0.0, for_good=False) for _ in range(3)] == [1, 2, None]


@given(st.lists(st.booleans(), max_size=60))
def test_a_pause_is_never_shorter_than_the_first_or_longer_than_the_longest(
    events: list[bool],
) -> None:
    one = Supervision()
    for is_batch in events:
        if is_batch:
            one.batch_done()
        else:
            due = one.failed(100.0, for_good=False)
            assert due is not None
            assert FIRST_PAUSE <= due - 100.0 <= LONGEST_PAUSE


class Report:
    def __init__(self, found: dict[str, Any]) -> None:
        self.json = json.dumps(found)


class FakeQuery:
    """A query whose life a test decides."""

    def __init__(self) -> None:
        self.isActive = True
        self.error: Exception | None = None
        self.status: dict[str, Any] = {"message": "Processing new data"}
        self.recentProgress: list[Report] = []
        self.stopped = False

    def exception(self) -> Exception | None:
        return self.error

    def end(self, error: Exception | None = None) -> None:
        self.isActive = False
        self.error = error

    def stop(self) -> None:
        self.stopped = True
        self.isActive = False


class Stage:
    """A pipeline of two flows, the second behind the first, under a clock of its own."""

    def __init__(self, *, hooks: list[Hook] | None = None, **how: Any) -> None:
        definition = Definition("p")
        definition.add(Source("s", "t"))
        definition.add(Flow("first", ("s",), ToTopic("x")))
        definition.add(Flow("second", ("first",), ToConsole()))
        self.now, self.tick = 0.0, 0.0
        self.events: list[dict[str, Any]] = []
        self.queries: dict[str, list[FakeQuery]] = {"first": [], "second": []}
        self.refuses: Callable[[str], Exception | None] = lambda _: None
        flows = list(definition.flows.values())
        self.board = Board([one.name for one in flows], hooks or [], self.events.append)
        self.runner = Runner(definition, flows, self.board, clock=self.clock, **how)
        self.alive = True

    def clock(self) -> float:
        self.now += self.tick
        return self.now

    def lives(self) -> bool:
        return self.alive

    def start(self, flow: Flow) -> FakeQuery:
        refusal = self.refuses(flow.name)
        if refusal is not None:
            raise refusal
        query = FakeQuery()
        self.queries[flow.name].append(query)
        return query

    def step(self, seconds: float = 0.0) -> bool:
        self.now += seconds
        return self.runner.step(self)

    def states(self) -> list[str]:
        return [view.state for view in self.board.views()]

    def last(self, name: str) -> FakeQuery:
        return self.queries[name][-1]


def test_all_flows_run_at_once_unless_it_is_for_once() -> None:
    assert not (stage := Stage()).step()
    assert stage.states() == ["running", "running"]


def test_once_a_flow_waits_for_those_it_reads() -> None:
    stage = Stage(once=True)
    stage.step()
    assert stage.states() == ["running", "waiting"]
    stage.last("first").end()
    assert not stage.step()
    assert stage.states() == ["done", "running"]
    stage.last("second").end()
    assert stage.step()
    assert stage.states() == ["done", "done"]
    assert stage.runner.run(stage)


def test_once_nothing_runs_behind_a_flow_that_failed() -> None:
    stage = Stage(once=True)
    stage.refuses = lambda _: AnalysisException("no")
    assert stage.step()
    assert stage.states() == ["failed", "stopped"]
    assert not stage.runner.run(stage)


def test_a_flow_that_fails_is_started_again_after_its_pause() -> None:
    stage = Stage()
    stage.step()
    stage.last("first").end(StreamingQueryException("broker gone"))
    stage.step()
    assert stage.states() == ["pausing", "running"]
    assert stage.board.view("first").error == "broker gone"
    stage.step(0.9)
    assert stage.states() == ["pausing", "running"]
    stage.step(0.2)
    assert stage.states() == ["running", "running"]
    assert stage.board.view("first").restarts == 1
    assert len(stage.queries["first"]) == 2


def test_once_a_flow_is_not_tried_for_ever() -> None:
    stage = Stage(once=True)
    stage.refuses = lambda _: RuntimeError("again")
    while not stage.step(60):
        pass
    assert stage.states() == ["failed", "stopped"]
    assert stage.board.view("first").restarts == 3


def test_case_50_the_first_stop_lets_running_batches_end() -> None:
    stage = Stage()
    stage.step()
    stage.last("second").status["message"] = "Waiting for data to arrive"
    stage.runner.stop()
    assert not stage.step()
    assert stage.states() == ["running", "stopped"]
    stage.board.report(parse(report(0, "first")))
    assert stage.step()
    assert stage.last("first").stopped
    assert stage.runner.run(stage)


def test_case_50_the_second_stop_does_not_wait() -> None:
    stage = Stage()
    stage.step()
    stage.runner.stop()
    assert not stage.step()
    stage.runner.stop()
    assert stage.step()
    assert stage.last("first").stopped
    assert stage.last("second").stopped


def test_a_flow_in_its_pause_ends_with_a_stop() -> None:
    stage = Stage()
    stage.refuses = lambda _: RuntimeError("again")
    stage.step()
    stage.runner.stop()
    assert stage.step()
    assert stage.states() == ["stopped", "stopped"]


def test_a_run_for_some_time_ends_by_itself() -> None:
    stage = Stage(seconds=10)
    stage.step()
    stage.step(9)
    assert stage.states() == ["running", "running"]
    for one in ("first", "second"):
        stage.last(one).status["message"] = "Getting offsets from ottla"
    assert stage.step(1)
    assert stage.states() == ["stopped", "stopped"]


def test_batches_the_listener_missed_are_caught_up_and_none_is_told_twice() -> None:
    told: list[Progress] = []
    stage = Stage(hooks=[Hook(told.append, "first")])
    stage.step()
    stage.board.report(parse(report(0, "first")))
    stage.last("first").recentProgress = [Report(report(n, "first")) for n in range(3)]
    stage.last("first").end()
    stage.step()
    stage.board.report(parse(report(2, "first")))
    assert [one.batch for one in told] == [0, 1, 2]
    assert stage.board.view("first").batches == 3
    stage.board.report(parse(report(0, "first", run="another start")))
    stage.board.report(parse(report(0, "not ours")))
    assert [one.batch for one in told] == [0, 1, 2, 0]


def test_a_hook_that_fails_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    def hook(progress: Progress) -> None:
        raise ValueError(progress.flow)

    board = Board(["totals"], [Hook(hook, None)])
    board.report(parse(REPORT))
    assert board.view("totals").batches == 1
    assert "@on_batch hook failed" in caplog.text


def test_what_prometheus_sees() -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    from ottla.spark.pipelines.metrics import BoardCollector

    board = Board(["totals", "other"])
    board.enter("totals", "running")
    end = {"ranges": {}, "ghosts": {"t": {"0": [[5, 9, 1]]}}}
    queue = {**REPORT, "sources": [{"endOffset": end}]}
    for found in (REPORT, {**queue, "batchId": 8}, {**queue, "batchId": 9}):
        board.report(parse(found))
    registry = CollectorRegistry()
    registry.register(BoardCollector(board))
    text = generate_latest(registry).decode()
    for line in (
        'ottla_flow_rows_total{flow="totals"} 30.0',
        'ottla_flow_batches_total{flow="totals"} 3.0',
        'ottla_flow_lost_locks_total{flow="totals"} 5.0',
        'ottla_flow_running{flow="totals"} 1.0',
        'ottla_flow_running{flow="other"} 0.0',
        'ottla_flow_batch_seconds{flow="totals",part="run"} 0.04',
    ):
        assert line in text


BROKEN = (
    "Job aborted due to stage failure: Task not serializable: java.lang.IllegalStateException: "
    "Illegal size 5 of collection, expected 7"
)


def test_a_session_that_is_broken_is_given_up_whatever_it_says_of_itself() -> None:
    stage = Stage()
    stage.step()
    stage.last("first").end(StreamingQueryException(BROKEN))
    with pytest.raises(SessionLost, match="Illegal size 5"):
        stage.step()
    assert stage.states() == ["pausing", "pausing"]
    # The next session: both flows go on, and neither has had a failure of its own.
    assert not stage.step()
    assert stage.states() == ["running", "running"]
    assert [len(one) for one in stage.queries.values()] == [2, 2]
    assert [view.restarts for view in stage.board.views()] == [1, 1]
    stage.last("first").end(StreamingQueryException("broker gone"))
    stage.step()
    stage.step(FIRST_PAUSE)
    assert stage.states() == ["running", "running"]


class Unreachable(FakeQuery):
    """A query whose JVM is gone."""

    def __getattribute__(self, name: str) -> Any:
        if name == "isActive":
            raise ConnectionRefusedError("[Errno 111] Connection refused")
        return super().__getattribute__(name)


@pytest.mark.parametrize("how", ["unreachable", "failed", "ended", "refused"])
def test_a_session_that_is_gone_is_noticed_however_it_shows(how: str) -> None:
    stage = Stage(once=True)
    if how != "refused":
        stage.step()
    stage.alive = False
    if how == "unreachable":
        stage.runner._runs["first"].query = Unreachable()
    elif how == "failed":
        stage.last("first").end(StreamingQueryException("SparkContext was shut down"))
    elif how == "ended":
        stage.last("first").end()
    else:
        stage.refuses = lambda _: RuntimeError("Cannot call methods on a stopped SparkContext")
    with pytest.raises(SessionLost):
        stage.step()
    assert stage.states() == ["pausing", "pausing"]


@pytest.mark.parametrize("how", ["unreachable", "failed"])
def test_a_session_that_is_gone_while_the_run_is_stopping_is_the_end(how: str) -> None:
    stage = Stage()
    stage.step()
    stage.alive = False
    stage.runner.stop()
    if how == "unreachable":
        stage.runner._runs["first"].query = Unreachable()
    else:
        stage.last("first").end(StreamingQueryException("SparkContext was shut down"))
        stage.last("second").end(RuntimeError("Cannot call methods on a stopped SparkContext"))
    assert stage.step()
    assert stage.states() == ["stopped", "stopped"]
    assert {view.error for view in stage.board.views()} == {ENDED_FIRST}
    assert stage.runner.is_well


class Sessions:
    """Sessions one after the other, each lost after one look, until one is good."""

    def __init__(
        self, stage: Stage, lost: int, fails: int | None = None, *, stops: bool = False
    ) -> None:
        self.stage, self.lost, self.fails = stage, lost, fails
        stage.tick = 60.0
        self.begun, self.stops = 0, stops
        self.told: list[tuple[str, float]] = []

    @contextmanager
    def begin(self) -> Iterator[Stage]:
        self.begun += 1
        if self.begun == self.fails:
            raise EnvironmentProblem("no room")
        self.stage.alive = self.begun > self.lost
        self.stage.refuses = lambda _: None if self.stage.alive else RuntimeError("JVM gone")
        if self.stage.alive:
            self.stage.runner.stop()
        yield self.stage

    def run(self) -> bool:
        return run_in_sessions(self.stage.runner, self.begin, self.tell)

    def tell(self, said: str, pause: float) -> None:
        self.told.append((said, pause))
        if self.stops:
            self.stage.runner.stop()


def test_a_lost_session_is_followed_by_another_after_longer_and_longer_pauses() -> None:
    sessions = Sessions(stage := Stage(), lost=3, fails=2)
    assert sessions.run()
    assert sessions.told == [("JVM gone", 1), ("no room", 2), ("JVM gone", 4)]
    assert sessions.begun == 4
    assert stage.states() == ["stopped", "stopped"]


def test_sessions_are_not_begun_for_ever_if_it_is_for_once() -> None:
    sessions = Sessions(Stage(once=True), lost=9)
    with pytest.raises(EnvironmentProblem, match="Spark was lost again: JVM gone"):
        sessions.run()
    assert [pause for _, pause in sessions.told] == [1, 2, 4]


def test_a_first_session_that_does_not_start_is_not_tried_again() -> None:
    sessions = Sessions(Stage(), lost=9, fails=1)
    with pytest.raises(EnvironmentProblem, match="no room"):
        sessions.run()
    assert sessions.begun == 1


def test_a_run_that_is_stopped_between_sessions_begins_no_other() -> None:
    sessions = Sessions(stage := Stage(), lost=9, stops=True)
    assert sessions.run()
    assert sessions.begun == 1
    assert stage.states() == ["stopped", "stopped"]
