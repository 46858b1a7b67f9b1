"""The threads in which a node waits for its disk, so that the event loop does not."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

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


class Workers:
    """A few threads; `run` runs a function in one of them and awaits its result."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="ottla")
        self._readers: ThreadPoolExecutor | None = None
        self.reading = asyncio.Semaphore(READER_THREADS)
        """Held by an answer from its reads to its end, so that not many wait in memory."""
        self.reads = 0  # from the disk, so far

    async def run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.executor, function)

    async def read(self, function: Callable[[], T]) -> T:
        """The same for reads from the disk."""
        self.reads += 1
        if self._readers is None:
            self._readers = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="ottla-read")
        return await asyncio.get_running_loop().run_in_executor(self._readers, function)

    async def ended(self) -> None:
        """`close`, in a thread: the loop may serve others, too, and the last job may take long."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End when all jobs have ended. Blocks."""
        self.executor.shutdown()
        if self._readers is not None:
            self._readers.shutdown()
