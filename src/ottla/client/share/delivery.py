"""The states of delivered offsets. Pure.

- A `Delivery` is the records that one response acquired from one partition. Each of its offsets has
  a state, a byte: a kind of acknowledgement that waits to be sent, or one of the below.

    WAITING  decoded, not yet given to the caller     -> HELD when it is given; DONE when the lock
                                                         ends before that
    HELD     given, nothing said yet                  -> a kind, by the caller or an implicit poll
    kind     said, may be overwritten                 -> SENT with the next request
    SENT     on its way, cannot be changed            -> DONE; RENEWED by a renewal; HELD again if
                                                         the broker could not accept or renew now
    RENEWED  as HELD, but does not stop a poll
    DONE     not ours any more

- Offsets that were acquired and have no record are gaps; they are acknowledged as such.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from copy import copy
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.share.types import Kind
from ottla.wire.schema.share_fetch import AcknowledgementBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.cluster.view import TopicPartition
    from ottla.wire.schema.share_fetch import AcquiredRecords

WAITING: Final = 0xF0
HELD: Final = 0xF1
SENT: Final = 0xF2
RENEWED: Final = 0xF3
DONE: Final = 0xF4

# A topic's id and a partition: how share requests name partitions.
Key = tuple[bytes, int]

# Kinds that wait to be sent.
PENDING: Final = re.compile(rb"[\x00-\x04]+")


class Span(NamedTuple):
    """An acquired range and the state of each of its offsets."""

    first: int
    delivery_count: int
    states: bytearray

    @property
    def end(self) -> int:
        return self.first + len(self.states)


class Delivery:
    """Offsets that one response acquired from one partition; gaps until records are decoded."""

    __slots__ = (
        "expires",
        "firsts",
        "is_renewable",
        "key",
        "lost",
        "node",
        "number",
        "partition",
        "spans",
    )

    def __init__(
        self,
        number: int,
        node: int,
        key: Key,
        partition: TopicPartition,
        acquired: Sequence[AcquiredRecords],
        expires: float,
    ) -> None:
        self.number = number
        self.node = node
        self.key = key
        self.partition = partition
        self.expires = expires
        self.is_renewable = True
        self.lost = False
        self.spans = [
            Span(one.first_offset, one.delivery_count, bytearray(_length(one))) for one in acquired
        ]
        self.firsts = [span.first for span in self.spans]

    def __len__(self) -> int:
        """How many offsets were acquired."""
        return sum(len(span.states) for span in self.spans)

    def copy(self) -> Delivery:
        """The same ranges with states of their own."""
        made = copy(self)
        made.spans = [span._replace(states=bytearray(span.states)) for span in self.spans]
        return made

    def span_of(self, offset: int) -> Span | None:
        """The range that holds an offset."""
        at = bisect_right(self.firsts, offset) - 1
        return self.spans[at] if at >= 0 and offset < self.spans[at].end else None

    def mark(self, first: int, end: int, state: int) -> None:
        """Put all acquired offsets of a range into a state."""
        for span in self.spans:
            low, high = max(first, span.first), min(end, span.end)
            if low < high:
                span.states[low - span.first : high - span.first] = bytes([state]) * (high - low)

    def count(self, state: int) -> int:
        return sum(span.states.count(state) for span in self.spans)

    def translate(self, table: bytes) -> None:
        for span in self.spans:
            span.states[:] = span.states.translate(table)

    @property
    def is_done(self) -> bool:
        return all(span.states.count(DONE) == len(span.states) for span in self.spans)

    @property
    def has_pending(self) -> bool:
        return any(PENDING.search(span.states) for span in self.spans)


class Sent(NamedTuple):
    """Acknowledgements of neighbouring offsets that left with a request."""

    delivery: Delivery
    span: Span
    at: int
    kinds: bytes

    @property
    def first_offset(self) -> int:
        return self.span.first + self.at


def ack_batches(sent: list[Sent]) -> dict[Key, list[AcknowledgementBatch]]:
    """Acknowledgements as requests carry them: by partition, ascending, one type where that does.

    Mixed ones have a type for each offset, a byte, which is shorter than a range for each run.
    """
    batches: dict[Key, list[AcknowledgementBatch]] = {}
    for one in sorted(sent, key=lambda one: one.first_offset):
        last = one.first_offset + len(one.kinds) - 1
        uniform = one.kinds.count(one.kinds[0]) == len(one.kinds)
        types = list(one.kinds[:1] if uniform else one.kinds)
        batch = AcknowledgementBatch(one.first_offset, last, types)
        batches.setdefault(one.delivery.key, []).append(batch)
    return batches


def has_renewals(sent: list[Sent]) -> bool:
    """Whether a request with these has to say that it renews."""
    return any(Kind.RENEW in one.kinds for one in sent)


def _length(acquired: AcquiredRecords) -> int:
    return acquired.last_offset - acquired.first_offset + 1
