"""A pipeline as `ottla run` would announce it, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clock import Now
from ottla.spark.pipelines.announcing import Announcer, Facts
from ottla.spark.pipelines.board import Board
from ottla.spark.pipelines.model import Definition, Flow, Reject, Source, ToTable, ToTopic
from ottla.spark.pipelines.progress import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.spark.pipelines.announcing import Due


def definition(name: str = "orders") -> Definition:
    """orders -> valid -> valid-orders -> sales -> table sales; what is bad goes to bad-orders."""
    found = Definition(name)
    found.add(Source("in", topic="orders", share_group="pipeline"))
    reject = Reject(ToTopic("bad-orders"), "amount < 0")
    found.add(Flow("valid", ("in",), ToTopic("valid-orders"), reject=reject, trigger="5s"))
    found.add(Flow("sales", ("valid",), ToTable("sales")))
    return found


class PipelineRun:
    """Moves flows by hand; `told` are the records that a topic would have got."""

    def __init__(self, name: str = "orders", *, at_ms: int = 0, run: str = "r1") -> None:
        self.now_ms = at_ms
        self.board = Board(["valid", "sales"])
        facts = Facts(name, run, "host-a", at_ms, "4.1.0", "s3a://k:secret@b/c", definition(name))
        self.announcer = Announcer(facts)

    def batch(self, number: int, flow: str = "valid", rate: float = 50.0) -> None:
        source = {
            "numInputRows": 100,
            "inputRowsPerSecond": 40.0,
            "processedRowsPerSecond": rate,
            "endOffset": {"orders": {"0": 100}},
            "latestOffset": {"orders": {"0": 107}},
        }
        took = {"latestOffset": 20, "addBatch": 140, "walCommit": 20, "triggerExecution": 180}
        report = {"name": flow, "batchId": number, "durationMs": took, "sources": [source]}
        event_time = {"watermark": "2026-11-16T10:03:55.000Z"}
        self.board.report(parse({**report, "runId": f"q-{flow}", "eventTime": event_time}))

    def tell(self, *, ended: bool = False) -> Sequence[Due]:
        now = Now(self.now_ms, self.now_ms)
        due = self.announcer.due(self.board.views(), now, ended=ended)
        self.announcer.delivered(due, now)
        return due
