"""Keys, positions and the result of a save.

A position is the next sequence to read. `None` means that nothing is stored; `0` is the start of
the stream. Invalid arguments raise `ValueError` or `TypeError` before anything is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from datetime import datetime

MAX_POSITION: Final = 2**128 - 1
"""Redis ids are 128 bits wide; every other backend's sequences are narrower."""
MAX_SHARD: Final = 2**64 - 1
MAX_NAME_BYTES: Final = 1024
"""Names become parts of file lines and of index keys; no backend has longer ones."""
MAX_EPOCH_CHARS: Final = 128


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return self.value


UNSET: Final = Unset.UNSET
"""Default of `expected`: replace whatever is stored. None means "nothing may be stored"."""

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
            raise ValueError(f"shard is {self.shard}, it must be between 0 and 2^64-1")

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
        raise ValueError(f"position is {position}, it must be between 0 and 2^128-1")


def check_epoch(epoch: str | None) -> None:
    """An epoch is one printable ASCII word: it is stored as it is, between spaces."""
    if epoch is None:
        return
    _check_text("epoch", epoch)
    word = epoch.isascii() and epoch.isprintable() and epoch.split() == [epoch]
    if not word or epoch == "-" or len(epoch) > MAX_EPOCH_CHARS:
        raise ValueError(
            f"epoch is {epoch!r}, it must be one word of up to {MAX_EPOCH_CHARS} "
            "printable ASCII characters other than '-'"
        )


def check_expected(expected: Expected) -> None:
    """Raise unless `expected` can be a position."""
    if expected is not UNSET and expected is not None:
        _check_integer("expected", expected)


def member(kind: type[M], name: str, given: M | str) -> M:
    """A member of an enum, or the word for one."""
    try:
        return kind(given)
    except ValueError:
        words = ", ".join(repr(one.value) for one in kind)
        raise ValueError(f"{name} is {given!r}, it must be one of {words}") from None


def _check_integer(what: str, given: object) -> None:
    if type(given) is not int:
        raise TypeError(f"{what} is {given!r} of type {type(given).__name__}, it must be an int")


def _check_text(what: str, given: object) -> None:
    if not isinstance(given, str):
        raise TypeError(f"{what} is {given!r} of type {type(given).__name__}, it must be a str")


def _check_name(what: str, name: str) -> None:
    _check_text(what, name)
    if not name:
        raise ValueError(f"{what} is empty, give it a name")
    if "\0" in name:
        raise ValueError(f"{what} is {name!r}, it must not contain a NUL character")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} is {name!r}, it must be valid Unicode text") from None
    if size > MAX_NAME_BYTES:
        raise ValueError(f"{what} has {size} bytes in UTF-8, it may have {MAX_NAME_BYTES}")
