"""What tiered storage asks of an object store: seven operations, and named failures.

- `RemoteNotFound`: the object is not there. `AlreadyExists`: a create-only put found one.
  `ObjectReplaced`: the object is not the one whose ETag was given.
- `RetriableRemoteError`: the store failed in a way that passes. `RemoteStorageError`: it refused.
- An object appears whole or not at all, and is durable when its put returns.
- Deleting a missing object succeeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.objects.errors import RemoteStorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PIECE_BYTES: Final = 8 * 1024 * 1024
"""Size of the pieces in which large objects are read and written: a part for S3."""


class AlreadyExists(RemoteStorageError):
    """There is an object of that name already; it was left as it is."""


class ObjectReplaced(RemoteStorageError):
    """The object was replaced: its ETag differs."""


class ObjectInfo(NamedTuple):
    """Size, ETag and time of an object."""

    key: str
    size: int
    etag: str | None
    modified_ms: int


class ObjectStore(Protocol):
    """Ranges are half open: `start` is read, `end` is not."""

    async def put_pieces(self, key: str, pieces: AsyncIterator[bytes]) -> None:
        """Store an object of any size over whatever is there.

        All pieces but the last have `PIECE_BYTES`.
        """

    async def put_new(self, key: str, data: bytes) -> None:
        """Store a small object, unless there is one of that name."""

    async def get_range(
        self, key: str, start: int, end: int, *, etag: str | None = None
    ) -> memoryview:
        """The bytes of a range that lies within the object."""

    async def get_tail(self, key: str, size: int) -> memoryview:
        """The last bytes of an object, all of it if it is smaller."""

    async def head(self, key: str) -> ObjectInfo:
        """Size and ETag."""

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Everything whose key starts with a prefix that ends with a slash or is empty."""

    async def delete(self, key: str) -> None:
        """Remove an object; one that is missing is removed already."""
