"""Calls, cancellations and hang-ups in any order: nobody gets another's answer, nothing is left.

The brokers are stand-ins that echo a number, so that an answer shows whose it is.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, TypeAlias

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.cluster.cluster import Client
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import ClientClosed, ConnectionLost
from ottla.wire.schema.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.client_broker import ScriptedBroker, describe
from tests.support.sizes import examples

if TYPE_CHECKING:
    from collections.abc import Callable

NODES = (1, 2)

Step: TypeAlias = tuple[str, int]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.sampled_from(NODES)),
        st.tuples(st.just("cancel"), st.integers(0, 20)),
        st.tuples(st.just("hang up"), st.sampled_from(NODES)),
        st.tuples(st.just("turns"), st.integers(1, 4)),
    ),
    max_size=40,
)


def echo(request: HeartbeatRequest) -> HeartbeatResponse:
    return HeartbeatResponse(throttle_time_ms=request.generation_id)


class Chaos:
    """A client, its brokers, and the calls that are under way."""

    def __init__(self, brokers: dict[int, ScriptedBroker]) -> None:
        self.brokers = brokers
        self.client = Client([one.bootstrap for one in brokers.values()], api_timeout=20.0)
        self.calls: list[asyncio.Task[int]] = []
        self.cancelled: set[int] = set()

    async def call(self, number: int, partition: TopicPartition) -> int:
        request = HeartbeatRequest("g", number, "m")
        answer = await self.client.retry(lambda: self.client.send(request, to=partition))
        assert isinstance(answer, HeartbeatResponse)
        return answer.throttle_time_ms

    async def step(self, what: str, number: int) -> None:
        if what == "call":
            call = self.call(len(self.calls), TopicPartition("t", number - 1))
            self.calls.append(asyncio.create_task(call))
        elif what == "cancel" and number < len(self.calls):
            self.cancelled.add(number)
            self.calls[number].cancel()
        elif what == "hang up":
            self.brokers[number].hang_up()
        else:
            for _ in range(number):
                await asyncio.sleep(0)

    def check(self, number: int, outcome: int | BaseException, *, closed_early: bool) -> None:
        if isinstance(outcome, asyncio.CancelledError):
            assert number in self.cancelled
        elif isinstance(outcome, ClientClosed | ConnectionLost):
            assert closed_early
        else:
            assert outcome == number


async def perform(steps: list[Step], close_early: bool) -> None:
    before = asyncio.all_tasks()
    async with AsyncExitStack() as stack:
        brokers = {node: await stack.enter_async_context(ScriptedBroker()) for node in NODES}
        describe(brokers, {"t": [1, 2]})
        for broker in brokers.values():
            broker.script(HeartbeatRequest, echo)
        chaos = Chaos(brokers)
        for what, number in steps:
            await chaos.step(what, number)
        if close_early:
            await chaos.client.close()
        outcomes = await asyncio.gather(*chaos.calls, return_exceptions=True)
        await chaos.client.close()
        for number, outcome in enumerate(outcomes):
            chaos.check(number, outcome, closed_early=close_early)
        for broker in brokers.values():
            await broker.until_left()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("new_event_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@settings(max_examples=examples(50))
@given(steps=STEPS, close_early=st.booleans())
def test_answers_find_their_callers_and_nothing_is_left(
    new_event_loop: Callable[[], asyncio.AbstractEventLoop], steps: list[Step], close_early: bool
) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(perform(steps, close_early))
