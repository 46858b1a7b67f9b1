"""Reads of a share-partition from the remote tier: one piece at a time, kept until it is used.

A turn takes a few hundred records and a piece may hold thousands, so a piece serves many turns. It
is requested when it is first needed, and that turn gets no records; members that wait for the
share-partition are woken when the piece has arrived. A failed read is retried after a pause;
meanwhile members find no records.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.errors import ApiError
from ottla.wire.batch import iter_batches

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.running.services import Lazy
    from ottla.broker.tiering.reads import RemoteRead
    from ottla.broker.tiering.tiering import Tiering
    from ottla.log.index import AbortedTransaction
    from ottla.tier.reading.remote_read import RemoteRecords

PIECE_BYTES: Final = 1024 * 1024
PAUSE_SECONDS: Final = 1.0  # after a read that failed


class ColdPiece(NamedTuple):
    """Batches from an offset on, and the aborted transactions to skip."""

    records: memoryview
    aborted: list[AbortedTransaction]


class _Held:
    """Records that came, and where in them each batch is."""

    def __init__(self, read: RemoteRead, found: RemoteRecords) -> None:
        batches = list(iter_batches(found.records))
        self.first = read.key.offset
        self.next_offset = found.next_offset
        self.committed = read.key.committed
        self._found = found
        self._lasts = [batch.last_offset for batch in batches]
        self._starts = [0]
        for batch in batches:
            self._starts.append(self._starts[-1] + batch.size)

    def piece(self, offset: int) -> ColdPiece:
        start = self._starts[bisect_left(self._lasts, offset)]
        return ColdPiece(self._found.records[start:], self._found.aborted)


class ColdReads:
    """For one share-partition; `wake` is called when there is more to see."""

    def __init__(
        self, tiering: Lazy[Tiering], hosted: HostedPartition, wake: Callable[[], None]
    ) -> None:
        self._tiering = tiering
        self._hosted = hosted
        self._wake = wake
        self._read: RemoteRead | None = None
        self._held: _Held | None = None
        self._pause_until = 0.0

    def piece(self, offset: int, *, committed: bool) -> ColdPiece | None:
        """The piece at this offset; None if it has not arrived yet."""
        self._take()
        held = self._held
        if (
            held is not None
            and held.first <= offset < held.next_offset
            and held.committed == committed
        ):
            return held.piece(offset)
        if self._read is None and asyncio.get_running_loop().time() >= self._pause_until:
            self._begin(offset, committed=committed)
        return None

    def _begin(self, offset: int, *, committed: bool) -> None:
        try:
            read = self._tiering().reads.begin(
                self._hosted, offset, PIECE_BYTES, at_least_one=True, committed=committed
            )
        except ApiError:
            read = None
        if read is None:
            self._pause()
        else:
            self._read = read
            read.when_ended(self._wake)

    def _take(self) -> None:
        read = self._read
        if read is None or not read.ended.is_set():
            return
        self._read = None
        if read.records is not None and read.records.records:
            self._held = _Held(read, read.records)
        else:
            self._pause()

    def _pause(self) -> None:
        self._pause_until = asyncio.get_running_loop().time() + PAUSE_SECONDS
