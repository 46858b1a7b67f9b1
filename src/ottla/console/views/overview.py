"""The overview: what needs attention, then figures of the whole cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.console.missing import Known, Missing
from ottla.console.views import groups as groups_view
from ottla.console.views import nodes as nodes_view
from ottla.console.views import queues as queues_view
from ottla.console.views import topics as topics_view
from ottla.console.views.frame import Frame, frame

if TYPE_CHECKING:
    from ottla.console.attention import Attention, NotChecked
    from ottla.console.findings import Finding
    from ottla.console.look import Look
    from ottla.console.views.groups import GroupRow
    from ottla.console.views.nodes import NodeRow
    from ottla.console.views.queues import QueueRow
    from ottla.console.views.topics import TopicRow

BUSIEST: Final = 10
"""Topics, groups and queues that the overview lists."""


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """The whole cluster at a glance. Rates are None until two samples have come."""

    frame: Frame
    findings: tuple[Finding, ...]
    more_findings: int
    checked: tuple[str, ...]
    not_checked: tuple[NotChecked, ...]
    in_per_s: float | None
    in_spark: tuple[float | None, ...]
    taken_per_s: float | None
    taken_spark: tuple[float | None, ...]
    topics: Known[int]
    partitions: Known[int]
    groups: Known[int]
    queues: Known[int]
    nodes: Known[tuple[NodeRow, ...]]
    busiest_topics: tuple[TopicRow, ...]
    latest_groups: tuple[GroupRow, ...]
    """Those that are furthest behind."""
    latest_queues: tuple[QueueRow, ...]
    series_not_kept: int
    connections: int | None
    """Of all nodes; None: they do not tell."""


def page(look: Look, attention: Attention) -> OverviewPage:
    """The overview."""
    data = look.data
    cluster, listed = data.cluster.value, data.groups.value
    nodes = nodes_view.rows(look)
    return OverviewPage(
        frame=frame(look, attention, [data.groups.at_ms]),
        findings=attention.findings,
        more_findings=attention.more,
        checked=attention.checked,
        not_checked=attention.not_checked,
        in_per_s=look.rate("cluster", "in_per_s"),
        in_spark=look.spark("cluster", "in_per_s"),
        taken_per_s=look.rate("cluster", "taken_per_s"),
        taken_spark=look.spark("cluster", "taken_per_s"),
        topics=cluster
        if isinstance(cluster, Missing)
        else sum(not one.is_internal for one in cluster.topics.values()),
        partitions=cluster
        if isinstance(cluster, Missing)
        else sum(len(one.partitions) for one in cluster.topics.values() if not one.is_internal),
        groups=listed
        if isinstance(listed, Missing)
        else sum(one.type != "share" for one in listed),
        queues=listed
        if isinstance(listed, Missing)
        else sum(one.type == "share" for one in listed),
        nodes=nodes,
        busiest_topics=_busiest(look),
        latest_groups=_groups(look),
        latest_queues=_queues(look),
        series_not_kept=look.history.not_kept,
        connections=_connections(nodes),
    )


def _connections(nodes: Known[tuple[NodeRow, ...]]) -> int | None:
    if isinstance(nodes, Missing):
        return None
    told = [one.connections for one in nodes if one.connections is not None]
    return sum(told) if told else None


def _busiest(look: Look) -> tuple[TopicRow, ...]:
    topics = [one for one in look.data.topics.values() if not one.is_internal]
    rate = {one.name: look.rate("topic", one.name, "records_per_s") or 0.0 for one in topics}
    topics.sort(key=lambda one: (-rate[one.name], one.name))
    return tuple(topics_view.rows(look, topics[:BUSIEST]))


def _groups(look: Look) -> tuple[GroupRow, ...]:
    listed = look.data.groups.value
    if isinstance(listed, Missing):
        return ()
    found = [one for one in listed if one.type != "share"]
    lag = {one.id: look.rate("group", one.id, "lag_s") or 0.0 for one in found}
    found.sort(key=lambda one: (-lag[one.id], one.id))
    return tuple(groups_view.row(look, one) for one in found[:BUSIEST])


def _queues(look: Look) -> tuple[QueueRow, ...]:
    listed = look.data.groups.value
    if isinstance(listed, Missing):
        return ()
    found = [one for one in listed if one.type == "share"]
    lag = {one.id: look.rate("queue", one.id, "lag_s") or 0.0 for one in found}
    found.sort(key=lambda one: (-lag[one.id], one.id))
    return tuple(queues_view.row(look, one) for one in found[:BUSIEST])
