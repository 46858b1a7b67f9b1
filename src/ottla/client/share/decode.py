"""Decode the acquired records of a share fetch.

- A batch that does not hold what its checksum says, or cannot be read, is rejected: it would be the
  same for everyone. Bytes in which no batch can be found are released: they may be whole elsewhere.
- Acquired offsets without a record stay gaps.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.share.delivery import WAITING, Delivery
from ottla.client.share.types import Kind, ShareRecord, UndecodableRecords
from ottla.wire.batch import iter_batches
from ottla.wire.errors import WireError
from ottla.wire.records import iter_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ottla.wire.batch import RecordBatch

    BulkReader = Callable[[Delivery, Sequence[RecordBatch]], list[ShareRecord] | None]

# Reading so many one by one takes a part of a second, as loading compiled code does, which is for
# consumers that read far more than that. Where something else has loaded it, it costs little.
BULK_AFTER: Final = 200_000
KERNELS: Final = "ottla.wire.kernels.decode"


class Arrival(NamedTuple):
    """Undecoded bytes of one partition in one answer."""

    delivery: Delivery
    records: memoryview


class Arrivals:
    """Deliveries not decoded yet, without those that this consumer has lost."""

    def __init__(self) -> None:
        self._waiting: deque[Arrival] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, arrival: Arrival) -> None:
        self._waiting.append(arrival)

    def first(self, most: int) -> list[Arrival]:
        """The limit of a poll's result; only a single arrival may be larger."""
        found: list[Arrival] = []
        count = 0
        for arrival in self._waiting:
            if count >= most:
                break
            count += len(arrival.delivery)
            found.append(arrival)
        return found

    def take(self, arrival: Arrival) -> bool:
        """Remove one that was decoded; False if it was lost meanwhile."""
        before = len(self._waiting)
        self._waiting = deque(one for one in self._waiting if one is not arrival)
        return len(self._waiting) < before

    def take_others(self, topics: Collection[str]) -> list[Arrival]:
        """Remove deliveries of other topics."""
        others = [one for one in self._waiting if one.delivery.partition.topic not in topics]
        self._waiting = deque(
            one for one in self._waiting if one.delivery.partition.topic in topics
        )
        return others

    def expire(self, now: float) -> None:
        """Drop deliveries whose locks have expired; the broker may have given them to others."""
        self._waiting = deque(one for one in self._waiting if one.delivery.expires > now)

    def lose(self, node: int) -> None:
        """Drop deliveries of a session that has ended."""
        self._waiting = deque(one for one in self._waiting if one.delivery.node != node)


def sound_batches(arrival: Arrival) -> tuple[list[RecordBatch], UndecodableRecords | None]:
    """The batches with data whose checksums hold, and what is wrong with the others."""
    sound: list[RecordBatch] = []
    spoiled: UndecodableRecords | None = None
    delivery = arrival.delivery
    reached = delivery.firsts[0] if delivery.firsts else 0
    try:
        for batch in iter_batches(arrival.records):
            reached = batch.next_offset
            try:
                batch.verify_crc()
            except WireError as error:
                spoiled = reject(delivery, batch, error)
            else:
                if not batch.is_control:
                    sound.append(batch)
    except WireError as error:
        delivery.mark(reached, delivery.spans[-1].end, Kind.RELEASE)
        spoiled = UndecodableRecords(
            f"{delivery.partition} from offset {reached} on is given back: {error}"
        )
        spoiled.__cause__ = error
    return sound, spoiled


def reject(delivery: Delivery, batch: RecordBatch, error: WireError) -> UndecodableRecords:
    """Give up on the acquired records of a batch."""
    delivery.mark(batch.base_offset, batch.next_offset, Kind.REJECT)
    last = batch.last_offset
    spoiled = UndecodableRecords(
        f"{delivery.partition} offsets {batch.base_offset} to {last} are rejected: {error}; "
        "read them with a Reader to see what is there"
    )
    spoiled.__cause__ = error
    return spoiled


def read_records(
    arrival: Arrival, bulk: BulkReader | None = None
) -> tuple[list[ShareRecord], UndecodableRecords | None]:
    """The acquired records, now waiting to be given to the caller; the last thing that is wrong."""
    batches, spoiled = sound_batches(arrival)
    found = None if bulk is None else bulk(arrival.delivery, batches)
    if found is not None:
        return found, spoiled
    found = []
    for batch in batches:
        try:
            found += _acquired(arrival.delivery, batch)
        except WireError as error:
            spoiled = reject(arrival.delivery, batch, error)
    return found, spoiled


class BulkLoader:
    """Loads compiled code, in a thread, when so many records have come that it pays."""

    def __init__(self) -> None:
        self.records = 0
        """How many have come."""
        self._loading: asyncio.Future[BulkReader | None] | None = None

    @property
    def reader(self) -> BulkReader | None:
        """None where there is none, or none yet."""
        if self._loading is not None:
            return self._loading.result() if self._loading.done() else None
        if self.records >= BULK_AFTER or KERNELS in sys.modules:
            self._loading = asyncio.get_running_loop().run_in_executor(None, load_bulk)
        return None


def load_bulk() -> BulkReader | None:
    """The faster way to read many, unless the `arrow` extra is missing. Takes a second or so."""
    try:
        from ottla.client.share import bulk as share_bulk
    except ImportError:
        return None
    share_bulk.load()
    return share_bulk.read_many


def _acquired(delivery: Delivery, batch: RecordBatch) -> list[ShareRecord]:
    topic, partition = delivery.partition
    kind = int(batch.is_log_append_time)
    number = delivery.number
    found: list[ShareRecord] = []
    first = end = count = 0
    states = bytearray()
    for offset, timestamp, key, value, headers in iter_fields(batch):
        if not first <= offset < end:
            # Offsets rise, and most ranges hold many.
            span = delivery.span_of(offset)
            if span is None:
                continue
            first, count, states = span
            end = span.end
        states[offset - first] = WAITING
        fields = (topic, partition, offset, timestamp, kind, key, value, headers, count, number)
        # What the class does, without its detour through Python.
        found.append(tuple.__new__(ShareRecord, fields))
    return found
