"""What stands between an append and its answer: nobody waits for ever, failures stay alone."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from ottla.broker.hosting.durability import OsDurability
from ottla.broker.hosting.flusher import NEW_AT_ONCE, GroupFlusher
from ottla.log.errors import LogClosed

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
        self.has_new_files = False
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


class Listener:
    def __init__(self, hears: Callable[[], None] = lambda: None) -> None:
        self.hears = hears
        self.turns = 0

    def acked(self) -> None:
        self.turns += 1
        self.hears()


NOBODY: Final = object()


class Told:
    """An answer that waits."""

    def __init__(self, listener: Any = NOBODY) -> None:
        self.waits = 0
        self.listener: Any = Listener() if listener is NOBODY else listener

    def settle(self) -> Any:
        return self.listener


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


async def test_a_log_that_is_closed_meanwhile_has_not_failed(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault: a clean stop told of disks that fail."""
    flusher = GroupFlusher(executor, 2)
    closed = Partition(Log(fails(LogClosed("being shut down"))))
    await settled(flusher, closed)
    assert closed.log.online
    assert not caplog.records


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


async def test_logs_that_were_just_made_do_not_hold_up_others(executor: ThreadPoolExecutor) -> None:
    """Fault: one client's first writes to many partitions made every other one wait."""
    flusher = GroupFlusher(executor, 2)
    goes_on = threading.Event()
    new = [Partition(Log(lambda: int(goes_on.wait(PATIENCE)))) for _ in range(9)]
    for one in new:
        one.log.has_new_files = True
    others = Partition(Log())
    waits = flusher.join(new)  # type: ignore[arg-type]
    try:
        for _ in range(3):
            await settled(flusher, others)
        assert waits is not None
        assert not waits.done()
    finally:
        goes_on.set()
    await asyncio.wait_for(waits, PATIENCE)
    assert all(one.log.high_watermark == 1 for one in new)


async def test_first_syncs_come_in_small_rounds(executor: ThreadPoolExecutor) -> None:
    """Nobody waits for the last of thousands, and few answers leave in one turn of the loop."""
    flusher = GroupFlusher(executor, 2)
    acks = [Told() for _ in range(3 * NEW_AT_ONCE)]
    for ack in acks:
        partition = Partition(Log())
        partition.log.has_new_files = True
        assert flusher.enlist([partition], ack)  # type: ignore[list-item]
    await asyncio.wait_for(flusher.drain(), PATIENCE)
    assert flusher.rounds == 3
    assert all(ack.waits == 0 and ack.listener.turns == 1 for ack in acks)


async def test_answers_of_one_connection_leave_together(executor: ThreadPoolExecutor) -> None:
    flusher = GroupFlusher(executor, 2)
    one, other = Listener(), Listener()
    acks = [Told(one), Told(one), Told(other), Told(None)]
    old, new = Partition(Log()), Partition(Log())
    new.log.has_new_files = True
    for ack in acks:
        assert flusher.enlist([old], ack)  # type: ignore[list-item]
    both = Told(Listener(fails(RuntimeError("a connection"))))
    assert flusher.enlist([old, new], both)  # type: ignore[list-item]
    assert both.waits == 2, "new and old logs are synced apart"
    await asyncio.wait_for(flusher.drain(), PATIENCE)
    assert [ack.waits for ack in (*acks, both)] == [0] * 5
    assert one.turns == other.turns == both.listener.turns == 1
    assert not flusher.enlist([], None)


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
