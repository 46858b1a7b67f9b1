"""Redis rows of `benchmarks.streams`: our consumer in a group against redis-py's own loop.

Both read the same stream with acknowledgement, each in a group of its own. The peer asks for 100
entries, handles them and acknowledges them before it asks again, which is what such loops do; ours
runs with its defaults.
"""

from __future__ import annotations

import asyncio
import gc
import time
from typing import TYPE_CHECKING, Any, Final

from redis.asyncio import Redis

from benchmarks._harness import ROUNDS, Row, Timing, faster
from ottla.streams import AutoCommit, ConsumerOptions, Mode, Reset, connect
from tests.services import ServerMissing, running_redis

if TYPE_CHECKING:
    from tests.services import RedisServer

BATCH: Final = 100
PAYLOAD: Final = b"v" * 256
AT_LEAST: Final = 1.5


def rows(messages: int, rounds: int = ROUNDS) -> list[Row]:
    """The rows, or none and a line that says what is missing."""
    try:
        with running_redis() as server:
            return asyncio.run(_rows(server, messages, rounds))
    except ServerMissing as missing:
        print(f"  skipped: {missing}")
        return []


async def _rows(server: RedisServer, messages: int, rounds: int) -> list[Row]:
    client: Any = Redis(host=server.host, port=server.port)
    async with client, connect(f"{server.url}/records") as streamer:
        async with streamer.producer() as producer:
            for _ in range(messages):
                await producer.send(PAYLOAD)
            await producer.flush()
        found = []
        for policy in (AutoCommit.NEXT, AutoCommit.ROLLING):
            ours, peer = [], []
            for turn in range(rounds + 1):
                name = f"{policy.value}-{turn}"
                gc.collect()
                peer.append(await _peer(client, f"peer-{name}", messages))
                gc.collect()
                ours.append(await _ours(server, f"ours-{name}", policy, messages))
            # The first turn of each fills caches.
            what = f"Redis group, {policy.name}, {len(PAYLOAD)} bytes"
            timings = Timing(tuple(ours[1:])), Timing(tuple(peer[1:]))
            found.append(faster(what, *timings, AT_LEAST, _rate(messages)))
        return found


async def _peer(client: Any, group: str, messages: int) -> float:
    await client.xgroup_create("records", group, "0")
    seen = 0
    start = time.perf_counter()
    while seen < messages:
        for key, entries in await client.xreadgroup(
            group, "peer", {"records": ">"}, count=BATCH, block=1000
        ):
            ids = []
            for entry_id, fields in entries:
                ids.append(entry_id)
                seen += len(fields) > 0
            await client.xack(key, group, *ids)
    return time.perf_counter() - start


async def _ours(server: RedisServer, group: str, policy: AutoCommit, messages: int) -> float:
    options = ConsumerOptions(
        mode=Mode.RESUMABLE, group=group, reset=Reset.EARLIEST, auto_commit=policy
    )
    seen = 0
    async with connect(f"{server.url}/records") as streamer:
        consumer = streamer.consumer(options=options)
        async with consumer:
            start = time.perf_counter()
            async for message in consumer:
                seen += 1
                if policy is AutoCommit.ROLLING:
                    consumer.ack(message)
                if seen == messages:
                    break
            await consumer.commit()
            return time.perf_counter() - start


def _rate(messages: int) -> Any:
    return lambda timing: f"{messages / timing.median / 1e3:.1f} k msg/s"
