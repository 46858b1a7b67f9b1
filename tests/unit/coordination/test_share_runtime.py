"""Effects through the runtime: they leave after the commit, and their outcome comes back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

import pytest

from ottla.coordination.groups.coordinator import GroupCoordinator
from ottla.coordination.groups.messages import DeleteGroup, DeleteGroupResponse
from ottla.coordination.groups.share_effects import (
    DeleteShareState,
    InitializeShareState,
    ShareStateDeleted,
    ShareStateInitialized,
)
from ottla.coordination.groups.share_messages import ShareHeartbeat, ShareHeartbeatResponse
from ottla.coordination.machine import Batch
from ottla.coordination.runtime import CoordinatorRuntime, NotCoordinator
from ottla.wire.error_codes import ErrorCode
from tests.support.clocks import ManualClock
from tests.support.groups_consumer import of, topics_image
from tests.support.groups_driver import resolve_prefix
from tests.support.share_group import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ottla.coordination.groups.messages import Request, Response
    from ottla.coordination.groups.records import Record
    from ottla.coordination.machine import Effect, Transaction

Pair: TypeAlias = tuple[bytes, bytes | None]
IMAGE = topics_image(t=1)


class MemoryLog:
    """Appends end when the gate is open."""

    def __init__(self) -> None:
        self.records: list[Pair] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.broken = False

    def check(self, partition: int, transaction: Transaction) -> None:
        raise AssertionError("nothing about share groups is transactional")

    async def append(self, partition: int, batches: Sequence[Batch], wall_ms: int) -> None:
        await self.gate.wait()
        if self.broken:
            raise OSError("disk")
        self.records += [record for batch in batches for record in batch.records]

    async def replay(self, partition: int) -> AsyncIterator[Sequence[Batch]]:
        yield [Batch(self.records)]


class Shell:
    """A runtime whose effects are kept for the test to carry out."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.effects: list[Effect] = []
        self.runtime: CoordinatorRuntime[Request, Record, Response] = CoordinatorRuntime(
            self.log,
            lambda _index: GroupCoordinator(AT_ONCE, resolve_prefix),
            ManualClock(),
            self.effects.append,
        )

    def beat(self, epoch: int) -> asyncio.Future[Response]:
        names = ("t",) if epoch == 0 else None
        return self.runtime.submit(0, ShareHeartbeat("g", "a", epoch, IMAGE, topic_names=names))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_effect_waits_for_the_commit_and_its_outcome_is_recorded() -> None:
    shell = Shell()
    await shell.runtime.load(0)
    shell.log.gate.clear()
    joining = shell.beat(0)
    await turns()
    assert shell.effects == []
    shell.log.gate.set()
    await joining
    (effect,) = shell.effects
    assert isinstance(effect, InitializeShareState)
    outcome = dict.fromkeys(effect.starts, ErrorCode.NONE)
    await shell.runtime.submit(0, ShareStateInitialized(effect, outcome))
    answer = await shell.beat(1)
    assert isinstance(answer, ShareHeartbeatResponse)
    assert answer.assignment == of("t", 0)
    await shell.runtime.close()


async def test_a_deletion_is_answered_by_its_report() -> None:
    shell = Shell()
    await shell.runtime.load(0)
    await shell.beat(0)
    await shell.beat(-1)
    deletion = shell.runtime.submit(0, DeleteGroup("g", IMAGE))
    await turns()
    assert not deletion.done()
    _, effect = shell.effects
    assert isinstance(effect, DeleteShareState)
    outcome = dict.fromkeys(effect.partitions, ErrorCode.NONE)
    await shell.runtime.submit(0, ShareStateDeleted(effect, outcome))
    assert await deletion == DeleteGroupResponse(ErrorCode.NONE)
    await shell.runtime.close()


async def test_a_failed_append_takes_its_effects_along() -> None:
    shell = Shell()
    await shell.runtime.load(0)
    shell.log.broken = True
    with pytest.raises(NotCoordinator):
        await shell.beat(0)
    await turns()
    assert shell.effects == []
    await shell.runtime.close()
