"""The locks of keys: between the threads of this process, and between processes.

Locks are always taken in one order, so that no two savers can wait for each other. An exclusive
owner keeps every lock it has ever taken until it is closed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.offsets.errors import OffsetLockTimeout
from ottla.offsets.layouts import LOCK_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.offsets.files import OpenDirectory


class KeyLocks:
    """The locks that one store takes."""

    def __init__(self, timeout: float, *, exclusive: bool) -> None:
        self._timeout = timeout
        self._exclusive = exclusive
        self._guard = threading.Lock()
        self._thread_locks: dict[str, threading.Lock] = {}
        self._kept: dict[str, int] = {}

    @contextlib.contextmanager
    def held(self, directory: OpenDirectory, stems: Iterable[str]) -> Iterator[None]:
        """Hold the locks of the data files with these stems, taken in the order of their names."""
        base = f"{directory.path}/"
        names = sorted([stem + LOCK_SUFFIX for stem in stems])
        with self._guard:
            locks = [self._thread_locks.setdefault(base + name, threading.Lock()) for name in names]
        taken: list[threading.Lock] = []
        descriptors: list[int] = []
        try:
            for name, thread_lock in zip(names, locks, strict=True):
                # Threads of this process take turns without asking the file again and again.
                if not thread_lock.acquire(timeout=self._timeout):
                    raise OffsetLockTimeout(Path(base + name), self._timeout)
                taken.append(thread_lock)
                if base + name in self._kept:
                    continue
                descriptor = directory.lock(name, self._timeout)
                if self._exclusive:
                    self._kept[base + name] = descriptor
                else:
                    descriptors.append(descriptor)
            yield
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
            for thread_lock in taken:
                thread_lock.release()

    def close(self) -> None:
        """Give back the locks an exclusive owner keeps."""
        with self._guard:
            kept, self._kept = self._kept, {}
        for descriptor in kept.values():
            os.close(descriptor)
