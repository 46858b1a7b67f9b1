"""Of what was read from the log, the batches that a turn at a share-partition can use.

A read is bounded by bytes and a turn by records: with small batches a read may hold ten thousand
of them for a turn that takes five hundred. Those that cannot be used are not even looked at, and
those that are leave as they came: neighbours in one piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ottla.wire.batch import iter_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.wire.batch import RecordBatch

# Bytes of the log, and the batches that lie back to back in them from the first byte on.
Chunk: TypeAlias = "tuple[memoryview, list[RecordBatch]]"


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
