"""Keys, positions and the result of a save.

A position is the next sequence to read. `None` means that nothing is stored; `0` is the start of
the stream. Invalid arguments raise `ValueError` or `TypeError` before anything is stored.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from ottla.offsets.errors import InvalidOffsetArgument, InvalidOffsetType

if TYPE_CHECKING:
    from datetime import datetime

MAX_POSITION: Final = 2**128 - 1
"""Redis ids are 128 bits wide; every other backend's sequences are narrower."""
MAX_SHARD: Final = 2**64 - 1
MAX_NAME_BYTES: Final = 1024
"""Names become parts of file lines and of index keys; no backend has longer ones."""
MAX_EPOCH_CHARS: Final = 128
SHOWN: Final = 60
"""Characters of a wrong value in an error: enough to know it again."""


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return self.value


UNSET: Final = Unset.UNSET
"""Default of `expected`: replace any stored position. None means "nothing may be stored"."""

M = TypeVar("M", bound=Enum)

Expected: TypeAlias = int | Unset | None


@dataclass(frozen=True, slots=True, order=True)
class OffsetKey:
    """The key of a position: consumer group, stream and shard.

    `consumer` names the group, not one of its workers, so that another worker can continue.
    """

    consumer: str
    stream: str
    shard: int = 0

    def __post_init__(self) -> None:
        _check_name("consumer", self.consumer)
        _check_name("stream", self.stream)
        _check_integer("shard", self.shard)
        if not 0 <= self.shard <= MAX_SHARD:
            raise InvalidOffsetArgument(f"shard is {self.shard}, it must be between 0 and 2^64-1")

    def __str__(self) -> str:
        return f"{self.consumer!r} in {self.stream!r} shard {self.shard}"


class CommitInfo(NamedTuple):
    """The result of a save."""

    key: OffsetKey
    position: int
    previous: int | None
    """The position that was stored before, also by another process; None if there was none."""
    timestamp: datetime
    """When it was saved; aware, UTC."""
    changed: bool
    """False if the same position was stored already: nothing was written, no hook runs."""


def check_position(position: int) -> None:
    """Raise unless this is a valid position."""
    _check_integer("position", position)
    if not 0 <= position <= MAX_POSITION:
        raise InvalidOffsetArgument(f"position is {position}, it must be between 0 and 2^128-1")


def check_epoch(epoch: str | None) -> None:
    """An epoch is one printable ASCII word: it is stored as it is, between spaces."""
    if epoch is None:
        return
    _check_text("epoch", epoch)
    word = epoch.isascii() and epoch.isprintable() and epoch.split() == [epoch]
    if not word or epoch == "-" or len(epoch) > MAX_EPOCH_CHARS:
        raise InvalidOffsetArgument(
            f"epoch is {epoch!r}, it must be one word of up to {MAX_EPOCH_CHARS} "
            "printable ASCII characters other than '-'"
        )


def check_expected(expected: Expected) -> None:
    """Raise unless `expected` can be a position."""
    if expected is not UNSET and expected is not None:
        _check_integer("expected", expected)


def check_key(key: object, name: str = "key") -> None:
    """Raise unless this is an `OffsetKey`."""
    if not isinstance(key, OffsetKey):
        raise _wrong_type(name, key, "an OffsetKey, such as OffsetKey('group', 'orders')")


def check_consumer(consumer: str | None) -> None:
    """Raise unless this is a group name; None: all groups."""
    if consumer is not None:
        _check_text("consumer", consumer)


def check_mapping(name: str, given: object) -> None:
    """Raise unless this is a mapping by key."""
    if not isinstance(given, Mapping):
        raise _wrong_type(name, given, "a mapping by OffsetKey")
    for key in given:
        check_key(key, f"a key of {name}")


def check_flag(name: str, given: object) -> None:
    """Raise unless this is True or False."""
    if not isinstance(given, bool):
        raise _wrong_type(name, given, "True or False")


def check_seconds(name: str, given: object) -> None:
    """Raise unless this is a valid number of seconds."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise _wrong_type(name, given, "a number of seconds")
    if math.isnan(given) or given < 0:
        raise InvalidOffsetArgument(f"{name} is {given}, it must be 0 seconds or more")


def check_path(name: str, given: object) -> None:
    """Refuse what names no file."""
    if not isinstance(given, str | os.PathLike):
        raise _wrong_type(name, given, "a path")
    if not os.fspath(given) or "\0" in str(os.fspath(given)):
        raise InvalidOffsetArgument(f"{name} is {given!r}, it must be the path of a file")


def check_instance(name: str, given: object, kinds: tuple[type, ...], wanted: str) -> None:
    """Refuse objects of another kind."""
    if not isinstance(given, kinds):
        raise _wrong_type(name, given, wanted)


def member(kind: type[M], name: str, given: M | str) -> M:
    """A member of an enum, given as a member or a word."""
    try:
        return kind(given)
    except (ValueError, TypeError):  # what cannot be hashed is no word either
        words = ", ".join(repr(one.value) for one in kind)
        raise InvalidOffsetArgument(f"{name} is {given!r}, it must be one of {words}") from None


def _wrong_type(what: str, given: Any, wanted: str) -> InvalidOffsetType:
    shown = repr(given)
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
    return InvalidOffsetType(
        f"{what} is {shown} of type {type(given).__name__}, it must be {wanted}"
    )


def _check_integer(what: str, given: object) -> None:
    if type(given) is not int:
        raise _wrong_type(what, given, "an int")


def _check_text(what: str, given: object) -> None:
    if not isinstance(given, str):
        raise _wrong_type(what, given, "a str")


def _check_name(what: str, name: str) -> None:
    _check_text(what, name)
    if not name:
        raise InvalidOffsetArgument(f"{what} is empty, give it a name")
    if "\0" in name:
        raise InvalidOffsetArgument(f"{what} is {name!r}, it must not contain a NUL character")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidOffsetArgument(f"{what} is {name!r}, it must be valid Unicode text") from None
    if size > MAX_NAME_BYTES:
        raise InvalidOffsetArgument(
            f"{what} has {size} bytes in UTF-8, it may have {MAX_NAME_BYTES}"
        )
