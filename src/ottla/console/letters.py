"""Dead letters: the records that a share group has given up, and what became of them.

A letter is named by its place in the topic of letters, such as `dlq.orders-0@17`. The compacted
topic `ottla.redrive` has an entry for each letter that was sent again or dismissed.

A box keeps the newest letters of a topic and reads on where it stopped, so that looking twice costs
little.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.client.admin.configs import ConfigCalls
from ottla.client.errors import ClientError
from ottla.console.missing import Missing, missing
from ottla.console.paging import READ_AT_ONCE
from ottla.console.query import Query
from ottla.sharing import dead_letters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.client.cluster.cluster import Client
    from ottla.client.reader.types import Record
    from ottla.console.browse import Browser
    from ottla.console.decode.reading import Decoder
    from ottla.console.query import Bounds
    from ottla.console.views.messages import Message

TOPIC_KEY: Final = "errors.deadletterqueue.topic.name"
"""Setting of a share group: where its letters go."""
REDRIVE_TOPIC: Final = "ottla.redrive"
FROM: Final = "ottla.redrive.from"
COUNT: Final = "ottla.redrive.count"
OWN: Final = ("__dlq.errors.", "ottla.redrive.")
"""Headers that are not the record's."""
MOST_LETTERS: Final = 5_000
"""Newest letters of a topic that are listed: some 10 MiB. Older ones are counted."""
PREVIEW: Final = 1_000
"""Bytes of a key and of a value that are kept of each."""
MOST_ENTRIES: Final = 100_000
MAX_ENTRY: Final = 4_096
"""Bytes of an entry; what is longer is none."""
REASONS: Final = {
    dead_letters.MESSAGES[reason]: word
    for reason, word in zip(dead_letters.MESSAGES, ("rejected", "delivery limit"), strict=True)
}


class Place(NamedTuple):
    """A letter in its topic."""

    partition: int
    offset: int

    def named(self, topic: str) -> str:
        return f"{topic}-{self.partition}@{self.offset}"


class Origin(NamedTuple):
    """Where a record was before."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class About:
    """What the headers of a letter tell; `origin` is None if it is no letter."""

    origin: Origin | None
    group: str
    tries: int | None
    reason: str
    count: int
    """How often the record has been sent again before."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter as pages show it."""

    place: Place
    about: About
    message: Message
    is_copy: bool
    """Whether it has the record; else only its headers say which it was."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of a letter."""

    plan: str
    at_ms: int
    to: str
    """The topic that it was sent to; empty: it was dismissed."""
    times: int


NO_TOPIC: Final = Missing(
    f"the queue has no topic for dead letters: set {TOPIC_KEY} of the share group"
)


async def letters_topic(client: Client, group: str) -> str | Missing:
    """Where the letters of a queue go."""
    try:
        found = await ConfigCalls(client).describe_configs("group", group, [TOPIC_KEY])
    except ClientError as error:
        return missing(error, f"DescribeConfigs on group {group!r}")
    return next((one.value for one in found if one.name == TOPIC_KEY and one.value), NO_TOPIC)


def about(headers: Iterable[tuple[str, bytes | None]]) -> About:
    """What the headers of a record say of its death."""
    found = {name: (value or b"").decode("utf-8", "replace") for name, value in headers}
    topic = found.get(dead_letters.TOPIC, "")
    partition, offset = (
        _whole(found.get(name)) for name in (dead_letters.PARTITION, dead_letters.OFFSET)
    )
    is_letter = bool(topic) and partition is not None and offset is not None
    message = found.get(dead_letters.MESSAGE, "")
    return About(
        Origin(topic, partition or 0, offset or 0) if is_letter else None,
        found.get(dead_letters.GROUP, ""),
        _whole(found.get(dead_letters.DELIVERY_COUNT)),
        REASONS.get(message, message or "not said"),
        _whole(found.get(COUNT)) or 0,
    )


def own_headers(record: Record) -> list[tuple[str, bytes | None]]:
    """The record's headers without those that its death gave it."""
    return [(name, value) for name, value in record.headers if not name.startswith(OWN)]


def is_copy(record: Record) -> bool:
    """Whether the letter has the record, not only the headers of its death."""
    return record.key is not None or record.value is not None or bool(own_headers(record))


def encode_entry(entry: Entry) -> bytes:
    return json.dumps(
        {"version": 1, "plan": entry.plan, "at": entry.at_ms, "to": entry.to, "times": entry.times},
        separators=(",", ":"),
    ).encode()


def decode_entry(value: bytes) -> Entry | None:
    """The entry; None if it is none, or of a newer version."""
    try:
        found: Any = json.loads(value) if len(value) <= MAX_ENTRY else None
        if not isinstance(found, dict) or found.get("version") != 1:
            return None
        return Entry(str(found["plan"]), int(found["at"]), str(found["to"]), int(found["times"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _whole(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) < 19
    return int(text) if is_number and text is not None else None


class Entries:
    """What became of the letters of one topic; reads on where it stopped."""

    def __init__(self, topic: str) -> None:
        self._prefix = f"{topic}-"
        self._read_to: dict[int, int] = {}
        self.by_name: dict[str, Entry] = {}

    async def refresh(self, browser: Browser) -> None:
        """Read what was added, if the topic of entries exists."""
        if not await browser.has_topic(REDRIVE_TOPIC):
            self._read_to, self.by_name = {}, {}
            return
        bounds = await browser.bounds(Query(REDRIVE_TOPIC))
        if is_another(bounds, self._read_to):
            self._read_to, self.by_name = {}, {}
        starts = {
            number: min(max(one.start, self._read_to.get(number, 0)), one.end)
            for number, one in bounds.items()
        }
        stops = {number: one.end for number, one in bounds.items()}
        async with browser.reader(REDRIVE_TOPIC, "read_committed", starts, stops) as reader:
            while records := await reader.read_many(READ_AT_ONCE):
                self._take(records)
        self._read_to = stops

    def _take(self, records: Sequence[Record]) -> None:
        for record in records:
            name = (record.key or b"").decode("utf-8", "replace")
            if not name.startswith(self._prefix):
                continue
            entry = None if record.value is None else decode_entry(record.value)
            if entry is None:
                self.by_name.pop(name, None)
                continue
            self.by_name[name] = entry
            if len(self.by_name) > MOST_ENTRIES:
                del self.by_name[next(iter(self.by_name))]


class Box:
    """The newest letters of one topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.entries = Entries(topic)
        self.letters: deque[Letter] = deque(maxlen=MOST_LETTERS)
        self.total = 0
        """Offsets of the topic, listed or not."""
        self._read_to: dict[int, int] = {}
        self._lock = asyncio.Lock()

    async def refresh(self, browser: Browser, decoder: Decoder) -> bool:
        """Read what was added; False if the cluster has no such topic."""
        async with self._lock:
            if not await browser.has_topic(self.topic):
                self._forget()
                return False
            bounds = await browser.bounds(Query(self.topic))
            if is_another(bounds, self._read_to):
                self._forget()
            short = replace(decoder, preview=min(decoder.preview, PREVIEW))
            each = MOST_LETTERS // max(1, len(bounds))
            starts = {
                number: min(max(one.start, self._read_to.get(number, 0), one.end - each), one.end)
                for number, one in bounds.items()
            }
            stops = {number: one.end for number, one in bounds.items()}
            async with browser.reader(self.topic, "read_committed", starts, stops) as reader:
                while records := await reader.read_many(READ_AT_ONCE):
                    found = await asyncio.to_thread(_letters, short, records)
                    # Together: whatever ends this here, no letter is read twice.
                    self.letters += found
                    self._read_to[records[0].partition] = records[-1].offset + 1
            self._read_to = stops
            kept = [one for one in self.letters if one.place.offset >= bounds[one.place[0]].start]
            if len(kept) < len(self.letters):
                self.letters = deque(kept, MOST_LETTERS)
            self.total = sum(max(0, one.end - one.start) for one in bounds.values())
            await self.entries.refresh(browser)
            return True

    def _forget(self) -> None:
        self._read_to = {}
        self.letters.clear()
        self.total = 0

    def of_group(self, group: str) -> list[Letter]:
        """The group's letters, the newest first."""
        found = [one for one in self.letters if one.about.group in (group, "")]
        found.sort(key=lambda one: (-one.message.timestamp_ms, one.place))
        return found


def is_another(bounds: Mapping[int, Bounds], read_to: Mapping[int, int]) -> bool:
    """Whether the topic was deleted and made again since it was read so far."""
    return any(
        number not in bounds or bounds[number].end < offset for number, offset in read_to.items()
    )


def _letters(decoder: Decoder, records: Sequence[Record]) -> list[Letter]:
    """Runs in a thread."""
    return [
        Letter(
            Place(one.partition, one.offset),
            about(one.headers),
            _slim(decoder.read(one)),
            is_copy(one),
        )
        for one in records
    ]


def _slim(message: Message) -> Message:
    """What a list shows of it: the documents of thousands of letters would take 100 MiB."""
    key, value = (replace(one, tree=None, has_tree=False) for one in (message.key, message.value))
    return replace(message, key=key, value=value, headers=())
