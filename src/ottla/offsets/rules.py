"""The rules every store keeps, as one pure function.

A store passes its stored value of the key, read under its own lock; `decide` returns the value to
write, or raises. The order of the checks matters: a worker that has lost its key gets
`OffsetConflict` first, even if its position has other faults.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from ottla.clock import SYSTEM
from ottla.offsets.errors import (
    InvalidOffsetArgument,
    OffsetConflict,
    OffsetRegression,
    StaleOffset,
)
from ottla.offsets.types import (
    MAX_POSITION,
    UNSET,
    CommitInfo,
    check_epoch,
    check_expected,
    check_flag,
    check_mapping,
    check_position,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.offsets.types import Expected, OffsetKey


class Stored(NamedTuple):
    """The stored position and epoch of a key."""

    position: int
    epoch: str | None = None


class Wish(NamedTuple):
    """A checked request to save; made by `wishes`."""

    position: int
    expected: Expected = UNSET
    rewind: bool = False
    epoch: str | None = None


def wish(position: int, expected: Expected, rewind: bool, epoch: str | None) -> Wish:
    """The arguments of a `save`, checked."""
    check_position(position)
    check_expected(expected)
    check_epoch(epoch)
    check_flag("rewind", rewind)
    return Wish(position, expected, rewind, epoch)


def wishes(
    items: Mapping[OffsetKey, int],
    expected: Mapping[OffsetKey, int | None] | None,
    rewind: bool,
    epoch: str | None,
) -> dict[OffsetKey, Wish]:
    """The arguments of a `save_many`, checked."""
    check_mapping("items", items)
    if expected is not None:
        check_mapping("expected", expected)
    known = expected or {}
    if unknown := known.keys() - items.keys():
        raise InvalidOffsetArgument(f"expected names {min(unknown)}, which is not among the items")
    return {
        key: wish(position, known.get(key, UNSET), rewind, epoch) for key, position in items.items()
    }


def decide(key: OffsetKey, stored: Stored | None, wanted: Wish) -> Stored | None:
    """Decide what to write; None if it is stored already."""
    position = None if stored is None else stored.position
    if wanted.expected is not UNSET and wanted.expected != position:
        raise OffsetConflict(key, wanted.expected, position)
    if stored is None:
        return Stored(wanted.position, wanted.epoch)
    if not wanted.rewind:
        current(key, stored, wanted.epoch)
        if wanted.position < stored.position:
            raise OffsetRegression(key, stored.position, wanted.position)
    # A caller that knows no epoch keeps the one that is known.
    new = Stored(wanted.position, wanted.epoch or stored.epoch)
    return None if new == stored else new


def goes_on(expected: int, position: int, rewind: bool, epoch: str | None) -> bool:
    """Is going on from `expected` all there is to decide?

    That is the usual case of exactly-once: what then remains to be known is whether the stored
    position is the expected one, so a store can find out and write in one step.
    """
    return (
        type(position) is int
        and 0 <= expected < position <= MAX_POSITION
        and epoch is None
        and not rewind
    )


def current(key: OffsetKey, stored: Stored | None, epoch: str | None) -> int | None:
    """The stored position, if it is of this life of the stream."""
    check_epoch(epoch)
    if stored is None:
        return None
    if epoch is not None and stored.epoch is not None and epoch != stored.epoch:
        raise StaleOffset(key, stored.epoch, epoch)
    return stored.position


def wall_time() -> datetime:
    """The time of a save, for hooks."""
    return datetime.fromtimestamp(SYSTEM.wall_ns() / 1e9, UTC)


def saved(key: OffsetKey, stored: Stored | None, new: Stored | None) -> CommitInfo:
    """The `CommitInfo` of a save."""
    previous = None if stored is None else stored.position
    position = previous if new is None else new.position
    assert position is not None
    return CommitInfo(key, position, previous, wall_time(), changed=new is not None)
