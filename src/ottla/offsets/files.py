"""The file operations of the lock-file store, each of them durable or not at all.

A lock is `flock` on a file that is never deleted: whoever deleted it would let a second process
hold "the" lock on a new file of the same name. Waiting is by asking again, because a blocking
`flock` cannot time out.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.offsets.errors import OffsetLockTimeout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FIRST_WAIT_SECONDS: Final = 0.0005
LONGEST_WAIT_SECONDS: Final = 0.02
FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})


class Durability(Enum):
    """What a save survives."""

    FSYNC = "fsync"
    """A power cut."""
    RENAME = "rename"
    """The end of the process, not a power cut; for tests."""


def lock(path: Path, timeout: float) -> int:
    """The descriptor that holds the lock; closing it gives the lock back."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        deadline = time.monotonic() + timeout
        wait = FIRST_WAIT_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise OffsetLockTimeout(path, timeout) from None
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)
    except BaseException:
        os.close(descriptor)
        raise


def read(path: Path, limit: int) -> bytes | None:
    """Up to one byte more than the limit, so that too much shows; None if there is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, limit + 1)
    finally:
        os.close(descriptor)


class DurableDirectory:
    """Changes one directory so that each change is whole, and kept if the durability says so."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self.path = path
        self._sync = durability is Durability.FSYNC

    def make(self) -> None:
        """Create it and its missing parents, each recorded in its own parent."""
        if self.path.is_dir():
            return
        parent = DurableDirectory(
            self.path.parent, Durability.FSYNC if self._sync else Durability.RENAME
        )
        parent.make()
        with contextlib.suppress(FileExistsError):
            self.path.mkdir(DIRECTORY_MODE)
        parent.sync()

    def stage(self, names: Sequence[str], data: bytes) -> None:
        """Write the data under all these names; they are one file where links are possible."""
        first, *others = names
        self._write(first, data)
        for name in others:
            try:
                os.link(self.path / first, self.path / name)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self._write(name, data)

    def replace(self, temporary: str, name: str) -> None:
        (self.path / temporary).replace(self.path / name)

    def remove(self, name: str) -> bool:
        """True if it was there."""
        try:
            (self.path / name).unlink()
        except FileNotFoundError:
            return False
        return True

    def sync(self) -> None:
        """Make renames and removals durable."""
        if not self._sync:
            return
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _write(self, name: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(self.path / name, flags, FILE_MODE)
        try:
            written = os.write(descriptor, data)
            if written != len(data):
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
