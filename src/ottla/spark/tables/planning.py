"""Which offsets of a batch come from the files of tables. Runs in the driver's source process.

- Offsets below the newest snapshot's position come from its files, the rest from the log. The rows
  are the same: the row of a record in the table depends on the record alone.
- A range with fewer offsets than `tableMinRows` is left to the log, so that a query that keeps up
  never asks for a pointer.
- So is a range that the table does not have as it is: before its first offset or below what its
  retention has removed, with a hole, of another topic of the name, or of a table without values.
- Offsets that the log no longer has come from the table, however few they are. Those that the table
  does not have either are left to the log, which tells that they are lost.
- Rows with the table's own columns (`valueFormat=table`) come from every table, records with bytes
  only from one that keeps them.
- A task names all files that may have its offsets, so one whose files are gone can be read from the
  log instead.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.cluster.view import TopicPartition
from ottla.spark.background import background
from ottla.spark.log.planning import plan
from ottla.spark.options import LOG
from ottla.tables.errors import TableError
from ottla.tables.iceberg import open_snapshot
from ottla.tables.names import topic_id_text
from ottla.tables.pointer import read_pointers
from ottla.tables.position import DROPPED, load_holes, load_offsets
from ottla.tables.settings import converted_by
from ottla.tables.stores import iceberg_properties
from ottla.tables.views import HOLES, TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ottla.spark.client_settings import ClientSettings
    from ottla.spark.log.planning import Range, Split
    from ottla.spark.offsets import Offsets
    from ottla.spark.tables.settings import TableSettings
    from ottla.tables.format import DataFile, Snapshot

TASK_ROWS: Final = 1_000_000
"""Offsets of one task: Arrow reads a million rows in about as long as Spark starts a task."""

LOOK_AGAIN: Final = 10.0
"""Seconds that a pointer is used for before it is read again."""

FIRST: Final = "ottla.first"
"""The property with the offsets at which the table begins."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """A task: the rows of these offsets of a topic, all of which are in these files.

    Without ranges: all rows of the files. `columns` are those of the table.
    """

    ranges: tuple[Range, ...]
    files: tuple[DataFile, ...]
    columns: pa.Schema


class Covered(NamedTuple):
    """Ranges of offsets that a table has, and the rest."""

    archived: list[Range]
    rest: list[Range]


class TablePlanner:
    """Plans with the tables of one cluster; keeps the snapshots it has opened."""

    def __init__(
        self, client: ClientSettings, settings: TableSettings, *, as_rows: bool = False
    ) -> None:
        self._client = client
        self._min_rows = settings.min_rows
        self._store = dict(settings.store)
        self._as_rows = as_rows
        self._snapshots: dict[str, Snapshot] = {}
        self._looked = -float("inf")

    def cover(
        self, ranges: Sequence[Range], starts: Offsets, split: Split
    ) -> tuple[list[FilePart], list[Range]]:
        """Tasks that read files, and the ranges that are left to the log, which begins there."""
        if all(one.size < self._min_rows and one.first >= _start(one, starts) for one in ranges):
            return [], list(ranges)
        self._look({one.topic for one in ranges})
        found = covered(ranges, self._usable(), self._min_rows, starts)
        parts: list[FilePart] = []
        rest = found.rest
        for topic in sorted({one.topic for one in found.archived}):
            of_topic = [one for one in found.archived if one.topic == topic]
            for some in plan(of_topic, replace(split, task_target=TASK_ROWS)):
                files = self._files(topic, some)
                if files:
                    parts.append(FilePart(some, files, self._snapshots[topic].columns))
                else:  # no row is left in the table; the log may have some that it has dropped
                    later = (
                        one._replace(first=max(one.first, _start(one, starts))) for one in some
                    )
                    rest += [one for one in later if one.size > 0]
        return parts, rest

    def begin(self, starts: Offsets, ids: Mapping[str, bytes]) -> Offsets:
        """The first offset of each partition that the table or the log has."""
        self._look({place.topic for place in starts})
        firsts = {
            topic: load_offsets(one.properties.get(FIRST, "{}"))
            for topic, one in self._usable().items()
            if topic in ids and one.properties.get(TOPIC_ID) == topic_id_text(ids[topic])
        }
        return {
            place: min(start, firsts.get(place.topic, {}).get(place.partition, start))
            for place, start in starts.items()
        }

    def _usable(self) -> dict[str, Snapshot]:
        return {
            topic: one
            for topic, one in self._snapshots.items()
            if self._as_rows or has_values(topic, one)
        }

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
                    place = pointer.metadata_location
                    properties = iceberg_properties(place, self._store)
                    self._snapshots[topic] = open_snapshot(place, properties)
                except (TableError, OSError) as error:
                    LOG.warning("the table of %s cannot be opened: %s", topic, error)
                    self._snapshots.pop(topic, None)

    def _files(self, topic: str, ranges: Sequence[Range]) -> tuple[DataFile, ...]:
        files = self._snapshots[topic].files
        return tuple(file for file in files if any(_may_have(file, one) for one in ranges))


def covered(
    ranges: Sequence[Range],
    snapshots: Mapping[str, Snapshot],
    min_rows: int,
    starts: Mapping[TopicPartition, int],
) -> Covered:
    """Which parts of the ranges are in the snapshots of their topics. Pure.

    `starts` is where logs begin; a partition that is not named has all of its offsets.
    """
    found = Covered([], [])
    for one in ranges:
        snapshot = snapshots.get(one.topic)
        parts = [] if snapshot is None else _had(snapshot, one, min_rows, _start(one, starts))
        at = one.first
        for low, high in parts:
            if at < low:
                found.rest.append(one._replace(first=at, end=low))
            found.archived.append(one._replace(first=low, end=high))
            at = high
        if at < one.end:
            found.rest.append(one._replace(first=at))
    return found


def _start(one: Range, starts: Mapping[TopicPartition, int]) -> int:
    return starts.get(TopicPartition(one.topic, one.partition), 0)


def _had(snapshot: Snapshot, one: Range, min_rows: int, start: int) -> list[tuple[int, int]]:
    """The offsets of the range that are read from the snapshot, in order."""
    properties = snapshot.properties
    topic_id = None if one.topic_id is None else topic_id_text(one.topic_id)
    first = load_offsets(properties.get(FIRST, "{}")).get(one.partition)
    if properties.get(TOPIC_ID) != topic_id or first is None:
        return []
    low, high = max(one.first, first), min(one.end, snapshot.position.get(one.partition, 0))
    holes = sorted(
        (hole.start, hole.end)
        for hole in load_holes(properties.get(HOLES, "[]"))
        if hole.partition == one.partition and hole.start < high and low < hole.end
    )
    # What the log no longer has.
    found = list(_without(holes, low, min(high, start)))
    # What both have.
    dropped = load_offsets(properties.get(DROPPED, "{}")).get(one.partition, 0)
    low = max(low, dropped, start)
    is_whole = all(end <= low for _, end in holes)
    if is_whole and high - low >= max(min_rows, 1):
        if found and found[-1][1] == low:
            low = found.pop()[0]
        found.append((low, high))
    return found


def _without(holes: Sequence[tuple[int, int]], low: int, high: int) -> Iterator[tuple[int, int]]:
    """The parts of [low, high) that are in no hole."""
    for start, end in holes:
        if low < min(start, high):
            yield low, min(start, high)
        low = max(low, end)
    if low < high:
        yield low, high


def has_values(topic: str, snapshot: Snapshot) -> bool:
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
