"""Records as pages show them. Values are decoded and masked already; nothing here fetches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ottla.console.decode.tree import Number, Tree, compact

if TYPE_CHECKING:
    from collections.abc import Mapping

Form: TypeAlias = Literal["null", "json", "msgpack", "avro", "protobuf", "text", "hex", "masked"]
State: TypeAlias = Literal["committed", "aborted", "open"]
_TRACE: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999; datetime knows no later one."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A key, a value or a header's value."""

    form: Form
    text: str
    """On one line and cut in lists; whole, on several lines, on a record's own page."""
    size: int | None
    """Bytes; None: a null."""
    reason: str | None = None
    """Why it is not shown in the form that was asked for."""
    cut: bool = False
    tree: Tree = None
    """The document, if it is one and was read as a whole."""
    has_tree: bool = False
    schema: str = ""
    """The schema that it was read by, such as "AVRO schema 17"."""


@dataclass(frozen=True, slots=True)
class Header:
    name: str
    value: Shown


@dataclass(frozen=True, slots=True)
class Message:
    """One record."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: Literal["CreateTime", "LogAppendTime"]
    key: Shown
    value: Shown
    headers: tuple[Header, ...]
    size: int
    state: State = "committed"
    more_headers: int = 0
    """Headers beyond those that are shown."""

    @property
    def time(self) -> datetime | None:
        """None for times that are no dates."""
        return moment(self.timestamp_ms)


@dataclass(frozen=True, slots=True)
class Batch:
    """The batch in which a record was written."""

    first: int
    last: int
    size: int
    codec: str
    producer: str
    """Id and epoch; empty: of a producer without one."""
    is_transactional: bool
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Scan:
    """How much was read for a page, and how far it came."""

    scanned: int
    records: int
    """Offsets between the two ends of the log."""
    bytes: int
    seconds: float
    found: int
    reached_ms: int | None
    errors: int = 0
    first_error: str | None = None
    ended: Literal["page", "end", "time", "bytes"] = "end"
    """Why it stopped: the page is full, the log ends, or a limit; then it can be continued."""


@dataclass(frozen=True, slots=True)
class MessagesPage:
    """A page of a topic's records."""

    topic: str
    messages: tuple[Message, ...]
    newest_first: bool
    older: Mapping[int, int] | None
    """Where each partition goes on; None: nothing is older."""
    newer: Mapping[int, int] | None
    scan: Scan
    notes: tuple[str, ...] = ()
    """Sentences: the topic is empty, the offset is beyond the end."""


def moment(ms: int) -> datetime | None:
    """Milliseconds since 1970 as a time; None for what is no date."""
    return datetime.fromtimestamp(ms / 1000, UTC) if 0 <= ms <= _LAST_MS else None


def trace_link(url: str, header: Header) -> str:
    """Where the trace of a `traceparent` header is shown; empty: it is none, or no URL is set."""
    found = _TRACE.fullmatch(header.value.text) if header.name == "traceparent" else None
    return url.replace("{trace_id}", found[1]) if url and found else ""


def as_json(message: Message) -> dict[str, Any]:
    """The record for JSON lines and the API. A document keeps the digits of its numbers."""
    time = message.time
    more = {"more_headers": message.more_headers} if message.more_headers else {}
    return {
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp_ms,
        "time": None if time is None else time.isoformat(timespec="milliseconds"),
        "key": _value(message.key),
        "value": _value(message.value),
        "headers": [[one.name, _value(one.value)] for one in message.headers],
        "state": message.state,
        **more,
    }


def line(message: Message) -> str:
    """The same as one line of JSON."""
    return compact(_tree(as_json(message)))


def _value(shown: Shown) -> Any:
    if shown.form == "null":
        return None
    if shown.form == "masked":
        return {"masked": shown.text}
    if shown.has_tree:
        return {"json": shown.tree}
    if shown.form == "hex":
        return {"hex": shown.text}
    return {"text": shown.text}


def _tree(value: Any) -> Tree:
    """Python's own numbers as `Number`."""
    if isinstance(value, dict):
        return {key: _tree(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_tree(one) for one in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Number(repr(value))
    return value  # type: ignore[no-any-return]
