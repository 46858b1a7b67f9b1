"""The seam to the file system: the few operations a log needs, and nothing else.

A log addresses its files through an open `Directory`, not by path: deleting a topic renames the
directory, and by then the path may be that of another topic. A worker that is still busy with the
old log thus never touches a file of the new one.

`Storage` names the primitives and builds the compound operations on them (`write_all`,
`replace_file`), so that a test can fail any single system call; `ottla.log.os_storage` has the real
one. Errors are the operating system's own OSError; the log decides what they mean.
"""

from __future__ import annotations

import errno
import os
import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from io import FileIO
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
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

    def __init__(self, storage: Storage, path: Path | Entry, *, create: bool = False) -> None:
        self.fd = -1
        self._storage = storage
        self.fd = storage.open(path, create=create)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            self._storage.close(fd)

    def __del__(self) -> None:
        self.close()


class Directory:
    """An open directory: `directory / name` is the same file after the directory was renamed.

    Thousands of logs must not need a second descriptor each. So it is kept while a log is loaded,
    then opened for each use (`let_go`): the path belongs to the log until the log begins to close.
    From then on `hold` keeps one open for threads that still use the log.

    `unsynced` names the files that were put in it and are not durable yet. `put` and `sync_files`
    may run in two threads.
    """

    __slots__ = ("_fd", "_is_closed", "_lock", "path", "storage", "unsynced")

    def __init__(self, storage: Storage, path: Path) -> None:
        self._fd = -1
        self._is_closed = False
        self._lock = threading.Lock()
        self.storage = storage
        self.path = path
        self.unsynced: dict[str, None] = {}
        self.hold()

    def __truediv__(self, name: str) -> Entry:
        return Entry(self, name)

    def put(self, entry: Entry, data: bytes) -> None:
        """Make or overwrite a file; the next `sync_files` makes its content durable.

        An empty one has no content: its name is made durable by a sync of the directory.
        """
        self.storage.write_file(entry, data)
        if data:
            self.unsynced[entry.name] = None

    def sync_files(self) -> None:
        """Make the content of every file that was put here durable. Blocks."""
        while self.unsynced:
            self.storage.sync_file(self / self.unsynced.popitem()[0])

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Its descriptor for one use."""
        with self._lock:
            if self._is_closed:
                raise OSError(errno.EBADF, "directory is closed", str(self.path))
            kept = self._fd
            fd = kept if kept >= 0 else self.storage.open_directory(self.path)
        try:
            yield fd
        finally:
            if kept < 0:
                self.storage.close_directory(fd)

    def hold(self) -> None:
        """Keep it open: from now on the path may become another directory's."""
        with self._lock:
            if self._fd < 0:
                self._fd = self.storage.open_directory(self.path)

    def let_go(self) -> None:
        """Open it for each use again. It must not be in use now."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self.storage.close_directory(fd)

    def close(self) -> None:
        self._is_closed = True
        self.let_go()

    def __del__(self) -> None:
        self.close()


class Entry(NamedTuple):
    """A name in an open directory."""

    parent: Directory
    name: str

    def __str__(self) -> str:
        return f"{self.parent.path}/{self.name}"

    def with_name(self, name: str) -> Entry:
        return Entry(self.parent, name)

    def read_bytes(self) -> bytes:
        """The whole content; raises FileNotFoundError. Blocks."""
        return self.parent.storage.read_file(self)

    def open_for_reading(self) -> FileIO:
        """Raises FileNotFoundError. Blocks."""
        with self.parent.opened() as within:
            return FileIO(self.name, opener=partial(os.open, dir_fd=within))


class Storage(ABC):
    """The file system calls that the log needs. Every call may block."""

    syncs = True
    """Whether what is synced is durable; otherwise no call waits for a disk."""

    @abstractmethod
    def open(self, path: Path | Entry, *, create: bool) -> int: ...

    @abstractmethod
    def open_directory(self, path: Path) -> int: ...

    @abstractmethod
    def close_directory(self, fd: int) -> None: ...

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
    def identity(self, fd: int) -> int:
        """Of two files in one directory no two have the same, and renaming does not change it."""

    @abstractmethod
    def truncate(self, fd: int, size: int) -> None: ...

    @abstractmethod
    def fdatasync(self, fd: int) -> None: ...

    @abstractmethod
    def fsync_dir(self, path: Path | Directory) -> None: ...

    @abstractmethod
    def rename(self, source: Path | Entry, target: Path | Entry) -> None:
        """Atomic; raises FileNotFoundError."""

    @abstractmethod
    def unlink(self, path: Path | Entry) -> None:
        """Remove a file; a missing one is no error."""

    @abstractmethod
    def mkdir(self, path: Path) -> None:
        """Make a directory; one that exists is no error."""

    @abstractmethod
    def listdir(self, path: Path | Directory) -> list[str]: ...

    @abstractmethod
    def read_file(self, path: Path | Entry) -> bytes:
        """The whole content; raises FileNotFoundError."""

    @abstractmethod
    def mtime_ms(self, path: Path | Entry) -> int: ...

    def free_bytes(self, path: Path) -> int | None:
        """Room that is left on the disk of this directory; None if unknown."""
        return None

    def is_cached(self, fd: int, start: int, size: int) -> bool | None:
        """Whether a read of this range does not wait for the disk; None if unknown."""
        return True

    def will_need(self, fd: int, start: int, size: int) -> None:  # noqa: B027 (a hint)
        """This range will be read soon: bring it into the page cache in the background."""

    def map(self, fd: int, start: int, size: int) -> memoryview | None:
        """This range of a file, for the kernel to read (`ottla.log.mapped`); None if it cannot be.

        `start` is a multiple of `mmap.ALLOCATIONGRANULARITY`.
        """
        return None

    def write_all(self, fd: int, chunks: Sequence[Buffer], position: int) -> None:
        """Write every chunk from `position` on; short writes are continued."""
        if len(chunks) == 1:  # the hot path
            written = self.pwritev(fd, chunks, position)
            if written == len(chunks[0]):
                return
            chunks, position = without(chunks, written), position + written
        total = sum(map(len, chunks))
        while True:
            written = self.pwritev(fd, chunks[:MAX_IOVECS], position)
            if written == total:
                return
            total -= written
            position += written
            chunks = without(chunks, written)

    def write_durably(self, fd: int, chunks: Sequence[Buffer], position: int) -> None:
        """Write every chunk from `position` on, and return when all of it is durable."""
        self.write_all(fd, chunks, position)
        self.fdatasync(fd)

    def write_file(self, path: Path | Entry, data: bytes) -> None:
        """Make or overwrite a file without syncing it; a crash may leave any part of it."""
        file = File(self, path, create=True)
        try:
            self.truncate(file.fd, 0)
            if data:
                self.write_all(file.fd, [data], 0)
        finally:
            file.close()

    def sync_file(self, path: Path | Entry) -> None:
        """Make a file's content durable; one that has been deleted meanwhile is no error."""
        with suppress(FileNotFoundError):
            file = File(self, path)
            try:
                self.fdatasync(file.fd)
            finally:
                file.close()

    def together(self, fd: int) -> AbstractContextManager[None]:
        """Let the syncs of this thread have their effect at the end of the block at the latest.

        For many small files one sync of their whole file system, on which `fd` has been open for
        as long as errors count, is cheaper than one of each. The end of the block raises OSError
        when that fails: nothing that was synced in the block counts as durable then.
        """
        return nullcontext()

    def replace_file(self, path: Path | Entry, data: bytes) -> None:
        """After a crash the file holds the old content or the new, never a mix. Blocks on fsync."""
        self.exchange_file(path, data)
        self.fsync_dir(path.parent)

    def exchange_file(self, path: Path | Entry, data: bytes) -> None:
        """Like `replace_file`, but it is durable only after a sync of the directory."""
        temporary = path.with_name(path.name + TMP_SUFFIX)
        self.write_file(temporary, data)
        self.sync_file(temporary)
        self.rename(temporary, path)


def without(chunks: Sequence[Buffer], count: int) -> list[Buffer]:
    """Without their first `count` bytes."""
    for index, chunk in enumerate(chunks):
        if count < len(chunk):
            return [memoryview(chunk)[count:], *chunks[index + 1 :]]
        count -= len(chunk)
    return []
