"""Pages of a topic's records, forwards or backwards in time, filtered or not.

A page is a cut of the log: in each partition the offsets from `low` up to but not including `high`.
The next page begins where this one ends, so every record is on one page, once, whatever its
timestamp. Within a page records are merged by time, without changing the order in a partition.

- Going back ("newest") a partition is read in pieces from its end; where compaction and aborted
  transactions leave too few records, the next piece is twice as long.
- A filter stops after `Budget.seconds` or `Budget.bytes`; the page says how far it came and goes on
  there. An empty page because of a limit never looks like the end.
- Of a piece only what the page can still need is kept, and of a value only its preview.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.client.admin.offsets import OffsetsBesideFetches
from ottla.client.cluster.view import TopicPartition
from ottla.client.reader.reader import Reader
from ottla.client.reader.rows import decode_records
from ottla.client.reader.types import Timestamp
from ottla.console.decode.tree import compact
from ottla.console.views.messages import Message, MessagesPage, Scan, moment
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from ottla.client.cluster.cluster import Client
    from ottla.client.reader.types import Isolation, Record
    from ottla.clock import Clock
    from ottla.console.decode.reading import Decoder
    from ottla.console.filter import Where

ROWS: Final = 50
"""Records on a page."""
MAX_ROWS: Final = 500
PREFETCH: Final = 1024 * 1024
"""Bytes that are read ahead: more than a page needs, and little enough to throw away."""
FIRST_PIECE: Final = 2_000
"""Offsets of the first piece for a filter, over all partitions."""
LAST_PIECE: Final = 200_000
"""Pieces grow no further: a piece is what may be read beyond a limit."""
READ_AT_ONCE: Final = 500
"""Records that are decoded before the event loop gets its turn."""
_AGO: Final = re.compile(r"([0-9]{1,9})\s*(s|m|h|d)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

Cut: TypeAlias = "dict[int, int]"


class BadPlace(OttlaError, ValueError):
    """A place in a topic that is none; the text says what one looks like."""


class Stopped(OttlaError):
    """Nobody waits for the page any more."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a page begins. Without `before` and `after` it is the first one."""

    kind: str = "newest"
    offset: int = 0
    time_ms: int = 0
    before: Mapping[int, int] | None = None
    """Records below these offsets, the nearest first."""
    after: Mapping[int, int] | None = None
    """Records from these offsets on."""

    @property
    def newest_first(self) -> bool:
        return self.kind == "newest"


@dataclass(frozen=True, slots=True)
class Budget:
    """When a search stops although the page is not full."""

    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked for. `contains` and `where` are filters; both must hold."""

    topic: str
    start: Start = Start()
    partitions: Collection[int] | None = None
    rows: int = ROWS
    isolation: Isolation = "read_committed"
    contains: bytes = b""
    where: Where | None = None

    @property
    def is_filtered(self) -> bool:
        return bool(self.contains) or self.where is not None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What can be read of a partition: offsets from `start` up to but not including `end`."""

    start: int
    end: int


@dataclass(slots=True)
class _Part:
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


def parse_start(text: str, now: datetime) -> Start:
    """`newest`, `oldest`, `offset:N`, `time:ISO`, `ago:15m`."""
    kind, _, rest = text.partition(":")
    if text in ("newest", "oldest"):
        return Start(text)
    if kind == "offset" and re.fullmatch(r"[0-9]{1,19}", rest) and int(rest) < 1 << 63:
        return Start("offset", offset=int(rest))
    if kind == "time":
        try:
            found = datetime.fromisoformat(rest)
        except ValueError:
            raise BadPlace(f"{rest!r:.60} is not a time such as 2026-11-14T10:00:00Z") from None
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC)
        return Start("time", time_ms=max(0, int(found.timestamp() * 1000)))
    ago = _AGO.fullmatch(rest) if kind == "ago" else None
    if ago is not None:
        try:
            at = now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        except OverflowError:
            return Start("oldest")
        return Start("time", time_ms=max(0, int(at.timestamp() * 1000)))
    raise BadPlace(
        f"from is newest, oldest, offset:N, time:2026-11-14T10:00:00Z or ago:15m, not {text!r:.60}"
    )


def parse_cut(text: str) -> Cut:
    """`0:12,1:40` as offsets by partition."""
    found: Cut = {}
    for item in text.split(","):
        if not re.fullmatch(r"[0-9]{1,9}:[0-9]{1,19}", item):
            raise BadPlace(f"a page is named by partition:offset,... and not by {item!r:.60}")
        number, offset = item.split(":")
        found[int(number)] = min(int(offset), (1 << 63) - 1)
    return found


def write_cut(cut: Mapping[int, int]) -> str:
    return ",".join(f"{number}:{offset}" for number, offset in sorted(cut.items()))


class RecordReader(Reader):
    """Makes records without Arrow: its import takes a second and 100 MiB, and a page has 50."""

    _decode = staticmethod(decode_records)


class Browser:
    """Reads pages of one cluster's topics."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self.clock = clock

    async def page(
        self,
        query: Query,
        decoder: Decoder,
        budget: Budget,
        is_gone: Callable[[], Awaitable[bool]] | None = None,
    ) -> MessagesPage:
        """The page; `is_gone` is asked between pieces, and if it is so, `Stopped` is raised."""
        bounds = await self.bounds(query)
        making = _Page(self, query, decoder, budget, bounds, is_gone)
        parts = await self._parts(query, bounds)
        page = await making.make(parts)
        if query.isolation == "read_uncommitted" and page.messages:
            page = replace(page, messages=await self.with_states(query, page.messages))
        return page

    async def bounds(self, query: Query) -> dict[int, Bounds]:
        """The ends of the partitions; those of open transactions where they are not read."""
        offsets = OffsetsBesideFetches(self._client)
        topic = query.topic
        starts = await offsets.list_offsets([topic], "earliest")
        numbers = [key.partition for key in starts]
        if query.partitions is not None:
            unknown = sorted(set(query.partitions) - set(numbers))
            if unknown:
                raise BadPlace(
                    f"topic {topic!r:.80} has no partition {unknown[0]}; it has {len(numbers)}"
                )
            numbers = sorted(query.partitions)
        if query.isolation == "read_committed":
            async with self.reader(topic, "read_committed", "latest", None, numbers) as reader:
                ends = reader.positions
        else:
            keys = [(topic, number) for number in numbers]
            found = await offsets.list_offsets(keys, "latest")
            ends = {key.partition: one.offset for key, one in found.items()}
        return {
            number: Bounds(starts[TopicPartition(topic, number)].offset, ends[number])
            for number in numbers
        }

    def reader(
        self,
        topic: str,
        isolation: Isolation,
        start: Mapping[int, int] | str,
        stop: Mapping[int, int] | None,
        partitions: Sequence[int] | None = None,
    ) -> RecordReader:
        """A reader that reads ahead little, for what is there already."""
        return RecordReader(
            self._client,
            topic,
            start=start,  # type: ignore[arg-type]  # a text is one of the two ends
            stop=stop,
            partitions=partitions,
            isolation_level=isolation,
            on_data_loss="earliest",
            prefetch=PREFETCH,
            max_wait=0.05,
        )

    async def span(self, query: Query) -> tuple[Cut, Cut]:
        """From where to where a forward read of the query goes; "newest" means all of it."""
        bounds = await self.bounds(query)
        start = query.start
        if start.newest_first:
            query = replace(query, start=Start("oldest", after=start.after))
        places = await self._places(query, bounds)
        starts = {
            number: min(max(places[number], one.start), max(one.start, one.end))
            for number, one in bounds.items()
        }
        return starts, {number: max(one.start, one.end) for number, one in bounds.items()}

    async def _parts(self, query: Query, bounds: Mapping[int, Bounds]) -> list[_Part]:
        start = query.start
        back = (start.newest_first and start.after is None) or start.before is not None
        places = await self._places(query, bounds)
        parts = []
        for number, one in bounds.items():
            at = min(max(places[number], one.start), max(one.end, one.start))
            parts.append(_Part(number, one, at, at, back, 0))
        return parts

    async def _places(self, query: Query, bounds: Mapping[int, Bounds]) -> Cut:
        start = query.start
        cut = start.before if start.before is not None else start.after
        if cut is not None:
            # A partition that the page before did not know is new: all of it comes after.
            return {number: cut.get(number, one.start) for number, one in bounds.items()}
        if start.kind == "newest":
            return {number: one.end for number, one in bounds.items()}
        if start.kind == "offset":
            return dict.fromkeys(bounds, start.offset)
        if start.kind == "time":
            keys = [(query.topic, number) for number in bounds]
            asked = OffsetsBesideFetches(self._client)
            found = await asked.list_offsets(keys, Timestamp(start.time_ms))
            return {
                key.partition: bounds[key.partition].end if one.offset < 0 else one.offset
                for key, one in found.items()
            }
        return {number: one.start for number, one in bounds.items()}

    async def with_states(self, query: Query, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The records, those marked that readers of committed records do not see."""
        ranges = _ranges(messages)
        committed_query = replace(query, isolation="read_committed", partitions=list(ranges))
        stable = await self.bounds(committed_query)
        starts = {number: low for number, (low, _) in ranges.items()}
        stops = {
            number: max(low, min(high, stable[number].end))
            for number, (low, high) in ranges.items()
        }
        seen: set[tuple[int, int]] = set()
        async with self.reader(query.topic, "read_committed", starts, stops) as reader:
            while records := await reader.read_many(READ_AT_ONCE):
                seen.update((one.partition, one.offset) for one in records)
        marked = []
        for one in messages:
            if one.offset >= stable[one.partition].end:
                marked.append(replace(one, state="open"))
            elif (one.partition, one.offset) not in seen:
                marked.append(replace(one, state="aborted"))
            else:
                marked.append(one)
        return tuple(marked)


class _Page:
    """One page while it is made."""

    def __init__(
        self,
        browser: Browser,
        query: Query,
        decoder: Decoder,
        budget: Budget,
        bounds: Mapping[int, Bounds],
        is_gone: Callable[[], Awaitable[bool]] | None,
    ) -> None:
        self._browser = browser
        self._query = query
        self._decoder = decoder
        self._budget = budget
        self._bounds = bounds
        self._is_gone = is_gone
        self._clock = browser.clock
        self._began = self._clock.monotonic()
        self._scanned = 0
        self._bytes = 0
        self._reached: int | None = None
        self._taken: list[Message] = []

    async def make(self, parts: list[_Part]) -> MessagesPage:
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
                if self._is_gone is not None and await self._is_gone():
                    raise Stopped("nobody waits for this page any more")
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

    async def _load(self, parts: Sequence[_Part]) -> None:
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
        for one in parts:
            kept = found[one.number]
            one.rows = deque(reversed(kept)) if one.back else deque(kept)
            one.at = starts[one.number] if one.back else stops[one.number]
            if len(kept) >= self._query.rows:
                # Others of the piece may have been dropped: go on behind the last one kept.
                one.at = kept[0].offset if one.back else kept[-1].offset + 1
            one.piece = min(one.piece * 2, LAST_PIECE)

    def _matching(self, records: Sequence[Record]) -> list[Message]:
        """Those of the records that the filters let through. Runs in a thread."""
        self._scanned += len(records)
        self._bytes += sum(len(one.key or b"") + len(one.value or b"") for one in records)
        times = [records[0].timestamp_ms, records[-1].timestamp_ms]
        if self._reached is not None:
            times.append(self._reached)
        self._reached = min(times) if self._query.start.newest_first else max(times)
        return matching(self._query, self._decoder, records)

    def _merge(self, parts: Sequence[_Part], *, whole: bool) -> None:
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

    def _made(self, parts: Sequence[_Part], ended: str) -> MessagesPage:
        query = self._query
        back = bool(parts) and parts[0].back
        messages = self._taken if back == query.start.newest_first else self._taken[::-1]
        low = {one.number: one.border if back else one.first for one in parts}
        high = {one.number: one.first if back else one.border for one in parts}
        has_older = any(low[one.number] > one.bounds.start for one in parts)
        has_newer = any(high[one.number] < one.bounds.end for one in parts)
        where = query.where
        return MessagesPage(
            query.topic,
            tuple(messages),
            query.start.newest_first,
            low if has_older else None,
            high if has_newer else None,
            Scan(
                self._scanned,
                sum(max(0, one.end - one.start) for one in self._bounds.values()),
                self._bytes,
                self._clock.monotonic() - self._began,
                len(messages),
                self._reached,
                0 if where is None else where.errors,
                None if where is None else where.first_error,
                ended,  # type: ignore[arg-type]  # one of the four
            ),
            tuple(_notes(query, self._bounds, messages)),
        )


def matching(query: Query, decoder: Decoder, records: Sequence[Record]) -> list[Message]:
    """Those of the records that the query's filters let through, decoded and masked."""
    found = []
    # What is masked must not be asked out letter by letter: there the shown text counts.
    is_raw = not decoder.rules.masked
    for record in records:
        if query.contains and is_raw and not _contains(record, query.contains):
            continue
        message = decoder.read(record)
        if query.contains and not is_raw and not _shows(message, query.contains):
            continue
        if query.where is None or query.where.matches(message):
            found.append(message)
    return found


def _contains(record: Record, needle: bytes) -> bool:
    return (
        (record.value is not None and needle in record.value)
        or (record.key is not None and needle in record.key)
        or any(value is not None and needle in value for _, value in record.headers)
    )


def _shows(message: Message, needle: bytes) -> bool:
    text = needle.decode("utf-8", "surrogateescape")
    shown = (message.key, message.value, *(one.value for one in message.headers))
    return any(text in (compact(one.tree) if one.has_tree else one.text) for one in shown)


def _ranges(messages: Sequence[Message]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for one in messages:
        low, high = found.get(one.partition, (one.offset, one.offset + 1))
        found[one.partition] = min(low, one.offset), max(high, one.offset + 1)
    return found


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
