"""All files of one snapshot, read by Python workers: for stores that Spark itself cannot open.

The view is what `ottla.spark.table` has pinned: a metadata file, and which of its files are wanted.
There are batches alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from ottla.spark.backend import Backend, Bounds
from ottla.spark.errors import BadOption
from ottla.spark.tables.planning import TASK_ROWS, FilePart
from ottla.tables.stores import iceberg_properties
from ottla.tables.views import wanted_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ottla.spark.backend import Limit, Offset, Task
    from ottla.spark.options import SourceOptions
    from ottla.tables.format import DataFile
    from ottla.tables.reading import Pinned


@dataclass(frozen=True, slots=True)
class FileView:
    """The files of a pinned topic."""

    metadata_location: str
    bounds: Mapping[int, int] | None
    since: datetime | None
    until: datetime | None

    @classmethod
    def of(cls, pinned: Pinned) -> FileView:
        view = pinned.view
        assert pinned.metadata_location is not None
        return cls(pinned.metadata_location, view.bounds, view.since, view.until)

    def dump(self) -> str:
        times = [None if one is None else one.isoformat() for one in (self.since, self.until)]
        bounds = None if self.bounds is None else {str(one): at for one, at in self.bounds.items()}
        return json.dumps([self.metadata_location, bounds, *times])

    @classmethod
    def load(cls, text: str) -> FileView:
        place, bounds, *times = json.loads(text)
        since, until = (None if one is None else datetime.fromisoformat(one) for one in times)
        by_number = None if bounds is None else {int(one): at for one, at in bounds.items()}
        return cls(place, by_number, since, until)


class FilesBackend(Backend):
    """Reads the files of a view."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def bounds(self) -> Bounds:
        return Bounds({}, {})

    def plan(self, start: Offset, end: Offset) -> Sequence[Task]:
        from ottla.tables.iceberg import open_snapshot

        table = self._options.table
        assert table is not None
        assert table.view is not None
        view = FileView.load(table.view)
        place = view.metadata_location
        snapshot = open_snapshot(place, iceberg_properties(place, dict(table.store)))
        files = wanted_files(snapshot.files, view.bounds, view.since, view.until)
        return [FilePart((), some, snapshot.columns) for some in packed(files)]

    def read(self, task: Task, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        _batches_alone()

    def advance(self, start: Offset, limit: Limit) -> Offset:
        _batches_alone()

    def freeze(self) -> None:
        _batches_alone()

    def settle(self, end: Mapping[str, Any]) -> None:
        _batches_alone()

    def close(self) -> None:
        """Does nothing."""


def packed(files: Sequence[DataFile]) -> list[tuple[DataFile, ...]]:
    """Files of about `TASK_ROWS` rows for each task."""
    tasks: list[list[DataFile]] = []
    room = 0
    for one in files:
        if not tasks or one.rows > room:
            tasks.append([])
            room = TASK_ROWS
        tasks[-1].append(one)
        room -= one.rows
    return [tuple(task) for task in tasks]


def _batches_alone() -> NoReturn:
    raise BadOption("table=only reads rows of files in batches: use ottla.spark.table")
