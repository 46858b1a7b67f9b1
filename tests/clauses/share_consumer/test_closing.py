"""Closing: acknowledge what is outstanding, and leave the group

`close()` is what the end of the `async with` block does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from ottla import EmbeddedBroker, errors
from tests.clauses.share_consumer.queue import PATIENCE, QUICK, Queue, poll_until

if TYPE_CHECKING:
    from pathlib import Path

BROKER_CONFIG: Final = QUICK


async def test_implicit_closing_accepts_the_last_records(queue: Queue) -> None:
    """In implicit mode `close` accepts what the last poll has delivered."""
    await queue.produce(2)
    async with queue.consumer() as consumer:
        await poll_until(consumer, 2)
    assert await queue.lag() == 0


async def test_implicit_closing_can_release_instead(queue: Queue) -> None:
    """`close_implicit="release"` gives the last records back, as Kafka's own consumers do."""
    await queue.produce(2)
    async with queue.consumer(close_implicit="release") as consumer:
        await poll_until(consumer, 2)
    assert await queue.lag() == 2


async def test_an_exception_accepts_nothing(queue: Queue) -> None:
    """In implicit mode `close` accepts what was delivered.

    Differs: not if an exception leads out of the block, as the record that caused it is not done.
    """
    await queue.produce(2)
    with pytest.raises(ZeroDivisionError):
        await _divide_by_zero(queue)
    assert await queue.lag() == 2


async def _divide_by_zero(queue: Queue) -> None:
    async with queue.consumer() as consumer:
        await poll_until(consumer, 2)
        1 / 0  # noqa: B018


async def test_explicit_closing_sends_what_was_decided(queue: Queue) -> None:
    """In explicit mode `close` sends the decisions that are staged."""
    await queue.produce(2)
    async with queue.explicit() as consumer:
        one, _ = await poll_until(consumer, 2)
        consumer.acknowledge(one)
    assert await queue.lag() == 1


async def test_explicit_closing_gives_back_what_was_not_decided(queue: Queue) -> None:
    """What nobody decided about goes back to the group at once, not when its lock ends."""
    await queue.produce(1)
    async with queue.explicit() as consumer:
        await poll_until(consumer, 1)
    async with queue.explicit() as other:
        [again] = await other.poll(timeout=PATIENCE)  # a lock lasts as long
        assert (again.offset, again.delivery_count) == (0, 2)


async def test_closing_leaves_the_group_at_once(queue: Queue) -> None:
    """`close` says good-bye with epoch -1, so that the group need not wait for the session."""
    async with queue.consumer() as consumer:
        assert await queue.members() == [consumer.member_id]
    found = await queue.described()
    assert (found.state, len(found.members)) == ("Empty", 0)


async def test_closing_ends_the_heartbeats(queue: Queue) -> None:
    """`close` stops the background task and waits for it."""
    before = asyncio.all_tasks()
    async with queue.consumer() as consumer:
        await consumer.poll(timeout=0.05)
        assert asyncio.all_tasks() > before
    assert asyncio.all_tasks() == before


async def test_closing_twice_is_closing_once(queue: Queue) -> None:
    """`close` can be called again."""
    async with queue.consumer() as consumer:
        await consumer.close()
        await consumer.close()


async def test_a_closed_consumer_says_so(queue: Queue) -> None:
    """After `close` there is nothing to poll."""
    async with queue.consumer() as consumer:
        await consumer.close()
        with pytest.raises(errors.ClientClosed, match="not open"):
            await consumer.poll()


async def test_closing_without_a_broker_ends_in_time_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A final acknowledgement that cannot be sent is logged, and does not keep `close` waiting."""
    broker = EmbeddedBroker(tmp_path, config=QUICK)
    await asyncio.to_thread(broker.start)
    broker.create_topic("orders")
    queue = Queue(broker.bootstrap, "orders", "workers")
    await queue.produce(1)
    async with queue.consumer() as consumer:
        await poll_until(consumer, 1)
        await asyncio.to_thread(broker.stop)
        async with asyncio.timeout(PATIENCE):
            await consumer.close(timeout=0.3)
    assert "share group 'workers': 1 record(s) were accepted or rejected" in caplog.text
    assert "They are delivered again" in caplog.text


async def test_a_clean_close_logs_nothing(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    """What was acknowledged is no reason for a warning."""
    await queue.produce(1)
    async with queue.consumer() as consumer:
        await poll_until(consumer, 1)
    assert [one for one in caplog.records if one.levelname == "WARNING"] == []


async def test_a_consumer_that_is_not_closed_loses_nothing(queue: Queue) -> None:
    """Whatever happens to a member, what it did not acknowledge goes back to the group."""
    await queue.produce(1)

    async def work() -> None:
        async with queue.explicit() as consumer:
            await poll_until(consumer, 1)
            await asyncio.Event().wait()

    working = asyncio.create_task(work())
    async with queue.explicit() as other:
        async with asyncio.timeout(PATIENCE):
            while await queue.lag() is None:  # noqa: ASYNC110  # nobody tells
                await asyncio.sleep(0.02)
        working.cancel()
        [again] = await poll_until(other, 1)
        assert again.offset == 0
