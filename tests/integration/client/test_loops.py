"""A client belongs to the event loop of its first call; another loop is refused in a sentence."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Consumer, Producer, Reader, ShareConsumer, share_worker
from ottla.errors import BadBootstrap, ClientClosed, WrongPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from ottla.testing.embedded import EmbeddedBroker


@pytest.fixture(scope="module", autouse=True)
def topic(ottla_broker: EmbeddedBroker) -> Iterator[None]:
    ottla_broker.create_topic("t")
    yield
    ottla_broker.delete_topic("t")


@pytest.mark.parametrize(
    ("make", "first", "calls"),
    [
        pytest.param(
            lambda at: Consumer(at, group="g", topics=["t"]),
            lambda client: client.__aenter__(),
            [
                lambda client: client.poll(timeout=5),
                lambda client: client.commit({("t", 0): 1}),
                lambda client: client.lag(),
                lambda client: anext(aiter(client)),
                lambda client: client.close(),
            ],
            id="Consumer",
        ),
        pytest.param(
            lambda at: Reader(at, "t"),
            lambda client: client.__aenter__(),
            [
                lambda client: client.read_many(),
                lambda client: client.seek("latest"),
                lambda client: client.close(),
            ],
            id="Reader",
        ),
        pytest.param(
            lambda at: ShareConsumer(at, group="s", topics=["t"]),
            lambda client: client.__aenter__(),
            [
                lambda client: client.poll(timeout=5),
                lambda client: client.commit(),
                lambda client: client.close(),
            ],
            id="ShareConsumer",
        ),
        pytest.param(
            Producer,
            lambda client: client.send("t", b"v"),
            [
                lambda client: client.send("t", b"v"),
                lambda client: client.flush(),
                lambda client: client.close(),
            ],
            id="Producer",
        ),
        pytest.param(
            lambda at: Producer(at, transactional_id="x"),
            lambda client: client.connect(),
            [lambda client: client.transaction().__aenter__()],
            id="transaction",
        ),
        pytest.param(
            Admin,
            lambda client: client.list_topics(),
            [lambda client: client.list_topics(), lambda client: client.close()],
            id="Admin",
        ),
    ],
)
def test_another_event_loop_is_refused(
    ottla_broker: EmbeddedBroker,
    make: Callable[[str], Any],
    first: Callable[[Any], Coroutine[Any, Any, object]],
    calls: list[Callable[[Any], Coroutine[Any, Any, object]]],
) -> None:
    made: list[Any] = []

    async def begin() -> None:
        made.append(make(ottla_broker.bootstrap))
        await first(made[0])

    async def again(call: Callable[[Any], Coroutine[Any, Any, object]]) -> None:
        async with asyncio.timeout(10):
            await call(made[0])

    with asyncio.Runner() as home:
        home.run(begin())
        for call in calls:
            with asyncio.Runner() as other, pytest.raises(WrongPlace, match="its first call"):
                other.run(again(call))
        # What was refused has left nothing behind.
        home.run(made[0].close())


def test_a_closed_client_says_so_in_any_loop(ottla_broker: EmbeddedBroker) -> None:
    made: list[Producer] = []

    async def begin() -> None:
        async with Producer(ottla_broker.bootstrap) as producer:
            made.append(producer)
            await producer.connect()

    asyncio.run(begin())
    with pytest.raises(ClientClosed, match="the producer is closed"):
        asyncio.run(made[0].send("t", b"v"))
    asyncio.run(made[0].close())


async def test_share_worker_within_a_loop_names_the_class(ottla_broker: EmbeddedBroker) -> None:
    with pytest.raises(WrongPlace, match="use ShareWorker: await ShareWorker"):
        share_worker(print, ottla_broker.bootstrap, group="s", topics=["t"])


def test_errors_in_a_share_worker_have_no_error_of_the_loop_above_them() -> None:
    with pytest.raises(BadBootstrap) as said:
        share_worker(print, "host:port", group="s", topics=["t"])
    assert said.value.__context__ is None
