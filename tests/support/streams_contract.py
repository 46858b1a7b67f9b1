"""The contract of the streams room: one program text for every backend, only the URL changes.

A `Store` says where and with which connect options. What its driver declares unsupported must raise
`Unsupported` with that reason; everything else must work as written here.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from ottla.offsets import MemoryOffsetStore
from ottla.streams import (
    At,
    AutoCommit,
    ConnectOptions,
    Consumer,
    ConsumerOptions,
    ConsumerState,
    Message,
    Mode,
    Reset,
    Streamer,
    Unsupported,
    connect,
)
from ottla.streams.base import Operation
from ottla.streams.errors import (
    AckNotAllowed,
    CommitNotAllowed,
    ConsumerBusy,
    ConsumerClosed,
    GroupIsSet,
    GroupNotSet,
    NotAnchored,
    ShardNotAssigned,
    StreamKeyNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PATIENCE = 20.0
"""Seconds that any store gets for what should take milliseconds."""


@dataclass(frozen=True)
class Store:
    """A place for streams: `url` names one or more fresh streams, the first is the main one."""

    url: str
    options: ConnectOptions = field(default_factory=ConnectOptions)

    def connect(self) -> Streamer:
        return connect(self.url, self.options)


def lacks(streamer: Streamer, operation: Operation) -> bool:
    return operation in streamer.driver.unsupported


async def send(streamer: Streamer, payloads: list[str]) -> None:
    stream = (streamer.url.keys or ("",))[0]
    async with streamer.producer(stream) as producer:
        deliveries = [await producer.send(payload) for payload in payloads]
        receipts = [await delivery for delivery in deliveries]
    for shard in {receipt.shard for receipt in receipts}:
        sequences = [receipt.seq for receipt in receipts if receipt.shard == shard]
        assert sequences == sorted(set(sequences)), "sequences rise within a shard"


async def take(consumer: Consumer, count: int) -> list[Message]:
    taken: list[Message] = []
    async with asyncio.timeout(PATIENCE):
        while len(taken) < count:
            taken += await consumer.batch(count - len(taken), 1)
    return taken


async def real_time_consumers_get_what_comes_from_now_on(store: Store) -> None:
    async with store.connect() as streamer:
        await send(streamer, ["before"])
        async with streamer.consumer() as one, streamer.consumer() as two:
            expected = [f"m{i}" for i in range(250)]
            await send(streamer, expected)
            for consumer in (one, two):
                taken = await take(consumer, 250)
                assert sorted(m.text() for m in taken) == sorted(expected)
                assert {m.stream for m in taken} == {(streamer.url.keys or ("",))[0]}
                assert await consumer.batch(1, 0.05) == []
                with pytest.raises(TimeoutError):
                    await consumer.next(0.01)
                with pytest.raises(CommitNotAllowed):
                    await consumer.commit()


async def messages_of_a_shard_are_ordered(store: Store) -> None:
    async with store.connect() as streamer, streamer.consumer() as consumer:
        await send(streamer, [str(i) for i in range(100)])
        taken = await take(consumer, 100)
        for shard in {m.shard for m in taken}:
            mine = [m for m in taken if m.shard == shard]
            assert [m.seq for m in mine] == sorted({m.seq for m in mine})
            assert [int(m.text()) for m in mine] == sorted(int(m.text()) for m in mine)


async def iteration_owns_the_consumer(store: Store) -> None:
    async with store.connect() as streamer:
        async with streamer.consumer() as consumer:
            await send(streamer, ["1", "2", "3"])
            seen = []
            async with asyncio.timeout(PATIENCE):
                async for message in consumer:
                    assert consumer.state is ConsumerState.ITERATING
                    with pytest.raises(ConsumerBusy):
                        await consumer.next()
                    seen.append(message.text())
                    if len(seen) == 3:
                        break
            assert sorted(seen) == ["1", "2", "3"]
        with pytest.raises(ConsumerClosed):
            await consumer.next()


async def options_are_checked_the_same_way(store: Store) -> None:
    async with store.connect() as streamer:
        with pytest.raises(GroupIsSet):
            streamer.consumer(options=ConsumerOptions(group="g"))
        with pytest.raises(GroupNotSet):
            streamer.consumer(options=ConsumerOptions(mode=Mode.LOAD_BALANCED))
        for operation, options in (
            (Operation.RESUMABLE, ConsumerOptions(mode=Mode.RESUMABLE, group="g")),
            (Operation.SHARED, ConsumerOptions(mode=Mode.SHARED, group="g")),
            (Operation.EARLIEST, ConsumerOptions(reset=Reset.EARLIEST)),
        ):
            if lacks(streamer, operation):
                with pytest.raises(Unsupported, match=streamer.backend.value):
                    streamer.consumer(options=options)


async def assignment_is_checked_the_same_way(store: Store) -> None:
    async with store.connect() as streamer, streamer.consumer() as consumer:
        if lacks(streamer, Operation.REWIND):
            # A choice takes effect with the next seek, so that it never would.
            with pytest.raises(Unsupported):
                consumer.assign((streamer.url.keys or ("",))[0], 0)
            return
        with pytest.raises(StreamKeyNotFound):
            consumer.assign("not-subscribed", 0)
        with pytest.raises(ShardNotAssigned):
            consumer.unassign((streamer.url.keys or ("",))[0], 0)


async def a_nacked_message_comes_again(store: Store) -> None:
    options = ConsumerOptions(auto_commit=AutoCommit.ROLLING)
    async with store.connect() as streamer, streamer.consumer(options=options) as consumer:
        await send(streamer, ["poison"])
        first = await consumer.next(PATIENCE)
        consumer.nack(first)
        again = await consumer.next(PATIENCE)
        assert (again.id, again.delivery) == (first.id, 2)
        consumer.ack(again)
    async with store.connect() as streamer, streamer.consumer() as consumer:
        with pytest.raises(AckNotAllowed):
            consumer.ack(first)


async def rewinding_is_inclusive(store: Store) -> None:
    async with store.connect() as streamer, streamer.consumer() as consumer:
        if lacks(streamer, Operation.REWIND):
            with pytest.raises(Unsupported):
                await consumer.rewind(At(1))
            return
        await send(streamer, [str(i) for i in range(50)])
        taken = await take(consumer, 50)
        shard = taken[0].shard
        mine = [m for m in taken if m.shard == shard]
        target = mine[len(mine) // 2]
        consumer.assign(target.stream, shard)
        await consumer.rewind(At(target.seq))
        again = await take(consumer, len(mine) - len(mine) // 2)
        assert [m.payload for m in again] == [m.payload for m in mine[len(mine) // 2 :]]


async def seeking_is_strictly_later(store: Store) -> None:
    async with store.connect() as streamer, streamer.consumer() as consumer:
        if lacks(streamer, Operation.SEEK):
            with pytest.raises(Unsupported):
                await consumer.seek(Message("a", 0, 0, 0, b"").timestamp)
            return
        await send(streamer, ["early"])
        [early] = await take(consumer, 1)
        await asyncio.sleep(0.005)
        await send(streamer, ["late"])
        await take(consumer, 1)
        await consumer.seek(early.timestamp)
        [late] = await take(consumer, 1)
        assert late.text() == "late"


async def a_resumable_consumer_resumes(store: Store) -> None:
    offsets = MemoryOffsetStore()
    async with store.connect() as streamer:
        if lacks(streamer, Operation.OFFSETS) or lacks(streamer, Operation.RESUMABLE):
            return
        options = ConsumerOptions(
            mode=Mode.RESUMABLE,
            group="resuming",
            auto_commit=AutoCommit.DISABLED,
            offsets=offsets,
        )
        await send(streamer, [str(i) for i in range(20)])
        done = set()
        async with streamer.consumer(options=options) as consumer:
            for message in await take(consumer, 12):
                consumer.ack(message)
                done.add(message.text())
            await consumer.commit()
        async with streamer.consumer(options=options) as consumer:
            rest = {m.text() for m in await take(consumer, 8)}
            assert await consumer.batch(1, 0.05) == []
        assert done | rest == {str(i) for i in range(20)}
        assert not done & rest


async def a_group_shares_its_messages(store: Store) -> None:
    async with store.connect() as streamer:
        if lacks(streamer, Operation.LOAD_BALANCED):
            return
        options = ConsumerOptions(mode=Mode.LOAD_BALANCED, group="sharing")
        async with (
            streamer.consumer(options=options) as one,
            streamer.consumer(options=options) as two,
        ):
            seen: list[str] = []

            async def work(consumer: Consumer) -> None:
                while len(seen) < 60:
                    seen.extend(m.text() for m in await consumer.batch(5, 0.1))

            await send(streamer, [str(i) for i in range(60)])
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(work(one), work(two))
        assert sorted(seen) == sorted(str(i) for i in range(60))


async def producers_are_anchored_or_told(store: Store) -> None:
    async with store.connect() as streamer:
        key = (streamer.url.keys or ("",))[0]
        async with streamer.producer(key) as anchored, anchored.clone() as clone:
            assert (await (await clone.send("x"))).stream == key
            assert (await (await anchored.send("y", stream=key))).stream == key
        free = connect(str(streamer.url).removesuffix(key), store.options)
        async with free, free.producer() as producer:
            with pytest.raises(NotAnchored):
                await producer.send("z")


CONTRACT: list[Callable[[Store], Awaitable[None]]] = [
    real_time_consumers_get_what_comes_from_now_on,
    messages_of_a_shard_are_ordered,
    iteration_owns_the_consumer,
    options_are_checked_the_same_way,
    assignment_is_checked_the_same_way,
    a_nacked_message_comes_again,
    rewinding_is_inclusive,
    seeking_is_strictly_later,
    a_resumable_consumer_resumes,
    a_group_shares_its_messages,
    producers_are_anchored_or_told,
]
