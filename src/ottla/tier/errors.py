"""Errors of tiered storage, by what the caller should do.

`NotReady` and `RetriableRemoteError` are temporary: retry later, never answer "missing".
`RemoteNotFound` means that the object or entry does not exist. Any other `RemoteStorageError` needs
an operator.
"""

from __future__ import annotations

from ottla.objects.errors import RemoteStorageError, RetriableRemoteError
from ottla.wire.errors import Mismatch


class NotReady(RetriableRemoteError):
    """The catalogue is still being read; retry later."""


class OffsetNotRemote(RemoteStorageError):
    """The catalogue is complete, and no segment in the store has this offset."""


class CorruptRemoteData(RemoteStorageError):
    """An object exists, but its bytes are damaged."""


class InvalidAdd(ValueError):
    """A segment enters the catalogue as COPY_SEGMENT_STARTED; other states come by updates."""


class InvalidUpdate(ValueError):
    """COPY_SEGMENT_STARTED is the state of an addition, never of an update."""


class InvalidSegment(ValueError):
    """Invalid segment metadata."""


class StaleSegmentState(RemoteStorageError):
    """The segment has another state by now: another broker changed it first."""


class CodecError(Mismatch):
    """A malformed metadata event."""

    summary = "bad metadata event"


class SnapshotError(Mismatch):
    """Unusable catalogue snapshot; the events are replayed instead."""

    summary = "unusable catalogue snapshot"
