"""Arguments of public calls, checked before a call changes anything.

What is wrong is an `InvalidArgument` that names the argument, what came and what is wanted; the
consumer or producer goes on as if the call had not been made.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ottla.streams.errors import InvalidArgument, InvalidType
from ottla.streams.types import ConsumerOptions, Message, MessageId, SeqPos

if TYPE_CHECKING:
    from ottla.streams.types import Headers

SHOWN = 60
"""Characters of a wrong value in an error: enough to know it again."""

# (option, least): whole numbers, and seconds; None is allowed where it is a default.
_WHOLE = (("prefetch", 1), ("prefetch_bytes", 1), ("commit_every", 1), ("max_deliveries", 1))
_SECONDS = ("auto_commit_delay", "auto_commit_interval", "drain_timeout")
_TEXTS = ("group", "app", "dead_letter", "on_out_of_range")


def whole(name: str, given: object, least: int) -> None:
    if type(given) is not int:
        raise _wrong_type(name, given, "an int")
    if given < least:
        raise InvalidArgument(f"{name} is {given}, it must be at least {least}")


def seconds(name: str, given: object) -> None:
    if type(given) not in (int, float):
        raise _wrong_type(name, given, "a number of seconds")
    if math.isnan(given) or given < 0:  # type: ignore[arg-type,operator]  # a number
        raise InvalidArgument(f"{name} is {given}, it must be a number of seconds of 0 or more")


def optional_seconds(name: str, given: object) -> None:
    if given is not None:
        seconds(name, given)


def text(name: str, given: object) -> None:
    if not isinstance(given, str):
        raise _wrong_type(name, given, "a str")


def moment(name: str, given: object) -> None:
    if not isinstance(given, datetime):
        raise _wrong_type(name, given, "a datetime")


def place(given: object) -> None:
    """A place to rewind to."""
    if not isinstance(given, SeqPos):
        raise _wrong_type("to", given, "BEGINNING, END or At(sequence)")
    if given.kind == "at":
        whole("the sequence of At", given.seq, 0)


def identity(given: object) -> MessageId:
    """The id of a message, or of what stands for it."""
    if isinstance(given, Message):
        return given.id
    if not isinstance(given, MessageId):
        raise _wrong_type("message", given, "a Message or its id")
    return given


def key_and_headers(key: object, headers: object) -> None:
    if key is not None and not isinstance(key, bytes):
        raise _wrong_type("key", key, "bytes or None")
    if not isinstance(headers, tuple | list):
        raise _wrong_type("headers", headers, 'pairs such as (("name", b"value"),)')
    for pair in headers:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise _wrong_type("a header", pair, 'a pair such as ("name", b"value")')
        name, value = pair
        text("the name of a header", name)
        if value is not None and not isinstance(value, bytes):
            raise _wrong_type(f"the header {name!r}", value, "bytes or None")


def pairs(headers: Any) -> Headers:
    """Headers that were checked, as they are sent."""
    return tuple((name, value) for name, value in headers)


def consumer_options(options: ConsumerOptions) -> None:
    for name, least in _WHOLE:
        given = getattr(options, name)
        if given is not None or name.startswith("prefetch"):
            whole(name, given, least)
    for name in _SECONDS:
        optional_seconds(name, getattr(options, name))
    for name in _TEXTS:
        given = getattr(options, name)
        if given is not None:
            text(name, given)


def _wrong_type(name: str, given: object, wanted: str) -> InvalidType:
    shown = repr(given)
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
    return InvalidType(f"{name} is {shown} of type {type(given).__name__}, it must be {wanted}")
