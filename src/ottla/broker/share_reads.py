"""A turn at a share-partition: reading the log for it, and what leaves of what was read.

A read is bounded by bytes and a turn by records: with small batches a read may hold ten thousand
of them for a turn that takes five hundred. Those that cannot be used are not even looked at, and
those that are leave as they came: neighbours in one piece. What a tiered log does not have on local
disk any more comes from `share_cold`, a little later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.broker.coordinator_service import now_ms
from ottla.log.errors import OffsetMovedToTieredStorage, OffsetOutOfRange
from ottla.sharing.values import LogBatch
from ottla.wire.batch import iter_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.broker.share_cold import ColdReads
    from ottla.log.index import AbortedTransaction
    from ottla.log.partition import PartitionLog
    from ottla.sharing.partition import SharePartition
    from ottla.sharing.values import FetchTurn
    from ottla.wire.batch import RecordBatch
    from ottla.wire.schema.share_fetch import AcquiredRecords

# One look at the log. A fetch that wants more looks again; one that wants little reads little.
READ_BYTES: Final = 1024 * 1024
# Looks that may lead to nothing but archived offsets before others get their turn.
MAX_LOOKS: Final = 16

# Bytes of the log, and the batches that lie back to back in them from the first byte on.
Chunk: TypeAlias = "tuple[memoryview, list[RecordBatch]]"


class Delivered(NamedTuple):
    """What one fetch got from one share-partition."""

    ranges: list[AcquiredRecords]
    records: list[memoryview]
    size: int
    offsets: int


NOTHING: Final = Delivered([], [], 0, 0)


def deliver(
    log: PartitionLog,
    cold: ColdReads,
    machine: SharePartition,
    turn: FetchTurn,
    max_bytes: int,
    *,
    committed: bool,
) -> Delivered:
    """Look until the turn has what it may have, or the log has no more for it."""
    delivered = NOTHING
    for _ in range(MAX_LOOKS):
        if delivered.offsets >= turn.max_records or not machine.can_acquire:
            break
        if delivered.size and delivered.size >= max_bytes:
            break
        before = machine.next_fetch_offset
        more = _look(
            log,
            cold,
            machine,
            turn._replace(max_records=turn.max_records - delivered.offsets),
            min(READ_BYTES, max(1, max_bytes - delivered.size)),
            committed=committed,
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
    cold: ColdReads,
    machine: SharePartition,
    turn: FetchTurn,
    max_bytes: int,
    *,
    committed: bool,
) -> Delivered:
    """Read once, and let the machine take from it."""
    bound = log.last_stable_offset if committed else log.high_watermark
    offset = machine.next_fetch_offset
    chunks: Sequence[bytes | memoryview]
    aborted: list[AbortedTransaction] | None = None
    try:
        chunks, _ = log.read(offset, max_bytes, upper_bound_offset=bound, min_one_message=True)
    except OffsetOutOfRange:
        machine.log_start_moved(log.log_start_offset)
        return NOTHING
    except OffsetMovedToTieredStorage:
        piece = cold.piece(offset, committed=committed)
        if piece is None:
            return NOTHING
        chunks, aborted = [piece.records], piece.aborted
    read = batches_before(max(offset, machine.end_offset) + turn.max_records, chunks)
    batches = [batch for _, some in read for batch in some]
    if not batches:
        return NOTHING
    hidden: frozenset[int] = frozenset()
    if committed:
        if aborted is None:
            aborted = log.aborted_transactions(batches[0].base_offset, bound)
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
        now_ms(),
    )
    records = slices(read, found.batches)
    return Delivered(list(found.ranges), records, sum(map(len, records)), found.records)


def _hidden(
    aborted: Sequence[AbortedTransaction], batches: Sequence[RecordBatch]
) -> frozenset[int]:
    """Base offsets of the batches that belong to aborted transactions."""
    return frozenset(
        batch.base_offset
        for batch in batches
        if batch.is_transactional
        and any(
            entry.producer_id == batch.producer_id
            and entry.first_offset <= batch.base_offset <= entry.last_offset
            for entry in aborted
        )
    )


def batches_before(stop: int, chunks: Iterable[bytes | memoryview]) -> list[Chunk]:
    """The batches that begin below `stop`, and the first one in any case.

    If that one begins later, what lies before it is known to be missing from the log.
    """
    found: list[Chunk] = []
    for chunk in chunks:
        view = memoryview(chunk)
        batches: list[RecordBatch] = []
        found.append((view, batches))
        for batch in iter_batches(view):
            if batch.base_offset >= stop and found[0][1]:
                return found
            batches.append(batch)
    return found


def slices(read: Sequence[Chunk], wanted: range) -> list[memoryview]:
    """The bytes of the wanted batches, counted through all chunks: a piece of each chunk."""
    pieces: list[memoryview] = []
    index = 0
    for view, batches in read:
        low, high = max(0, wanted.start - index), min(len(batches), wanted.stop - index)
        if low < high:
            begin = sum(batch.size for batch in batches[:low])
            size = sum(batch.size for batch in batches[low:high])
            pieces.append(view[begin : begin + size])
        index += len(batches)
    return pieces
