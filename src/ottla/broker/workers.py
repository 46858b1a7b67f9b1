"""The threads in which a node waits for its disk, so that the event loop does not."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.memory import keep_freed_memory

if TYPE_CHECKING:
    from collections.abc import Callable

# Syncs overlap on a disk; more threads than this only queue there.
BLOCKING_THREADS: Final = 4
# While logs are opened and made, by two threads each, a sync of those that exist finds a thread.
POOL_THREADS: Final = 2 * BLOCKING_THREADS

T = TypeVar("T")


# Reads that wait for the disk at the same time. They have threads of their own, because a client
# that reads a whole topic from the disk must not delay syncs, for which producers wait.
READER_THREADS: Final = 8
# Of freed memory that malloc keeps: two of the largest answers (`MAX_READ_BYTES`).
KEPT_BYTES: Final = 16 * 1024 * 1024
# What is read from a file at once and counts as a large buffer: from here on glibc maps it.
LARGE_BYTES: Final = 128 * 1024


class Workers:
    """A few threads; `run` runs a function in one of them and awaits its result."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="ottla")
        self._readers: ThreadPoolExecutor | None = None
        self.reading = asyncio.Semaphore(READER_THREADS)
        """Held by an answer from its reads to its end, so that not many wait in memory."""
        self.reads = 0  # from the disk, so far
        self._keeps_memory = False

    async def run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.executor, function)

    async def read(self, function: Callable[[], T]) -> T:
        """The same for reads from the disk."""
        self.reads += 1
        if self._readers is None:
            self._readers = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="ottla-read")
        return await asyncio.get_running_loop().run_in_executor(self._readers, function)

    def has_read(self, size: int) -> None:
        """An answer has `size` bytes of files in new memory; with large ones malloc is set up.

        Not before: an idle broker does not load ctypes.
        """
        if size >= LARGE_BYTES and not self._keeps_memory:
            self._keeps_memory = True
            self.executor.submit(keep_freed_memory, KEPT_BYTES)

    async def ended(self) -> None:
        """`close`, in a thread: the loop may serve others, too, and the last job may take long."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End when all jobs have ended. Blocks."""
        self.executor.shutdown()
        if self._readers is not None:
            self._readers.shutdown()
