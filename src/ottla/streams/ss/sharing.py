"""Shared by readers of one file in a process: a descriptor and a thread.

- Readers keep their own places: they use `pread`, so one descriptor serves all of them.
- A file is known by device and inode. A file that takes over a name gets a descriptor of its own.
- A forked child starts without any: the parent's threads do not run in it.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

Identity: TypeAlias = tuple[int, int]
"""Device and inode."""

_lock = threading.Lock()
_files: dict[Identity, SharedFile] = {}
_threads: dict[str, SharedThread] = {}


class SharedFile:
    """One open descriptor; `close` is called once for each `open_shared`."""

    def __init__(self, descriptor: int, identity: Identity) -> None:
        self.descriptor = descriptor
        self.identity = identity
        self._users = 1

    def close(self) -> None:
        """Close the descriptor when the last user has gone."""
        with _lock:
            self._users -= 1
            if self._users:
                return
            if _files.get(self.identity) is self:
                del _files[self.identity]
        os.close(self.descriptor)

    def join(self) -> SharedFile:
        """One user more; the caller holds the lock."""
        self._users += 1
        return self


def open_shared(path: str) -> SharedFile:
    """The file at this path, opened unless this process has it open for reading; `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    identity = found.st_dev, found.st_ino
    with _lock:
        known = _files.get(identity)
        if known is None:
            _files[identity] = made = SharedFile(descriptor, identity)
            return made
        known.join()
    os.close(descriptor)
    return known


class SharedThread:
    """One thread for all reads of a path; `release` is called once for each `reading_thread`."""

    def __init__(self, path: str) -> None:
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="ottla-file-reader")
        self._path = path
        self._users = 0

    def join(self) -> SharedThread:
        """One user more; the caller holds the lock."""
        self._users += 1
        return self

    def release(self) -> None:
        """End the thread when the last user has gone."""
        with _lock:
            self._users -= 1
            if self._users:
                return
            if _threads.get(self._path) is self:
                del _threads[self._path]
        self.executor.shutdown(wait=False)


def reading_thread(path: str) -> SharedThread:
    """The thread of this path, started when it is first used."""
    with _lock:
        return _threads.setdefault(path, SharedThread(path)).join()


def _forked() -> None:
    global _lock  # noqa: PLW0603  # another thread of the parent may hold it
    _lock = threading.Lock()
    _files.clear()
    _threads.clear()


os.register_at_fork(after_in_child=_forked)
