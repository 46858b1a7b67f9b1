"""The seam to the file system: the few operations a log needs, and nothing else.

`Storage` names the primitives and builds the two compound operations on them (`write_all`,
`replace_file`), so that a test can fail any single system call. `OsStorage` is the real one.
Errors are the operating system's own OSError; the log decides what they mean.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_IOVECS: Final = 1024  # IOV_MAX on Linux and macOS: more buffers in one call give EINVAL
TMP_SUFFIX: Final = ".tmp"


class File:
    """An open file. It closes on `close`, or when its last user lets go of it.

    A reader that holds a segment which retention has just deleted can thus read on. A closed one
    has no descriptor: the number may be another file's by then.
    """

    __slots__ = ("_storage", "fd")

    def __init__(self, storage: Storage, path: Path, *, create: bool = False) -> None:
        self.fd = -1
        self._storage = storage
        self.fd = storage.open(path, create=create)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            self._storage.close(fd)

    def __del__(self) -> None:
        self.close()


class Storage(ABC):
    """What the log asks of a file system. Every call may block."""

    @abstractmethod
    def open(self, path: Path, *, create: bool) -> int: ...

    @abstractmethod
    def close(self, fd: int) -> None: ...

    @abstractmethod
    def pwritev(self, fd: int, chunks: Sequence[Buffer], position: int) -> int:
        """Bytes written, which may be fewer than given."""

    @abstractmethod
    def pread(self, fd: int, size: int, position: int) -> bytes: ...

    @abstractmethod
    def size(self, fd: int) -> int: ...

    @abstractmethod
    def truncate(self, fd: int, size: int) -> None: ...

    @abstractmethod
    def fdatasync(self, fd: int) -> None: ...

    @abstractmethod
    def fsync_dir(self, path: Path) -> None: ...

    @abstractmethod
    def rename(self, source: Path, target: Path) -> None: ...

    @abstractmethod
    def unlink(self, path: Path) -> None:
        """Remove a file; one that is not there is no error."""

    @abstractmethod
    def mkdir(self, path: Path) -> None:
        """Make a directory; one that exists is no error."""

    @abstractmethod
    def listdir(self, path: Path) -> list[str]: ...

    @abstractmethod
    def read_file(self, path: Path) -> bytes:
        """The whole content; raises FileNotFoundError."""

    @abstractmethod
    def mtime_ms(self, path: Path) -> int: ...

    def write_all(self, fd: int, chunks: Sequence[Buffer], position: int) -> None:
        """Write every chunk from `position` on; short writes are continued."""
        total = sum(map(len, chunks))
        while True:
            written = self.pwritev(fd, chunks[:MAX_IOVECS], position)
            if written == total:
                return
            total -= written
            position += written
            chunks = _skip(chunks, written)

    def write_file(self, path: Path, data: bytes) -> None:
        """Make or overwrite a file without syncing it; a crash may leave any part of it."""
        file = File(self, path, create=True)
        try:
            self.truncate(file.fd, 0)
            if data:
                self.write_all(file.fd, [data], 0)
        finally:
            file.close()

    def sync_file(self, path: Path) -> None:
        """Make a file's content durable; one that has been deleted meanwhile is no error."""
        with suppress(FileNotFoundError):
            file = File(self, path)
            try:
                self.fdatasync(file.fd)
            finally:
                file.close()

    def replace_file(self, path: Path, data: bytes) -> None:
        """After a crash the file holds the old content or the new, never a mix. Blocks on fsync."""
        temporary = path.with_name(path.name + TMP_SUFFIX)
        self.write_file(temporary, data)
        self.sync_file(temporary)
        self.rename(temporary, path)
        self.fsync_dir(path.parent)


def _skip(chunks: Sequence[Buffer], count: int) -> list[Buffer]:
    for index, chunk in enumerate(chunks):
        if count < len(chunk):
            return [memoryview(chunk)[count:], *chunks[index + 1 :]]
        count -= len(chunk)
    return []


class OsStorage(Storage):
    """The operating system's files."""

    def open(self, path: Path, *, create: bool) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        return os.open(path, flags | os.O_CREAT if create else flags, 0o644)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pwritev(self, fd: int, chunks: Sequence[Buffer], position: int) -> int:
        return os.pwritev(fd, chunks, position)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return os.pread(fd, size, position)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def fsync_dir(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def mkdir(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def listdir(self, path: Path) -> list[str]:
        return sorted(entry.name for entry in path.iterdir())

    def read_file(self, path: Path) -> bytes:
        return path.read_bytes()

    def mtime_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000
