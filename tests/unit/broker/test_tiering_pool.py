"""Bounded work in the order in which it came."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from ottla.broker.tiering.pool import Pool, PoolFull, Work


async def test_so_many_at_once_and_so_many_in_line() -> None:
    limit = 2
    pool = Pool(lambda: limit, max_waiting=3)
    gate = asyncio.Event()
    done: list[int] = []

    async def work(number: int) -> None:
        await gate.wait()
        done.append(number)

    tasks = [pool.run(partial(work, number)) for number in range(5)]
    assert (pool.active, pool.waiting) == (2, 3)
    with pytest.raises(PoolFull):
        pool.run(lambda: work(5))
    gate.set()
    await asyncio.gather(*tasks)
    assert done == [0, 1, 2, 3, 4]
    assert (pool.active, pool.waiting) == (0, 0)


async def test_who_is_cancelled_leaves_its_place() -> None:
    pool = Pool(lambda: 1)
    gate = asyncio.Event()

    async def work() -> None:
        await gate.wait()

    first, second, third = (pool.run(work) for _ in range(3))
    second.cancel()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert (pool.active, pool.waiting) == (1, 0)
    gate.set()
    await third
    assert pool.active == 0


async def test_a_limit_that_grows_lets_more_in() -> None:
    limits = [1]
    pool = Pool(lambda: limits[-1])
    gates = [asyncio.Event() for _ in range(3)]
    tasks = [pool.run(gate.wait) for gate in gates]  # type: ignore[arg-type]  # the result is unused
    limits.append(2)
    gates[0].set()
    await tasks[0]
    assert (pool.active, pool.waiting) == (2, 0)
    for gate in gates:
        gate.set()
    await asyncio.gather(*tasks)


async def test_a_round_at_a_time_and_none_ends_the_broker() -> None:
    rounds = 0

    async def run() -> None:
        nonlocal rounds
        rounds += 1
        await asyncio.sleep(0)
        raise RuntimeError("a fault nobody thought of")

    work = Work(Pool(lambda: 1), run)
    assert work.begin() is work.begin()
    await work.begin()
    await work.begin()
    assert rounds == 2
