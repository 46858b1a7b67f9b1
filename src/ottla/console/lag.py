"""How far behind a group is, in seconds. Pure.

The lag in seconds is the age of the first record that the group has not taken; 0 when it has all.
So it grows while a producer is idle and the group is stuck, which a number of records does not
show.

- In lists it comes from samples of the end offset: the moment when the end passed the committed
  offset, interpolated. A moment before the first sample is never extrapolated: the lag is then "at
  least" the age of the first sample.
- In detail it is exact: the timestamp of that one record. A record from the future counts as 0 and
  is marked.
- A committed offset below the start of the log: records were lost to the group.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_SAMPLES: Final = 360
"""Of a partition: an hour, one each 10 seconds."""
TREND_MS: Final = 10 * 60_000
"""A trend is judged over ten minutes."""
LEAST_FOR_TREND: Final = 3
"""Samples: two always lie on a line."""
STEADY_SHARE: Final = 0.05
"""A change over the trend's time below a twentieth of the mean lag is none."""

Trend: TypeAlias = Literal["growing", "steady", "falling", "unknown"]


class EndSamples:
    """The last end offsets of a partition. While the end stands still, two samples are enough."""

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self._times = array("q")
        self._ends = array("q")

    def __len__(self) -> int:
        return len(self._times)

    @property
    def first_ms(self) -> int | None:
        return self._times[0] if self._times else None

    @property
    def last_end(self) -> int | None:
        return self._ends[-1] if self._ends else None

    def add(self, now_ms: int, end: int) -> None:
        """A new sample. An end that goes back is another log: the samples before it are dropped."""
        if self._times and now_ms <= self._times[-1]:
            return
        if self._ends and end < self._ends[-1]:
            del self._times[:]
            del self._ends[:]
        if len(self._ends) > 1 and self._ends[-1] == self._ends[-2] == end:
            self._times[-1] = now_ms
            return
        self._times.append(now_ms)
        self._ends.append(end)
        if len(self._times) > MOST_SAMPLES:
            del self._times[0]
            del self._ends[0]

    def passed(self, offset: int) -> tuple[float, bool] | None:
        """When the end passed the offset, and whether that is exact or at the latest then."""
        if not self._ends or offset >= self._ends[-1]:
            return None
        after = bisect_right(self._ends, offset)
        if after == 0:
            return float(self._times[0]), False
        before = after - 1
        begun, ended = self._times[before], self._times[after]
        low, high = self._ends[before], self._ends[after]
        # The record came somewhere in its share of the time: half of it is the best guess.
        return begun + (ended - begun) * (offset - low + 0.5) / (high - low), True


@dataclass(frozen=True, slots=True)
class Behind:
    """The lag of a group in a partition, or in all of a topic (the largest).

    `seconds` is None if nothing is known about the time. With `at_least` it is more than that; with
    `from_future` the record's timestamp lies ahead, and the seconds are 0. `lost` records were
    deleted before the group took them.
    """

    records: int
    seconds: float | None
    at_least: bool = False
    from_future: bool = False
    lost: int = 0


def behind(
    committed: int, end: int, start: int | None, samples: EndSamples | None, now_ms: int
) -> Behind:
    """From samples, for lists. `start` is the log's, if known."""
    lost = 0 if start is None else max(0, start - committed)
    first = committed + lost
    records = max(0, end - first)
    if records == 0:
        return Behind(0, 0.0, lost=lost)
    found = None if samples is None else samples.passed(first)
    if found is None:
        return Behind(records, None, lost=lost)
    moment, is_known = found
    seconds = max(0.0, (now_ms - moment) / 1000)
    return Behind(records, seconds, at_least=not is_known, lost=lost)


def exactly(committed: int, end: int, start: int | None, timestamp_ms: int, wall_ms: int) -> Behind:
    """From the timestamp of the first record that was not taken."""
    lost = 0 if start is None else max(0, start - committed)
    records = max(0, end - committed - lost)
    if records == 0:
        return Behind(0, 0.0, lost=lost)
    return Behind(
        records,
        max(0.0, (wall_ms - timestamp_ms) / 1000),
        from_future=timestamp_ms > wall_ms,
        lost=lost,
    )


def worst(found: Sequence[Behind]) -> Behind:
    """Of several partitions: all records, the longest time; unknown if that of none is known."""
    known = [one for one in found if one.seconds is not None]
    longest = max(known, key=lambda one: one.seconds or 0.0, default=None)
    return Behind(
        sum(one.records for one in found),
        None if longest is None else longest.seconds,
        at_least=bool(longest and longest.at_least) or (bool(known) and len(known) < len(found)),
        from_future=any(one.from_future for one in found),
        lost=sum(one.lost for one in found),
    )


@dataclass(frozen=True, slots=True)
class Course:
    """Where the lag is going; `zero_in` seconds it is gone, if it falls."""

    trend: Trend
    per_s: float = 0.0
    zero_in: float | None = None


UNKNOWN_COURSE: Final = Course("unknown")


def course(points: Sequence[tuple[int, float]], now_ms: int) -> Course:
    """By least squares over the last ten minutes of (monotonic ms, records behind)."""
    recent = [(ms, lag) for ms, lag in points if now_ms - ms <= TREND_MS]
    if len(recent) < LEAST_FOR_TREND:
        return UNKNOWN_COURSE
    times = [(ms - recent[0][0]) / 1000 for ms, _ in recent]
    lags = [lag for _, lag in recent]
    mean_time, mean_lag = sum(times) / len(times), sum(lags) / len(lags)
    spread = sum((one - mean_time) ** 2 for one in times)
    if spread == 0:
        return UNKNOWN_COURSE
    slope = (
        sum((t - mean_time) * (lag - mean_lag) for t, lag in zip(times, lags, strict=True)) / spread
    )
    change = slope * (times[-1] - times[0])
    if abs(change) < max(1.0, STEADY_SHARE * mean_lag):
        return Course("steady", slope)
    if slope > 0:
        return Course("growing", slope)
    return Course("falling", slope, max(0.0, lags[-1]) / -slope)
