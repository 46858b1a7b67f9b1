"""Offsets of a query: a position per partition, their JSON, and where a batch may end. Pure.

Rules:

- The JSON is that of Spark's Kafka source, `{"topic": {"0": 5}}` with the next offset to read, so
  that a checkpoint can be continued by either. Topics and partitions are in order: Spark compares
  texts to find out that nothing is new.
- The end of a query's first batch also carries where that batch started, under a key no topic can
  have. Spark asks for the start again after a crash, when "latest" is a different place.
- The share of a partition in a limited batch is in proportion to its backlog, and at least one
  record, rounded as Spark's Kafka source does. A limit in bytes is shared alike, by backlogs in
  bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from ottla.client.cluster.view import TopicPartition
from ottla.spark.errors import BadCheckpoint, BadOption

Offsets: TypeAlias = dict[TopicPartition, int]
OffsetJson: TypeAlias = dict[str, dict[str, int]]

LATEST: Final = -1
EARLIEST: Final = -2

INITIAL_KEY: Final = "@initial"
"""Not a topic: `@` is not allowed in the names of topics."""


@dataclass(frozen=True, slots=True)
class AtEnd:
    """One end of every log: EARLIEST or LATEST."""

    end: int


@dataclass(frozen=True, slots=True)
class Given:
    """An offset for each partition; EARLIEST and LATEST stand for the ends of its log."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time in milliseconds, for all partitions or for each."""

    times: int | Offsets
    or_latest: bool


@dataclass(frozen=True, slots=True)
class OfGroup:
    """The committed offsets of a group; the beginning for other partitions."""

    group: str


@dataclass(frozen=True, slots=True)
class OfStore:
    """The positions in an offset store; the beginning for other partitions."""

    key: str


Where: TypeAlias = AtEnd | Given | AtTime | OfGroup | OfStore


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, object]:
    """Offsets as Spark keeps them in its checkpoint."""
    found: dict[str, object] = {}
    for topic, partition in sorted(offsets):
        of_topic = found.setdefault(topic, {})
        assert isinstance(of_topic, dict)
        of_topic[str(partition)] = offsets[TopicPartition(topic, partition)]
    return found


def from_json(found: Mapping[str, object], *, option: str | None = None) -> Offsets:
    """Offsets from an option or a checkpoint, without further fields."""
    offsets: Offsets = {}
    for topic, partitions in found.items():
        if topic == INITIAL_KEY:
            continue
        if not isinstance(partitions, Mapping):
            raise _no_offsets(option, found)
        for partition, offset in partitions.items():
            if not str(partition).isdecimal() or type(offset) is not int:
                raise _no_offsets(option, found)
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def _no_offsets(option: str | None, found: object) -> BadOption | BadCheckpoint:
    if option is None:
        return BadCheckpoint(
            f"the checkpoint is not one of a query on topics, it holds {str(found)[:200]}: give "
            "the query a checkpointLocation of its own"
        )
    return BadOption(
        f'{option}: expected offsets as {{"topic": {{"0": 23, "1": 42}}}}, got {str(found)[:200]}'
    )


def first_end(initial: Offsets, end: Offsets) -> dict[str, object]:
    """The end of a query's first batch, with where it started."""
    return {**to_json(end), INITIAL_KEY: to_json(initial)}


def batch_start(start: Mapping[str, object], end: Mapping[str, object]) -> Offsets:
    """The start of a batch: that in its end offset takes precedence over Spark's.

    A start that carries a place is the end of the first batch, and is used as it is.
    """
    carried = None if INITIAL_KEY in start else end.get(INITIAL_KEY)
    return from_json(carried if isinstance(carried, Mapping) else start)


def backlog(start: Offsets, latest: Offsets) -> int:
    """How many offsets wait; partitions without a start are read from 0."""
    return sum(max(0, end - start.get(place, 0)) for place, end in latest.items())


def limited(start: Offsets, latest: Offsets, limit: int) -> Offsets:
    """Where a batch of about `limit` records ends."""
    waiting = _waiting(start, latest)
    total = float(sum(waiting.values()))
    end = dict(latest)
    for place, size in waiting.items():
        share = limit * (size / total)
        whole = math.ceil(share) if share < 1 else math.floor(share)
        end[place] = min(latest[place], start.get(place, 0) + whole)
    return end


def limited_bytes(
    start: Offsets, latest: Offsets, limit: int, sizes: Mapping[TopicPartition, float]
) -> Offsets:
    """Where a batch of about `limit` bytes ends; `sizes` is how many an offset takes.

    A partition of unknown size counts as the mean of the others; if all are unknown, there is no
    limit.
    """
    known = [sizes[place] for place in latest if place in sizes]
    if not known:
        return dict(latest)
    mean = sum(known) / len(known)
    waiting = _waiting(start, latest)
    total = sum(count * sizes.get(place, mean) for place, count in waiting.items())
    end = dict(latest)
    if total <= limit:
        return end
    # A share in bytes by the bytes of an offset is the same part of all backlogs.
    for place, count in waiting.items():
        whole = max(1, math.floor(count * (limit / total)))
        end[place] = min(latest[place], start.get(place, 0) + whole)
    return end


def _waiting(start: Offsets, latest: Offsets) -> Offsets:
    return {
        place: end - start.get(place, 0)
        for place, end in latest.items()
        if end > start.get(place, 0)
    }


def capped(latest: Offsets, target: Offsets | None) -> Offsets:
    """`latest`, but no further than the target that was fixed when the query started."""
    if target is None:
        return latest
    return {place: min(latest.get(place, end), end) for place, end in target.items()}


@dataclass(slots=True)
class Pace:
    """Whether to wait for more: until `least` records are there or the last batch is old enough.

    The first batch never waits. Times are seconds of any steady clock.
    """

    least: int
    longest: float
    _last: float = -math.inf

    def is_due(self, waiting: int, now: float) -> bool:
        """Whether a batch of this size starts now."""
        if not waiting or (waiting < self.least and now - self._last < self.longest):
            return False
        self._last = now
        return True


def assigned(where: Given | AtTime, partitions: set[TopicPartition], option: str) -> None:
    """Raise unless the partitions that an option names are those of the query."""
    named = where.offsets if isinstance(where, Given) else where.times
    if isinstance(named, int) or named.keys() == partitions:
        return
    raise BadOption(
        f"{option} has to name all partitions of the query and no others: it names "
        f"{_names(set(named))}, the query reads {_names(partitions)}"
    )


def _names(partitions: set[TopicPartition]) -> str:
    some = ", ".join(str(one) for one in sorted(partitions)[:10])
    return some + (f" and {len(partitions) - 10} more" if len(partitions) > 10 else "")
