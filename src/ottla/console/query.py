"""What is asked of a topic's records, and how a URL says it. Pure.

`from` is a place: newest, oldest, an offset, a time, or so long ago. A cut names a page that was
shown: in each partition the offset at which the next one begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.errors import OttlaError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ottla.client.reader.types import Isolation
    from ottla.console.filter import Where

ROWS: Final = 50
"""Records on a page."""
MAX_ROWS: Final = 500
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
