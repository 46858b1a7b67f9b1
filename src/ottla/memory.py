"""Make the C library's malloc keep the memory of freed large buffers.

What is read from a file or an object store is a new buffer of up to some MiB. As malloc is set up,
the pages of such a buffer go back to the system with it, and the next buffer gets new pages, each
with a page fault: a quarter to a third of the cost of reading. Setting one of `VARIABLES` turns
this off.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Final

MMAP_BYTES: Final = 32 * 1024 * 1024
"""The most that glibc takes; larger buffers go back to the system in any case."""
VARIABLES: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


@cache
def keep_freed_memory(kept_bytes: int) -> bool:
    """Keep this much freed memory per thread, and map no smaller buffer; once per process.

    Returns whether it worked (only with glibc). Loads ctypes, so it does not belong in an event
    loop.
    """
    if any(name in os.environ for name in VARIABLES):
        return False
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    trimmed: int = mallopt(_M_TRIM_THRESHOLD, kept_bytes)
    mapped: int = mallopt(_M_MMAP_THRESHOLD, min(kept_bytes, MMAP_BYTES))
    return bool(trimmed and mapped)
