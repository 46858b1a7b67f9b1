"""An internal topic in memory, whose appends and replays wait for the test."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

Pair = tuple[bytes, bytes | None]


class MemoryLog:
    """Appends complete when the test says so, or at once."""

    def __init__(self) -> None:
        self.batches: list[list[Pair]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.load_gate = asyncio.Event()
        self.load_gate.set()
        self.broken: Exception | None = None

    async def append(self, partition: int, records: Sequence[Pair], now_ms: int) -> None:
        await self.gate.wait()
        if self.broken is not None:
            raise self.broken
        self.batches.append(list(records))

    async def replay(self, partition: int) -> AsyncIterator[Sequence[Pair]]:
        await self.load_gate.wait()
        for batch in self.batches:
            yield batch
