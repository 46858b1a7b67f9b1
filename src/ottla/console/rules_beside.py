"""Rules over what stands beside the brokers: tables and pipelines. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.cluster.view import TopicPartition
from ottla.console import figures
from ottla.console.capabilities import PIPELINES
from ottla.console.findings import finding
from ottla.console.missing import Missing
from ottla.console.text import name as shown

if TYPE_CHECKING:
    from ottla.console.findings import Finding, Found, Thresholds
    from ottla.console.look import Look
    from ottla.console.pipelines import FlowState


def tables(look: Look, thresholds: Thresholds) -> Found:
    """A14: a table that is far behind its topic, or whose topic is gone."""
    listed = look.data.tables.value
    if isinstance(listed, Missing):
        return listed
    found = []
    for topic, pointer in listed.items():
        if look.data.topics and topic not in look.data.topics:
            text = f"table {shown(pointer.table)}: its topic {shown(topic)} is gone"
            found.append(finding("TABLE", text, "tables", topic))
            continue
        behind = [
            one
            for partition, position in pointer.position.items()
            if (one := look.behind(TopicPartition(topic, partition), position)) is not None
        ]
        late = max((one.seconds or 0.0 for one in behind), default=0.0)
        if late > thresholds.table_s:
            records = sum(one.records for one in behind)
            text = (
                f"table {shown(pointer.table)}: {records:,} records of {shown(topic)} wait, the "
                f"first for {figures.duration(late)}"
            )
            found.append(finding("TABLE", text, "tables", topic))
    return found


def pipelines(look: Look, thresholds: Thresholds) -> Found:
    """A12: a flow that failed, is restarted again and again, or whose run is silent."""
    told = look.data.pipelines.value
    if PIPELINES not in look.data.capabilities:
        return []
    if isinstance(told, Missing):
        return told
    return [
        one
        for name in told.names
        for flow in told.of(name)
        if (one := _flow(look, flow, thresholds)) is not None
    ]


def _flow(look: Look, flow: FlowState, thresholds: Thresholds) -> Finding | None:
    what = f"pipeline {shown(flow.pipeline)}, flow {shown(flow.name)}"
    page = ("pipelines", flow.pipeline)
    why = f": {shown(flow.error, 200)}" if flow.error else ""
    if flow.state == "failed":
        return finding("PIPELINE", f"{what}: failed for good{why}", *page)
    silent = look.silent_s(flow)
    if silent is not None and silent > thresholds.pipeline_silent_s:
        text = f"{what}: nothing was heard of it for {figures.duration(silent)}"
        return finding("PIPELINE", f"{text}; it was {flow.state} on {shown(flow.host)}", *page)
    since = look.now.wall_ms - thresholds.pipeline_restarts_s * 1000
    restarts = sum(at >= since for at in flow.restarted_ms)
    if restarts > thresholds.pipeline_restarts:
        lasts = figures.duration(thresholds.pipeline_restarts_s)
        return finding("PIPELINE", f"{what}: {restarts} restarts in {lasts}{why}", *page)
    return None
