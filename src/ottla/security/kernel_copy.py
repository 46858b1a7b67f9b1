"""Copies of mapped files that the kernel makes, for code that must look at the bytes.

A page of a mapped file that cannot be read (the disk fails, or somebody has cut the file) is the
end of a process that touches it: SIGBUS. The kernel, asked to write such a page somewhere, answers
EFAULT instead. So it writes the bytes to a file in memory, which this process has mapped as well,
and they are read there. The same few pages are used for every copy and stay in the processor's
cache; reading a file with `pread` fills fresh memory, which costs more than the copy.
"""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def is_mapped(view: memoryview) -> bool:
    """Whether it is a view of a mapped file."""
    return isinstance(view.obj, mmap.mmap)


class KernelCopy:
    """Memory for one copy at a time; Linux only (`make`)."""

    def __init__(self, size: int) -> None:
        fd = os.memfd_create("ottla-copy")
        weakref.finalize(self, os.close, fd)
        os.pwrite(fd, bytes(size), 0)
        self._fd = fd
        self._memory = memoryview(mmap.mmap(fd, size))

    @classmethod
    def make(cls, size: int) -> KernelCopy | None:
        """None where the system has no files in memory, or allows none."""
        if sys.platform != "linux":
            return None
        try:
            return cls(size)
        except OSError:
            return None

    def of(self, parts: Sequence[memoryview]) -> memoryview:
        """The first of these bytes, at least one, until the next copy is made.

        `parts` have no more bytes than there is memory. Raises `OSError` with EFAULT if the first
        page cannot be read.
        """
        return self._memory[: os.pwritev(self._fd, parts, 0)]
