"""Calls made at the same time: results, the first failure, and a cancellation beside a failure."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client.cluster.cluster import together


async def _says(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def _fails(gate: asyncio.Event) -> int:
    await gate.wait()
    raise ValueError("refused")


async def _waits(ended: list[str]) -> int:
    try:
        return await asyncio.Future()
    finally:
        ended.append("waits")


async def test_results_are_in_the_order_of_the_calls() -> None:
    assert await together(_says(number) for number in range(3)) == [0, 1, 2]


async def test_a_failure_cancels_the_others() -> None:
    gate, ended = asyncio.Event(), list[str]()
    gate.set()
    with pytest.raises(ValueError, match="refused"):
        await together([_fails(gate), _waits(ended)])
    assert ended == ["waits"]


@pytest.mark.parametrize("turns", range(8))
async def test_a_cancellation_beside_a_failure_is_not_forgotten(turns: int) -> None:
    """Whichever comes first: who was told that the task is being cancelled sees it cancelled."""
    gate = asyncio.Event()
    task = asyncio.create_task(together([_fails(gate), _waits([])]))
    for _ in range(3):
        await asyncio.sleep(0)
    gate.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    was_told = task.cancel()
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError if was_told else ValueError)


async def test_a_timeout_around_calls_stays_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await together([_waits([]), _waits([])])


async def test_a_call_that_failed_leaves_no_request_to_be_cancelled() -> None:
    """A task group did; an `asyncio.timeout` around it then ended in CancelledError."""
    gate = asyncio.Event()
    gate.set()
    with pytest.raises(ValueError, match="refused"):
        await together([_fails(gate)])
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
