"""What a run tells `ottla.pipelines`, and how it goes on when it cannot."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from ottla.client.errors import BrokerUnreachable, TopicAuthorizationFailed
from ottla.clock import Now
from ottla.spark.pipelines.announcing import HEARTBEAT_MS, MAX_BYTES, edges_of
from ottla.spark.pipelines.publishing import LOOK_MS, Publisher
from ottla.wire.error_codes import ErrorCode
from tests.support.clocks import ManualClock
from tests.support.pipeline_run import PipelineRun, definition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.spark.pipelines.announcing import Due


def test_the_graph_has_topics_and_tables_for_nodes() -> None:
    assert list(edges_of(definition())) == [
        (("topic", "orders"), ("flow", "valid"), "queue pipeline"),
        (("flow", "valid"), ("topic", "valid-orders"), ""),
        (("flow", "valid"), ("topic", "bad-orders"), "reject"),
        (("topic", "valid-orders"), ("flow", "sales"), ""),
        (("flow", "sales"), ("table", "sales"), ""),
    ]


def test_a_flow_is_told_when_it_changes_and_every_30_s() -> None:
    run = PipelineRun()
    assert [one.key for one in run.tell()] == [b"orders", b"orders/valid", b"orders/sales"]
    run.now_ms = 10_000
    assert run.tell() == []
    run.board.enter("valid", "running")
    run.batch(7)
    run.batch(8)
    [one] = run.tell()
    told = json.loads(one.value)
    assert (told["flow"], told["state"], told["batches"]) == ("valid", "running", 2)
    assert told["progress"]["batch"] == 8
    assert told["progress"]["watermark"] == "2026-11-16T10:03:55.000Z"
    assert (told["trigger_s"], told["rejects_to"]) == (5.0, "bad-orders")
    run.now_ms = HEARTBEAT_MS
    assert [one.key for one in run.tell()] == [b"orders", b"orders/sales"]
    run.now_ms = 10_000 + HEARTBEAT_MS
    assert [one.name for one in run.tell()] == ["valid"]
    [last, *_] = run.tell(ended=True)
    assert json.loads(last.value)["ended_ms"] == run.now_ms


def test_what_was_not_delivered_is_due_again_in_its_newest_form() -> None:
    run = PipelineRun()
    now = Now(0, 0)
    assert len(run.announcer.due(run.board.views(), now)) == 3
    run.batch(1)
    again = run.announcer.due(run.board.views(), now)
    assert len(again) == 3
    assert json.loads(again[1].value)["batches"] == 1


def test_restarts_have_times_and_errors_no_secrets() -> None:
    run = PipelineRun()
    run.tell()
    for number in range(1, 31):
        run.now_ms += 1_000
        run.board.enter("valid", "pausing", f"no broker at http://u:pw@h ({number})", number)
        [one] = [one for one in run.tell() if one.name == "valid"]
    told = json.loads(one.value)
    assert told["restarts"] == 30
    assert told["restarted_ms"] == list(range(11_000, 31_000, 1_000)), "the newest twenty"
    assert told["error_ms"] == 30_000
    text = b"".join(one.value for one in PipelineRun().tell()) + one.value
    assert b"secret" not in text
    assert b":pw@" not in text


def test_offsets_of_many_partitions_are_left_out() -> None:
    run = PipelineRun()
    run.batch(1)
    [view, *_] = run.board.views()
    assert view.progress is not None
    many = {"orders": {str(number): number for number in range(40_000)}}
    run.board.report(view.progress._replace(batch=2, offsets=(many,)))
    sizes = [len(one.value) for one in run.tell()]
    assert max(sizes) < MAX_BYTES


class Outlet:
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.error: Exception | None = None
        self.is_gone = False
        self.closed = 0

    def send(self, due: Sequence[Due]) -> bool:
        if self.error is not None:
            raise self.error
        if self.is_gone:
            return False
        self.sent += [one.key for one in due]
        return True

    def close(self) -> None:
        self.closed += 1


def test_a_topic_that_is_not_there_is_looked_for_every_minute() -> None:
    clock, run, outlet = ManualClock(1_000), PipelineRun(), Outlet()
    looks: list[int] = []

    def find() -> Outlet | None:
        looks.append(clock.ms)
        return outlet if len(looks) > 1 else None

    publisher = Publisher(run.announcer, run.board, find, clock)
    for _ in range(3):
        publisher.round()
    assert (looks, outlet.sent) == ([1_000], [])
    clock.advance(LOOK_MS)
    publisher.round()
    assert len(outlet.sent) == 3
    run.batch(1)
    outlet.is_gone = True
    publisher.round()
    assert outlet.closed == 1, "a topic that was deleted is not made again"
    clock.advance(LOOK_MS)
    outlet.is_gone = False
    publisher.round()
    assert outlet.sent[3:] == [b"orders", b"orders/valid", b"orders/sales"]


@pytest.mark.parametrize(
    "error",
    [
        BrokerUnreachable("no broker answers"),
        TopicAuthorizationFailed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "write"),
        ZeroDivisionError("a fault of ours"),
    ],
)
def test_a_failure_is_told_once_and_no_affair_of_the_pipeline(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    run, outlet = PipelineRun(), Outlet()
    outlet.error = error
    publisher = Publisher(run.announcer, run.board, lambda: outlet, ManualClock(1))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            publisher.attempt()
    assert len(caplog.messages) == 1
    assert "which goes on" in caplog.text
    outlet.error = None
    publisher.attempt()
    assert len(outlet.sent) == 3


def test_the_last_states_are_told_when_the_run_ends() -> None:
    run, outlet = PipelineRun(), Outlet()
    with Publisher(run.announcer, run.board, lambda: outlet):
        run.board.enter("sales", "failed", "no such column")
    assert outlet.sent[-3:] == [b"orders", b"orders/valid", b"orders/sales"]
    assert outlet.closed == 1
