"""Waiting for answers that wait for a sync, without a connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ottla.broker.serving.connection import Connection
    from ottla.broker.serving.context import Ack


class Waiter:
    """In the place of the connection."""

    def __init__(self) -> None:
        self.told = asyncio.Event()

    def acked(self) -> None:
        self.told.set()


async def durable(ack: Ack) -> Any:
    """The response when everything it tells of is durable."""
    waiter = Waiter()
    ack.connection = cast("Connection", waiter)
    if ack.waits:
        await waiter.told.wait()
    return ack.response
