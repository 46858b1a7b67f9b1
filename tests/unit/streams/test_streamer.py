"""The streamer: what it makes, and what it closes."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from ottla.streams import ConsumerOptions, FileOptions, connect
from ottla.streams.backends.file import FileSink
from ottla.streams.errors import ConnectError, ConsumerClosed, ProducerEnded, StreamError
from ottla.streams.life import ConsumerState

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.streams import Streamer

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
