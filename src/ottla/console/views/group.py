"""One consumer group: members, and how far it is behind in each partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.console.lag import UNKNOWN_COURSE
from ottla.console.missing import NOT_ASKED, Known, Missing
from ottla.console.views import groups as groups_view
from ottla.console.views.frame import Frame, frame
from ottla.console.views.lags import LagView, lag_view
from ottla.console.views.table import ALL, Query, Table, table

if TYPE_CHECKING:
    from ottla.client.admin.types import GroupDescription
    from ottla.console.attention import Attention
    from ottla.console.data import Committed
    from ottla.console.look import Look
    from ottla.console.views.groups import GroupRow


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member, and how many partitions it has."""

    id: str
    client_id: str
    host: str
    partitions: int


@dataclass(frozen=True, slots=True)
class GroupPartitionRow:
    """A partition in which the group has an offset or a member."""

    name: str
    topic: str
    partition: int
    member: str
    """The client and its host; empty if nobody has it."""
    committed: int | None
    start: int | None
    end: int | None
    lag: LagView | None
    lag_records: int | None
    lag_s: float | None
    exact: bool
    """The seconds come from the record itself, not from samples."""


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A group. `found` is false if the cluster has none of this name."""

    frame: Frame
    name: str
    found: bool
    row: GroupRow | None
    coordinator: int | None
    assignor: str
    members: Known[tuple[MemberRow, ...]]
    partitions: Known[Table[GroupPartitionRow]]
    lag_s: tuple[float | None, ...]
    """The seconds behind, an hour of them."""
    unassigned: int
    """Partitions with lag that no member has."""
    taken_per_s: float | None
    """Records a second that the group commits."""
    produced_per_s: float | None
    """Records a second that are written to its topics."""


def page(look: Look, attention: Attention, name: str, query: Query = ALL) -> GroupPage:
    """The page of a group."""
    data = look.data
    described = data.members.get(name)
    committed = data.committed.get(name)
    around = frame(look, attention, [described.at_ms if described else None, data.groups.at_ms])
    listed = data.groups.value
    found = None
    if not isinstance(listed, Missing):
        found = next((one for one in listed if one.id == name and one.type != "share"), None)
    group = None if described is None else described.value
    if committed is None:
        rows: Known[Table[GroupPartitionRow]] = NOT_ASKED
        unassigned = 0
    elif isinstance(committed.value, Missing):
        rows, unassigned = committed.value, 0
    else:
        cells = _partitions(look, committed.value, group)
        unassigned = sum(1 for one in cells if not one.member and one.lag_records)
        rows = table(cells, query, "-lag_s", lambda one: one.name)
    return GroupPage(
        frame=around,
        name=name,
        found=found is not None or isinstance(listed, Missing),
        row=None if found is None else groups_view.row(look, found),
        coordinator=None if group is None or isinstance(group, Missing) else group.coordinator_id,
        assignor="" if group is None or isinstance(group, Missing) else group.assignor,
        members=_members(group),
        partitions=rows,
        lag_s=look.spark("group", name, "lag_s", count=360),
        unassigned=unassigned,
        taken_per_s=look.rate("group", name, "taken_per_s"),
        produced_per_s=_produced(look, name),
    )


def _produced(look: Look, name: str) -> float | None:
    committed = look.data.committed.get(name)
    if committed is None or isinstance(committed.value, Missing):
        return None
    rates = [
        look.rate("topic", topic, "records_per_s")
        for topic in {key.topic for key in committed.value}
    ]
    known = [one for one in rates if one is not None]
    return sum(known) if known else None


def _members(group: GroupDescription | Missing | None) -> Known[tuple[MemberRow, ...]]:
    if group is None:
        return NOT_ASKED
    if isinstance(group, Missing):
        return group
    return tuple(
        MemberRow(one.id, one.client_id, one.client_host, len(one.assignment))
        for one in sorted(group.members, key=lambda one: (one.client_id, one.id))
    )


def _partitions(
    look: Look,
    committed: Committed,
    group: GroupDescription | Missing | None,
) -> list[GroupPartitionRow]:
    holders = {}
    if group is not None and not isinstance(group, Missing):
        holders = {
            key: f"{one.client_id} {one.client_host}"
            for one in group.members
            for key in one.assignment
        }
    rows = []
    for key in sorted({*committed, *holders}):
        offset = committed.get(key)
        ends = look.data.ends.get(key)
        behind = None if offset is None else look.behind(key, offset)
        lag = lag_view(behind, UNKNOWN_COURSE)
        rows.append(
            GroupPartitionRow(
                name=str(key),
                topic=key.topic,
                partition=key.partition,
                member=holders.get(key, ""),
                committed=offset,
                start=None if ends is None else ends.start,
                end=None if ends is None else ends.end,
                lag=lag if isinstance(lag, LagView) else None,
                lag_records=None if behind is None else behind.records,
                lag_s=None if behind is None else behind.seconds,
                exact=offset is not None and look.is_exact(key, offset),
            )
        )
    return rows
