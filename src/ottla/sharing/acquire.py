"""Acquire records for one member from a window and the log batches read for it.

Rules:

- Offsets between the fetch offset and the end of what was read that no batch with data covers are
  archived: they were compacted away, are control records, or belong to an aborted transaction.
- What is available inside the window goes first, in offset order. An in-flight batch that is
  available as a whole is taken whole, even beyond the limit, unless the limit is strict.
- Then the window grows, if it has room, by whole log batches. If the limit is strict, what is over
  enters the window as available, never delivered.
- Isolation of bad records: a batch with a record that has been delivered T = max(2, ceil(limit/2))
  times is delivered in one go with nothing else, and of it half as many offsets with each further
  delivery. A record on its last attempt is delivered alone, if it has more than two.

The room in the window bounds what is new, not what is delivered again.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from ottla.sharing.values import AcquireMode, Acquisition, RecordState
from ottla.sharing.window import ARCHIVED, Condition, InFlightBatch
from ottla.wire.schema.share_fetch import AcquiredRecords

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.sharing.values import DeliverySettings, FetchTurn, LogBatch
    from ottla.sharing.window import Run, Window

NEVER_DELIVERED = Condition(RecordState.AVAILABLE)


class _Plan(NamedTuple):
    ranges: list[tuple[int, int]]
    records: int = 0
    is_final: bool = False
    """Nothing may be delivered along with it."""


def acquire(
    window: Window,
    settings: DeliverySettings,
    turn: FetchTurn,
    fetch_offset: int,
    batches: Sequence[LogBatch],
    now_ms: int,
) -> Acquisition:
    """Acquire records for the member. `batches` were read at `fetch_offset`."""
    if turn.max_records <= 0 or not batches:
        return Acquisition()
    if fetch_offset > window.end:
        raise ValueError(f"read at {fetch_offset}, beyond the window's end at {window.end}")
    spans = _spans(fetch_offset, batches)
    _archive_missing(window, spans)
    plan = _plan(window, settings, turn, spans[0].first_offset, spans[-1].last_offset)
    lock = now_ms + settings.lock_duration_ms
    ranges: list[AcquiredRecords] = []
    for first, last in plan.ranges:
        for run in window.change(first, last, lambda run: _delivered(run, turn.member, lock)):
            count = run.condition.delivery_count + 1
            ranges.append(AcquiredRecords(run.first, run.last, count))
    wanted = turn.max_records - plan.records
    room = settings.max_record_locks - window.size
    if wanted > 0 and room > 0 and not plan.is_final:
        held = Condition(RecordState.ACQUIRED, 1, turn.member, lock)
        ranges += _grow(window, turn, spans, wanted, room, held)
    window.advance()
    if not ranges:
        return Acquisition()
    lasts = [batch.last_offset for batch in batches]
    low = bisect_left(lasts, ranges[0].first_offset)
    high = bisect_left(lasts, ranges[-1].last_offset)
    count = sum(found.last_offset - found.first_offset + 1 for found in ranges)
    return Acquisition(ranges, range(low, high + 1), count)


def _delivered(run: Run, member: str, deadline_ms: int) -> Condition:
    count = run.condition.delivery_count + 1
    return Condition(RecordState.ACQUIRED, count, member, deadline_ms)


def _spans(fetch_offset: int, batches: Sequence[LogBatch]) -> list[LogBatch]:
    """The batches, with the gaps before and between them filled by batches without data."""
    spans: list[LogBatch] = []
    expected = min(fetch_offset, batches[0].first_offset)
    for batch in batches:
        if batch.first_offset > expected:
            spans.append(type(batch)(expected, batch.first_offset - 1, has_data=False))
        spans.append(batch)
        expected = batch.last_offset + 1
    return spans


def _archive_missing(window: Window, spans: list[LogBatch]) -> None:
    for span in spans:
        if not span.has_data:
            for run in list(window.available_runs(span.first_offset, span.last_offset)):
                window.change(run.first, run.last, lambda _: ARCHIVED)


def _plan(
    window: Window, settings: DeliverySettings, turn: FetchTurn, first: int, last: int
) -> _Plan:
    """The records to deliver again from first..last."""
    limit = settings.delivery_count_limit
    threshold = max(2, (limit + 1) // 2)
    ranges: list[tuple[int, int]] = []
    count = 0
    available = window.available_runs(first, last)
    for batch, group in groupby(available, key=lambda run: run.batch):
        runs = list(group)
        if max(run.condition.delivery_count for run in runs) >= threshold:
            if not count:
                return _isolate(runs, limit, threshold, turn.max_records)
            return _Plan(ranges, count, is_final=True)
        if turn.mode is AcquireMode.BATCH_OPTIMIZED and _is_whole(runs, batch, window.start):
            wanted = runs[0].size
        else:
            wanted = turn.max_records - count
        for first_, last_ in _head(runs, wanted):
            ranges.append((first_, last_))
            count += last_ - first_ + 1
        if count >= turn.max_records:
            break
    return _Plan(ranges, count)


def _is_whole(runs: list[Run], batch: InFlightBatch, start: int) -> bool:
    run = runs[0]
    return run.first == max(batch.first, start) and run.last == batch.last


def _head(runs: list[Run], wanted: int) -> Iterator[tuple[int, int]]:
    """The first `wanted` offsets of the runs."""
    for run in runs:
        if wanted <= 0:
            return
        last = min(run.last, run.first + wanted - 1)
        yield run.first, last
        wanted -= last - run.first + 1


def _isolate(runs: list[Run], limit: int, threshold: int, max_records: int) -> _Plan:
    """A part of a batch that may hold the record which brings its consumers down."""
    ranges: list[tuple[int, int]] = []
    count = 0
    suspected = False
    for run in runs:
        deliveries = run.condition.delivery_count
        if limit > 2 and deliveries >= limit - 1:
            return _Plan(ranges or [(run.first, run.first)], count or 1, is_final=True)
        if deliveries >= threshold and not suspected:
            suspected = True
            size = run.batch.last - run.batch.first + 1
            max_records = min(max_records, max(1, size >> (deliveries - threshold + 1)))
        if count >= max_records:
            break
        last = min(run.last, run.first + max_records - count - 1)
        ranges.append((run.first, last))
        count += last - run.first + 1
    return _Plan(ranges, count, is_final=True)


def _grow(
    window: Window,
    turn: FetchTurn,
    spans: list[LogBatch],
    wanted: int,
    room: int,
    held: Condition,
) -> list[AcquiredRecords]:
    """Takes the log batches beyond the window's end into it, `held` by the member."""
    strict = turn.mode is AcquireMode.RECORD_LIMIT
    end = window.end
    stop = end + room
    ranges: list[AcquiredRecords] = []
    parts: list[tuple[int, int, Condition]] = []
    for span in spans:
        first, last = max(span.first_offset, end), span.last_offset
        if last < end:
            continue
        if first >= stop or (span.has_data and wanted <= 0):
            break
        if not span.has_data:
            parts.append((first, last, ARCHIVED))
        else:
            cut = min(last, first + wanted - 1, stop - 1) if strict else last
            parts.append((first, cut, held))
            if cut < last:
                parts.append((cut + 1, last, NEVER_DELIVERED))
            wanted -= cut - first + 1
        if not strict and last - parts[0][0] + 1 >= turn.batch_size:
            ranges += _close(window, parts)
            parts = []
    return ranges + _close(window, parts)


def _close(window: Window, parts: list[tuple[int, int, Condition]]) -> list[AcquiredRecords]:
    """Append the parts as one in-flight batch; returns the acquired ranges."""
    if not parts:
        return []
    batch = InFlightBatch(parts[0][0], parts[-1][1])
    window.append(batch, parts)
    return [
        AcquiredRecords(run.first, run.last, run.condition.delivery_count)
        for run in window.runs(batch.first, batch.last)
        if run.condition.state is RecordState.ACQUIRED
    ]
