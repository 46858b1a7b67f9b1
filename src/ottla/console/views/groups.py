"""The list of consumer groups, of whatever type."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ottla.console.lag import UNKNOWN_COURSE
from ottla.console.missing import Known, Missing
from ottla.console.views.frame import Frame, frame
from ottla.console.views.lags import LagView, lag_view
from ottla.console.views.table import ALL, Query, Table, chosen, table

if TYPE_CHECKING:
    from ottla.client.admin.types import GroupListing
    from ottla.console.attention import Attention
    from ottla.console.look import Look

TYPES: Final = {
    "classic": "classic",
    "consumer": "consumer (KIP-848)",
    "share": "share",
    "streams": "streams",
    "": "classic",
}
"""What the types of Kafka's groups are called. A broker that tells none knows classic ones only."""
CONSUMER_PROTOCOL: Final = "consumer"


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group. `members` is None until it was described; `kind` is its type in words."""

    name: str
    kind: str
    state: str
    members: int | None
    topics: int | None
    lag: Known[LagView] | None
    lag_records: int | None
    lag_s: float | None
    spark: tuple[float | None, ...]
    stores_outside: bool
    """It has committed offsets and never members: Spark, or an offset store."""


@dataclass(frozen=True, slots=True)
class GroupsPage:
    """All groups but queues, one page of them."""

    frame: Frame
    groups: Known[Table[GroupRow]]


def kind_of(group: GroupListing) -> str:
    """The type of a group in words, also one that this version does not know."""
    if group.type == "classic" and group.protocol_type not in ("", CONSUMER_PROTOCOL):
        return f"classic ({group.protocol_type})"
    return TYPES.get(group.type, f"{group.type} (unknown type)")


def page(look: Look, attention: Attention, query: Query = ALL) -> GroupsPage:
    """The groups that the query asks for."""
    listed = look.data.groups.value
    around = frame(look, attention, [look.data.groups.at_ms])
    if isinstance(listed, Missing):
        return GroupsPage(around, listed)
    by_name = {one.id: one for one in listed if one.type != "share"}
    names = chosen(by_name, query.contains)
    # Trends and lines are made for the rows of one page only.
    rows = [_row(look, by_name[name]) for name in names]
    found = table(rows, query, "-lag_s", lambda one: one.name)
    shown = tuple(row(look, by_name[one.name]) for one in found.rows)
    return GroupsPage(around, replace(found, rows=shown))


def row(look: Look, group: GroupListing) -> GroupRow:
    """The row of a group."""
    found = _row(look, group)
    if not isinstance(found.lag, LagView):
        return found
    lag = lag_view(look.group_behind(group.id), look.course(("group", group.id, "lag")))
    return replace(found, lag=lag, spark=look.spark("group", group.id, "lag"))


def _row(look: Look, group: GroupListing) -> GroupRow:
    """The same without the trend."""
    described = look.data.members.get(group.id)
    members = None
    if described is not None and not isinstance(described.value, Missing):
        members = len(described.value.members)
    elif group.state == "Empty":
        members = 0
    committed = look.data.committed.get(group.id)
    topics = None
    if committed is not None and not isinstance(committed.value, Missing):
        topics = len({key.topic for key in committed.value})
    lag = lag_view(look.group_behind(group.id), UNKNOWN_COURSE)
    return GroupRow(
        name=group.id,
        kind=kind_of(group),
        state=group.state or "unknown",
        members=members,
        topics=topics,
        lag=lag,
        lag_records=lag.records if isinstance(lag, LagView) else None,
        lag_s=lag.seconds if isinstance(lag, LagView) else None,
        spark=(),
        stores_outside=members == 0 and bool(topics) and group.protocol_type == "",
    )
