"""Members of one Kafka group that move while partitions are taken from them.

Run as a program, because a fault here ends the process: confluent-kafka asserts in C that no other
call of the consumer has cleared what a read keeps for its callbacks.

    python -m tests.support.stream_rebalance seek|together BOOTSTRAP TOPIC
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from ottla.streams import (
    AutoCommit,
    ConnectOptions,
    Consumer,
    ConsumerOptions,
    KafkaOptions,
    Mode,
    Reset,
    Streamer,
    connect,
)
from ottla.streams.errors import Evicted

LONG_READ = 2.0  # seconds: long enough for two callbacks of a rebalance in one read
PATIENCE = 60.0
SHARDS = 4
ROUNDS = 2
LONG_AGO = datetime.now(UTC) - timedelta(days=1)
QUICK = KafkaOptions(
    session_timeout=6.0, extra={"heartbeat.interval.ms": 100, "fetch.wait.max.ms": 20}
)


class Patient:
    """A consumer whose reads wait longer than they were told to."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def consume(self, number: int, seconds: float) -> Any:
        return self._consumer.consume(number, LONG_READ if seconds else seconds)


def options(group: str) -> ConsumerOptions:
    return ConsumerOptions(
        mode=Mode.LOAD_BALANCED,
        group=group,
        reset=Reset.EARLIEST,
        auto_commit=AutoCommit.ROLLING,
        auto_commit_interval=0.05,
        drain_timeout=0.1,
        kafka=QUICK,
    )


async def fill(streamer: Streamer) -> None:
    async with streamer.producer() as producer:
        for shard in range(SHARDS):
            await producer.send(f"{shard}", shard=shard)


async def seek(streamer: Streamer) -> None:
    """One read of A serves two callbacks; while the first one waits for acks, A seeks."""
    being_revoked = asyncio.Event()
    async with streamer.consumer(options=options("g")) as a:
        held = [await a.next(PATIENCE) for _ in range(SHARDS)]
        source: Any = a._source
        source._thread.consumer = Patient(source._thread.consumer)
        hands: Any = a._hands
        empty = hands.empty

        async def told(*args: object) -> None:
            being_revoked.set()
            await empty(*args)

        hands.empty = told
        joining = asyncio.create_task(streamer.consumer(options=options("g")).__aenter__())
        await being_revoked.wait()
        # Both ask the cluster, and the first is answered while the callback waits.
        assert set((await a.lag()).values()) == {1}
        moving = asyncio.create_task(a.seek(LONG_AGO))
        await asyncio.sleep(0.1)  # if nobody keeps the seek from it, it asks at once
        for message in held:
            a.ack(message)
        await moving
        assert sorted([(await a.next(PATIENCE)).text() for _ in range(SHARDS)]) == [*"0123"]
        await (await joining).close()


async def together(streamer: Streamer) -> None:
    """Members that join at once, and ask and move while the group settles."""
    for number in range(ROUNDS):
        async with AsyncExitStack() as stack:
            group = options(f"g{number}")
            members = await asyncio.gather(
                *(stack.enter_async_context(streamer.consumer(options=group)) for _ in range(3))
            )
            await asyncio.gather(*map(restless, members))


async def restless(member: Consumer) -> None:
    for _ in range(5):
        for message in await member.batch(10, 0.05):
            member.ack(message)
        await member.lag()
        with suppress(Evicted):  # the group has gone on to its next generation meanwhile
            await member.commit()
    await member.seek(LONG_AGO)
    assert sorted([(await member.next(PATIENCE)).text() for _ in range(SHARDS)]) == [*"0123"]


async def main(what: str, bootstrap: str, topic: str) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        connect(f"kafka://{bootstrap}/{topic}", ConnectOptions(kafka=QUICK)) as streamer,
    ):
        await fill(streamer)
        await {"seek": seek, "together": together}[what](streamer)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
