"""Arguments of public calls, checked before a call changes anything.

An invalid argument raises `InvalidArgument`, which names the argument, its value and what is
expected; the call has no other effect on the consumer or producer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.redaction import HIDDEN
from ottla.streams.errors import InvalidArgument, InvalidType
from ottla.streams.types import (
    FileOptions,
    KafkaOptions,
    Message,
    MessageId,
    RedisOptions,
    SeqPos,
    StdioOptions,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from ottla.streams.types import Headers

SHOWN = 60
"""Characters of a wrong value in an error: enough to know it again."""

_LEAST = {"seq_bits": 0}
"""Whole numbers in options are 1 or more, but for these."""
_CHOICES = {
    "on_out_of_range": ("raise", "wait", "earliest", "latest"),
    "on_stale": ("raise", "earliest", "latest"),
    "on_bad_line": ("raw", "skip", "raise"),
    "newline": ("raise", "escape"),
}
_OF_BACKENDS = {
    "kafka": KafkaOptions,
    "redis": RedisOptions,
    "file": FileOptions,
    "stdio": StdioOptions,
}


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


def place(given: object, name: str = "to") -> None:
    """A place in a stream."""
    if not isinstance(given, SeqPos):
        raise _wrong_type(name, given, "BEGINNING, END or At(sequence)")
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


T = TypeVar("T", bound="DataclassInstance")


def options(name: str, given: object, kind: type[T]) -> T:
    """Options of a kind, with every one of them checked by its declared type."""
    if not isinstance(given, kind):
        raise _wrong_type(name, given, f"{kind.__name__}(...)")
    for one in fields(given):
        _option(one, getattr(given, one.name))
    return given


def _option(one: Field[Any], given: object) -> None:
    name, declared = one.name, str(one.type)
    if given is None and (declared.endswith("| None") or one.default is None):
        return
    if name in _OF_BACKENDS and declared.startswith(_OF_BACKENDS[name].__name__):
        options(name, given, _OF_BACKENDS[name])
    elif name in _CHOICES:
        if given not in _CHOICES[name]:
            raise InvalidArgument(f"{name} is one of {_CHOICES[name]}, not {given!r:.60}")
    elif (check := _CHECKS.get(declared.removesuffix(" | None").partition("[")[0])) is not None:
        # A field that is hidden in the repr is secret: do not show it in an error either.
        check(name, given if one.repr or isinstance(given, str | Mapping) else _Hidden())


def _flag(name: str, given: object) -> None:
    if type(given) is not bool:
        raise _wrong_type(name, given, "True or False")


def _count(name: str, given: object) -> None:
    whole(name, given, _LEAST.get(name, 1))


def _at(name: str, given: object) -> None:
    place(given, name)


def _mapping(name: str, given: object) -> None:
    if not isinstance(given, Mapping):
        raise _wrong_type(name, given, "a mapping")


def _store(name: str, given: object) -> None:
    if not callable(getattr(given, "save_many", None)):
        raise _wrong_type(name, given, "an offset store, such as MemoryOffsetStore()")


def _security(name: str, given: object) -> None:
    # Imported by whoever has one; and not shown, since it may be a mapping with a password.
    if not callable(getattr(given, "librdkafka", None)):
        raise _wrong_type(name, _Hidden(), "an ottla.Security")


_CHECKS: Final[Mapping[str, Callable[[str, object], None]]] = {
    "bool": _flag,
    "int": _count,
    "float": seconds,
    "str": text,
    "SeqPos": _at,
    "Mapping": _mapping,
    "OffsetStore": _store,
    "Security": _security,
}
"""By the declared type of an option."""


class _Hidden:
    """Stands for a secret of the wrong type."""

    def __repr__(self) -> str:
        return HIDDEN


def _wrong_type(name: str, given: object, wanted: str) -> InvalidType:
    shown = repr(given)
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
    return InvalidType(f"{name} is {shown} of type {type(given).__name__}, it must be {wanted}")
