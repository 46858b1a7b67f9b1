"""Reads the rows of acquired ranges in Spark's workers, by plain fetches.

Rules:

- Ranges with small gaps are read in one go, and rows of the gaps are dropped: an extra row costs
  less than an extra read.
- Reading has no side effects: a task can run again, or twice at once.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from ottla.spark.log.planning import Range, plan
from ottla.spark.share.options import DELIVERY_COUNT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ottla.spark.log.planning import Split
    from ottla.spark.options import SourceOptions
    from ottla.spark.share.ranges import Span, Spans

NEAR: Final = 20_000  # gaps up to this many offsets are read and dropped


class ShareTask(NamedTuple):
    """Ranges to read, and the records of the query in them."""

    ranges: tuple[Range, ...]
    spans: dict[tuple[str, int], list[Span]]


def plan_spans(spans: Spans, ids: Mapping[str, bytes], split: Split) -> list[ShareTask]:
    """The tasks of a batch."""
    covering = [
        Range(place.topic, ids.get(place.topic), place.partition, some[0].first, some[-1].last + 1)
        for place in sorted(spans)
        for some in _near(spans[place])
    ]
    by_place = {(place.topic, place.partition): some for place, some in spans.items()}
    tasks = []
    for ranges in plan(covering, split):
        kept: list[Range] = []
        inside: dict[tuple[str, int], list[Span]] = {}
        for one in ranges:
            key = one.topic, one.partition
            # A range that was split may have pieces that lie between ours.
            if some := list(_clipped(by_place[key], one)):
                inside.setdefault(key, []).extend(some)
                kept.append(one._replace(first=some[0].first, end=some[-1].last + 1))
        if kept:
            tasks.append(ShareTask(tuple(kept), inside))
    return tasks


def _near(some: Sequence[Span]) -> Iterator[list[Span]]:
    group: list[Span] = []
    for one in some:
        if group and one.first - group[-1].last > NEAR:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _clipped(some: Sequence[Span], to: Range) -> Iterator[Span]:
    low = max(0, bisect_right(some, to.first, key=lambda one: one.first) - 1)
    for one in some[low:]:
        if one.first >= to.end:
            return
        if one.last >= to.first:
            yield one._replace(first=max(one.first, to.first), last=min(one.last, to.end - 1))


def read_spans(
    task: ShareTask, options: SourceOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, with these columns in this order."""
    from ottla.spark.log.reading import read_ranges

    read = [name for name in columns if name != DELIVERY_COUNT]
    read += [name for name in ("partition", "offset") if name not in read]
    for topic, ranges in groupby(sorted(task.ranges), key=lambda one: one.topic):
        chosen = {
            partition: _Chosen(spans)
            for (name, partition), spans in task.spans.items()
            if name == topic
        }
        for batch in read_ranges(list(ranges), options, read):
            for rows in _by_partition(batch):
                found = chosen[rows.column("partition")[0].as_py()].of(rows, columns)
                if found.num_rows:
                    yield found


def _by_partition(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Split a batch by partition."""
    if not batch.num_rows:
        return []
    numbers = batch.column("partition").to_numpy()
    if (numbers == numbers[0]).all():
        return [batch]
    starts = [0, *((numbers[1:] != numbers[:-1]).nonzero()[0] + 1).tolist(), batch.num_rows]
    return [batch.slice(first, end - first) for first, end in pairwise(starts)]


class _Chosen:
    """The ranges of one partition, as arrays."""

    def __init__(self, spans: Sequence[Span]) -> None:
        import numpy as np

        self._firsts = np.array([one.first for one in spans], np.int64)
        self._lasts = np.array([one.last for one in spans], np.int64)
        self._counts = np.array([one.deliveries for one in spans], np.int32)

    def of(self, rows: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        """The rows in the ranges, with how often each was delivered."""
        offsets = rows.column("offset").to_numpy()
        at = self._firsts.searchsorted(offsets, "right") - 1
        inside = (at >= 0) & (offsets <= self._lasts[at])
        if not inside.all():
            rows = rows.filter(pa.array(inside))
            at = at[inside]
        counts = pa.array(self._counts[at], pa.int32())
        found = [counts if name == DELIVERY_COUNT else rows.column(name) for name in columns]
        return pa.RecordBatch.from_arrays(
            found,
            schema=pa.schema(
                [
                    pa.field(DELIVERY_COUNT, pa.int32())
                    if name == DELIVERY_COUNT
                    else rows.schema.field(name)
                    for name in columns
                ]
            ),
        )
