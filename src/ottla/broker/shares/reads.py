"""Serve one fetch of a share-partition: read the log, and cut out the delivered records.

- A read is bounded by bytes and a turn by records: with small batches a read may hold ten thousand
  of them for a turn that takes five hundred. The rest is kept for the next turn, which usually
  continues there; batches are not parsed before a turn reaches them.
- Batches are sent as they were read: neighbours in one piece.
- Records that a tiered log no longer has on local disk come from `cold`, a little later.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.errors import OffsetMovedToTieredStorage, OffsetOutOfRange
from ottla.sharing.values import LogBatch
from ottla.wire.batch import iter_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.shares.cold import ColdReads
    from ottla.log.index import AbortedTransaction
    from ottla.log.partition import PartitionLog
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


class Piece(NamedTuple):
    """A batch, and its place in the bytes read."""

    batch: RecordBatch
    view: memoryview
    start: int


class UnusedReads:
    """Bytes of one log that were read and not used yet."""

    def __init__(self, hosted: HostedPartition) -> None:
        self._hosted = hosted
        self._from = 0
        self._pieces: deque[Piece] = deque()
        self._unseen: Iterator[Piece] = iter(())

    def clear(self) -> None:
        """Keep nothing."""
        self._pieces.clear()
        self._unseen = iter(())

    def at(self, offset: int, stop: int, bound: int, max_bytes: int) -> list[Piece]:
        """The batches from the one at an offset on that begin below `stop`, all below `bound`.

        The first one comes in any case, whatever its size and place: if it begins later than the
        offset, what lies before it is known to be missing from the log. Raises what the log does
        if it does not have the offset, or has it elsewhere.
        """
        # Of what has left the local disk, the log cannot say any more which of it was aborted.
        log = self._hosted.log
        is_kept = max(self._from, log.local_start_offset) <= offset and self._pass(offset)
        if not is_kept:
            chunks, _ = log.read(offset, READ_BYTES, upper_bound_offset=bound, min_one_message=True)
            self._pieces.clear()
            self._unseen = _pieces(chunks)
            self._pass(offset)
        return _chosen(self._each(), stop, bound, max_bytes)

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
    records: list[memoryview]
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
    now_ms: int,
) -> Delivered:
    """Read until the limits are reached or the log has no more."""
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
    now_ms: int,
) -> Delivered:
    """Read once, and let the machine take from it."""
    bound = log.last_stable_offset if committed else log.high_watermark
    offset = machine.next_fetch_offset
    stop = max(offset, machine.end_offset) + turn.max_records
    aborted: list[AbortedTransaction] | None = None
    try:
        read = ahead.at(offset, stop, bound, max_bytes)
    except OffsetOutOfRange:
        machine.log_start_moved(log.log_start_offset)
        return NOTHING
    except OffsetMovedToTieredStorage:
        fetched = cold.piece(offset, committed=committed)
        if fetched is None:
            return NOTHING
        read = _chosen(_pieces([fetched.records]), stop, bound, max_bytes)
        aborted = fetched.aborted
    if not read:
        return NOTHING
    batches = [piece.batch for piece in read]
    hidden: frozenset[int] = frozenset()
    if committed:
        if aborted is None:
            aborted = log.aborted_transactions(batches[0].base_offset, batches[-1].next_offset)
        hidden = _hidden(aborted, batches)
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
    records = joined(read[found.batches.start : found.batches.stop])
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


def joined(pieces: Sequence[Piece]) -> list[memoryview]:
    """The bytes of batches, in one view where they lie together."""
    found: list[memoryview] = []
    begin = 0
    for end in range(1, len(pieces) + 1):
        first, last = pieces[begin], pieces[end - 1]
        if end == len(pieces) or pieces[end].view is not first.view:
            found.append(first.view[first.start : last.start + last.batch.size])
            begin = end
    return found


def _pieces(chunks: Iterable[bytes | memoryview]) -> Iterator[Piece]:
    for chunk in chunks:
        view = memoryview(chunk)
        start = 0
        for batch in iter_batches(view):
            yield Piece(batch, view, start)
            start += batch.size
