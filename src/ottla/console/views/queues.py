"""The list of queues (share groups)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.console import capabilities as can
from ottla.console import window
from ottla.console.missing import Known, Missing
from ottla.console.views.frame import Frame, frame
from ottla.console.views.lags import LagView, lag_view
from ottla.console.views.table import ALL, Query, Table, chosen, table

if TYPE_CHECKING:
    from ottla.client.admin.types import GroupListing
    from ottla.console.attention import Attention
    from ottla.console.look import Look


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue; figures are None until they are known, or if the cluster does not tell them."""

    name: str
    state: str
    members: int | None
    partitions: int | None
    lag: Known[LagView] | None
    lag_records: int | None
    lag_s: float | None
    in_flight: int | None
    stalled: str
    """The partition whose window cannot move, such as "orders-1"; empty if none is known."""
    spark: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class QueuesPage:
    """All queues, one page of them."""

    frame: Frame
    queues: Known[Table[QueueRow]]


def page(look: Look, attention: Attention, query: Query = ALL) -> QueuesPage:
    """The queues that the query asks for."""
    around = frame(look, attention, [look.data.groups.at_ms])
    listed = look.data.groups.value
    if isinstance(listed, Missing):
        return QueuesPage(around, listed)
    why_not = look.data.capabilities.explain(can.SHARE_GROUPS)
    if why_not is not None:
        return QueuesPage(around, Missing(f"the cluster has no share groups: {why_not}"))
    by_name = {one.id: one for one in listed if one.type == "share"}
    rows = [row(look, by_name[name]) for name in chosen(by_name, query.contains)]
    return QueuesPage(around, table(rows, query, "-lag_s", lambda one: one.name))


def row(look: Look, group: GroupListing) -> QueueRow:
    """The row of a queue."""
    described = look.data.share_members.get(group.id)
    members = None
    if described is not None and not isinstance(described.value, Missing):
        members = len(described.value.members)
    elif group.state == "Empty":
        members = 0
    shares = look.data.shares.get(group.id)
    partitions = in_flight = None
    if shares is not None and not isinstance(shares.value, Missing):
        partitions = len(shares.value)
        told = [one.in_flight for one in shares.value if one.in_flight is not None]
        in_flight = sum(told) if told else None
    lag = lag_view(look.queue_behind(group.id), look.course(("queue", group.id, "lag")))
    windows = look.data.windows.get(group.id)
    stalled = ""
    if windows is not None and not isinstance(windows.value, Missing):
        stalled = next(
            (f"{one.topic}-{one.partition}" for one in windows.value if window.is_stalled(one)), ""
        )
    return QueueRow(
        name=group.id,
        state=group.state or "unknown",
        members=members,
        partitions=partitions,
        lag=lag,
        lag_records=lag.records if isinstance(lag, LagView) else None,
        lag_s=lag.seconds if isinstance(lag, LagView) else None,
        in_flight=in_flight,
        stalled=stalled,
        spark=look.spark("queue", group.id, "lag"),
    )
