"""Told by the system when a file changes, where it is Linux: inotify, through the C library.

An optional convenience: who cannot have it (another system, no more watches allowed) polls.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Final

IN_MODIFY: Final = 0x002
IN_ATTRIB: Final = 0x004  # also a name of the file was removed
IN_DELETE_SELF: Final = 0x400
IN_MOVE_SELF: Final = 0x800
MASK: Final = IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF
READ_SIZE: Final = 64 * 1024
"""Events of one file have sixteen bytes, and repetitions are merged."""


class FileEvents:
    """The changes of one file; `descriptor` is readable when there are any."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        self.descriptor = _checked(library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        try:
            _checked(library.inotify_add_watch(self.descriptor, os.fsencode(path), MASK))
        except OSError:
            self.close()
            raise

    def forget(self) -> None:
        """Have the changes until now behind us."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, READ_SIZE)

    def close(self) -> None:
        os.close(self.descriptor)


def watched(path: str) -> FileEvents | None:
    """The changes of this file; None where that cannot be had."""
    try:
        return FileEvents(path)
    except (OSError, AttributeError):  # the system refuses, or its C library has no such function
        return None


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
