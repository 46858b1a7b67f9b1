"""Hypothesis strategies and small helpers for record batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from ottla.wire.batch import RecordBatch, read_batch
from ottla.wire.records import Headers, Record

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    # Where one record differs from the next: timestamp, key, value, headers.
    Content = tuple[int, bytes | None, bytes | None, Headers]

LATEST = 2**50
"""In milliseconds about the year 37,000; the foreign codecs need no more."""


def timestamps() -> st.SearchStrategy[int]:
    return st.integers(0, LATEST)


def headers() -> st.SearchStrategy[Headers]:
    pair = st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5))
    return st.lists(pair, max_size=2).map(tuple)


def contents() -> st.SearchStrategy[Content]:
    data = st.none() | st.binary(max_size=80)
    return st.tuples(timestamps(), data, data, headers())


def record_lists(*, min_size: int = 0, max_size: int = 4) -> st.SearchStrategy[list[Record]]:
    """Records with consecutive offsets from 0 on, as a producer sends them."""
    return st.lists(contents(), min_size=min_size, max_size=max_size).map(
        lambda rows: [Record(offset, *content) for offset, content in enumerate(rows)]
    )


def opened(data: ReadableBuffer) -> RecordBatch:
    """The batch in `data`, its CRC verified."""
    batch = read_batch(memoryview(data))
    batch.verify_crc()
    return batch
