"""Pipelines as their runs tell them: states, rates, lags, restarts, errors, and the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.console import capabilities as can
from ottla.console.findings import DEFAULTS
from ottla.console.missing import Known, Missing
from ottla.console.pipelines import ENDED
from ottla.console.views.frame import Frame, frame
from ottla.console.views.messages import moment
from ottla.console.views.table import ALL, Query, Table, chosen, table
from ottla.metadata.names import PIPELINES_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ottla.console.attention import Attention
    from ottla.console.look import Look
    from ottla.console.pipelines import FlowState, Pipelines

# The worst state of its flows is that of a pipeline.
ORDER: Final = (
    *("failed", "silent", "pausing", "starting", "waiting", "running"),
    *("stopped", "done", "unknown"),
)


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """A pipeline; figures are sums over its flows."""

    name: str
    state: str
    """The worst of its flows; `silent`: nothing was heard of one that should run."""
    host: str
    started: datetime | None
    flows: int
    rows_per_s: float
    lag: int | None
    """Records that are not read yet; None if no flow tells."""
    restarts: int
    failed: int
    """Flows that have failed for good."""
    error: str


@dataclass(frozen=True, slots=True)
class PipelinesPage:
    """All pipelines that were heard of."""

    frame: Frame
    pipelines: Known[Table[PipelineRow]]
    unreadable: int
    """Keys of the topic whose last record is none of ours."""
    not_read: int
    """Older records of the topic that were passed over."""


@dataclass(frozen=True, slots=True)
class FlowRow:
    """A flow; the figures of its last batch are None until it has done one."""

    name: str
    state: str
    silent_s: float | None
    """Since when nothing was heard of a flow that should run."""
    host: str
    heard: datetime | None
    batch: int | None
    batches: int
    rows: int
    rows_per_s: float | None
    processed_per_s: float | None
    lag: int | None
    batch_ms: int | None
    plan_ms: int | None
    run_ms: int | None
    log_ms: int | None
    watermark: str
    trigger_s: float | None
    restarts: int
    restarts_hour: int
    """Those of the last hour, twenty at most."""
    locks_held: int | None
    locks_lost: int
    error: str
    error_at: datetime | None
    rejects_to: str
    """The topic of rows that its expectation refuses; empty if it has none."""
    rejects_when: str
    rejected: int | None
    """Records in that topic; None until they are known."""
    rejected_per_s: float | None
    spark: tuple[float | None, ...]
    batch_spark: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """`kind` is flow, topic, table, source or console; `state` that of a flow."""

    kind: str
    name: str
    state: str = ""


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """Numbers of nodes; `word` is empty, `reject` or `queue` and the name of its group."""

    source: int
    target: int
    word: str


@dataclass(frozen=True, slots=True)
class PipelinePage:
    """One pipeline; `row` is None if nothing was heard of it, and `problem` says why."""

    frame: Frame
    name: str
    row: PipelineRow | None
    problem: str
    ended: datetime | None
    version: str
    """Of Spark, as installed where the pipeline runs."""
    checkpoints: str
    flows: tuple[FlowRow, ...]
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]


def page(look: Look, attention: Attention, query: Query = ALL) -> PipelinesPage:
    """The pipelines that the query asks for, those with trouble first."""
    around = frame(look, attention, [look.data.pipelines.at_ms])
    told = _told(look)
    if isinstance(told, Missing):
        return PipelinesPage(around, told, 0, 0)
    rows = [_row(look, told, name) for name in chosen(told.names, query.contains)]
    listed = table(rows, query, "trouble", lambda one: f"{ORDER.index(one.state)} {one.name}")
    return PipelinesPage(around, listed, told.unreadable, told.not_read)


def pipeline_page(look: Look, attention: Attention, name: str) -> PipelinePage:
    """One pipeline, its flows and its graph."""
    around = frame(look, attention, [look.data.pipelines.at_ms])
    told = _told(look)
    if isinstance(told, Missing):
        return _nothing(around, name, told.reason)
    flows, run = told.of(name), told.pipelines.get(name)
    if run is None and not flows:
        return _nothing(around, name, f"{PIPELINES_TOPIC} tells nothing of a pipeline of this name")
    nodes, edges = _graph(look, told, name)
    return PipelinePage(
        around,
        name,
        _row(look, told, name),
        "",
        None if run is None or run.ended_ms is None else moment(run.ended_ms),
        "" if run is None else run.spark,
        "" if run is None else run.checkpoints,
        tuple(_flow(look, one) for one in flows),
        nodes,
        edges,
    )


def reject_topics(look: Look, name: str) -> list[str]:
    """Topics whose figures the page of a pipeline shows."""
    told = look.data.pipelines.value
    if isinstance(told, Missing):
        return []
    return sorted({one.rejects_to for one in told.of(name) if one.rejects_to in look.data.topics})


def _told(look: Look) -> Pipelines | Missing:
    why_not = look.data.capabilities.explain(can.PIPELINES)
    if why_not is not None and not isinstance(look.data.cluster.value, Missing):
        return Missing(why_not)
    return look.data.pipelines.value


def _nothing(around: Frame, name: str, problem: str) -> PipelinePage:
    return PipelinePage(around, name, None, problem, None, "", "", (), (), ())


def _state(look: Look, flow: FlowState) -> str:
    silent = look.silent_s(flow)
    if silent is not None and silent > DEFAULTS.pipeline_silent_s:
        return "silent"
    # A run that ended leaves flows that have not begun.
    return flow.state if silent is not None or flow.state in ENDED else "stopped"


def _row(look: Look, told: Pipelines, name: str) -> PipelineRow:
    flows, run = told.of(name), told.pipelines.get(name)
    states = {_state(look, one) for one in flows} or {"unknown"}
    batches = [one.batch for one in flows if one.batch is not None and one.state == "running"]
    lags = [one.lag for one in batches if one.lag is not None]
    last = max(flows, key=lambda one: one.error_ms or 0, default=None)
    return PipelineRow(
        name=name,
        state=min(states, key=ORDER.index),
        host=run.host if run is not None else flows[0].host if flows else "",
        started=None if run is None else moment(run.started_ms),
        flows=len(flows),
        rows_per_s=sum(one.processed_per_s for one in batches),
        lag=sum(lags) if lags else None,
        restarts=sum(one.restarts for one in flows),
        failed=sum(one.state == "failed" for one in flows),
        error="" if last is None else last.error,
    )


def _flow(look: Look, flow: FlowState) -> FlowRow:
    batch, silent = flow.batch, look.silent_s(flow)
    hour = look.now.wall_ms - 3_600_000
    series = ("flow", flow.pipeline, flow.name)
    return FlowRow(
        name=flow.name,
        state=_state(look, flow),
        silent_s=silent if silent is not None and silent > DEFAULTS.pipeline_silent_s else None,
        host=flow.host,
        heard=moment(flow.at_ms),
        batch=None if batch is None else batch.number,
        batches=flow.batches,
        rows=flow.rows,
        rows_per_s=None if batch is None else batch.rows_per_s,
        processed_per_s=None if batch is None else batch.processed_per_s,
        lag=None if batch is None else batch.lag,
        batch_ms=None if batch is None else batch.total_ms,
        plan_ms=None if batch is None else batch.plan_ms,
        run_ms=None if batch is None else batch.run_ms,
        log_ms=None if batch is None else batch.log_ms,
        watermark="" if batch is None else batch.watermark,
        trigger_s=flow.trigger_s,
        restarts=flow.restarts,
        restarts_hour=sum(at >= hour for at in flow.restarted_ms),
        locks_held=None if batch is None else batch.locks_held,
        locks_lost=flow.locks_lost,
        error=flow.error,
        error_at=None if flow.error_ms is None else moment(flow.error_ms),
        rejects_to=flow.rejects_to,
        rejects_when=flow.rejects_when,
        rejected=_records(look, flow.rejects_to),
        rejected_per_s=look.rate("topic", flow.rejects_to, "records_per_s"),
        spark=look.spark(*series, "rows_per_s"),
        batch_spark=look.spark(*series, "batch_ms"),
    )


def _records(look: Look, topic: str) -> int | None:
    ends = [look.data.ends.get(key) for key in look.data.partitions(topic)]
    known = [one.end - one.start for one in ends if one is not None and one.start is not None]
    return sum(known) if known and len(known) == len(ends) else None


def _graph(
    look: Look, told: Pipelines, name: str
) -> tuple[tuple[GraphNode, ...], tuple[GraphEdge, ...]]:
    run = told.pipelines.get(name)
    if run is None:
        return (), ()
    states = {one.name: _state(look, one) for one in told.of(name)}
    numbers: dict[tuple[str, str], int] = {}
    for one, other, _ in run.edges:
        numbers.setdefault(one, len(numbers))
        numbers.setdefault(other, len(numbers))
    nodes = (
        GraphNode(kind, label, states.get(label, "") if kind == "flow" else "")
        for kind, label in numbers
    )
    edges: Sequence[GraphEdge] = [
        GraphEdge(numbers[one], numbers[other], word) for one, other, word in run.edges
    ]
    return tuple(nodes), tuple(edges)
