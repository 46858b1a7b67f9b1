"""What can go wrong with remote storage, by what the caller should do about it.

`NotReady` and `RetriableRemoteError` pass by themselves: try again later, never answer "missing".
`RemoteNotFound` says that the thing is certainly not there. Any other `RemoteStorageError` needs
somebody to look.
"""

from __future__ import annotations

from ottla.objects.errors import RemoteStorageError, RetriableRemoteError
from ottla.wire.errors import Mismatch


class NotReady(RetriableRemoteError):
    """The catalogue does not know enough yet to answer."""


class OffsetNotRemote(RemoteStorageError):
    """The catalogue knows everything about the partition, and no segment has the offset."""


class CorruptRemoteData(RemoteStorageError):
    """An object is there, but its bytes are not what was written."""


class InvalidAdd(ValueError):
    """A segment enters the catalogue as COPY_SEGMENT_STARTED; other states come by updates."""


class InvalidUpdate(ValueError):
    """COPY_SEGMENT_STARTED is the state of an addition, never of an update."""


class InvalidSegment(ValueError):
    """Metadata that no segment can have."""


class StaleSegmentState(RemoteStorageError):
    """The catalogue holds another state than the one asked for: somebody else was faster."""


class CodecError(Mismatch):
    """A metadata event that cannot be read."""

    summary = "bad metadata event"


class SnapshotError(Mismatch):
    """A catalogue snapshot that cannot be used; the events are replayed instead."""

    summary = "unusable catalogue snapshot"
