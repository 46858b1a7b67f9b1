"""Markers through the runtime: asked for after the commit, and again after a reload."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.coordination.runtime import CoordinatorRuntime, NotCoordinator
from ottla.coordination.transactions.coordinator import TransactionConfig, TransactionCoordinator
from ottla.coordination.transactions.messages import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    TransactionDescription,
    TransactionState,
    WriteMarkers,
)
from tests.support.clocks import ManualClock
from tests.support.groups_log import MemoryLog
from tests.support.transactions import ID, PARTITIONS, START_MS, TIMEOUT_MS

if TYPE_CHECKING:
    from ottla.coordination.machine import Effect
    from ottla.coordination.transactions.messages import Request, Response
    from ottla.coordination.transactions.records import TransactionRecord


class Shell:
    """A runtime whose effects wait for the test."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.effects: asyncio.Queue[Effect] = asyncio.Queue()
        self.runtime: CoordinatorRuntime[Request, TransactionRecord, Response] = CoordinatorRuntime(
            self.log,
            lambda _index: TransactionCoordinator(TransactionConfig()),
            ManualClock(START_MS),
            self.effects.put_nowait,
        )

    def ask(self, request: Request) -> asyncio.Future[Response]:
        return self.runtime.submit(0, request)

    async def begin(self) -> None:
        await self.runtime.load(0)
        await self.ask(InitProducerId(ID, TIMEOUT_MS, 7))
        await self.ask(AddPartitions(ID, 7, 0, PARTITIONS))

    async def markers(self) -> WriteMarkers:
        effect = await self.effects.get()
        assert isinstance(effect, WriteMarkers)
        return effect

    async def state(self) -> TransactionState:
        answer = await self.ask(DescribeTransaction(ID))
        assert isinstance(answer, TransactionDescription)
        return answer.state


async def test_markers_wait_for_the_commit() -> None:
    shell = Shell()
    await shell.begin()
    shell.log.gate.clear()
    ending = shell.ask(EndTransaction(ID, 7, 0, commit=True))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not ending.done()
    assert shell.effects.empty()
    shell.log.gate.set()
    await ending
    assert await shell.markers() == WriteMarkers(ID, 7, 0, True, PARTITIONS)
    await shell.runtime.close()


async def test_case_51_a_reload_asks_for_the_markers_anew() -> None:
    shell = Shell()
    await shell.begin()
    await shell.ask(EndTransaction(ID, 7, 0, commit=True))
    first = await shell.markers()
    shell.log.broken = OSError("disk")
    with pytest.raises(NotCoordinator):
        await shell.ask(MarkersWritten(first))
    shell.log.broken = None
    second = await shell.markers()
    assert second == first
    await shell.ask(MarkersWritten(first))
    assert await shell.state() is TransactionState.PREPARE_COMMIT
    await shell.ask(MarkersWritten(second))
    assert await shell.state() is TransactionState.COMPLETE_COMMIT
    assert shell.effects.empty()
    await shell.runtime.close()
