"""Series of figures: an hour in steps of 10 s, a day in steps of 2 min. Pure rings.

- A pause of more than `GAP_MS` between two samples is a gap, and is shown as one. Within it, slots
  that were passed over take the later value: a rate is the mean since the sample before.
- Time is monotonic: a step of the wall clock makes no hole. A pause, such as a suspended laptop, is
  a gap as long as the pause.
- A series whose value has not changed keeps that value and has no ring; after a gap it begins
  anew.
- At most `MOST_RINGS` series have rings. Beyond, the one that changed longest ago loses its ring.
- A counter that goes back (a topic was recreated) makes a gap, never a negative rate.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.console.missing import NOT_KEPT, Missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FINE_MS: Final = 10_000
FINE_SLOTS: Final = 360
COARSE_MS: Final = 120_000
COARSE_SLOTS: Final = 720
GAP_MS: Final = 60_000
"""A large cluster gets a sample of everything each 50 s."""
MOST_RINGS: Final = 5_000
"""Of 7.2 KB each: 36 MB."""
MOST_SERIES: Final = 100_000
"""Names that are known at all: 1,000 groups in 100 topics each."""

Name: TypeAlias = tuple[str, ...]
"""Such as ("topic", "orders", "records_per_s")."""

_GAP: Final = math.nan


class Ring:
    """The last values of a series, a slot for each step; later slots overwrite the oldest."""

    __slots__ = ("_last", "_values", "step_ms")

    def __init__(self, step_ms: int, slots: int) -> None:
        self.step_ms = step_ms
        self._values = array("f", [_GAP]) * slots
        self._last: int | None = None

    def put(self, now_ms: int, value: float) -> None:
        """The value of the present slot; slots that were passed over are gaps."""
        slot = now_ms // self.step_ms
        size = len(self._values)
        if self._last is not None:
            if slot < self._last:
                return
            passed = max(self._last + 1, slot - size + 1)
            is_gap = (slot - self._last) * self.step_ms > max(GAP_MS, self.step_ms)
            for missed in range(passed, slot):
                self._values[missed % size] = _GAP if is_gap else value
        self._values[slot % size] = value
        self._last = slot

    @property
    def first_slot(self) -> int | None:
        """The oldest slot that has a value."""
        if self._last is None:
            return None
        size = len(self._values)
        slots = range(self._last - size + 1, self._last + 1)
        return next((one for one in slots if not math.isnan(self._values[one % size])), None)

    def prepend(self, points: Sequence[tuple[int, float]]) -> None:
        """Values of slots before the first one; those that are too old are left out."""
        size = len(self._values)
        if points and self._last is None:
            self._last = points[-1][0]
        for slot, value in points:
            if self._last is not None and slot > self._last - size:
                self._values[slot % size] = value

    def points(self, now_ms: int, count: int) -> list[float | None]:
        """The last slots, the present one last; None is a gap."""
        size = len(self._values)
        slot = now_ms // self.step_ms
        last = self._last
        found: list[float | None] = []
        for one in range(slot - min(count, size) + 1, slot + 1):
            if last is None or one > last or one <= last - size:
                found.append(None)
                continue
            value = self._values[one % size]
            found.append(None if math.isnan(value) else value)
        return found


class _Rings:
    """Fine values, and the mean and maximum of coarse steps."""

    __slots__ = ("_count", "_most", "_slot", "_sum", "fine", "mean", "most")

    def __init__(self) -> None:
        self.fine = Ring(FINE_MS, FINE_SLOTS)
        self.mean = Ring(COARSE_MS, COARSE_SLOTS)
        self.most = Ring(COARSE_MS, COARSE_SLOTS)
        self._slot = -1
        self._sum = self._most = 0.0
        self._count = 0

    def put(self, now_ms: int, value: float) -> None:
        self.fine.put(now_ms, value)
        slot = now_ms // COARSE_MS
        if slot != self._slot:
            self._slot, self._sum, self._most, self._count = slot, 0.0, value, 0
        self._sum += value
        self._count += 1
        self._most = max(self._most, value)
        self.mean.put(now_ms, self._sum / self._count)
        self.most.put(now_ms, self._most)

    def restore(self, points: Sequence[tuple[int, float, float]]) -> None:
        """Coarse points of before: they end where the present ones begin."""
        for ring, which in ((self.mean, 1), (self.most, 2)):
            begun = ring.first_slot
            older = [one for one in points if begun is None or one[0] // COARSE_MS < begun]
            ring.prepend([(one[0] // COARSE_MS, one[which]) for one in older])


@dataclass(slots=True)
class _Series:
    value: float
    since_ms: int
    """When the first sample came."""
    at_ms: int
    changed_ms: int
    rings: _Rings | None = None
    lost: bool = False


class History:
    """All series of a cluster."""

    def __init__(self, most_rings: int = MOST_RINGS, most_series: int = MOST_SERIES) -> None:
        self._series: dict[Name, _Series] = {}
        self._with_rings: dict[Name, None] = {}
        """The series with rings, the one that changed longest ago first."""
        self._counters: dict[Name, tuple[int, float]] = {}
        self._most_rings = most_rings
        self._most_series = most_series

    def __len__(self) -> int:
        return len(self._series)

    def __contains__(self, name: object) -> bool:
        return name in self._series

    @property
    def rings(self) -> int:
        """How many series have rings."""
        return len(self._with_rings)

    @property
    def not_kept(self) -> int:
        """How many series have lost their rings to others."""
        return sum(one.lost for one in self._series.values())

    def names(self) -> Iterator[Name]:
        return iter(self._series)

    def kept(self) -> Iterator[Name]:
        """Series that have changed: what a file keeps."""
        return iter(self._with_rings)

    def restore(self, name: Name, points: Sequence[tuple[int, float, float]]) -> None:
        """Put coarse points of before (monotonic ms, mean, maximum) below what is there."""
        series = self._series.get(name)
        if series is None:
            if len(self._series) >= self._most_series:
                return
            at_ms, value, _ = points[-1]
            series = self._series[name] = _Series(value, at_ms, at_ms, at_ms)
        if series.rings is None:
            if len(self._with_rings) >= self._most_rings:
                return
            self._give_rings(name, series)
        assert series.rings is not None
        series.rings.restore(points)

    def add(self, name: Name, value: float, now_ms: int) -> None:
        """The value of a series now."""
        series = self._series.get(name)
        if series is None:
            if len(self._series) < self._most_series:
                self._series[name] = _Series(value, now_ms, now_ms, now_ms)
            return
        if now_ms < series.at_ms:
            return
        if value != series.value:
            if series.rings is None:
                self._give_rings(name, series)
            else:
                del self._with_rings[name]
                self._with_rings[name] = None
            series.changed_ms = now_ms
        if series.rings is not None:
            series.rings.put(now_ms, value)
        elif now_ms - series.at_ms > GAP_MS:
            series.since_ms = now_ms
        series.value, series.at_ms = value, now_ms

    def add_counter(self, name: Name, total: float, now_ms: int) -> float | None:
        """A total that grows: its rate per second becomes the value. None: not known yet."""
        before = self._counters.get(name)
        if before is not None and now_ms <= before[0]:
            return None
        if before is None and len(self._counters) >= self._most_series:
            return None
        self._counters[name] = (now_ms, total)
        if before is None or total < before[1]:
            return None
        rate = (total - before[1]) * 1000 / (now_ms - before[0])
        self.add(name, rate, now_ms)
        return rate

    def last(self, name: Name, now_ms: int, max_age_ms: int = 10 * FINE_MS) -> float | None:
        """The value of a series if it is not too old."""
        series = self._series.get(name)
        if series is None or now_ms - series.at_ms > max_age_ms:
            return None
        return series.value

    def fine(
        self, name: Name, now_ms: int, count: int = FINE_SLOTS
    ) -> list[float | None] | Missing:
        """The last values in steps of 10 s."""
        series = self._series.get(name)
        if series is None:
            return [None] * count
        if series.rings is None:
            return _flat(series, now_ms, FINE_MS, count)
        return series.rings.fine.points(now_ms, count)

    def coarse(
        self, name: Name, now_ms: int, count: int = COARSE_SLOTS
    ) -> tuple[list[float | None], list[float | None]] | Missing:
        """The means and maxima of the last steps of 2 min."""
        series = self._series.get(name)
        if series is None:
            return [None] * count, [None] * count
        if series.rings is None:
            found = _flat(series, now_ms, COARSE_MS, count)
            return found if isinstance(found, Missing) else (found, list(found))
        rings = series.rings
        return rings.mean.points(now_ms, count), rings.most.points(now_ms, count)

    def timed(self, name: Name, now_ms: int, count: int) -> list[tuple[int, float]]:
        """The last fine values with their times, without gaps: for trends."""
        found = self.fine(name, now_ms, count)
        if isinstance(found, Missing):
            return []
        first = now_ms - (len(found) - 1) * FINE_MS
        return [
            (first + index * FINE_MS, value)
            for index, value in enumerate(found)
            if value is not None
        ]

    def forget(self, gone: Iterable[Name]) -> None:
        """Drop series of topics and groups that were deleted."""
        for name in list(gone):
            self._series.pop(name, None)
            self._with_rings.pop(name, None)
            self._counters.pop(name, None)

    def _give_rings(self, name: Name, series: _Series) -> None:
        rings = _Rings()
        if series.lost:
            series.since_ms = series.at_ms
        # What it was until now, as far back as it is known.
        for now in range(_first_slot(series, FINE_MS, FINE_SLOTS), series.at_ms + 1, FINE_MS):
            rings.fine.put(now, series.value)
        for now in range(_first_slot(series, COARSE_MS, COARSE_SLOTS), series.at_ms + 1, COARSE_MS):
            rings.mean.put(now, series.value)
            rings.most.put(now, series.value)
        series.rings, series.lost = rings, False
        self._with_rings[name] = None
        if len(self._with_rings) > self._most_rings:
            quiet = next(iter(self._with_rings))
            del self._with_rings[quiet]
            self._series[quiet].rings = None
            self._series[quiet].lost = True


def _first_slot(series: _Series, step_ms: int, slots: int) -> int:
    return max(series.since_ms, series.at_ms - (slots - 1) * step_ms)


def _flat(series: _Series, now_ms: int, step_ms: int, count: int) -> list[float | None] | Missing:
    """A series that never changed: one value from its first sample to its last."""
    if series.lost:
        return NOT_KEPT
    slot = now_ms // step_ms
    first, last = series.since_ms // step_ms, series.at_ms // step_ms
    return [
        series.value if first <= one <= last else None for one in range(slot - count + 1, slot + 1)
    ]
