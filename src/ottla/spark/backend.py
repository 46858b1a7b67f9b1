"""The interface between Spark and a store: ranges are addressable, ordered and re-readable.

One backend lives in the driver's source process as long as its query (`bounds`, `advance`, `plan`,
`settle`); each worker creates another from the same options (`read`). Spark writes offsets to its
checkpoint: they are dicts that become JSON, and equal JSON means that there is no new data.

- `plan` depends on its two arguments alone: after a crash a new process plans the same batch again.
- `advance` is called only when the batch that ended at `start` is in the commit log. It may wait
  for up to the long poll, and returns `start` itself if there is no new data.
- `settle` gets the processed offsets, at least once per batch unless a later call covers it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ottla.spark.options import SourceOptions

Offset: TypeAlias = "dict[str, Any]"  # JSON: each backend has a shape of its own
Task: TypeAlias = object  # picklable; `plan` returns it and `read` takes it


class Bounds(NamedTuple):
    """Start of a query, and the current end of its data."""

    first: Offset
    last: Offset


class Limit(NamedTuple):
    """The size of a batch; `waits`: whether minimum size and longest delay apply."""

    max_rows: int | None = None
    waits: bool = False
    max_bytes: int | None = None


class Backend(ABC):
    """Reads one kind of store, such as the logs of topics."""

    @abstractmethod
    def bounds(self) -> Bounds:
        """Called once for a new query, never for one that continues."""

    @abstractmethod
    def advance(self, start: Offset, limit: Limit) -> Offset:
        """The end of the batch that begins at `start`."""

    @abstractmethod
    def plan(self, start: Offset, end: Offset) -> Sequence[Task]:
        """What each task of a batch reads."""

    @abstractmethod
    def read(self, task: Task, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a task, with these columns in this order."""

    @abstractmethod
    def freeze(self) -> None:
        """Fix the end of the query at the current end (Trigger.AvailableNow)."""

    def latest(self) -> Offset | None:
        """The newest offset known, from memory; for progress reports."""
        return None

    @abstractmethod
    def settle(self, end: Mapping[str, Any]) -> None:
        """Handle that everything before this offset is processed."""

    @abstractmethod
    def close(self) -> None:
        """Release resources; may be called more than once."""


def make_backend(options: SourceOptions) -> Backend:
    """The backend for the options of a query."""
    if options.store.kind == "redis":
        from ottla.spark.stores.redis import RedisBackend

        return RedisBackend(options)
    if options.store.kind == "ss":
        from ottla.spark.stores.ss import SsBackend

        return SsBackend(options)
    if options.table is not None and options.table.view is not None:
        from ottla.spark.tables.backend import FilesBackend

        return FilesBackend(options)
    from ottla.spark.log.backend import LogBackend
    from ottla.spark.share.backend import ShareBackend

    if options.share is not None:
        return ShareBackend(options, options.share)
    return LogBackend(options)
