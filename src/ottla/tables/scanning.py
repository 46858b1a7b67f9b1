"""Rows of a table's files, by partition and offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from ottla.tables.errors import FileDamaged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.tables.format import DataFile, Offsets, TableFormat, TableState


def scan(
    tables: TableFormat,
    state: TableState,
    files: Sequence[DataFile],
    columns: Sequence[str],
    number: int,
    start: int,
    end: int,
) -> Iterator[pa.RecordBatch]:
    """Rows of one partition with offsets in [start, end), as they lie in files.

    `FileDamaged` names a file that cannot be read.
    """
    wanted = (
        (ds.field("_partition") == number)
        & (ds.field("_offset") >= start)
        & (ds.field("_offset") < end)
    )
    for file in files:
        if not may_have(file, number, start, end):
            continue
        try:
            system, path = tables.open_file(state, file.url)
            read = ds.dataset(path, filesystem=system, format="parquet", partitioning=None)
            yield from read.to_batches(columns=list(columns), filter=wanted)
        except (OSError, pa.ArrowInvalid) as error:
            raise FileDamaged(
                f"cannot read {file.url}: {error}; if it is damaged or gone, ottla table rebuild "
                "--files makes it again from the log"
            ) from error


def may_have(file: DataFile, number: int, start: int, end: int) -> bool:
    """Whether the file may have rows of the partition with offsets in [start, end)."""
    if file.partitions is None or file.offsets is None:
        return True
    low, high = file.partitions
    first, last = file.offsets
    return low <= number <= high and first < end and last >= start


def offsets_from(tables: TableFormat, state: TableState, starts: Offsets) -> dict[int, set[int]]:
    """The offsets that a table has at or above these positions."""
    files = tables.files(state)
    found: dict[int, set[int]] = {}
    for number, start in starts.items():
        for batch in scan(tables, state, files, ["_offset"], number, start, 2**63 - 1):
            found.setdefault(number, set()).update(batch.column("_offset").to_pylist())
    return found
