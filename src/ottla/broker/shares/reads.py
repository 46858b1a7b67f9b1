"""Serve one fetch of a share-partition: read the log, and cut out the delivered records.

- A read is bounded by bytes and a turn by records: with small batches a read may hold ten thousand
  of them for a turn that takes five hundred. The rest is kept for the next turn, which usually
  continues there; batches are not parsed before a turn reaches them.
- Of large batches only the headers are read; the bytes of those that a turn delivers are read then,
  or left to the kernel as views of the mapped file (`ottla.log.mapped`).
- Batches are sent as they were read: neighbours in one piece.
- Records that a tiered log no longer has on local disk come from `cold`, a little later.
- Records that are on disk alone are read by a worker. A turn that meets them ends without, and
  members that wait are woken when they have come.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.errors import (
    LogError,
    NotAtHand,
    OffsetMovedToTieredStorage,
    OffsetOutOfRange,
)
from ottla.sharing.values import LogBatch
from ottla.wire.batch import iter_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.shares.cold import ColdReads
    from ottla.broker.workers import Workers
    from ottla.log.index import AbortedTransaction
    from ottla.log.partition import PartitionLog
    from ottla.log.segment import FoundBatches
    from ottla.sharing.partition import SharePartition
    from ottla.sharing.values import FetchTurn
    from ottla.wire.batch import RecordBatch
    from ottla.wire.schema.share_fetch import AcquiredRecords

# One read of the log. A turn that wants more reads again.
READ_BYTES: Final = 1024 * 1024
# Reads that are kept, of all share-partitions: 32 MiB, unless batches are larger than a read.
MAX_KEPT: Final = 32
# Reads without deliverable records before other clients are served.
MAX_LOOKS: Final = 16

logger = logging.getLogger(__name__)


class Piece(NamedTuple):
    """A batch, and its place in the bytes read, or among those found in a file."""

    batch: RecordBatch
    source: memoryview | FoundBatches
    start: int


class UnusedReads:
    """Bytes of one log that were read and not used yet; `came` is called when a worker has read."""

    def __init__(self, hosted: HostedPartition, workers: Workers, came: Callable[[], None]) -> None:
        self._hosted = hosted
        self._workers = workers
        self._came = came
        self._from = 0
        self._pieces: deque[Piece] = deque()
        self._unseen: Iterator[Piece] = iter(())
        self._reading: asyncio.Future[Sequence[bytes | memoryview] | LogError] | None = None
        self._read_from = -1

    def clear(self) -> None:
        """Keep nothing."""
        self._pieces.clear()
        self._unseen = iter(())
        if self._reading is not None and self._reading.done():
            self._reading = None

    def at(
        self, offset: int, stop: int, bound: int, max_bytes: int, *, min_one: bool
    ) -> list[Piece]:
        """The batches from the one at an offset on that begin below `stop`, all below `bound`.

        The first one comes wherever it begins: if that is later than the offset, what lies before
        it is known to be missing from the log. With `min_one` it comes whatever its size, too.
        Raises what the log does if it does not have the offset, or has it elsewhere or on disk
        alone (then `read_from_disk` is to be called).
        """
        # Of what has left the local disk, the log cannot say any more which of it was aborted.
        log = self._hosted.log
        is_kept = max(self._from, log.local_start_offset) <= offset and self._pass(offset)
        if not is_kept:
            chunks = self._taken(offset, bound)
            self._pieces.clear()
            self._unseen = iter(())
            if chunks is None:
                most = min(max_bytes, READ_BYTES)
                found = log.look_up(offset, stop, most, upper_bound_offset=bound)
                if found is not None:
                    return _fitting(_found(found), max_bytes, min_one=min_one)
                chunks, _ = log.read(
                    offset, READ_BYTES, upper_bound_offset=bound, min_one_message=True, wait=False
                )
            self._unseen = _pieces(chunks)
            self._pass(offset)
        return _fitting(_chosen(self._each(), stop, bound, max_bytes), max_bytes, min_one=min_one)

    def read_from_disk(self, offset: int, bound: int, *, committed: bool) -> None:
        """Let a worker read from an offset on, unless one does already."""
        if self._reading is None or self._reading.done():
            self._read_from = offset
            read = partial(_from_disk, self._hosted.log, offset, bound, committed=committed)
            self._reading = asyncio.ensure_future(self._workers.read(read))
            self._reading.add_done_callback(self._ended)

    def _ended(self, reading: asyncio.Future[Sequence[bytes | memoryview] | LogError]) -> None:
        if reading.cancelled() or (error := reading.exception()) is not None:
            if not reading.cancelled():
                logger.error("a read of %r failed", self._hosted, exc_info=error)
            self._reading = None
        self._came()

    def _taken(self, offset: int, bound: int) -> Sequence[bytes | memoryview] | None:
        """What a worker has read from this very offset on."""
        reading = self._reading
        if reading is None or not reading.done():
            return None
        self._reading = None
        if self._read_from != offset:
            return None
        self._hosted.log.require_readable(offset, bound)
        found = reading.result()
        if isinstance(found, LogError):
            raise found
        return found

    def _pass(self, offset: int) -> bool:
        """Drop batches before an offset; returns whether any are left."""
        self._from = offset
        for piece in self._each():
            if piece.batch.next_offset > offset:
                return True
            self._pieces.popleft()
        return False

    def _each(self) -> Iterator[Piece]:
        """Yield the kept batches, parsing further ones as needed."""
        yield from tuple(self._pieces)
        for piece in self._unseen:
            self._pieces.append(piece)
            yield piece


def _from_disk(
    log: PartitionLog, offset: int, bound: int, *, committed: bool
) -> Sequence[bytes | memoryview] | LogError:
    """In a worker. Indexes of aborted transactions are in memory afterwards, too."""
    try:
        found = log.read_files(offset, READ_BYTES, upper_bound_offset=bound, min_one_message=True)
        if committed:
            log.aborted_in(offset, found.chunks)
    except LogError as error:
        return error
    return found.chunks


class KeptReads:
    """Which share-partitions have reads: those that were read last."""

    def __init__(self) -> None:
        self._order: OrderedDict[UnusedReads, None] = OrderedDict()

    def use(self, ahead: UnusedReads) -> UnusedReads:
        """One that is about to read."""
        self._order[ahead] = None
        self._order.move_to_end(ahead)
        if len(self._order) > MAX_KEPT:
            self._order.popitem(last=False)[0].clear()
        return ahead

    def drop(self, ahead: UnusedReads) -> None:
        """One that reads no more."""
        self._order.pop(ahead, None)
        ahead.clear()


class Delivered(NamedTuple):
    """Records of one fetch from one share-partition."""

    ranges: list[AcquiredRecords]
    records: list[bytes | memoryview]
    size: int
    offsets: int


NOTHING: Final = Delivered([], [], 0, 0)


def deliver(
    log: PartitionLog,
    ahead: UnusedReads,
    cold: ColdReads,
    machine: SharePartition,
    turn: FetchTurn,
    max_bytes: int,
    *,
    committed: bool,
    views: bool,
    min_one: bool,
    now_ms: int,
) -> Delivered:
    """Read until the limits are reached or the log has no more.

    With `views` records may be views of mapped files, which only the kernel may read. With
    `min_one` the first batch is delivered although it is larger than `max_bytes`.
    """
    delivered = NOTHING
    for _ in range(MAX_LOOKS):
        if delivered.offsets >= turn.max_records or not machine.can_acquire:
            break
        if delivered.size and delivered.size >= max_bytes:
            break
        before = machine.next_fetch_offset
        more = _look(
            log,
            ahead,
            cold,
            machine,
            turn._replace(max_records=turn.max_records - delivered.offsets),
            max_bytes - delivered.size,
            committed=committed,
            views=views,
            min_one=min_one and not delivered.size,
            now_ms=now_ms,
        )
        delivered = Delivered(
            delivered.ranges + more.ranges,
            delivered.records + more.records,
            delivered.size + more.size,
            delivered.offsets + more.offsets,
        )
        if machine.next_fetch_offset == before:
            break
    return delivered


def _look(
    log: PartitionLog,
    ahead: UnusedReads,
    cold: ColdReads,
    machine: SharePartition,
    turn: FetchTurn,
    max_bytes: int,
    *,
    committed: bool,
    views: bool,
    min_one: bool,
    now_ms: int,
) -> Delivered:
    """Read once, and let the machine take from it."""
    bound = log.last_stable_offset if committed else log.high_watermark
    offset = machine.next_fetch_offset
    stop = max(offset, machine.end_offset) + turn.max_records
    aborted: list[AbortedTransaction] | None = None
    try:
        read = ahead.at(offset, stop, bound, max_bytes, min_one=min_one)
        if committed and read:
            first, last = read[0].batch, read[-1].batch
            aborted = log.aborted_transactions(first.base_offset, last.next_offset, wait=False)
    except NotAtHand:
        ahead.read_from_disk(offset, bound, committed=committed)
        return NOTHING
    except OffsetOutOfRange:
        machine.log_start_moved(log.log_start_offset)
        return NOTHING
    except OffsetMovedToTieredStorage:
        fetched = cold.piece(offset, committed=committed)
        if fetched is None:
            return NOTHING
        read = _chosen(_pieces([fetched.records]), stop, bound, max_bytes)
        read = _fitting(read, max_bytes, min_one=min_one)
        aborted = fetched.aborted
    if not read:
        return NOTHING
    batches = [piece.batch for piece in read]
    hidden = _hidden(aborted, batches) if committed and aborted else frozenset()
    found = machine.acquire(
        turn,
        offset,
        [
            LogBatch(
                batch.base_offset,
                batch.last_offset,
                has_data=not batch.is_control
                and batch.record_count > 0
                and batch.base_offset not in hidden,
            )
            for batch in batches
        ],
        now_ms,
    )
    records = joined(log, read[found.batches.start : found.batches.stop], views=views)
    return Delivered(list(found.ranges), records, sum(map(len, records)), found.records)


def _hidden(
    aborted: Sequence[AbortedTransaction], batches: Sequence[RecordBatch]
) -> frozenset[int]:
    """Base offsets of the batches that belong to aborted transactions.

    Batches ascend and a producer has one transaction at a time, so each list is walked once.
    """
    hidden: set[int] = set()
    ended: dict[int, int] = {}  # by producer, where its latest aborted transaction ends
    following = iter(sorted(aborted, key=attrgetter("first_offset")))
    entry = next(following, None)
    for batch in batches:
        if not batch.is_transactional:
            continue
        while entry is not None and entry.first_offset <= batch.base_offset:
            ended[entry.producer_id] = entry.last_offset
            entry = next(following, None)
        if batch.base_offset <= ended.get(batch.producer_id, -1):
            hidden.add(batch.base_offset)
    return frozenset(hidden)


def _chosen(pieces: Iterable[Piece], stop: int, bound: int, max_bytes: int) -> list[Piece]:
    """The first, and those after it that begin below `stop` and fit; none from `bound` on."""
    found: list[Piece] = []
    size = 0
    for piece in pieces:
        size += piece.batch.size
        if piece.batch.base_offset >= bound or (
            found and (piece.batch.base_offset >= stop or size > max_bytes)
        ):
            break
        found.append(piece)
    return found


def _fitting(pieces: list[Piece], max_bytes: int, *, min_one: bool) -> list[Piece]:
    """The pieces, unless the first is too large and need not come; later ones fit."""
    is_large = bool(pieces) and pieces[0].batch.size > max_bytes
    return [] if is_large and not min_one else pieces


def joined(log: PartitionLog, pieces: Sequence[Piece], *, views: bool) -> list[bytes | memoryview]:
    """The bytes of batches, in one view where they lie together."""
    found: list[bytes | memoryview] = []
    begin = 0
    for end in range(1, len(pieces) + 1):
        first, last = pieces[begin], pieces[end - 1]
        if end == len(pieces) or pieces[end].source is not first.source:
            source, stop = first.source, last.start + last.batch.size
            if isinstance(source, memoryview):
                found.append(source[first.start : stop])
            else:
                found += log.bytes_of(source, first.start, stop, views=views)
            begin = end
    return found


def _found(batches: FoundBatches) -> list[Piece]:
    pieces: list[Piece] = []
    start = 0
    for header in batches.headers:
        pieces.append(Piece(header, batches, start))
        start += header.size
    return pieces


def _pieces(chunks: Iterable[bytes | memoryview]) -> Iterator[Piece]:
    for chunk in chunks:
        view = memoryview(chunk)
        start = 0
        for batch in iter_batches(view):
            yield Piece(batch, view, start)
            start += batch.size
