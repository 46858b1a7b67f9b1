"""The buffer of a reader: fetched chunks to decode, then rows to take.

- Chunks are decoded in the order of arrival, so the rows of a partition stay in order. The decoded
  size of a chunk is unknown before (compression), so a chunk waits until its own size fits, or
  until no rows wait.
- `positions` are the caller's next offsets: they move when rows are taken, not before.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from ottla.client.reader.fetching import K
from ottla.client.reader.rows import Chunk, next_offset_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.reader.rows import Table


@dataclass(slots=True)
class Rows(Generic[K]):
    """Decoded rows; `next_offset` is where the partition goes on after the last of them."""

    key: K
    batch: Table | None
    next_offset: int
    nbytes: int = 0
    taken: int = 0


class Buffer(Generic[K]):
    """Bounded by `limit` bytes, except that a single decoded chunk may be larger."""

    def __init__(self, limit: int) -> None:
        self.positions: dict[K, int] = {}
        self._limit = limit
        self._chunks: deque[tuple[K, Chunk]] = deque()
        self._rows: deque[Rows[K]] = deque()
        self._chunk_bytes = 0
        self._row_bytes = 0

    @property
    def nbytes(self) -> int:
        """The bytes held in memory."""
        return self._chunk_bytes + self._row_bytes

    @property
    def is_decoding(self) -> bool:
        """Whether fetched chunks will give more rows."""
        return bool(self._chunks)

    def moved(self, key: K, offset: int) -> None:
        """Continue the partition at this offset, after its buffered rows."""
        buffered = {one for one, _ in self._chunks} | {one.key for one in self._rows}
        if key in buffered:
            # Nothing to decode: it only waits for its turn.
            self.add(key, Chunk("", 0, offset, None, offset, memoryview(b"")))
        else:
            self.positions[key] = offset

    def forget(self, key: K) -> None:
        """Drop all of a partition, its position included."""
        self.positions.pop(key, None)
        self._chunks = deque(one for one in self._chunks if one[0] != key)
        self._rows = deque(one for one in self._rows if one.key != key)
        self._chunk_bytes = sum(len(chunk.records) for _, chunk in self._chunks)
        self._row_bytes = sum(one.nbytes for one in self._rows)

    def add(self, key: K, chunk: Chunk) -> None:
        """Add a fetched chunk."""
        self._chunks.append((key, chunk))
        self._chunk_bytes += len(chunk.records)

    def next_chunk(self) -> Chunk | None:
        """The chunk to decode now; it stays until it is replaced by its rows."""
        if not self._chunks:
            return None
        _, chunk = self._chunks[0]
        fits = self._row_bytes + len(chunk.records) <= self._limit
        return chunk if fits or not self._rows else None

    def replace(self, chunk: Chunk, batches: Sequence[Table]) -> None:
        """Put its rows in the place of the oldest chunk, unless that was forgotten meanwhile."""
        if not self._chunks or self._chunks[0][1] is not chunk:
            return
        key, _ = self._chunks.popleft()
        self._chunk_bytes -= len(chunk.records)
        for batch in batches[:-1]:
            self._append(key, batch, next_offset_of(batch))
        self._append(key, batches[-1] if batches else None, chunk.next_offset)

    def head(self) -> Rows[K] | None:
        """The rows to take from next."""
        while self._rows and self._rows[0].batch is None:
            self._pop()
        return self._rows[0] if self._rows else None

    def take(self, count: int) -> Table:
        """Up to `count` more rows of the head."""
        head = self._rows[0]
        assert head.batch is not None
        rows = head.batch.slice(head.taken, count)
        self.skip(rows.num_rows, next_offset_of(rows))
        return rows

    def skip(self, count: int, next_offset: int) -> None:
        """Leave this many rows of the head behind, the next offset after them being known."""
        head = self._rows[0]
        assert head.batch is not None
        head.taken += count
        if head.taken == head.batch.num_rows:
            self._pop()
        else:
            self.positions[head.key] = next_offset

    def _append(self, key: K, batch: Table | None, next_offset: int) -> None:
        nbytes = 0 if batch is None else batch.nbytes
        self._rows.append(Rows(key, batch, next_offset, nbytes))
        self._row_bytes += nbytes

    def _pop(self) -> None:
        head = self._rows.popleft()
        self._row_bytes -= head.nbytes
        self.positions[head.key] = head.next_offset
