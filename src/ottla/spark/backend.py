"""The seam between Spark and whatever can be read: a range is addressable, ordered, re-readable.

A backend lives in the driver's source process for as long as its query (`bounds`, `advance`,
`plan`, `settle`), and another of the same options in each worker (`read`). Offsets are what Spark
writes into its checkpoint: dicts that become JSON, equal texts meaning that nothing is new.

- `plan` depends on its two arguments alone: after a crash Spark replays a batch by asking for its
  plan in a process that knows nothing of it.
- `advance` is called only when the batch that ended at `start` is in the commit log. It may wait
  for up to the long poll, and gives back `start` itself if there is nothing more.
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
Task: TypeAlias = object  # picklable; what `plan` gives and `read` takes


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
    """One way to read; the log of a topic is the first."""

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
        """Everything up to here is done."""

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
    from ottla.spark.log.backend import LogBackend
    from ottla.spark.share.backend import ShareBackend

    if options.share is not None:
        return ShareBackend(options, options.share)
    return LogBackend(options)
