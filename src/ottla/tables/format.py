"""The seam between the worker and a table format.

A format is a catalogue with tables whose commits are atomic: files, columns and properties change
together or not at all. All methods block; call them in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyarrow.fs import FileSystem

    from ottla.tables.compacting import SnapshotInfo

_NONE: Final[Mapping[str, str]] = MappingProxyType({})
Offsets = Mapping[int, int]
"""Offsets by partition."""

META_COLUMNS: Final = (
    "_partition",
    "_offset",
    "_timestamp",
    "_timestamp_type",
    "_key",
    "_headers",
    "_schema_id",
    "_tombstone",
)
"""What every table has after its value columns."""
PLACE_COLUMNS: Final = ("_partition", "_offset", "_timestamp")
"""What the table of dead letters has of these, at least."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets that were gone before the worker could take them; `end` is not in it."""

    partition: int
    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class TableState:
    """What a table says of itself at one moment.

    `next` is the position, from the properties; `line_next` is what the newest snapshot in the line
    of `main` says that has a position, None if none of them is kept. `commits` are the commits of
    the kept snapshots. `partition` is how rows are divided, as the setting says it; None if
    somebody else has divided them in another way. `renamed` are columns that somebody else has
    given another name, old and new one; files have the old one. `handle` is the format's own.
    """

    table: str
    location: str
    metadata_location: str
    snapshot: int | None
    topic: str
    topic_id: str
    first: Offsets
    next: Offsets
    commit: str | None
    commits: frozenset[str]
    line_next: Offsets | None
    holes: tuple[Hole, ...]
    columns: pa.Schema
    partition: str | None
    has_deletes: bool
    changed_ms: int
    handle: object = field(repr=False, compare=False)
    renamed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NewFile:
    """A Parquet file that is to be part of a table; `bucket` is its value of the partition field.

    `spool` is where it lies before it is uploaded to `url`, `footer` its Parquet metadata.
    """

    url: str
    spool: Path
    rows: int
    size: int
    bucket: int | None
    footer: object = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Commit:
    """One atomic step: these files, and the position after them.

    `start` is the position that the table had when it was loaded. `columns` are those of the files,
    if they have some that the table did not have. `summary` is noted with the snapshot, too.
    """

    id: str
    start: Offsets
    next: Offsets
    first: Offsets
    holes: tuple[Hole, ...]
    files: tuple[NewFile, ...]
    columns: pa.Schema | None = None
    summary: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a snapshot. Bounds include both ends; None where a file has no such values.

    `bucket` is its value of the partition field, None for one that was written before somebody
    changed the partition spec.
    `added_ms` is when the snapshot was made that added it, 0 if that is forgotten.
    """

    url: str
    rows: int
    size: int
    bucket: int | None
    partitions: tuple[int, int] | None
    offsets: tuple[int, int] | None
    added_ms: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One pinned snapshot of a table: its files, columns and position."""

    metadata_location: str
    snapshot: int | None
    files: tuple[DataFile, ...]
    columns: pa.Schema
    properties: Mapping[str, str]
    position: Offsets


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table to create, with the position it begins at."""

    name: str
    topic: str
    topic_id: str
    cluster_id: str
    first: Offsets
    columns: pa.Schema
    partition: str


class TableFormat(Protocol):
    """Tables of one catalogue."""

    def load(self, table: str) -> TableState | None:
        """What the table says, None if there is none."""

    def create(self, table: NewTable) -> TableState:
        """Create the table; if somebody was quicker, what that table says."""

    def widened(self, state: TableState, wanted: pa.Schema) -> pa.Schema:
        """The table's columns with those that are wanted and missing, and wider types.

        `SchemaConflict` if a column cannot have the wanted type.
        """

    def commit(self, state: TableState, commit: Commit) -> TableState:
        """Add files and move the position, if the table still is as it was in `state`.

        Raises `CommitRefused` if it is not, `ColumnsMoved` if somebody else changed columns so that
        the files do not fit. After any other error nobody knows whether the commit
        went through.
        """

    def files(self, state: TableState) -> list[DataFile]:
        """The files of the current snapshot."""

    def replace(
        self,
        state: TableState,
        old: Sequence[DataFile],
        new: Sequence[NewFile],
        why: str,
        properties: Mapping[str, str] = _NONE,
    ) -> TableState:
        """Put files in the place of others; the snapshot says why. Properties are set with it.

        `CommitRefused` if the table has moved on.
        """

    def property(self, state: TableState, name: str) -> str | None:
        """A property of the table."""

    def snapshots(self, state: TableState) -> tuple[list[SnapshotInfo], set[int]]:
        """The kept snapshots, and those that a branch or tag names."""

    def expire(self, state: TableState, snapshots: Sequence[int]) -> TableState:
        """Forget snapshots; their files stay. `CommitRefused` if the table has moved on."""

    def named_files(self, state: TableState) -> set[str]:
        """The URLs of all files that kept snapshots or the metadata name."""

    def rename(self, table: str, name: str) -> None:
        """Give a table another name; its files stay where they are."""

    def drop(self, state: TableState) -> None:
        """Take the table out of the catalogue, unless it is gone; its files stay."""

    def open_file(self, state: TableState, url: str) -> tuple[FileSystem, str]:
        """The file system of a data file, and its path there."""

    def close(self) -> None:
        """Close connections."""
