"""What sealed segments share in one process: open descriptors, and indexes in memory.

A log may have thousands of segments, a node thousands of logs, and a process some thousand
descriptors. So only segments that grow keep their own. A sealed one opens its file and loads its
indexes when it is read. Both are cached here until the space is needed; the least recently used are
evicted first.

A user of a value holds a reference to it, which serves as a lease: an evicted value lives until the
last reference is dropped. Dropping the last reference to a `File` closes its descriptor; eviction
does not, so a descriptor cannot be closed under a reader.

Keys are the segments themselves, not their paths. A segment that compaction has put in the place
of others is another key, and `Segment.reopen` makes sure that the file it finds is its own.

Every call is safe in any thread. Values are loaded outside the lock, so a load from disk delays no
other thread.
"""

from __future__ import annotations

import errno
import threading
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ottla.log.index import AbortedIndex, OffsetIndex, TimeIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ottla.log.storage import File

# Share of the process's descriptors: connections and growing segments need the rest.
DESCRIPTOR_SHARE: Final = 8
MIN_DESCRIPTORS: Final = 16  # a handful of threads can read at once, and each needs one
# More are not worth it: to open a file again costs some 15 us, a read from it ten times that.
MAX_DESCRIPTORS: Final = 1024
# The offset indexes of 16 GiB that are being read (8 bytes for each 4 KiB).
INDEX_BYTES: Final = 32 << 20
# Memory of an index beside its entries: two arrays, an object, a key and its place in the order.
INDEX_OVERHEAD: Final = 512
NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)

Index = OffsetIndex | TimeIndex | AbortedIndex
V = TypeVar("V")


class _Kept(Generic[V]):
    __slots__ = ("is_used", "value", "weight")

    def __init__(self, value: V, weight: int) -> None:
        self.value = value
        self.weight = weight
        self.is_used = False  # since it came or was last passed over


class Budget(Generic[V]):
    """Values by key, those dropped that were not used for long when their weights pass a limit.

    A hit only marks the entry, to keep reads cheap. When space is needed the oldest entry is
    evicted, unless it is marked; then it loses its mark and becomes the youngest.
    """

    __slots__ = ("_lock", "_values", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._values: dict[Hashable, _Kept[V]] = {}  # oldest first
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> V | None:
        kept = self._values.get(key)
        if kept is None:
            return None
        kept.is_used = True
        return kept.value

    def put(self, key: Hashable, value: V, weight: int, *, replace: bool = False) -> V:
        """Keep it, unless there is one already; the one that is kept."""
        with self._lock:
            before = self._values.get(key)
            if before is not None and not replace:
                return before.value
            if before is not None:
                self.used -= before.weight
            self._values[key] = _Kept(value, weight)
            self.used += weight
            dropped = self._make_room(self.limit)
        del dropped, before  # a file whose last user this was is closed here, outside the lock
        return value

    def drop(self, key: Hashable) -> None:
        """Drop the key; it will not be used again."""
        if key not in self._values:
            return  # as with most segments of a log that is closed
        with self._lock:
            dropped = self._values.pop(key, None)
            if dropped is not None:
                self.used -= dropped.weight
        del dropped

    def take_unused(self) -> list[V]:
        """Take out what was not used since the last call, for the caller to let go of."""
        taken = []
        with self._lock:
            for key, kept in list(self._values.items()):
                if kept.is_used:
                    kept.is_used = False
                else:
                    taken.append(self._values.pop(key).value)
                    self.used -= kept.weight
        return taken

    def clear(self) -> None:
        with self._lock:
            dropped, self._values, self.used = self._values, {}, 0
        del dropped

    def _make_room(self, limit: int) -> list[_Kept[V]]:
        dropped = []
        while self.used > limit:
            key = next(iter(self._values))
            kept = self._values.pop(key)
            if kept.is_used:
                kept.is_used = False
                self._values[key] = kept
            else:
                self.used -= kept.weight
                dropped.append(kept)
        return dropped


class Sealed:
    """The budgets of a process."""

    __slots__ = ("files", "indexes", "maps")

    def __init__(self, descriptors: int, index_bytes: int = INDEX_BYTES) -> None:
        self.files: Budget[File] = Budget(descriptors)
        self.maps: Budget[memoryview] = Budget(descriptors)
        """Of segments that are read, also of those that grow; see `ottla.log.mapped`. Before Python
        3.13 each takes a descriptor."""
        self.indexes: Budget[Any] = Budget(index_bytes)
        """Of each segment by its kind; the offset index, which every read needs, by the segment."""

    def file(self, key: Hashable, reopen: Callable[[], File]) -> File:
        """The open file of a key, to be used while a reference to it is held. May block."""
        kept = self.files.get(key)
        if kept is not None:
            return kept
        try:
            opened = reopen()
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR:
                raise
            self.files.clear()
            self.maps.clear()
            opened = reopen()
        return self.files.put(key, opened, 1)

    def keep_index(self, key: Hashable, index: Index) -> None:
        self.indexes.put(key, index, index.nbytes + INDEX_OVERHEAD, replace=True)


def descriptor_limit(nofile: int) -> int:
    """How many descriptors sealed segments may keep in a process that may open `nofile` files."""
    return min(max(nofile // DESCRIPTOR_SHARE, MIN_DESCRIPTORS), MAX_DESCRIPTORS)


@cache
def shared() -> Sealed:
    """Of this process."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return Sealed(MIN_DESCRIPTORS)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return Sealed(MAX_DESCRIPTORS)
    return Sealed(descriptor_limit(soft))
