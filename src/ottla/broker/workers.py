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


class Workers:
    """A few threads; `run` awaits what one of them returns."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="ottla")

    async def run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.executor, function)

    def close(self) -> None:
        self.executor.shutdown()
