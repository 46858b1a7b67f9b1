"""An internal topic in memory, whose appends and replays wait for the test."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.coordination.machine import Batch, Marker
from ottla.coordination.runtime import RefusedByLog
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ottla.coordination.machine import Transaction

Pair = tuple[bytes, bytes | None]


class MemoryLog:
    """Appends complete when the test says so, or at once.

    As a real log, it takes no batch of a producer's older epoch, or of an older coordinator.
    """

    def __init__(self) -> None:
        self.appends: list[list[Batch]] = []
        self.fences: dict[int, Transaction] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.load_gate = asyncio.Event()
        self.load_gate.set()
        self.broken: Exception | None = None

    @property
    def batches(self) -> list[list[Pair]]:
        """The records of all batches that have any."""
        return [list(b.records) for append in self.appends for b in append if b.records]

    def check(self, partition: int, transaction: Transaction) -> None:
        fence = self.fences.get(transaction.producer_id, transaction)
        if transaction.producer_epoch < fence.producer_epoch:
            raise RefusedByLog(ErrorCode.INVALID_PRODUCER_EPOCH, "fenced")
        if (
            isinstance(transaction, Marker)
            and isinstance(fence, Marker)
            and transaction.coordinator_epoch < fence.coordinator_epoch
        ):
            raise RefusedByLog(ErrorCode.TRANSACTION_COORDINATOR_FENCED, "fenced")

    async def append(self, partition: int, batches: Sequence[Batch], wall_ms: int) -> None:
        await self.gate.wait()
        if self.broken is not None:
            raise self.broken
        for batch in batches:
            if batch.transaction is not None:
                self.check(partition, batch.transaction)
                self.fences[batch.transaction.producer_id] = batch.transaction
        self.appends.append([Batch(list(b.records), b.transaction) for b in batches])

    async def replay(self, partition: int) -> AsyncIterator[Sequence[Batch]]:
        await self.load_gate.wait()
        for append in self.appends:
            yield append
