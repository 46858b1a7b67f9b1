"""Cancelling a call of the ShareConsumer, at whatever point, loses nothing.

Calls are cancelled after a number of turns of the event loop that chance names. Locks are longer
than the test: what was lost with a call would not come back in time.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.share_history import History
from tests.support.share_place import PATIENCE, Place

if TYPE_CHECKING:
    from collections.abc import Coroutine

    import ottla

RECORDS = 120
SEEDS = range(6)


async def cut_short(call: Coroutine[Any, Any, Any], chance: random.Random) -> Any:
    """The call's result, or None if it was cancelled before."""
    task = asyncio.create_task(call)
    for _ in range(chance.choice((0, 1, 2, 3, 5, 8, 13))):
        await asyncio.sleep(chance.choice((0.0, 0.0, 0.0005)))
    task.cancel()
    await asyncio.wait([task])
    return None if task.cancelled() else task.result()


async def work(
    consumer: ottla.ShareConsumer, history: History, chance: random.Random, until: int
) -> None:
    """Poll and commit, often cancelled, until so many are accepted."""
    while len(history.confirmed) < until:
        found = await cut_short(consumer.poll(timeout=0.2), chance) or []
        history.deliver(found)
        for record in found:
            history.say(record.offset)
            consumer.acknowledge(record)
        await cut_short(consumer.commit(), chance)
        # Others have their turn, or nothing would ever arrive.
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("seed", SEEDS)
async def test_polls_and_commits(own: Place, seed: int) -> None:
    chance = random.Random(seed)
    await own.produce(*range(RECORDS))
    history = History(RECORDS, forgets=False)
    async with asyncio.timeout(PATIENCE):
        async with own.explicit(max_poll_records=7, on_acknowledge=history.note) as consumer:
            await work(consumer, history, chance, RECORDS)
    history.check()
    assert not history.unanswered
    assert history.deliveries == RECORDS, "each came once"


@pytest.mark.parametrize("seed", SEEDS)
async def test_closing(own: Place, seed: int) -> None:
    chance = random.Random(seed)
    await own.produce(*range(RECORDS))
    history = History(RECORDS, forgets=False)
    cut_off = []
    async with asyncio.timeout(PATIENCE):
        for part in range(1, 5):
            consumer = own.explicit(max_poll_records=7, on_acknowledge=history.note)
            cut_off.append(await consumer.__aenter__())
            await work(consumer, history, chance, part * RECORDS // 5)
            await cut_short(consumer.close(), chance)
        # What the others held has come back, what they accepted has not.
        async with own.explicit(on_acknowledge=history.note) as consumer:
            await work(consumer, history, chance, RECORDS - len(history.unanswered))
        # Whoever was cut off while closing can be closed again, and is gone then.
        await asyncio.gather(*(each.close() for each in cut_off))
    history.check()
