"""The line format of the Stdio backend: `[timestamp | stream | sequence | shard] payload`. Pure.

Legal headers: ts; ts, stream; ts, stream, seq; all four; stream; stream, seq; stream, seq, shard.
The first part that is not a timestamp is a stream key. With a header the payload is trimmed;
without one the whole line is the payload.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import NamedTuple

from ottla.streams.errors import DeliveryError, FormatError, InvalidStreamKey
from ottla.streams.types import Receipt, timestamp_text, to_ns
from ottla.streams.url import validate_key

_HEADER = re.compile(r"\[([^\[\]]*)\](.*)", re.DOTALL)
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?")


class NotOneLine(DeliveryError, ValueError):
    """The payload is not one line of text."""


class Line(NamedTuple):
    """A parsed line; missing header parts are None. Without a stream it is raw."""

    payload: str
    timestamp_ns: int | None = None
    stream: str | None = None
    seq: int | None = None
    shard: int | None = None


def parse_line(text: str, *, escaped: bool = False) -> Line:
    """A line without its ending; `FormatError` if it starts like a header and is none."""
    if not text.startswith("["):
        return Line(text)
    found = _HEADER.fullmatch(text)
    if found is None:
        raise FormatError(f"not a header: {text[:80]!r}")
    parts = [part.strip() for part in found[1].split("|")]
    timestamp_ns = _timestamp_ns(parts[0])
    if timestamp_ns is not None:
        parts.pop(0)
    payload = found[2].strip()
    if escaped:
        payload = _unescape(payload)
    if not parts:
        return Line(payload, timestamp_ns, None)
    try:
        stream = validate_key(parts[0])
    except InvalidStreamKey as error:
        raise FormatError(f"not a header: {error}") from None
    numbers = parts[1:]
    if len(numbers) > 2 or not all(n.isascii() and n.isdecimal() for n in numbers):
        raise FormatError(f"not a sequence and a shard: {numbers}")
    return Line(payload, timestamp_ns, stream, *(int(number) for number in numbers))


def format_line(
    receipt: Receipt, payload: bytes, *, escape: bool = False, header: bool = True
) -> bytes:
    """The line of a message, with its ending; the shard is shown when it is not 0."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        raise NotOneLine("stdio takes UTF-8 text only; encode the payload") from None
    if escape:
        text = _escape(text)
    elif "\n" in text or "\r" in text:
        raise NotOneLine("a payload is one line; use StdioOptions(newline='escape')")
    if not header:
        return f"{text}\n".encode()
    shard = f" | {receipt.shard}" if receipt.shard else ""
    moment = timestamp_text(receipt.timestamp_ns)
    return f"[{moment} | {receipt.stream} | {receipt.seq}{shard}] {text}\n".encode()


def _timestamp_ns(text: str) -> int | None:
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    try:
        seconds = to_ns(datetime.fromisoformat(found[1]).replace(tzinfo=UTC))
    except ValueError:
        return None
    return seconds + int((found[2] or "").ljust(9, "0"))


def _escape(text: str) -> str:
    """JSON's escapes, and white space at the ends, which reading would trim."""
    body = json.dumps(text, ensure_ascii=False)[1:-1]
    core = body.strip()
    lead, _, trail = body.partition(core) if core else (body, "", "")
    return _spelled(lead) + core + _spelled(trail)


def _spelled(spaces: str) -> str:
    return "".join(f"\\u{ord(space):04x}" for space in spaces)


def _unescape(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError as error:
        raise FormatError(f"not an escaped payload: {error}") from None
