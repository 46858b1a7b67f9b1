"""Records that a share consumer holds, and their acknowledgements. Pure.

Rules:

- The states of offsets are those of `share_delivery`.
- When a session ends, its deliveries are lost: the records are delivered again. Acknowledging a
  lost record does nothing and returns a failure instead of raising: the caller did nothing wrong.
- A record that is delivered again while an older delivery holds it belongs to the newer one.
- Nothing turns into an acceptance unless the caller was given the record.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.client.errors import KafkaError, UnsupportedApi
from ottla.client.share.delivery import DONE, HELD, PENDING, RENEWED, SENT, WAITING, Sent
from ottla.client.share.types import Acknowledged, Kind, RecordNotHeld, UnacknowledgedRecords
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from ottla.client.cluster.view import TopicPartition
    from ottla.client.errors import ClientError
    from ottla.client.share.delivery import Delivery, Key, Span

# The broker could not write the acknowledgement; the record is still locked for this consumer.
STILL_HELD: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)

# States of records that the caller may acknowledge.
_SAYABLE_STATES: Final = bytes([*range(Kind.ACCEPT, Kind.RENEW + 1), HELD, RENEWED])
_SAYABLE: Final = re.compile(b"[%b]+" % _SAYABLE_STATES)
_RUN: Final = re.compile(rb"(.)\1*", re.DOTALL)
_NAMES: Final = {int(kind): kind.name.lower() for kind in Kind}
_OPEN: Final = re.compile(b"[%b]+" % bytes([WAITING, HELD, RENEWED]))


def _table(before: int, after: int) -> bytes:
    """A change of one state, for `bytes.translate`."""
    return bytes([after if state == before else state for state in range(256)])


_GIVEN: Final = _table(WAITING, HELD)
_ACCEPTED: Final = _table(HELD, Kind.ACCEPT)
_RELEASED: Final = _table(WAITING, Kind.RELEASE)
_EXPIRED: Final = _table(WAITING, DONE)
_TAKEN: Final = bytes([SENT if state <= Kind.RENEW else state for state in range(256)])
# The caller cannot acknowledge again what a poll or the decoding acknowledged; the lock will end.
_NOT_YET: Final = bytes(
    [HELD if said in (Kind.ACCEPT, Kind.RENEW) else DONE for said in range(256)]
)
_SETTLED: Final = bytes([RENEWED if state == Kind.RENEW else DONE for state in range(256)])


class Ledger:
    """All open deliveries; the caller takes `results`."""

    def __init__(self) -> None:
        self.results: deque[Acknowledged] = deque()
        self.heads: dict[int, tuple[int, bytearray]] = {}
        """For each delivery that is not lost, by number: the first offset of the first range, and
        the states there. For callers that acknowledge so many records that each call counts."""
        self._deliveries: dict[int, Delivery] = {}

    def add(self, delivery: Delivery) -> None:
        """Take in a decoded delivery; it has the records that older ones held."""
        for older in self._deliveries.values():
            if older.key == delivery.key:
                for span in delivery.spans:
                    self._supersede(older, span)
        self._deliveries[delivery.number] = delivery
        self.heads[delivery.number] = delivery.firsts[0], delivery.spans[0].states

    def give(self, number: int, offset: int) -> None:
        """One record that waited goes to the caller."""
        span = self._deliveries[number].span_of(offset)
        assert span is not None
        span.states[offset - span.first] = HELD

    def give_all(self) -> None:
        """All that waited goes to the caller."""
        self._translate(_GIVEN)

    def accept_held(self) -> None:
        """Accept all delivered records without a decision."""
        self._translate(_ACCEPTED)

    def release_waiting(self, keep: Collection[str] = ()) -> None:
        """Release undelivered records, except of these topics."""
        for delivery in self._deliveries.values():
            if not delivery.lost and delivery.partition.topic not in keep:
                delivery.translate(_RELEASED)

    def acknowledge(self, number: int, offset: int, kind: Kind) -> None:
        """Set the decision on one record."""
        delivery = self._deliveries.get(number)
        if delivery is None:
            raise RecordNotHeld(_not_held(f"the record at offset {offset}"))
        span = delivery.span_of(offset)
        if span is None or span.states[offset - span.first] not in _SAYABLE_STATES:
            raise RecordNotHeld(_not_held(f"the record {delivery.partition} at {offset}"))
        if delivery.lost:
            self._report(delivery, offset, bytes([kind]), _lost(delivery))
        span.states[offset - span.first] = DONE if delivery.lost else kind

    def acknowledge_range(
        self, partition: TopicPartition, first: int, end: int, kind: Kind
    ) -> None:
        """Set the decision on consecutive records: all of them, or raise."""
        found = [
            (delivery, span, run)
            for delivery in self._deliveries.values()
            if delivery.partition == partition
            for span in delivery.spans
            if span.first < end and first < span.end
            for run in _SAYABLE.finditer(
                bytes(span.states), max(first - span.first, 0), end - span.first
            )
        ]
        # No offset can be decided about in two deliveries, so what adds up is complete.
        if sum(len(run.group()) for *_, run in found) != end - first:
            raise RecordNotHeld(_not_held(f"one of {partition} at {first} to {end - 1}"))
        for delivery, span, run in found:
            said = bytes([kind]) * len(run.group())
            if delivery.lost:
                self._report(delivery, span.first + run.start(), said, _lost(delivery))
            new = bytes([DONE]) * len(said) if delivery.lost else said
            span.states[run.start() : run.end()] = new

    def is_waiting(self, number: int, offset: int) -> bool:
        """Whether a record can be given to the caller."""
        delivery = self._deliveries.get(number)
        span = None if delivery is None or delivery.lost else delivery.span_of(offset)
        return span is not None and span.states[offset - span.first] == WAITING

    @property
    def waiting(self) -> int:
        """How many records can be given to the caller."""
        return self._count(WAITING)

    def expire_waiting(self, now: float) -> None:
        """Drop undelivered records whose lock has ended."""
        for delivery in self._deliveries.values():
            if delivery.expires <= now:
                delivery.translate(_EXPIRED)

    @property
    def undecided(self) -> int:
        """Number of delivered records without a decision."""
        return self._count(HELD)

    def refuse_undecided(self) -> None:
        """Raise if a delivered record has no decision."""
        if undecided := self.undecided:
            raise UnacknowledgedRecords(
                f"{undecided} records of the last poll are undecided; acknowledge each of them, "
                'with "release" if another attempt should be made'
            )

    def nodes_with_pending(self) -> set[int]:
        """Where acknowledgements wait to be sent."""
        return {one.node for one in self._deliveries.values() if one.has_pending}

    def take(self, node: int) -> list[Sent]:
        """All acknowledgements for a node; call `settle` with their outcome."""
        taken = []
        for delivery in self._at(node):
            for span in delivery.spans:
                taken += [
                    Sent(delivery, span, found.start(), found.group())
                    for found in PENDING.finditer(bytes(span.states))
                ]
                span.states[:] = span.states.translate(_TAKEN)
        return taken

    def renewals(self, node: int, before: float) -> list[Sent]:
        """Renewals of undecided records whose lock ends before a time.

        They are no acknowledgements: states stay as they are, and nothing is reported.
        """
        return [
            Sent(delivery, span, found.start(), bytes([Kind.RENEW]) * len(found.group()))
            for delivery in self._at(node)
            if delivery.expires < before and delivery.is_renewable and not delivery.lost
            for span in delivery.spans
            for found in _OPEN.finditer(bytes(span.states))
        ]

    def settle(self, sent: list[Sent], error_of: Callable[[Key], ClientError | None]) -> None:
        """Apply the outcome of sent acknowledgements."""
        for one in sent:
            error = error_of(one.delivery.key)
            if error is None:
                after = one.kinds.translate(_SETTLED)
            elif _is_still_held(error):
                after = one.kinds.translate(_NOT_YET)
            else:
                after = bytes([DONE]) * len(one.kinds)
            where = slice(one.at, one.at + len(one.kinds))
            before = one.span.states[where]
            if before.count(SENT) < len(before):
                # Part of it belongs to a newer delivery by now.
                after = bytes(
                    new if old == SENT else old for old, new in zip(before, after, strict=True)
                )
            one.span.states[where] = after
            self._report(one.delivery, one.first_offset, one.kinds, error)
        self._sweep()

    def lose(self, node: int) -> None:
        """A session has ended: its records are lost."""
        for delivery in self._at(node):
            if delivery.lost:
                continue
            delivery.lost = True
            self.heads.pop(delivery.number, None)
            for span in delivery.spans:
                self._fail_pending(delivery, span, 0, len(span.states), _lost(delivery))

    def forget_lost(self) -> None:
        """Forget lost records."""
        for number in [one.number for one in self._deliveries.values() if one.lost]:
            del self._deliveries[number]

    def _count(self, state: int) -> int:
        return sum(one.count(state) for one in self._deliveries.values() if not one.lost)

    def _at(self, node: int) -> Iterator[Delivery]:
        return (one for one in self._deliveries.values() if one.node == node)

    def _translate(self, table: bytes) -> None:
        for delivery in self._deliveries.values():
            if not delivery.lost:
                delivery.translate(table)

    def _supersede(self, older: Delivery, newer: Span) -> None:
        error = KafkaError(ErrorCode.INVALID_RECORD_STATE, f"acknowledge {older.partition}")
        for span in older.spans:
            low, high = max(span.first, newer.first), min(span.end, newer.end)
            if low < high:
                start, stop = low - span.first, high - span.first
                self._fail_pending(older, span, start, stop, error)
                span.states[start:stop] = bytes([DONE]) * (stop - start)

    def _fail_pending(
        self, delivery: Delivery, span: Span, start: int, stop: int, error: ClientError
    ) -> None:
        for found in PENDING.finditer(bytes(span.states), start, stop):
            self._report(delivery, span.first + found.start(), found.group(), error)
            span.states[found.start() : found.end()] = bytes([DONE]) * len(found.group())

    def _report(
        self, delivery: Delivery, first: int, kinds: bytes, error: ClientError | None
    ) -> None:
        topic, partition = delivery.partition
        for start, end in _runs(kinds):
            low, high = first + start, first + end - 1
            kind = _NAMES[kinds[start]]
            self.results.append(Acknowledged(topic, partition, low, high, kind, error))

    def _sweep(self) -> None:
        for number in [one.number for one in self._deliveries.values() if one.is_done]:
            del self._deliveries[number]
            self.heads.pop(number, None)


def _runs(kinds: bytes) -> Iterable[tuple[int, int]]:
    """Where equal neighbours begin and end; mostly all are equal."""
    if kinds.count(kinds[0]) == len(kinds):
        return [(0, len(kinds))]
    return (run.span() for run in _RUN.finditer(kinds))


def _is_still_held(error: ClientError) -> bool:
    if isinstance(error, UnsupportedApi):
        return True  # there was no request
    return isinstance(error, KafkaError) and error.code in STILL_HELD


def _lost(delivery: Delivery) -> KafkaError:
    what = f"acknowledge {delivery.partition}"
    return KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, what, "its session has ended")


def _not_held(what: str) -> str:
    return (
        f"{what} is not held: it was acknowledged before or came with an older delivery; "
        "acknowledge each record once, before the poll after its own"
    )
