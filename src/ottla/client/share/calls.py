"""Calls of a worker's handler: a coroutine is awaited, a plain function runs in a thread.

Any exception of a handler is a failed call and does not end the worker: SystemExit and a
CancelledError raised by the handler become a RuntimeError.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ottla.client.share.types import ShareRecord
    from ottla.client.share.worker import Handler


class Threads:
    """Daemon threads, unlike a ThreadPoolExecutor's: a stuck call does not hold up the exit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._started = 0
        self._busy = 0

    async def call(self, fn: Handler, record: ShareRecord) -> object:
        """Call the function in one of the threads and return its result."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[object] = loop.create_future()
        self._busy += 1
        if self._started < min(self._busy, self._most):
            self._started += 1
            name = f"ottla-share-worker-{self._started}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        self._calls.put((fn, record, outcome, loop))
        try:
            return await outcome
        finally:
            self._busy -= 1

    def stop(self) -> None:
        """Let threads that are idle end, and the others after their call."""
        for _ in range(self._started):
            self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            fn, record, outcome, loop = call
            try:
                settle = partial(_set_result, outcome, fn(record))
            except BaseException as error:  # noqa: BLE001  # raised where it is waited for
                settle = partial(_set_error, outcome, error)
            with suppress(RuntimeError):  # the event loop has ended without it
                loop.call_soon_threadsafe(settle)


def _set_result(outcome: asyncio.Future[object], result: object) -> None:
    if not outcome.done():
        outcome.set_result(result)


def _set_error(outcome: asyncio.Future[object], error: BaseException) -> None:
    if outcome.done():
        return
    # A future refuses a StopIteration, as of a bare next().
    if not isinstance(error, Exception) or isinstance(error, StopIteration):
        error = _failed_call(error)
    outcome.set_exception(error)


async def awaited(call: Awaitable[object]) -> object:
    """The result of an async handler."""
    try:
        return await call
    except Exception:
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # the worker has given this call up
        raise _failed_call(error) from error


def _failed_call(error: BaseException) -> RuntimeError:
    """SystemExit and the like, or a CancelledError of its own, do not end the worker."""
    failed = RuntimeError(f"the handler raised {error!r}")
    failed.__cause__ = error
    return failed
