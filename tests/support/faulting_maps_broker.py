"""A broker whose maps nobody may read: Python that touches one is killed by SIGSEGV."""

from __future__ import annotations

import mmap
import sys

from ottla.log.os_storage import OsStorage
from tests.support import faults_broker

PROT_NONE = 0


def unreadable(_: OsStorage, fd: int, start: int, size: int) -> memoryview | None:
    return memoryview(mmap.mmap(fd, size, mmap.MAP_SHARED, PROT_NONE, offset=start))


def main(data_dir: str, *sets: str) -> None:
    OsStorage.map = unreadable  # type: ignore[method-assign, assignment]
    faults_broker.main(data_dir, *sets)


if __name__ == "__main__":
    main(*sys.argv[1:])
