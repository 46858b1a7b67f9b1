"""The classes that Spark reads through; they delegate to a backend.

Rules that come from Spark:

- A reader is made in several processes and pickled, so it connects to nothing until it is called.
- A stream's source process is ended by SIGTERM, without a call of `stop`; when something fails
  `stop` is called and no signal comes. Either closes the backend, once.
- `initialOffset` is asked for more than once and has to be the same each time.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.spark.backend import Backend, Limit, make_backend
from ottla.spark.log.pushdown import Bound, bounds_of, clipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from ottla.spark.backend import Offset, Task
    from ottla.spark.options import SourceOptions
    from ottla.spark.tables.planning import FilePart


def read_task(
    options: SourceOptions, task: Task, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, typed if the query asks for it."""
    backend = make_backend(options)
    if options.typed is None:
        return backend.read(task, columns)
    if options.typed.format == "table" and not isinstance(task, tuple | list):
        from ottla.spark.tables.reading import read_rows

        return read_rows(cast("FilePart", task), options, columns)
    from ottla.spark.typed_reading import record_columns, typed_rows

    wanted = record_columns(columns, options.typed)
    return typed_rows(backend.read(task, wanted), options.typed, columns, options.client)


class OttlaPartition(InputPartition):
    """A task of a backend."""

    def __init__(self, value: Task) -> None:
        super().__init__(value)


class BatchReader(DataSourceReader):
    """All from one place to another, fixed when the query is planned."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        backend = make_backend(self._options)
        try:
            first, last = backend.bounds()
            return [OttlaPartition(task) for task in self._chosen(backend.plan(first, last))]
        finally:
            backend.close()

    def _chosen(self, tasks: Sequence[Task]) -> Sequence[Task]:
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark's own empty partition
            return iter(())
        return read_task(self._options, partition.value, self._columns)


class PushdownReader(BatchReader):
    """Skips ranges that filters exclude; Spark uses this class only with a setting."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._bounds: list[Bound] = []

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802  # Spark's name
        self._bounds = bounds_of(filters)
        # Spark still applies all filters: only ranges are cut here, not rows.
        yield from filters

    def _chosen(self, tasks: Sequence[Task]) -> Sequence[Task]:
        return clipped(tasks, self._bounds)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One micro-batch after the other."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns
        self._backend: Backend | None = None
        self._initial: Offset | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_backend": None}

    def initialOffset(self) -> Offset:  # noqa: N802  # Spark's name
        if self._initial is None:
            self._initial = self._driver().bounds().first
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802  # Spark's name
        backend = self._driver()
        if start != self._initial:
            backend.settle(start)
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        max_bytes = None
        if isinstance(limit, ReadMaxBytes):  # Spark passes one limit; the other applies too
            max_rows, max_bytes = self._options.max_offsets, limit.max_bytes
        waits = not isinstance(limit, ReadAllAvailable) and self._options.min_offsets is not None
        return backend.advance(start, Limit(max_rows, waits, max_bytes))

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802  # Spark's name
        return self._driver().latest()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        self._driver().freeze()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [OttlaPartition(task) for task in self._driver().plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, partition.value, self._columns)

    def commit(self, end: Offset) -> None:
        """Does nothing: Spark calls `latestOffset` before it, which settles the batch."""

    def stop(self) -> None:
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()

    def _driver(self) -> Backend:
        if self._backend is None:
            self._backend = make_backend(self._options)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, self._terminated)
        return self._backend

    def _terminated(self, number: int, frame: FrameType | None) -> Any:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.stop()
        os.kill(os.getpid(), signal.SIGTERM)
