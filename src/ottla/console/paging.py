"""One page of records while it is made: pieces of partitions, merged by time.

- Going back ("newest") a partition is read in pieces from its end; where compaction and aborted
  transactions leave too few records, the next piece is twice as long.
- A filter stops after `Budget.seconds` or `Budget.bytes`; the page says how far it came and goes on
  there. An empty page because of a limit never looks like the end.
- Of a piece only what the page can still need is kept, and of a value only its preview.
- While it is made, `on_turn` hears how far it is, some times a second; it may raise `Stopped`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.console.matching import matching
from ottla.console.views.messages import Message, MessagesPage, Scan, moment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ottla.client.reader.types import Record
    from ottla.console.browse import Browser
    from ottla.console.decode.reading import Decoder
    from ottla.console.query import Bounds, Budget, Query

FIRST_PIECE: Final = 2_000
"""Offsets of the first piece for a filter, over all partitions."""
LAST_PIECE: Final = 200_000
"""Pieces grow no further: a piece is what may be read beyond a limit."""
READ_AT_ONCE: Final = 500
"""Records that are decoded before the event loop gets its turn."""
TURN: Final = 0.25
"""Seconds between two reports of how far a search is."""


@dataclass(slots=True)
class Part:
    """A partition while a page is made. `at` moves away from the page's first record."""

    number: int
    bounds: Bounds
    first: int
    at: int
    back: bool
    piece: int
    rows: deque[Message] = field(default_factory=deque)

    @property
    def is_done(self) -> bool:
        return self.at <= self.bounds.start if self.back else self.at >= self.bounds.end

    @property
    def border(self) -> int:
        """The offset that parts what is on the page from what is not."""
        if not self.rows:
            return self.at
        return self.rows[0].offset + 1 if self.back else self.rows[0].offset


class Making:
    """One page while it is made."""

    def __init__(
        self,
        browser: Browser,
        query: Query,
        decoder: Decoder,
        budget: Budget,
        bounds: Mapping[int, Bounds],
        on_turn: Callable[[Scan], Awaitable[None]] | None,
    ) -> None:
        self._browser = browser
        self._query = query
        self._decoder = decoder
        self._budget = budget
        self._bounds = bounds
        self._on_turn = on_turn
        self._clock = browser.clock
        self._began = self._clock.monotonic()
        self._last_turn = self._began - TURN
        self._scanned = 0
        self._bytes = 0
        self._reached: int | None = None
        self._taken: list[Message] = []

    async def make(self, parts: list[Part]) -> MessagesPage:
        query = self._query
        ended = "page"
        for part in parts:
            part.piece = self._first_piece(len(parts))
        while len(self._taken) < query.rows:
            needy = [one for one in parts if not one.rows and not one.is_done]
            if not needy and not any(one.rows for one in parts):
                ended = "end"
                break
            if needy and self._is_over():
                ended = "time" if self._bytes < self._budget.bytes else "bytes"
                self._merge(parts, whole=False)
                break
            if needy:
                await self._load(needy)
            self._merge(parts, whole=True)
        return self._made(parts, ended)

    def _first_piece(self, partitions: int) -> int:
        if self._query.is_filtered:
            return max(FIRST_PIECE // max(partitions, 1), 10)
        return self._query.rows // max(partitions, 1) + 1

    def _is_over(self) -> bool:
        return self._query.is_filtered and (
            self._clock.monotonic() - self._began >= self._budget.seconds
            or self._bytes >= self._budget.bytes
        )

    async def _load(self, parts: Sequence[Part]) -> None:
        """Read the next piece of each of these."""
        starts, stops = {}, {}
        for one in parts:
            if one.back:
                starts[one.number] = max(one.bounds.start, one.at - one.piece)
                stops[one.number] = one.at
            else:
                starts[one.number] = one.at
                stops[one.number] = min(one.bounds.end, one.at + one.piece)
        found: dict[int, list[Message]] = {one.number: [] for one in parts}
        topic, isolation = self._query.topic, self._query.isolation
        async with self._browser.reader(topic, isolation, starts, stops) as reader:
            while records := await reader.read_many(READ_AT_ONCE):
                kept = found[records[0].partition]
                kept += await asyncio.to_thread(self._matching, records)
                # Going back, only the last ones can be on this page; else the first ones.
                if parts[0].back:
                    del kept[: -self._query.rows]
                else:
                    del kept[self._query.rows :]
                await self._turn(sum(map(len, found.values())))
        for one in parts:
            kept = found[one.number]
            one.rows = deque(reversed(kept)) if one.back else deque(kept)
            one.at = starts[one.number] if one.back else stops[one.number]
            if len(kept) >= self._query.rows:
                # Others of the piece may have been dropped: go on behind the last one kept.
                one.at = kept[0].offset if one.back else kept[-1].offset + 1
            one.piece = min(one.piece * 2, LAST_PIECE)

    async def _turn(self, loaded: int) -> None:
        """Tell how far it is, unless that was told just now."""
        now = self._clock.monotonic()
        if self._on_turn is None or now - self._last_turn < TURN:
            return
        self._last_turn = now
        await self._on_turn(self._scan(min(len(self._taken) + loaded, self._query.rows), "page"))

    def _matching(self, records: Sequence[Record]) -> list[Message]:
        """Those of the records that the filters let through. Runs in a thread."""
        self._scanned += len(records)
        self._bytes += sum(len(one.key or b"") + len(one.value or b"") for one in records)
        times = [records[0].timestamp_ms, records[-1].timestamp_ms]
        if self._reached is not None:
            times.append(self._reached)
        self._reached = min(times) if self._query.start.newest_first else max(times)
        return matching(self._query, self._decoder, records)

    def _merge(self, parts: Sequence[Part], *, whole: bool) -> None:
        """Take rows by time while each partition has one to compare, or is done."""
        while len(self._taken) < self._query.rows:
            if whole and any(not one.rows and not one.is_done for one in parts):
                return
            ready = [one for one in parts if one.rows]
            if not ready:
                return
            if ready[0].back:
                best = max(ready, key=lambda one: (one.rows[0].timestamp_ms, one.number))
            else:
                best = min(ready, key=lambda one: (one.rows[0].timestamp_ms, one.number))
            self._taken.append(best.rows.popleft())

    def _made(self, parts: Sequence[Part], ended: str) -> MessagesPage:
        query = self._query
        back = bool(parts) and parts[0].back
        messages = self._taken if back == query.start.newest_first else self._taken[::-1]
        low = {one.number: one.border if back else one.first for one in parts}
        high = {one.number: one.first if back else one.border for one in parts}
        has_older = any(low[one.number] > one.bounds.start for one in parts)
        has_newer = any(high[one.number] < one.bounds.end for one in parts)
        return MessagesPage(
            query.topic,
            tuple(messages),
            query.start.newest_first,
            low if has_older else None,
            high if has_newer else None,
            self._scan(len(messages), ended),
            tuple(_notes(query, self._bounds, messages)),
        )

    def _scan(self, found: int, ended: str) -> Scan:
        where = self._query.where
        return Scan(
            self._scanned,
            sum(max(0, one.end - one.start) for one in self._bounds.values()),
            self._bytes,
            self._clock.monotonic() - self._began,
            found,
            self._reached,
            0 if where is None else where.errors,
            None if where is None else where.first_error,
            ended,  # type: ignore[arg-type]  # one of the four
        )


def _notes(query: Query, bounds: Mapping[int, Bounds], messages: Sequence[Message]) -> list[str]:
    """What an empty page means."""
    if messages:
        return []
    if not bounds:
        return ["The topic has no partitions."]
    start = query.start
    if all(one.end <= one.start for one in bounds.values()):
        expired = {number: one.start for number, one in bounds.items() if one.start > 0}
        if not expired:
            return ["The topic is empty: nothing was written yet."]
        first = min(expired)
        return [f"All records have expired: before offset {expired[first]:,} in partition {first}."]
    if start.kind == "offset" and start.before is None and start.after is None:
        nearest = max(one.end for one in bounds.values()) - 1
        if start.offset > nearest:
            return [f"Offset {start.offset:,} is beyond the end; the last is {nearest:,}."]
    if start.kind == "time" and start.before is None and start.after is None:
        at = moment(start.time_ms)
        return [f"Nothing was written after {at:%Y-%m-%d %H:%M:%S} UTC."] if at else []
    return []
