"""Tables of topics: how far each is, by its pointer and the ends of the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.client.cluster.view import TopicPartition
from ottla.console.missing import Known, Missing
from ottla.console.views.frame import Frame, frame
from ottla.console.views.table import ALL, Query, Table, chosen, table

if TYPE_CHECKING:
    from ottla.console.attention import Attention
    from ottla.console.look import Look
    from ottla.tables.pointer import Pointer


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table; figures are None until the ends of the log are known."""

    name: str
    topic: str
    has_topic: bool
    """Whether the cluster still has the topic that it was made from."""
    partitions: int
    lag_records: int | None
    lag_s: float | None
    """Age of the first record that it does not have; 0 if it has all."""
    format: str
    snapshot: int | None
    metadata_location: str
    invalid_to: str
    """The table of records that did not fit; empty if it has none."""


@dataclass(frozen=True, slots=True)
class TablesPage:
    """All tables that a worker has named in `ottla.tables`."""

    frame: Frame
    tables: Known[Table[TableRow]]


@dataclass(frozen=True, slots=True)
class PositionRow:
    """A partition of a topic and how far its table is."""

    partition: int
    position: int | None
    end: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class TablePage:
    """One table; None if there is none of this topic."""

    frame: Frame
    topic: str
    row: TableRow | None
    problem: str
    positions: tuple[PositionRow, ...]


def page(look: Look, attention: Attention, query: Query = ALL) -> TablesPage:
    """The tables that the query asks for."""
    around = frame(look, attention, [look.data.tables.at_ms])
    pointers = look.data.tables.value
    if isinstance(pointers, Missing):
        return TablesPage(around, pointers)
    rows = [row(look, pointers[one]) for one in chosen(pointers, query.contains)]
    return TablesPage(around, table(rows, query, "-lag_records", lambda one: one.topic))


def table_page(look: Look, attention: Attention, topic: str) -> TablePage:
    """One table and the positions of its partitions."""
    around = frame(look, attention, [look.data.tables.at_ms])
    pointers = look.data.tables.value
    if isinstance(pointers, Missing):
        return TablePage(around, topic, None, pointers.reason, ())
    pointer = pointers.get(topic)
    if pointer is None:
        return TablePage(around, topic, None, "no worker has named a table of this topic", ())
    numbers = {*pointer.position, *(one.partition for one in look.data.partitions(topic))}
    return TablePage(
        around,
        topic,
        row(look, pointer),
        "",
        tuple(_position(look, pointer, number) for number in sorted(numbers)),
    )


def _position(look: Look, pointer: Pointer, number: int) -> PositionRow:
    ends = look.data.ends.get(TopicPartition(pointer.topic, number))
    position = pointer.position.get(number)
    at = _place(look, pointer, number)
    lag = None if ends is None or at is None else max(0, ends.end - at)
    return PositionRow(number, position, None if ends is None else ends.end, lag)


def _place(look: Look, pointer: Pointer, number: int) -> int | None:
    """The next offset that the table takes; a partition without one begins at the log's start."""
    position = pointer.position.get(number)
    if position is not None:
        return position
    ends = look.data.ends.get(TopicPartition(pointer.topic, number))
    return None if ends is None else ends.start


def row(look: Look, pointer: Pointer) -> TableRow:
    """A table, and how far it is behind its topic."""
    has_topic = pointer.topic in look.data.topics
    keys = look.data.partitions(pointer.topic)
    places = {key: _place(look, pointer, key.partition) for key in keys}
    known = {key: at for key, at in places.items() if at is not None and key in look.data.ends}
    is_known = has_topic and len(known) == len(keys)
    behind = [look.behind(key, at) for key, at in known.items()]
    seconds = [one.seconds for one in behind if one is not None and one.seconds is not None]
    return TableRow(
        name=pointer.table,
        topic=pointer.topic,
        has_topic=has_topic,
        partitions=len(keys) or len(pointer.position),
        lag_records=sum(max(0, look.data.ends[key].end - at) for key, at in known.items())
        if is_known
        else None,
        lag_s=max(seconds, default=0.0) if is_known and len(seconds) == len(known) else None,
        format=pointer.format,
        snapshot=pointer.snapshot_id,
        metadata_location=pointer.metadata_location,
        invalid_to=pointer.dlq or "",
    )
