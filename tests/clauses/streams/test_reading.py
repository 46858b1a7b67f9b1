"""Reading: `next` and `stream`"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from ottla.streams import BEGINNING, AutoCommit, ConsumerOptions, ConsumerState, FileOptions, Reset
from ottla.streams.errors import ConfigError, ConsumerBusy, ConsumerClosed, StreamEnded
from ottla.sync import connect as blocking_connect
from tests.clauses.streams.places import EARLIEST, PATIENCE, in_group, send, take

if TYPE_CHECKING:
    from ottla.streams import Consumer
    from tests.clauses.streams.places import Place


async def test_next_waits_for_a_message(anywhere: Place) -> None:
    """`next` receives one message: it waits until there is one."""
    async with anywhere.connect() as streamer, streamer.consumer(anywhere.stream) as consumer:
        waiting = asyncio.create_task(consumer.next())
        await asyncio.sleep(0)
        assert not waiting.done()
        await send(streamer, anywhere.stream, "a")
        async with asyncio.timeout(PATIENCE):
            assert (await waiting).text() == "a"


async def test_next_can_give_up(anywhere: Place) -> None:
    """`next` waits for as long as it takes.

    Differs: it takes a timeout, and then raises `TimeoutError`.
    """
    async with anywhere.connect() as streamer, streamer.consumer(anywhere.stream) as consumer:
        with pytest.raises(TimeoutError, match="reset=LATEST"):
            await consumer.next(timeout=0.01)


async def test_next_is_for_many_tasks(anywhere: Place) -> None:
    """`next` can be called from many places at once: each message goes to one of them."""
    async with anywhere.connect() as streamer, streamer.consumer(anywhere.stream) as consumer:
        tasks = [asyncio.create_task(consumer.next(PATIENCE)) for _ in range(10)]
        await send(streamer, anywhere.stream, *"abcdefghij")
        found = await asyncio.gather(*tasks)
        assert sorted(message.text() for message in found) == [*"abcdefghij"]


def test_next_is_for_many_threads(redis: Place) -> None:
    """`next` can be called from multiple threads.

    Differs: by `ottla.sync.connect`; an asynchronous consumer belongs to its event loop.
    """
    with blocking_connect(redis.url, redis.options) as streamer:
        with streamer.producer(redis.stream) as producer:
            for text in "abcdefgh":
                producer.send(text)
        with (
            streamer.consumer(redis.stream, options=EARLIEST) as consumer,
            ThreadPoolExecutor(4) as pool,
        ):
            found = pool.map(lambda _: consumer.next(PATIENCE).text(), range(8))
            assert sorted(found) == [*"abcdefgh"]


async def test_a_cancelled_next_loses_nothing(anywhere: Place) -> None:
    """A message that `next` received is returned by it.

    Differs: cancelling it, for instance by a timeout, is safe as well: no message is lost.
    """
    async with anywhere.connect() as streamer, streamer.consumer(anywhere.stream) as consumer:
        found: list[str] = []
        for text in "abc":
            waiting = asyncio.create_task(consumer.next())
            await asyncio.sleep(0)
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                found.append((await waiting).text())  # it was quicker
            await send(streamer, anywhere.stream, text)
        assert found + await take(consumer, 3 - len(found)) == [*"abc"]


async def test_by_next_one_task_reads(served: Place) -> None:
    """Tasks may read side by side.

    Differs: not with the default `auto_commit=NEXT`, where asking for a message says that the last
    one is done: a second task is refused while another one holds a message. `ROLLING` is for many.
    """
    options = replace(in_group(), auto_commit=AutoCommit.NEXT)
    async with served.connect() as streamer:
        await send(streamer, served.stream, "a", "b")
        async with streamer.consumer(served.stream, options=options) as consumer:
            holding = asyncio.Event()
            leave = asyncio.Event()

            async def first() -> str:
                message = await consumer.next(PATIENCE)
                holding.set()
                await leave.wait()
                return message.text()

            task = asyncio.create_task(first())
            await holding.wait()
            with pytest.raises(ConfigError, match="ROLLING"):
                await consumer.next(PATIENCE)
            leave.set()
            assert await task == "a"


async def test_messages_come_several_at_a_time(stored: Place) -> None:
    """Messages are received one by one.

    Differs: `batch` waits for the first and returns up to so many that are there.
    """
    async with stored.connect() as streamer:
        await send(streamer, stored.stream, *"abcde")
        async with streamer.consumer(stored.stream, options=EARLIEST) as consumer:
            found: list[str] = []
            async with asyncio.timeout(PATIENCE):
                while len(found) < 5:
                    batch = await consumer.batch(3, 1)
                    assert len(batch) <= 3
                    found += [message.text() for message in batch]
            assert found == [*"abcde"]


async def test_a_consumer_is_a_stream(stored: Place) -> None:
    """`stream` returns an asynchronous stream of messages, to take as many as wanted."""
    async with stored.connect() as streamer:
        await send(streamer, stored.stream, *"abc")
        async with (
            streamer.consumer(stored.stream, options=EARLIEST) as consumer,
            asyncio.timeout(PATIENCE),
        ):
            items: list[str] = []
            async for message in consumer:
                items.append(message.text())
                if len(items) == 2:
                    break
            assert items == ["a", "b"]
            assert consumer.state is ConsumerState.READY


async def iterating(consumer: Consumer) -> object:
    """A live iterator, which has returned one message."""
    iterator = aiter(consumer)
    async with asyncio.timeout(PATIENCE):
        await anext(iterator)
    assert consumer.state is ConsumerState.ITERATING
    return iterator


async def test_a_second_stream_is_refused(stored: Place) -> None:
    """You cannot create multiple streams from the same consumer."""
    async with stored.connect() as streamer:
        await send(streamer, stored.stream, "a")
        async with streamer.consumer(stored.stream, options=EARLIEST) as consumer:
            first = await iterating(consumer)
            with pytest.raises(ConsumerBusy):
                aiter(consumer)
            del first
            aiter(consumer)


async def test_a_consumer_that_streams_does_nothing_else(stored: Place) -> None:
    """You cannot perform any operation while streaming."""
    async with stored.connect() as streamer:
        await send(streamer, stored.stream, "a")
        async with streamer.consumer(stored.stream, options=EARLIEST) as consumer:
            held = await iterating(consumer)
            for operation in (
                consumer.next(),
                consumer.batch(1, 0),
                consumer.rewind(BEGINNING),
                consumer.seek(datetime.now(UTC)),
            ):
                with pytest.raises(ConsumerBusy):
                    await operation
            with pytest.raises(ConsumerBusy):
                consumer.assign(stored.stream, 0)
            with pytest.raises(ConsumerBusy):
                consumer.unassign(stored.stream, 0)
            del held


async def test_a_consumer_that_streams_acknowledges_and_commits(served: Place) -> None:
    """No operation is possible while streaming.

    Differs: `ack`, `commit`, `positions` and `lag` are, because a program needs them in its loop.
    """
    options = in_group()
    async with served.connect() as streamer:
        await send(streamer, served.stream, "a")
        async with (
            streamer.consumer(served.stream, options=options) as consumer,
            asyncio.timeout(PATIENCE),
        ):
            async for message in consumer:
                consumer.ack(message)
                assert [*(await consumer.commit()).values()] == [message.seq + 1]
                assert [*(await consumer.lag()).values()] == [0]
                break


async def test_the_end_of_a_stream_ends_the_loop(file: Place) -> None:
    """A stream of messages goes on for ever.

    Differs: a file that is not followed, and a pipe, have an end: the loop ends there, and `next`
    raises `StreamEnded`.
    """
    replay = ConsumerOptions(reset=Reset.EARLIEST, file=FileOptions(follow=False))
    async with file.connect() as streamer:
        await send(streamer, file.stream, "a", "b")
        async with streamer.consumer(file.stream, options=replay) as consumer:
            assert [message.text() async for message in consumer] == ["a", "b"]
            assert consumer.state is ConsumerState.ENDED
            with pytest.raises(StreamEnded):
                await consumer.next(1)


async def test_a_closed_consumer_says_so(anywhere: Place) -> None:
    """A consumer is gone when it is dropped.

    Differs: it is closed, by `async with` or `close`; every call after that is an error.
    """
    async with anywhere.connect() as streamer:
        async with streamer.consumer(anywhere.stream) as consumer:
            pass
        with pytest.raises(ConsumerClosed):
            await consumer.next(1)
        await consumer.close()
