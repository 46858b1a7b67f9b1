"""Fetched bytes to Arrow columns, and columns to single records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ottla.client.reader.rows import Chunk
from ottla.client.reader.types import CorruptRecords, Record
from ottla.wire.arrow import ColumnTooLarge, batches_to_arrow
from ottla.wire.batch import iter_batches
from ottla.wire.builder import BatchBuilder
from ottla.wire.columns import COLUMNS, COLUMNS_WITHOUT_HEADERS
from ottla.wire.errors import DecompressedTooLarge, WireError

if TYPE_CHECKING:
    from collections.abc import Sequence

MICROSECONDS: Final = 1000  # in a millisecond


def decode(chunk: Chunk, columns: Sequence[str], *, verify_crc: bool) -> list[pa.RecordBatch]:
    """The chunk's rows with these columns and `offset`; several batches where one is too small."""
    needed = columns if "offset" in columns else (*columns, "offset")
    try:
        return _decode(chunk, needed, verify_crc)
    except WireError as error:
        raise CorruptRecords.at(error) from error


def warm_up() -> None:
    """Call the compiled code, for a record that has everything."""
    builder = BatchBuilder()
    builder.append(b"v", timestamp=0, key=b"k", headers=[("h", b"1")])
    chunk = Chunk("t", 0, 0, None, 1, memoryview(builder.build()))
    for columns in (COLUMNS, COLUMNS_WITHOUT_HEADERS, ("offset",)):
        for rows in _decode(chunk, columns, verify_crc=True):
            if columns == COLUMNS:
                to_records(rows)


def _decode(chunk: Chunk, columns: Sequence[str], verify_crc: bool) -> list[pa.RecordBatch]:
    try:
        rows = batches_to_arrow(
            chunk.records,
            chunk.topic,
            chunk.partition,
            columns=columns,
            start_offset=chunk.start,
            end_offset=chunk.end,
            aborted=chunk.aborted,
            partial_tail=True,
            verify_crc=verify_crc,
        )
    except (ColumnTooLarge, DecompressedTooLarge):
        middle = _middle(chunk)
        if middle is None:
            raise
        first = _decode(chunk._replace(end=middle), columns, verify_crc)
        return first + _decode(chunk._replace(start=middle), columns, verify_crc)
    return [rows] if rows.num_rows else []


def _middle(chunk: Chunk) -> int | None:
    """The base offset of the batch in the middle, None if there is but one.

    The bytes stay together: which transactions are aborted depends on the markers between them.
    """
    bases = [
        batch.base_offset
        for batch in iter_batches(chunk.records, partial_tail=True)
        if batch.last_offset >= chunk.start and (chunk.end is None or batch.base_offset < chunk.end)
    ]
    return bases[len(bases) // 2] if len(bases) > 1 else None


def to_records(rows: pa.RecordBatch) -> list[Record]:
    """Rows of all columns as records."""
    columns = {name: rows.column(name) for name in COLUMNS}
    columns["timestamp"] = columns["timestamp"].cast(pa.int64())
    return [
        Record(topic, partition, offset, micros // MICROSECONDS, kind, key, value, _pairs(headers))
        for key, value, topic, partition, offset, micros, kind, headers in zip(
            *(columns[name].to_pylist() for name in COLUMNS), strict=True
        )
    ]


def _pairs(headers: list[dict[str, str | bytes]] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((pair["key"], pair["value"]) for pair in headers or ())  # type: ignore[misc]  # by SCHEMA keys are text, values bytes
