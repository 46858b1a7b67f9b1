"""Changes of a cluster. Whoever calls these has passed the gate (`guard.changes`)."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ottla.client.admin.resets import OffsetMove, ShiftBy, ToOffset
from ottla.client.producer.producer import Producer
from ottla.console.problem import Refused
from ottla.console.query import parse_start
from ottla.console.signing import opened, sealed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.admin.resets import ResetTarget
    from ottla.client.producer.types import RecordMetadata
    from ottla.console.clusters import ClusterSettings

ENCODINGS: Final = ("text", "json", "base64", "null")
MAX_HEADERS: Final = 100
MOST_COPIED: Final = 512 * 1024
"""Bytes of a record that a form is filled with: escaped they are at most three times as many."""
TARGETS: Final = ("earliest", "latest", "offset", "shift", "time")


def contents(text: str, encoding: str) -> bytes | None:
    """A key or a value as it was typed."""
    if encoding == "null":
        return None
    if encoding == "base64":
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise Refused(400, f"This is not base64: {error}.") from error
    if encoding == "json":
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"This is not JSON: {error}.") from error
    elif encoding != "text":
        raise Refused(400, f"An encoding is one of {', '.join(ENCODINGS)}.")
    return text.replace("\r\n", "\n").encode("utf-8", "surrogatepass")


def headers(text: str) -> list[tuple[str, bytes | None]]:
    """Lines of `name: value`."""
    found: list[tuple[str, bytes | None]] = []
    for line in filter(None, (one.strip() for one in text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise Refused(400, "A header is a line such as source: web.")
        found.append((name.strip(), value.strip().encode()))
    if len(found) > MAX_HEADERS:
        raise Refused(400, f"At most {MAX_HEADERS} headers.")
    return found


def settings(text: str) -> dict[str, str]:
    """Lines of `key=value`."""
    found: dict[str, str] = {}
    for line in filter(None, (one.strip() for one in text.splitlines())):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise Refused(400, "A setting is a line such as retention.ms=86400000.")
        found[key.strip()] = value.strip()
    return found


@dataclass(frozen=True, slots=True)
class FilledIn:
    """What the form of a record begins with."""

    key: str = ""
    key_as: str = "text"
    value: str = ""
    value_as: str = "text"
    headers: str = ""
    partition: str = ""
    left_out: int = 0
    """Headers that a line of text cannot hold."""


NO_RECORD: Final = FilledIn()


def filled_in(
    key: bytes | None,
    value: bytes | None,
    pairs: Sequence[tuple[str, bytes | None]],
    partition: int,
) -> FilledIn:
    """The form that would produce this record again."""
    if len(key or b"") + len(value or b"") > MOST_COPIED:
        raise Refused(
            413, f"The record is larger than {MOST_COPIED:,} bytes, more than a form takes."
        )
    lines = [line for name, raw in pairs if (line := _header_line(name, raw)) is not None]
    shown_key, shown_value = _typed(key), _typed(value)
    return FilledIn(
        *shown_key, *shown_value, "\n".join(lines), str(partition), len(pairs) - len(lines)
    )


def _typed(data: bytes | None) -> tuple[str, str]:
    """Text as it is typed, and how it is to be read."""
    if data is None:
        return "", "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\r"
    # A browser makes every end of a line the same, and leaves a first empty one out.
    if "\r" in text or "\0" in text or text.startswith("\n"):
        return base64.b64encode(data).decode(), "base64"
    return text, "text"


def _header_line(name: str, raw: bytes | None) -> str | None:
    line = None if raw is None else f"{name}: {raw.decode('utf-8', 'replace')}"
    if line is None:
        return None
    try:
        return line if headers(line) == [(name, raw)] else None
    except Refused:
        return None


async def produce(
    cluster: ClusterSettings,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    pairs: Sequence[tuple[str, bytes | None]],
    partition: int | None,
) -> RecordMetadata:
    """Send one record; a topic that does not exist is not made."""
    async with Producer(
        cluster.bootstrap,
        client_id="ottla-console",
        security=cluster.security,
        max_block_ms=5_000,
        delivery_timeout_ms=10_000,
        request_timeout_ms=5_000,
    ) as producer:
        return await producer.send(topic, value, key=key, headers=list(pairs), partition=partition)


def reset_target(kind: str, text: str, now: datetime) -> ResetTarget:
    """Where a group is to go, as the form says it."""
    if kind in ("earliest", "latest"):
        return kind  # type: ignore[return-value]  # one of the two
    if kind == "time":
        start = parse_start(f"time:{text}", now)
        return datetime.fromtimestamp(start.time_ms / 1000, UTC)
    sign = text.removeprefix("-")
    if kind in ("offset", "shift") and sign.isdecimal() and len(sign) < 19:
        return ToOffset(max(0, int(text))) if kind == "offset" else ShiftBy(int(text))
    raise Refused(400, f"{kind} needs a number.")


@dataclass(frozen=True, slots=True)
class Preview:
    """What a reset would do."""

    moves: tuple[OffsetMove, ...]
    again: int
    """Records that would be read again."""
    skipped: int


def preview(moves: Sequence[OffsetMove]) -> Preview:
    """Counts what is read again and what is skipped, where there was an offset before."""
    known = [(one.before, one.after) for one in moves if one.before is not None]
    return Preview(
        tuple(moves),
        sum(max(0, before - after) for before, after in known),
        sum(max(0, after - before) for before, after in known),
    )


def signed(secret: bytes, sort: str, group: str, moves: Sequence[OffsetMove]) -> str:
    """The moves for a form: applied as previewed, or not at all."""
    rows = [[one.topic, one.partition, one.before, one.after] for one in moves]
    return sealed(secret, sort, group, rows)


def verified(secret: bytes, sort: str, group: str, text: str) -> list[OffsetMove]:
    """The signed moves; raises if they are not ours, or of another group."""
    return [OffsetMove(*move) for move in opened(secret, sort, group, text)]
