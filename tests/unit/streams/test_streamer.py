"""The streamer: what it makes, and what it closes."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from ottla.client.errors import WrongPlace
from ottla.streams import BEGINNING, ConsumerOptions, FileOptions, connect
from ottla.streams.backends.file import FileSink
from ottla.streams.errors import ConnectError, ConsumerClosed, ProducerEnded, StreamError
from ottla.streams.life import ConsumerState

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from ottla.streams import Consumer, Producer, Streamer

MADE = FileOptions(create="if_missing")  # type: ignore[arg-type]  # words do
EARLIEST = ConsumerOptions(reset="earliest")  # type: ignore[arg-type]  # words do


@pytest.fixture
def streamer(tmp_path: Path) -> Streamer:
    return connect(f"file://{tmp_path}/x.ss/a", MADE)


async def test_closed_consumers_and_producers_are_forgotten(streamer: Streamer) -> None:
    """A service makes them for as long as it runs."""
    async with streamer:
        gone: list[weakref.ref[object]] = []
        for _ in range(3):
            async with streamer.producer() as producer, streamer.consumer() as consumer:
                gone += [weakref.ref(producer), weakref.ref(consumer)]
            del producer, consumer
        streamer.consumer()
        streamer.producer()
        await asyncio.sleep(0)
        gc.collect()
        assert [one() for one in gone] == [None] * 6


async def test_all_are_closed_if_one_of_them_fails(
    streamer: Streamer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await streamer.__aenter__()
    first, second = [await streamer.consumer().__aenter__() for _ in range(2)]
    producer = await streamer.producer().__aenter__()

    async def fails(*, drain: bool = True) -> None:
        raise StreamError("not committed")

    for one in (first, second):
        close = one.close
        monkeypatch.setattr(one, "close", fails)
        with pytest.raises(StreamError, match="not committed"):
            await streamer.close()
        monkeypatch.setattr(one, "close", close)
        with pytest.raises(ProducerEnded):
            await producer.send("x")
    assert {first.state, second.state} == {ConsumerState.CLOSED}
    with pytest.raises(ConsumerClosed):
        await second.next(1)


async def test_a_producer_is_opened_once(streamer: Streamer) -> None:
    async with streamer, streamer.producer() as producer:
        with pytest.raises(StreamError, match="open already"):
            await producer.__aenter__()
        await producer.send("x")
        await producer.close()
        with pytest.raises(ProducerEnded):
            await producer.__aenter__()


async def test_clones_that_open_at_once_share_one_sink(
    streamer: Streamer, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, open_ = [], FileSink.open

    async def counted(sink: FileSink) -> None:
        opened.append(sink)
        if len(opened) == 1:
            raise ConnectError("not yet")
        await open_(sink)

    monkeypatch.setattr(FileSink, "open", counted)
    async with streamer:
        producer = streamer.producer()
        with pytest.raises(ConnectError):
            await producer.__aenter__()
        clones = [producer, producer.clone(), producer.clone()]
        await asyncio.gather(*(one.__aenter__() for one in clones))
        assert len(opened) == 2
        for number, one in enumerate(clones):
            await one.send(f"{number}")
            await one.close()
        pipe = producer._make_pipe()
        assert pipe.users == 0
        async with streamer.consumer(options=EARLIEST) as consumer:
            assert [(await consumer.next(5)).text() for _ in clones] == ["0", "1", "2"]


def test_a_streamer_that_was_closed_works_in_another_event_loop(streamer: Streamer) -> None:
    async def run(text: str) -> list[str]:
        async with streamer:
            async with streamer.producer() as producer:
                await producer.send(text)
            async with streamer.consumer(options=EARLIEST) as consumer:
                return [one.text() for one in await consumer.batch(10, 5)]

    assert asyncio.run(run("1")) == ["1"]
    assert asyncio.run(run("2"))[0] == "1"


def test_another_event_loop_is_told(streamer: Streamer) -> None:
    """A second `asyncio.run`: calls hung, or raised errors of asyncio."""

    async def first() -> tuple[Producer, Consumer]:
        await streamer.__aenter__()
        return await streamer.producer().__aenter__(), await streamer.consumer().__aenter__()

    producer, consumer = asyncio.run(first())
    calls: list[Callable[[], Coroutine[object, object, object]]] = [
        lambda: producer.send("x"),
        producer.flush,
        producer.close,
        lambda: consumer.next(1),
        lambda: consumer.batch(1, 1),
        consumer.lag,
        lambda: consumer.rewind(BEGINNING),
        consumer.close,
        streamer.close,
        streamer.__aenter__,
    ]
    for call in calls:
        with pytest.raises(WrongPlace, match=r"ottla\.sync\.connect"):
            asyncio.run(call())
