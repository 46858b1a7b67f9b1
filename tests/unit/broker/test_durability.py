"""What stands between an append and its answer: nobody waits for ever, failures stay alone."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from ottla.broker.hosting.durability import OsDurability
from ottla.broker.hosting.flusher import GroupFlusher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE: Final = 60.0


class Log:
    """As much of a log as syncing it takes."""

    def __init__(self, flush: Callable[[], int] = lambda: 1) -> None:
        self.flush = flush
        self.high_watermark = 0
        self.log_end_offset = 1
        self.unflushed = 1
        self.config = SimpleNamespace(flush_messages=10)
        self.failure: BaseException | None = None

    @property
    def online(self) -> bool:
        return self.failure is None

    def take_offline(self, error: Exception) -> None:
        self.failure = error


class Partition:
    gone = False

    def __init__(self, log: Log, wake: Callable[[], None] = lambda: None) -> None:
        self.log = log
        self.wake = wake

    def advance(self, offset: int) -> None:
        self.log.high_watermark = offset
        self.wake()


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


def fails(error: Exception) -> Callable[[], Any]:
    def fail() -> None:
        raise error

    return fail


async def settled(flusher: GroupFlusher, *partitions: Any) -> None:
    joined = flusher.join(partitions)
    assert joined is not None
    await asyncio.wait_for(joined, PATIENCE)


@pytest.mark.parametrize("error", [OSError("disk"), RuntimeError("a fault of ours")])
async def test_a_sync_that_fails_fails_its_own_partition(
    executor: ThreadPoolExecutor, error: Exception
) -> None:
    """Fault 9: an exception other than LogError left the waiters of the round for ever."""
    flusher = GroupFlusher(executor, 2)
    struck, spared = Partition(Log(fails(error))), [Partition(Log()) for _ in range(5)]
    await settled(flusher, struck, *spared)
    assert struck.log.failure is error
    assert struck.log.high_watermark == 0, "what may not be durable is not shown"
    assert all(one.log.online and one.log.high_watermark == 1 for one in spared)
    await settled(flusher, *spared)


async def test_a_reader_that_cannot_be_woken_does_not_keep_the_round(
    executor: ThreadPoolExecutor,
) -> None:
    flusher = GroupFlusher(executor, 1)
    struck, spared = Partition(Log(), fails(RuntimeError("a reader"))), Partition(Log())
    await settled(flusher, struck, spared)
    assert spared.log.high_watermark == 1
    assert struck.log.online, "it is durable; the reader will look again"


async def test_a_round_that_cannot_be_run_fails_its_partitions() -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    flusher = GroupFlusher(executor, 1)
    partition = Partition(Log())
    await settled(flusher, partition)
    assert isinstance(partition.log.failure, RuntimeError)


async def test_a_log_that_is_gone_is_nobodys_failure(executor: ThreadPoolExecutor) -> None:
    flusher = GroupFlusher(executor, 1)
    partition = Partition(Log(fails(RuntimeError("closed"))))
    partition.gone = True
    await settled(flusher, partition)
    assert partition.log.online


async def test_a_barrier_waits_for_what_came_before_it_and_for_nothing_else(
    executor: ThreadPoolExecutor,
) -> None:
    flusher = GroupFlusher(executor, 1)
    await asyncio.wait_for(flusher.barrier(), PATIENCE)
    first, second = Partition(Log()), Partition(Log())
    flusher.sync([first])  # type: ignore[list-item]
    await flusher.barrier()
    assert first.log.high_watermark == 1
    flusher.sync([second])  # type: ignore[list-item]
    assert second.log.high_watermark == 0
    await asyncio.wait_for(flusher.drain(), PATIENCE)
    assert second.log.high_watermark == 1


async def test_what_the_operating_system_has_is_acknowledged_at_once(
    executor: ThreadPoolExecutor,
) -> None:
    flusher = GroupFlusher(executor, 1)
    durability = OsDurability(flusher)
    few, many = Partition(Log()), Partition(Log())
    many.log.unflushed = 10
    assert durability.join([few, many]) is None  # type: ignore[func-returns-value, list-item]
    assert few.log.high_watermark == many.log.high_watermark == 1
    await durability.drain()
    assert flusher.rounds == 1, "flush.messages asks for a sync that nobody waits for"
