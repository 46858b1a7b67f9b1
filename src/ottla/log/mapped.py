"""Views of mapped segment files: the kernel copies records from the page cache to the socket.

A read with `pread` fills fresh memory, copies it to the socket and gives it back. A view of a map
that is handed to the transport costs a third of that.

- Only the kernel reads a map. A page that cannot be read (the disk fails, or somebody has cut the
  file) is an error of `write` then, EFAULT, and costs one connection. The same page read by Python
  would be SIGBUS and the end of the process. So batch bounds come from the indexes and from small
  reads, and no view goes to code that looks at its bytes: joins, checksums, parsers. TLS encrypts
  copies that the kernel makes (`ottla.security.kernel_copy`).
- A file is mapped in windows, so that letting go of a map takes well below a millisecond. A segment
  that grows is mapped as far as it goes, and again when it has grown by `GROWTH_BYTES`.
- Nobody closes a map: it goes with its last view. A deleted file keeps its space until then; slow
  clients are disconnected some time (`answer_memory`).
- A map counts as memory of the process as far as it has been read, although it is page cache that
  the kernel takes back when it needs it. A job gives up those that nobody has read for a while.
- A file that may be mapped never shrinks: segments are cut while a log is loaded, before anybody
  reads them. Storage on a network can lose pages at any time, and is not mapped (`Storage.map`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ottla.log.sealed import Budget
    from ottla.log.storage import Storage

# A smaller read is cheap, and small answers are joined, which reads their bytes (`JOIN_BYTES` of
# `ottla.broker.serving.connection`).
MIN_VIEW_BYTES: Final = 64 * 1024
WINDOW_BYTES: Final = 64 << 20  # 16,384 pages: unmapped in some hundred microseconds
GROWTH_BYTES: Final = 1 << 20  # to map anew costs as much as reading some 20 KiB


def views(
    maps: Budget[memoryview],
    owner: Hashable,
    storage: Storage,
    fd: int,
    start: int,
    stop: int,
    size: int,
    *,
    grows: bool,
) -> list[memoryview] | None:
    """Views of bytes `start` to `stop` of a file of `size` bytes; None if they are not mapped."""
    found = []
    while start < stop:
        number, begin = divmod(start, WINDOW_BYTES)
        base = start - begin
        end = min(stop - base, WINDOW_BYTES)
        mapped = _window(maps, (owner, number), storage, fd, base, end, size, grows=grows)
        if mapped is None:
            return None
        found.append(mapped[begin:end])
        start = base + end
    return found


def _window(
    maps: Budget[memoryview],
    key: Hashable,
    storage: Storage,
    fd: int,
    base: int,
    end: int,
    size: int,
    *,
    grows: bool,
) -> memoryview | None:
    """The window that begins at `base`, mapped up to `end` of it or further."""
    before = maps.get(key)
    has = 0 if before is None else len(before)
    if before is not None and has >= end:
        return before
    length = min(size - base, WINDOW_BYTES)
    if has and grows and length < WINDOW_BYTES and length - has < GROWTH_BYTES:
        return None
    mapped = storage.map(fd, base, length)
    return None if mapped is None else maps.put(key, mapped, 1, replace=True)


def windows(owner: Hashable, size: int) -> list[Hashable]:
    """The keys of all windows of a file."""
    return [(owner, number) for number in range(size // WINDOW_BYTES + 1)]
