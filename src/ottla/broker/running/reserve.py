"""Room on the disk that a start needs, kept so that a broker with a full disk can be restarted.

A start writes to the metadata store: SQLite makes its shared memory and its write-ahead log, and
the node registers. With no room for that the broker could not be started, so nothing could be read,
and no topic be deleted and no retention run to make room. So there is a file that takes as much:
a start that finds too little room deletes it, and a later one that finds enough makes it again.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "metadata.reserve"
RESERVE_BYTES: Final = 256 * 1024
"""SQLite's shared memory takes 32 KiB, its write-ahead log of a start about as much."""
PLENTY_BYTES: Final = 4 * RESERVE_BYTES
"""Free room from which on the reserve is made: it must not itself be what fills the disk."""

logger = logging.getLogger(__name__)


def spend(directory: Path) -> None:
    """Before the store is opened: delete the file if there is less room than it takes. Blocks."""
    file = directory / FILE
    if file.exists() and _free_bytes(directory) < RESERVE_BYTES:
        file.unlink()
        logger.warning(
            "the disk of %s is full: %s was deleted so that the broker can start and serve reads;"
            " make room (delete topics, lower retention) before the next start",
            directory,
            FILE,
        )


def keep(directory: Path) -> None:
    """After the start: make the file if it is missing and there is room. Blocks."""
    file = directory / FILE
    if file.exists() or _free_bytes(directory) < PLENTY_BYTES:
        return
    try:
        # Random, because zeros take no room on a file system that compresses.
        file.touch(0o600)
        file.write_bytes(os.urandom(RESERVE_BYTES))
    except OSError as error:
        logger.warning("no room is reserved for a start with a full disk: %s", error)
        file.unlink(missing_ok=True)


def _free_bytes(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize
