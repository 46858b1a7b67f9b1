"""A directory as an object store, as durable as its file system.

An object is written to a temporary file beside its place, synced, and given its name by a rename,
or by a link where it must not exist yet; then the directory is synced, and every directory that was
made on the way. Temporary files that a crash leaves behind are listed under their own names, so
that the scrub for unknown objects finds them. Blocking calls run in worker threads.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import closing, suppress
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.objects.errors import RemoteNotFound, RemoteStorageError, RetriableRemoteError
from ottla.objects.files import WorkerFile
from ottla.objects.store import AlreadyExists, ObjectInfo, ObjectReplaced

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    T = TypeVar("T")

_TMP_SUFFIX: Final = ".tmp"


async def _threaded(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return await asyncio.to_thread(call, *args, **kwargs)
    except FileNotFoundError as error:
        raise RemoteNotFound(f"no object at {error.filename}") from error
    except FileExistsError as error:
        raise AlreadyExists(f"there is an object at {error.filename2 or error.filename}") from error
    except (PermissionError, IsADirectoryError, NotADirectoryError) as error:
        raise RemoteStorageError(f"the directory refuses: {error}") from error
    except OSError as error:
        raise RetriableRemoteError(f"the directory fails: {error}") from error


def _etag(found: os.stat_result) -> str:
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"


class LocalStore:
    """Objects are files below `root`; keys are their relative paths."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __repr__(self) -> str:
        return f"<LocalStore {self.root}>"

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if not key or any(part in ("", ".", "..") for part in parts):
            raise RemoteStorageError(f"{key!r} is not a valid object key")
        return self.root.joinpath(*parts)

    async def put_pieces(self, key: str, pieces: AsyncIterator[bytes]) -> None:
        path = self._path(key)
        temporary = _beside(path)
        # Unless it got its name nothing of it stays.
        file = WorkerFile(
            partial(self._create, temporary), partial(temporary.unlink, missing_ok=True)
        )
        with closing(file):
            async for piece in pieces:
                await _threaded(file.use, partial(_write, piece))
            await _threaded(file.use, partial(_sync, temporary.replace, path))

    async def put_new(self, key: str, data: bytes) -> None:
        await _threaded(self._write_new, self._path(key), data)

    async def get_range(
        self, key: str, start: int, end: int, *, etag: str | None = None
    ) -> memoryview:
        return await _threaded(_read, self._path(key), start, end, etag)

    async def get_tail(self, key: str, size: int) -> memoryview:
        return await _threaded(_read, self._path(key), -size, None, None)

    async def head(self, key: str) -> ObjectInfo:
        return await _threaded(_info, key, self._path(key))

    async def delete(self, key: str) -> None:
        await _threaded(_unlink, self._path(key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        top = self._path(prefix.rstrip("/")) if prefix else self.root
        for one in await _threaded(_walk, self.root, top):
            yield one

    def _write_new(self, path: Path, data: bytes) -> None:
        temporary = _beside(path)
        with self._create(temporary) as file:
            try:
                _write(data, file)
                _sync(partial(os.link, temporary), path, file)
            finally:
                temporary.unlink()

    def _create(self, path: Path) -> FileIO:
        self._make_directory(path.parent)
        return FileIO(path, "xb")

    def _make_directory(self, path: Path) -> None:
        missing = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for one in reversed(missing):
            one.mkdir(exist_ok=True)
            _sync_directory(one.parent)


def _beside(path: Path) -> Path:
    """A unique temporary name: a shared one could be truncated after it was linked."""
    return path.with_name(f"{path.name}.{secrets.token_hex(4)}{_TMP_SUFFIX}")


def _write(piece: bytes, file: FileIO) -> None:
    view = memoryview(piece)
    while view:
        view = view[file.write(view) :]


def _sync(give_name: Callable[[Path], object], path: Path, file: FileIO) -> None:
    """Sync the file, give it its name, and sync the directory."""
    os.fsync(file.fileno())
    give_name(path)
    _sync_directory(path.parent)


def _unlink(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()
        _sync_directory(path.parent)


def _walk(root: Path, top: Path) -> list[ObjectInfo]:
    found = []
    for directory, _, names in os.walk(top):
        for name in names:
            path = Path(directory, name)
            # Files deleted during the walk are skipped.
            with suppress(FileNotFoundError):
                found.append(_info(path.relative_to(root).as_posix(), path))
    return sorted(found)


def _read(path: Path, start: int, end: int | None, etag: str | None) -> memoryview:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if etag is not None and etag != _etag(found):
            raise ObjectReplaced(f"{path} is another object than {etag}")
        if start < 0:
            start = max(0, found.st_size + start)
        wanted = (found.st_size if end is None else end) - start
        data = os.pread(fd, wanted, start)
        while len(data) < wanted:
            more = os.pread(fd, wanted - len(data), start + len(data))
            if not more:
                break
            data += more
        return memoryview(data)
    finally:
        os.close(fd)


def _info(key: str, path: Path) -> ObjectInfo:
    found = path.stat()
    return ObjectInfo(key, found.st_size, _etag(found), found.st_mtime_ns // 1_000_000)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
