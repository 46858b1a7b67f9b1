"""Which offsets of a batch come from the files of tables. Runs in the driver's source process.

- Offsets below the newest snapshot's position come from its files, the rest from the log. The rows
  are the same: the row of a record in the table depends on the record alone.
- A range with fewer offsets than `tableMinRows` is left to the log, so that a query that keeps up
  never asks for a pointer.
- So is a range that the table does not have as it is: before its first offset or below what its
  retention has removed, with a hole, of another topic of the name, or of a table without values.
- A task names all files that may have its offsets, so one whose files are gone can be read from the
  log instead.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.spark.background import background
from ottla.spark.log.planning import plan
from ottla.spark.options import LOG
from ottla.tables.errors import TableError
from ottla.tables.iceberg import open_snapshot
from ottla.tables.names import topic_id_text
from ottla.tables.pointer import read_pointers
from ottla.tables.position import DROPPED, load_holes, load_offsets
from ottla.tables.settings import converted_by
from ottla.tables.views import HOLES, TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.spark.client_settings import ClientSettings
    from ottla.spark.log.planning import Range, Split
    from ottla.tables.format import DataFile, Snapshot

TASK_ROWS: Final = 1_000_000
"""Offsets of one task: Arrow reads a million rows in about as long as Spark starts a task."""

LOOK_AGAIN: Final = 10.0
"""Seconds that a pointer is used for before it is read again."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """A task: the rows of these offsets of a topic, all of which are in these files."""

    ranges: tuple[Range, ...]
    files: tuple[DataFile, ...]


class Covered(NamedTuple):
    """Ranges of offsets that a table has, and the rest."""

    archived: list[Range]
    rest: list[Range]


class TablePlanner:
    """Plans with the tables of one cluster; keeps the snapshots it has opened."""

    def __init__(self, client: ClientSettings, min_rows: int) -> None:
        self._client = client
        self._min_rows = min_rows
        self._snapshots: dict[str, Snapshot] = {}
        self._looked = -float("inf")

    def cover(self, ranges: Sequence[Range], split: Split) -> tuple[list[FilePart], list[Range]]:
        """Tasks that read files, and the ranges that are left to the log."""
        if all(one.size < self._min_rows for one in ranges):
            return [], list(ranges)
        self._look({one.topic for one in ranges})
        found = covered(ranges, self._snapshots, self._min_rows)
        parts: list[FilePart] = []
        for topic in sorted({one.topic for one in found.archived}):
            of_topic = [one for one in found.archived if one.topic == topic]
            parts += [
                FilePart(some, self._files(topic, some))
                for some in plan(of_topic, replace(split, task_target=TASK_ROWS))
            ]
        return parts, found.rest

    def _look(self, topics: set[str]) -> None:
        if time.monotonic() - self._looked < LOOK_AGAIN:
            return
        client = self._client
        pointers = background().call(read_pointers(client.bootstrap, security=client.security))
        self._looked = time.monotonic()
        for topic in topics:
            pointer = pointers.get(topic)
            known = self._snapshots.get(topic)
            if pointer is None:
                self._snapshots.pop(topic, None)
            elif known is None or known.metadata_location != pointer.metadata_location:
                try:
                    self._snapshots[topic] = open_snapshot(pointer.metadata_location)
                except (TableError, OSError) as error:
                    LOG.warning("the table of %s cannot be opened: %s", topic, error)
                    self._snapshots.pop(topic, None)

    def _files(self, topic: str, ranges: Sequence[Range]) -> tuple[DataFile, ...]:
        files = self._snapshots[topic].files
        return tuple(file for file in files if any(_may_have(file, one) for one in ranges))


def covered(ranges: Sequence[Range], snapshots: Mapping[str, Snapshot], min_rows: int) -> Covered:
    """Which parts of the ranges are in the snapshots of their topics. Pure."""
    found = Covered([], [])
    for one in ranges:
        snapshot = snapshots.get(one.topic)
        low, high = (one.first, one.first) if snapshot is None else _had(snapshot, one)
        if high - low < max(min_rows, 1):
            found.rest.append(one)
            continue
        found.archived.append(one._replace(first=low, end=high))
        if one.first < low:
            found.rest.append(one._replace(end=low))
        if high < one.end:
            found.rest.append(one._replace(first=high))
    return found


def _had(snapshot: Snapshot, one: Range) -> tuple[int, int]:
    """The offsets of the range that the snapshot has; none if it does not have them as they are."""
    nothing = one.first, one.first
    properties = snapshot.properties
    topic_id = None if one.topic_id is None else topic_id_text(one.topic_id)
    first = load_offsets(properties.get("ottla.first", "{}")).get(one.partition)
    if properties.get(TOPIC_ID) != topic_id or first is None:
        return nothing
    if not _has_values(one.topic, snapshot):
        return nothing
    dropped = load_offsets(properties.get(DROPPED, "{}")).get(one.partition, 0)
    low = max(one.first, first, dropped)
    high = min(one.end, snapshot.position.get(one.partition, 0))
    for hole in load_holes(properties.get(HOLES, "[]")):
        if hole.partition == one.partition and hole.start < high and low < hole.end:
            return nothing
    return (low, high) if low < high else nothing


def _has_values(topic: str, snapshot: Snapshot) -> bool:
    """Whether the table keeps values as bytes, and headers; a column `value` may be a field's."""
    made_by = converted_by(topic, snapshot.properties.get("ottla.conversion", "{}"))
    if made_by is None or "value" not in snapshot.columns.names:
        return False
    has_keys = made_by.key_format != "registry"
    return made_by.headers and has_keys and (made_by.value_format == "raw" or made_by.keep_value)


def _may_have(file: DataFile, one: Range) -> bool:
    if file.partitions is None or file.offsets is None:
        return False  # rows of others, which have no offsets
    least, greatest = file.partitions
    first, last = file.offsets
    return least <= one.partition <= greatest and first < one.end and one.first <= last
