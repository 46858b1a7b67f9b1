"""S3, Google Cloud Storage, Azure and memory as object stores, through obstore (the `s3` extra).

- What comes in pieces goes up in as many parts, four at a time, so that its size does not matter
  to memory; a single piece goes in one request.
  Create-only puts hold the object whole, and are for small ones.
- Reads are tried four times within 2 seconds, since a consumer waits; uploads within 30 seconds.
- What obstore raises becomes one of our errors here, and nowhere else.
"""

from __future__ import annotations

import os
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from ottla.objects.errors import RemoteNotFound, RemoteStorageError, RetriableRemoteError
from ottla.objects.store import PIECE_BYTES, AlreadyExists, ObjectInfo, ObjectReplaced

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from obstore import GetOptions
    from obstore.store import ClientConfig, RetryConfig
    from obstore.store import ObjectStore as Backend

PARTS_IN_FLIGHT: Final = 4
MAX_RETRIES: Final = 3
READ_TIMEOUT: Final = timedelta(seconds=2)
UPLOAD_TIMEOUT: Final = timedelta(seconds=30)
_ENDPOINT: Final = "AWS_ENDPOINT_URL"

_REFUSALS: Final = (
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)


def _said(error: Exception) -> str:
    """The first line of obstore's message, which has the reason."""
    return str(error).strip().partition("\n")[0]


def _named(error: Exception, key: str) -> RemoteStorageError:
    """Our error for one of obstore's."""
    said = _said(error)
    if isinstance(error, FileNotFoundError):
        return RemoteNotFound(f"no object {key!r}")
    if isinstance(error, AlreadyExistsError):
        return AlreadyExists(f"there is an object {key!r}")
    if isinstance(error, PreconditionError):
        return ObjectReplaced(f"object {key!r} is not the one that was asked for")
    if isinstance(error, _REFUSALS):
        return RemoteStorageError(f"the store refuses {key!r}: {said}")
    return RetriableRemoteError(f"the store fails at {key!r}: {said}")


_FAILURES: Final = (BaseError, OSError)


class CloudStore:
    """Two handles on one bucket with different timeouts; a reader opens only one."""

    def __init__(self, reads: Backend, open_writes: Callable[[], Backend]) -> None:
        self._reads = reads
        self._open_writes = open_writes

    def __repr__(self) -> str:
        return f"<CloudStore {self._reads!r}>"

    @cached_property
    def _writes(self) -> Backend:
        return self._open_writes()

    async def put_pieces(self, key: str, pieces: AsyncIterator[bytes]) -> None:
        first = await anext(pieces, b"")
        if len(first) < PIECE_BYTES:
            await self._put(key, first)
        else:
            await self._put(key, _chain(first, pieces))

    async def _put(self, key: str, content: bytes | AsyncIterator[bytes]) -> None:
        try:
            await obstore.put_async(
                self._writes, key, content, chunk_size=PIECE_BYTES, max_concurrency=PARTS_IN_FLIGHT
            )
        except _FAILURES as error:
            raise _named(error, key) from error

    async def put_new(self, key: str, data: bytes) -> None:
        try:
            await obstore.put_async(self._writes, key, data, mode="create")
        except PreconditionError as error:
            raise AlreadyExists(f"there is an object {key!r}") from error
        except _FAILURES as error:
            raise _named(error, key) from error

    async def get_range(
        self, key: str, start: int, end: int, *, etag: str | None = None
    ) -> memoryview:
        if start == end:
            return memoryview(b"")
        options: GetOptions = {"range": (start, end)}
        if etag is not None:
            options["if_match"] = etag
        return await self._get(key, options)

    async def get_tail(self, key: str, size: int) -> memoryview:
        return await self._get(key, {"range": {"suffix": size}})

    async def _get(self, key: str, options: GetOptions) -> memoryview:
        try:
            found = await obstore.get_async(self._reads, key, options=options)
            return memoryview(await found.buffer_async())
        except _FAILURES as error:
            raise _named(error, key) from error

    async def head(self, key: str) -> ObjectInfo:
        try:
            found = await obstore.head_async(self._reads, key)
        except _FAILURES as error:
            raise _named(error, key) from error
        return _info(found)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        try:
            async for page in obstore.list(self._reads, prefix or None):
                for one in page:
                    yield _info(one)
        except _FAILURES as error:
            raise _named(error, prefix) from error

    async def delete(self, key: str) -> None:
        try:
            await obstore.delete_async(self._writes, key)
        except FileNotFoundError:
            return
        except _FAILURES as error:
            raise _named(error, key) from error


async def _chain(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece


def _info(found: Any) -> ObjectInfo:
    modified = int(found["last_modified"].timestamp() * 1000)
    return ObjectInfo(found["path"], found["size"], found["e_tag"], modified)


def _patience(timeout: timedelta) -> RetryConfig:
    return {"max_retries": MAX_RETRIES, "retry_timeout": timeout}


def memory_store() -> CloudStore:
    """Objects that end with the process."""
    store = MemoryStore()
    return CloudStore(store, lambda: store)


def cloud_store(kind: str, bucket: str, options: Mapping[str, str]) -> CloudStore:
    """The bucket or container of a service; what `options` leave out comes from the environment."""
    make: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[kind]
    client: ClientConfig = {"timeout": UPLOAD_TIMEOUT}
    endpoint = options.get("endpoint") or (os.environ.get(_ENDPOINT, "") if kind == "s3" else "")
    if endpoint.startswith("http://"):
        client["allow_http"] = True

    def handle(timeout: timedelta) -> Backend:
        store: Backend = make(
            bucket, config=dict(options), client_options=client, retry_config=_patience(timeout)
        )
        return store

    try:
        return CloudStore(handle(READ_TIMEOUT), lambda: handle(UPLOAD_TIMEOUT))
    except BaseError as error:
        raise RemoteStorageError(f"{kind}://{bucket} cannot be used: {_said(error)}") from error
