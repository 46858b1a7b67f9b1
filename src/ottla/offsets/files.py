"""The file operations of the lock-file store, each of them durable or not at all.

A lock is `flock` on a file that we never delete: after a deletion a second process could lock a new
file of the same name. LANCE's client does delete it, so a lock counts only if the name still refers
to the locked file. Waiting polls, because a blocking `flock` cannot time out.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.offsets.errors import OffsetLockTimeout

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import Self

FIRST_WAIT_SECONDS: Final = 0.0005
LONGEST_WAIT_SECONDS: Final = 0.005
"""About the time of a save: longer pauses would let other processes starve this one."""
FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})


class Durability(Enum):
    """Which failures a save survives: a power cut, or only the end of the process."""

    FSYNC = "fsync"
    """A power cut."""
    RENAME = "rename"
    """The end of the process, not a power cut; for tests."""


class Found(NamedTuple):
    """The content of a file, and its number of names."""

    data: bytes
    inode: int
    names: int


def read(path: str, limit: int, directory: int | None = None) -> bytes | None:
    """Up to one byte more than the limit, to detect larger files; None if missing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, limit + 1)
    finally:
        os.close(descriptor)


def make_directory(path: Path, durability: Durability) -> None:
    """Create it and its missing parents, each recorded in its own parent."""
    if path.is_dir():
        return
    make_directory(path.parent, durability)
    with contextlib.suppress(FileExistsError):
        path.mkdir(DIRECTORY_MODE)
    with OpenDirectory(path.parent, durability) as parent:
        parent.sync()


class OpenDirectory:
    """One directory, held open: its files by name, its changes whole and durable."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self.path = path
        self._sync = durability is Durability.FSYNC
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        os.close(self._descriptor)

    def lock(self, name: str, timeout: float) -> int:
        """The descriptor that holds the lock; closing it gives the lock back."""
        deadline = time.monotonic() + timeout
        while True:
            descriptor = self._locked(name, timeout, deadline)
            if self._is_file(name, descriptor):
                return descriptor
            os.close(descriptor)

    def _is_file(self, name: str, descriptor: int) -> bool:
        """Whether the name still leads to this file."""
        try:
            there = os.stat(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            return False
        return there.st_ino == os.fstat(descriptor).st_ino

    def _locked(self, name: str, timeout: float, deadline: float) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(name, flags, FILE_MODE, dir_fd=self._descriptor)
        try:
            wait = FIRST_WAIT_SECONDS
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return descriptor
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise OffsetLockTimeout(self.path / name, timeout) from None
                time.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)
        except BaseException:
            os.close(descriptor)
            raise

    def read(self, name: str, limit: int) -> bytes | None:
        return read(name, limit, self._descriptor)

    def read_many(self, names: Iterable[str], limit: int) -> list[Found | None]:
        """The files of these names; a file with several names is read once."""
        found: list[Found | None] = []
        by_inode: dict[int, Found] = {}
        for name in names:
            try:
                status = os.stat(name, dir_fd=self._descriptor)
            except FileNotFoundError:
                found.append(None)
                continue
            file = by_inode.get(status.st_ino)
            if file is None:
                data = read(name, limit, self._descriptor)
                assert data is not None  # the caller holds the lock of the name
                file = by_inode[status.st_ino] = Found(data, status.st_ino, status.st_nlink)
            found.append(file)
        return found

    def names(self) -> list[str]:
        with os.scandir(self._descriptor) as entries:
            return [entry.name for entry in entries]

    def stage(self, names: Sequence[str], data: bytes) -> None:
        """Write the data under all these names; they are one file where links are possible."""
        first, *others = names
        self._write(first, data)
        here = self._descriptor
        for name in others:
            try:
                os.link(first, name, src_dir_fd=here, dst_dir_fd=here)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self._write(name, data)

    def add(self, name: str, data: bytes, end: int) -> None:
        """Append to a file of that size, durably; on failure it is unchanged."""
        descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._descriptor)
        try:
            if os.pwrite(descriptor, data, end) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path / name))
            if self._sync:
                _sync_data(descriptor)
        except BaseException:
            os.ftruncate(descriptor, end)
            raise
        finally:
            os.close(descriptor)

    def replace(self, temporary: str, name: str) -> None:
        here = self._descriptor
        os.replace(temporary, name, src_dir_fd=here, dst_dir_fd=here)

    def remove(self, name: str) -> bool:
        """True if it was there."""
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            return False
        return True

    def sync(self) -> None:
        """Make renames and removals durable."""
        if self._sync:
            os.fsync(self._descriptor)

    def _write(self, name: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(name, flags, FILE_MODE, dir_fd=self._descriptor)
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path / name))
            if self._sync:
                _sync_data(descriptor)
        finally:
            os.close(descriptor)


def _sync_data(descriptor: int) -> None:
    # On macOS fsync leaves the data in the drive's cache.
    full_sync = getattr(fcntl, "F_FULLFSYNC", None)
    if full_sync is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full_sync)
