"""Arithmetic on sets of offsets with delivery counts, by partition. Pure.

Ranges of a partition are sorted and do not overlap; neighbours with one count are one range. No
function changes what it is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.client.cluster.view import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class Span(NamedTuple):
    """Offsets from `first` to `last`, both included, delivered so many times so far."""

    first: int
    last: int
    deliveries: int = 1

    @property
    def size(self) -> int:
        """How many offsets."""
        return self.last - self.first + 1


Spans: TypeAlias = dict[TopicPartition, list[Span]]


def size(spans: Spans) -> int:
    """How many offsets."""
    return sum(one.size for some in spans.values() for one in some)


def pieces(spans: Spans) -> int:
    """How many ranges."""
    return sum(map(len, spans.values()))


def offsets(spans: Spans) -> Iterator[tuple[TopicPartition, int]]:
    """Each offset with its partition."""
    for place, some in spans.items():
        for one in some:
            for offset in range(one.first, one.last + 1):
                yield place, offset


def plus(spans: Spans, more: Spans) -> Spans:
    """The union; in overlaps the counts of `more` win."""
    found = dict(minus(spans, more))
    for place, some in more.items():
        found[place] = _joined([*found.get(place, ()), *some])
    return found


def minus(spans: Spans, less: Spans) -> Spans:
    """The difference of two sets of ranges."""
    found: Spans = {}
    for place, some in spans.items():
        left = list(_outside(some, less[place])) if place in less else some
        if left:
            found[place] = left
    return found


def common(spans: Spans, others: Spans) -> Spans:
    """The intersection, with the counts of the first."""
    return minus(spans, minus(spans, others))


def below(spans: Spans, ends: Mapping[TopicPartition, int]) -> Spans:
    """The parts below the end of their partitions; other partitions are dropped."""
    found: Spans = {}
    for place, some in spans.items():
        end = ends.get(place, 0)
        left = [one._replace(last=min(one.last, end - 1)) for one in some if one.first < end]
        if left:
            found[place] = left
    return found


def part(spans: Spans, records: int, most_pieces: int) -> Spans:
    """About this many records in at most this many ranges, a share of each partition."""
    total = size(spans)
    found: Spans = {}
    for place, some in sorted(spans.items()):
        wanted = max(1, records * size({place: some}) // total) if total > records else total
        taken: list[Span] = []
        for one in some:
            if wanted <= 0 or most_pieces <= 0:
                break
            taken.append(one._replace(last=min(one.last, one.first + wanted - 1)))
            wanted -= taken[-1].size
            most_pieces -= 1
        if taken:
            found[place] = taken
    return found


def to_json(spans: Spans) -> dict[str, dict[str, list[list[int]]]]:
    """The JSON of a checkpoint, in a fixed order."""
    found: dict[str, dict[str, list[list[int]]]] = {}
    for place in sorted(spans):
        found.setdefault(place.topic, {})[str(place.partition)] = [list(s) for s in spans[place]]
    return found


def from_json(found: Mapping[str, Mapping[str, Iterable[Iterable[int]]]]) -> Spans:
    """Parse the result of `to_json`."""
    return {
        TopicPartition(topic, int(partition)): [Span(*one) for one in some]
        for topic, partitions in found.items()
        for partition, some in partitions.items()
    }


def _outside(some: list[Span], holes: list[Span]) -> Iterator[Span]:
    at = 0
    for span in some:
        one = span
        while at < len(holes) and holes[at].last < one.first:
            at += 1
        index = at
        while index < len(holes) and holes[index].first <= one.last:
            hole = holes[index]
            if one.first < hole.first:
                yield one._replace(last=hole.first - 1)
            one = one._replace(first=hole.last + 1)
            index += 1
        if one.first <= one.last:
            yield one


def _joined(some: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for one in sorted(some):
        last = joined[-1] if joined else None
        if last is not None and last.last + 1 == one.first and last.deliveries == one.deliveries:
            joined[-1] = last._replace(last=one.last)
        else:
            joined.append(one)
    return joined
