"""What waits for clients to read it: counted, bounded, and who goes first when it is too much."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.serving import answer_memory
from ottla.broker.serving.answer_memory import STALL_SECONDS, AnswerMemory

if TYPE_CHECKING:
    import pytest

LIMIT: Final = 1000


@dataclass(eq=False)
class Client:
    unsent_bytes: int = 0
    is_aborted: bool = False

    def abort(self) -> None:
        self.is_aborted = True


@dataclass
class Time:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Memory:
    """A memory of 1000 bytes, its clock, and its clients."""

    time: Time = field(default_factory=Time)
    clients: list[Client] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.answers = AnswerMemory(LIMIT, self.time)

    def wait(self, size: int) -> Client:
        """A new client that does not take all of its answer."""
        client = Client(size)
        self.clients.append(client)
        self.answers.hold(client, size)
        return client

    def close_aborted(self) -> None:
        """What the event loop does a few turns later."""
        for client in self.clients:
            if client.is_aborted:
                self.answers.release(client)


async def test_room_shrinks_with_what_waits() -> None:
    memory = Memory()
    assert memory.answers.room == LIMIT
    client = memory.wait(400)
    assert memory.answers.room == 600
    client.unsent_bytes = 100  # what has left is in memory still, until all has left
    memory.answers.hold(client, 100)  # another answer of the same connection
    assert memory.answers.room == 500
    memory.answers.release(client)
    memory.answers.release(client)
    assert (memory.answers.room, memory.answers.held) == (LIMIT, 0)


async def test_there_is_no_less_than_no_room() -> None:
    memory = Memory()
    memory.wait(1500)
    assert memory.answers.room == 0
    assert not memory.clients[0].is_aborted


async def test_above_the_limit_those_go_that_take_nothing() -> None:
    memory = Memory()
    stalled, reads = memory.wait(600), memory.wait(600)
    assert not stalled.is_aborted
    memory.time.now += STALL_SECONDS
    reads.unsent_bytes = 590
    memory.answers.make_room()
    assert (stalled.is_aborted, reads.is_aborted) == (True, False)
    memory.close_aborted()
    assert memory.answers.held == 600
    assert memory.answers.disconnected == 1


async def test_a_slow_reader_is_not_disconnected() -> None:
    memory = Memory()
    slow = memory.wait(1500)
    for _ in range(20):
        memory.time.now += STALL_SECONDS
        slow.unsent_bytes -= 10
        memory.answers.make_room()
    assert not slow.is_aborted


async def test_below_the_limit_nobody_goes() -> None:
    memory = Memory()
    client = memory.wait(LIMIT)
    memory.time.now += 1000 * STALL_SECONDS
    memory.answers.make_room()
    assert not client.is_aborted


async def test_above_twice_the_limit_nobody_is_waited_for() -> None:
    memory = Memory()
    first = memory.wait(1200)
    memory.wait(700)
    assert not any(client.is_aborted for client in memory.clients)
    memory.wait(300)
    assert [client.is_aborted for client in memory.clients] == [True, False, False]
    assert first.is_aborted
    memory.close_aborted()
    assert memory.answers.held == LIMIT


async def test_who_is_disconnected_counts_until_the_connection_is_closed() -> None:
    memory = Memory()
    for _ in range(3):
        memory.wait(900)
    assert [client.is_aborted for client in memory.clients] == [True, False, False]
    assert memory.answers.is_full, "nothing more is served meanwhile"
    memory.wait(100)
    assert not memory.clients[1].is_aborted, "nobody else has to go for it"
    memory.close_aborted()
    assert not memory.answers.is_full
    assert memory.answers.held == 1900


async def test_an_answer_counts_from_when_it_is_made_in_a_task() -> None:
    memory = Memory()
    answers = memory.answers
    made = []

    async def make() -> int:
        await answers.turn()
        size = max(answers.room, 300)  # at least one batch
        answers.promise(size)
        made.append(size)
        return size

    async def serve() -> None:
        memory.wait(await asyncio.ensure_future(make()))

    clients = [asyncio.ensure_future(serve()) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sum(made) <= 2 * LIMIT + 300, "the others wait for their turn"
    while not all(client.done() for client in clients):
        await asyncio.sleep(0)
        assert answers.held <= 2 * LIMIT + 300
        memory.close_aborted()
    assert len(made) == 20


async def test_who_stalls_is_found_without_another_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_memory, "STALL_SECONDS", 0.001)
    aborted = asyncio.Event()

    class Watched(Client):
        def abort(self) -> None:
            aborted.set()

    memory = AnswerMemory(LIMIT, asyncio.get_running_loop().time)
    watched = Watched(1500)
    memory.hold(watched, 1500)
    await asyncio.wait_for(aborted.wait(), 30)
    memory.release(watched)
    assert memory.held == 0


@given(st.lists(st.tuples(st.integers(1, 400), st.booleans(), st.floats(0, 20)), max_size=60))
def test_never_more_than_twice_the_limit_and_one_answer(
    steps: list[tuple[int, bool, float]],
) -> None:
    async def run() -> None:
        memory = Memory()
        for size, reads, passes in steps:
            memory.time.now += passes
            if memory.answers.is_full:
                memory.close_aborted()  # no request is served before
            client = memory.wait(size)
            if reads:
                client.unsent_bytes //= 2
            assert memory.answers.held <= 2 * LIMIT + size
            live = [one for one in memory.clients if not one.is_aborted]
            assert sum(one.unsent_bytes for one in live) <= memory.answers.held

    asyncio.run(run())
