"""A broker whose disk has a bad sector: in the logs of the topic `bad`, at `SECTOR`.

The page of the map that holds it cannot be read, by the kernel either; a read that covers it fails
with EIO.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from typing import Final

from ottla.log.os_storage import OsStorage
from tests.support import faults_broker

PROT_NONE: Final = 0
SECTOR: Final = 100 * 1024  # inside of a large batch: nothing but the batch itself is there

_map, _pread = OsStorage.map, OsStorage.pread


def _is_bad(fd: int) -> bool:
    return "/bad-0/" in os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115


def damaged_map(storage: OsStorage, fd: int, start: int, size: int) -> memoryview | None:
    if not _is_bad(fd):
        return _map(storage, fd, start, size)
    return memoryview(mmap.mmap(fd, size, mmap.MAP_SHARED, PROT_NONE, offset=start))


def damaged_pread(storage: OsStorage, fd: int, size: int, position: int) -> bytes:
    if position <= SECTOR < position + size and _is_bad(fd):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return _pread(storage, fd, size, position)


def main(data_dir: str, *sets: str) -> None:
    OsStorage.map = damaged_map  # type: ignore[method-assign, assignment]
    OsStorage.pread = damaged_pread  # type: ignore[method-assign, assignment]
    faults_broker.main(data_dir, *sets)


if __name__ == "__main__":
    main(*sys.argv[1:])
