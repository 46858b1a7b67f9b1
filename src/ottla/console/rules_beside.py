"""Rules over what stands beside the log: tables, pipelines, the tier, certificates. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.cluster.view import TopicPartition
from ottla.console import figures
from ottla.console.capabilities import CATALOGUE, PIPELINES
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


def tier(look: Look, thresholds: Thresholds) -> Found:
    """A11: the catalogue cannot be read, or a copy does not end."""
    if CATALOGUE not in look.data.capabilities:
        return []
    answer = look.data.tier.value
    if isinstance(answer, Missing):
        return answer
    found = []
    if answer.error:
        text = f"the catalogue of the tier cannot be read: {shown(answer.error, 200)}"
        found.append(finding("TIER", text, "tier"))
    if answer.undecodable:
        text = f"{answer.undecodable:,} record(s) of the tier's metadata topic are no events"
        found.append(finding("TIER", text, "tier"))
    late: dict[str, float] = {}
    for one in answer.partitions:
        if one.unfinished_since_ms is not None:
            lasts = (look.now.wall_ms - one.unfinished_since_ms) / 1000
            if lasts > thresholds.tier_s:
                late[one.topic] = max(lasts, late.get(one.topic, 0.0))
    found += [
        finding(
            "TIER",
            f"topic {shown(topic)}: a copy to the tier began {figures.duration(lasts)} ago and has "
            "not ended",
            "tier",
        )
        for topic, lasts in sorted(late.items())
    ]
    return found


def certificates(look: Look, thresholds: Thresholds) -> Found:
    """A15: the certificate of a broker ends within two weeks."""
    ends = look.data.certificates.value
    if isinstance(ends, Missing):
        return ends
    found = []
    for broker, until in sorted(ends.items()):
        left = until - look.now.wall_ms / 1000
        if left < thresholds.certificate_s:
            when = f"ends in {figures.duration(left)}" if left > 0 else "has ended"
            found.append(finding("CERT", f"node {broker}: its certificate {when}", "nodes"))
    return found
