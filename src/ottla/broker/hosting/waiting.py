"""Waiting for logs and queues: sets of callbacks for new data."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


async def woken(waiters: Iterable[set[Callable[[], None]]], deadline: float) -> None:
    """Wait until one of the sets is called, or until the deadline of the loop's clock."""
    loop = asyncio.get_running_loop()
    called: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not called.done():
            called.set_result(None)

    joined = list(waiters)
    for one in joined:
        one.add(wake)
    timer = loop.call_at(deadline, wake)
    try:
        await called
    finally:
        timer.cancel()
        for one in joined:
            one.discard(wake)
