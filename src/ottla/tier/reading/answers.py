"""How requests about a tiered partition are answered. Pure.

A fault that may pass is never answered with OFFSET_OUT_OF_RANGE: consumers would move elsewhere.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.tier.errors import NotReady, OffsetNotRemote
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from ottla.objects.errors import RemoteStorageError

EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
OLDEST_VERSION: Final = {EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""The ListOffsets version that first knew each; below it the answer is UNSUPPORTED_VERSION."""

UNKNOWN: Final = -1


class Offsets(NamedTuple):
    """Where a log and its parts begin and end; `highest_remote` is inclusive, -1 for nothing."""

    log_start: int
    local_start: int
    highest_remote: int
    log_end: int


class ReadFrom(Enum):
    """Where a fetch at an offset is served from."""

    LOCAL = auto()
    REMOTE = auto()
    OUT_OF_RANGE = auto()
    MOVED_TO_TIERED_STORAGE = auto()


def read_from(offset: int, offsets: Offsets, *, is_tiered: bool, is_follower: bool) -> ReadFrom:
    """Followers never read remotely: they rebuild their state from the catalogue."""
    if offset < offsets.log_start or offset > offsets.log_end:
        return ReadFrom.OUT_OF_RANGE
    if offset >= offsets.local_start:
        return ReadFrom.LOCAL
    if not is_tiered:
        return ReadFrom.OUT_OF_RANGE
    return ReadFrom.MOVED_TO_TIERED_STORAGE if is_follower else ReadFrom.REMOTE


def error_of(failure: RemoteStorageError) -> ErrorCode:
    """The error code for a consumer when a remote read fails; consumers retry."""
    if isinstance(failure, NotReady):
        return ErrorCode.REPLICA_NOT_AVAILABLE
    if isinstance(failure, OffsetNotRemote):
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode.UNKNOWN_SERVER_ERROR


def special_offset(timestamp: int, offsets: Offsets, *, is_tiered: bool) -> int:
    """ListOffsets for -4, -5 and -6; -1 where there is no such offset."""
    if timestamp == EARLIEST_LOCAL:
        return offsets.local_start if is_tiered else offsets.log_start
    if not is_tiered:
        return UNKNOWN
    if timestamp == LATEST_TIERED:
        return offsets.highest_remote
    if offsets.highest_remote >= 0:
        return max(offsets.highest_remote + 1, offsets.log_start)
    return offsets.log_start if offsets.local_start == offsets.log_start else UNKNOWN
