"""The data of a reader: fetched chunks of bytes, and the rows decoded from them.

Rows are Arrow batches where the `arrow` extra is installed, and plain records where it is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from ottla.client import extras
from ottla.client.errors import MissingExtra
from ottla.client.reader.types import CorruptRecords, Record
from ottla.wire.compression import DECOMPRESSION_HARD_LIMIT
from ottla.wire.errors import WireError
from ottla.wire.records import iter_fields
from ottla.wire.selection import data_batches, each_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    Table: TypeAlias = pa.RecordBatch | "RecordRows"

RECORD_OVERHEAD: Final = 300  # bytes that a record's Python objects take beside key and value


class Chunk(NamedTuple):
    """The records of one partition that came with one answer; they may end inside a batch."""

    topic: str
    partition: int
    start: int
    end: int | None
    next_offset: int
    records: memoryview
    aborted: Sequence[tuple[int, int]] = ()


class Decode(Protocol):
    """Makes rows of a chunk; several tables where one is too small for it."""

    def __call__(
        self, chunk: Chunk, columns: Sequence[str], *, verify_crc: bool
    ) -> Sequence[Table]: ...


class RecordRows(tuple[Record, ...]):
    """Records as a table of rows: as much of Arrow's interface as a reader's buffer needs."""

    __slots__ = ()

    @property
    def num_rows(self) -> int:
        """How many there are."""
        return len(self)

    @property
    def nbytes(self) -> int:
        """Their approximate size in memory."""
        return sum(
            RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"") for record in self
        )

    def slice(self, start: int, count: int) -> RecordRows:
        """These rows alone."""
        return RecordRows(self[start : start + count])


async def decoder() -> Decode:
    """The best that is installed."""
    try:
        found: Decode = (await extras.arrow("reader.decode", "a reader of columns")).decode
    except MissingExtra:
        return decode_records
    return found


def decode_records(chunk: Chunk, columns: Sequence[str], *, verify_crc: bool) -> list[RecordRows]:
    """The chunk's records, one Python object each; they have all columns."""
    del columns
    try:
        rows = RecordRows(_records(chunk, verify_crc))
    except WireError as error:
        raise CorruptRecords.at(error) from error
    return [rows] if rows else []


def records_of(rows: Table) -> Sequence[Record]:
    """Rows of all columns as records."""
    if isinstance(rows, RecordRows):
        return rows
    from ottla.client.reader.decode import to_records

    return to_records(rows)


def next_offset_of(rows: Table) -> int:
    """The partition's next offset after these (at least one)."""
    if isinstance(rows, RecordRows):
        return rows[-1].offset + 1
    last: int = rows.column("offset")[-1].as_py()
    return last + 1


def _records(chunk: Chunk, verify_crc: bool) -> Iterator[Record]:
    batches = each_batch(chunk.records, partial_tail=True)
    for batch in data_batches(
        batches, chunk.aborted, verify_crc=verify_crc, limit=DECOMPRESSION_HARD_LIMIT
    ):
        if batch.last_offset < chunk.start or (
            chunk.end is not None and batch.base_offset >= chunk.end
        ):
            continue
        if verify_crc:
            batch.verify_crc()
        kind = int(batch.is_log_append_time)
        for offset, timestamp, key, value, headers in iter_fields(batch, first_offset=chunk.start):
            if chunk.end is not None and offset >= chunk.end:
                break
            if chunk.start <= offset:
                yield Record(
                    chunk.topic, chunk.partition, offset, timestamp, kind, key, value, headers
                )
