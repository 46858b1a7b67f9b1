"""Make the C library's malloc keep the memory of freed large buffers.

Each part of a split is a new buffer of some MiB. As malloc is set up, the pages of such a buffer go
back to the system with it, and the next buffer gets new pages, each with a page fault: a third of
the cost of reading. Setting one of `VARIABLES` turns this off.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Final

TRIM_BYTES: Final = 64 * 1024 * 1024
"""Freed memory to keep per thread: several parts."""

MMAP_BYTES: Final = 32 * 1024 * 1024  # the most that glibc takes; parts are smaller
VARIABLES: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


@cache
def keep_freed_memory() -> bool:
    """Called once per process; returns whether it worked (only with glibc)."""
    if any(name in os.environ for name in VARIABLES):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    trimmed: int = mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)
    mapped: int = mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)
    return bool(trimmed and mapped)
