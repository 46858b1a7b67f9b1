"""Arrow batches of decoded records as the rows of the plain decoder."""

from __future__ import annotations

from typing import TypedDict

import pyarrow as pa

from tests.support.plain_records import Row


class Header(TypedDict):
    key: str
    value: bytes | None


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    batch.validate(full=True)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    timestamps = columns["timestamp"].cast(pa.int64()).to_pylist()
    return [
        Row(offset, timestamp // 1000, kind, key, value, _headers(headers))
        for offset, timestamp, kind, key, value, headers in zip(
            columns["offset"].to_pylist(),
            timestamps,
            columns["timestampType"].to_pylist(),
            columns["key"].to_pylist(),
            columns["value"].to_pylist(),
            columns["headers"].to_pylist(),
            strict=True,
        )
    ]


def _headers(headers: list[Header] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((header["key"], header["value"]) for header in headers or ())
