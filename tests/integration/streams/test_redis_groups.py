"""Redis groups on a real server: pending first, claims, recovery, acknowledgement."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Redis

from ottla.streams import (
    BEGINNING,
    AutoCommit,
    ConnectOptions,
    ConsumerOptions,
    Mode,
    RedisOptions,
    Reset,
    Streamer,
    connect,
)
from ottla.streams.backends.redis_shards import Shards
from ottla.streams.backends.redis_source import RedisSource
from ottla.streams.errors import CommitNotAllowed, ConfigError, FormatError, GroupLost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ottla.streams import Consumer, Message
    from tests.services import RedisServer

_numbers = count()
FAST = RedisOptions(block=0.2, auto_claim_interval=0.1, auto_claim_idle=0.2)


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[Any]:
    async with Redis(host=redis_server.host, port=redis_server.port) as one:
        yield one


@pytest.fixture
def stream() -> str:
    return f"groups-{next(_numbers)}"


@pytest.fixture
async def streamer(redis_server: RedisServer, stream: str) -> AsyncIterator[Streamer]:
    url = f"{redis_server.url}/{stream}"
    async with connect(url, ConnectOptions(timeout=10, redis=FAST)) as one:
        yield one


def resumable(**more: object) -> ConsumerOptions:
    options = {"auto_commit": AutoCommit.DISABLED, "reset": Reset.EARLIEST, **more}
    return ConsumerOptions(mode=Mode.RESUMABLE, group="g", **options)  # type: ignore[arg-type]  # by name


def balanced(**more: object) -> ConsumerOptions:
    options = {"auto_commit": AutoCommit.DISABLED, "reset": Reset.EARLIEST, **more}
    return ConsumerOptions(mode=Mode.LOAD_BALANCED, group="g", **options)  # type: ignore[arg-type]  # by name


async def fill(client: Any, key: str, *payloads: bytes) -> list[bytes]:
    return [await client.xadd(key, {"msg": payload}) for payload in payloads]


async def take(consumer: Consumer, number: int, wait: float = 5.0) -> list[Message]:
    return [await consumer.next(wait) for _ in range(number)]


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


async def pending(client: Any, key: str) -> dict[bytes, bytes]:
    rows = await client.xpending_range(key, "g", "-", "+", 1000)
    return {row["message_id"]: row["consumer"] for row in rows}


async def until_nothing_is_pending(client: Any, key: str) -> None:
    async with asyncio.timeout(5):
        while await pending(client, key):  # noqa: ASYNC110  # the server tells nobody
            await asyncio.sleep(0.02)


async def test_t25_own_pending_first_then_new_in_order(
    streamer: Streamer, client: Any, stream: str
) -> None:
    await fill(client, stream, *numbers(0, 5))
    async with streamer.consumer(options=resumable()) as consumer:
        first = await take(consumer, 5)
        for message in first[:4]:
            consumer.ack(message)
        await consumer.commit()
    await fill(client, stream, *numbers(5, 7))
    async with streamer.consumer(options=resumable()) as consumer:
        again = await take(consumer, 3)
    assert [one.payload for one in again] == numbers(4, 7)
    assert [one.delivery for one in again] == [2, 1, 1]


async def test_t28_entries_of_a_dead_member_are_claimed_as_self(
    streamer: Streamer, client: Any, stream: str
) -> None:
    ids = await fill(client, stream, *numbers(0, 5))
    await client.xgroup_create(stream, "g", "0")
    await client.xreadgroup("g", "dead", {stream: ">"}, count=5)
    options = balanced(redis=replace(FAST, consumer_id="b"))
    async with streamer.consumer(options=options) as consumer:
        taken = await take(consumer, 5)
        assert [one.payload for one in taken] == numbers(0, 5)
        assert {one.delivery for one in taken} == {2}
        assert await pending(client, stream) == dict.fromkeys(ids, b"b")


async def test_closing_ends_a_renewal_in_which_the_driver_loses_the_cancellation(
    streamer: Streamer, client: Any, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(client, stream, *numbers(0, 1))
    asked = asyncio.Event()
    ask = RedisSource._pending

    async def lose_it_once(*args: Any) -> list[str]:
        if asked.is_set():
            return await ask(*args)
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("connection lost") from None
        return []

    monkeypatch.setattr(RedisSource, "_pending", lose_it_once)
    async with asyncio.timeout(30):
        async with streamer.consumer(options=balanced(redis=FAST)) as consumer:
            await take(consumer, 1)
            await asked.wait()


async def test_t29_claims_go_by_pages_and_skip_what_was_deleted(
    streamer: Streamer, client: Any, stream: str
) -> None:
    ids = await fill(client, stream, *numbers(0, 7))
    await client.xgroup_create(stream, "g", "0")
    await client.xreadgroup("g", "dead", {stream: ">"}, count=7)
    await client.xdel(stream, ids[3])
    options = balanced(redis=replace(FAST, batch=2))
    async with streamer.consumer(options=options) as consumer:
        taken = await take(consumer, 6)
        assert [one.payload for one in taken] == [b"0", b"1", b"2", b"4", b"5", b"6"]
        for message in taken:
            consumer.ack(message)
        await consumer.commit()
        assert await consumer.batch(1, 0.5) == []
    assert await pending(client, stream) == {}


async def test_entries_in_hand_are_not_claimed_from_oneself(
    streamer: Streamer, client: Any, stream: str
) -> None:
    await fill(client, stream, b"slow")
    async with streamer.consumer(options=balanced()) as consumer:
        await consumer.next(5)
        assert await consumer.batch(1, 1.0) == []  # several claims find it idle meanwhile


async def test_what_a_member_leaves_is_taken_over_at_once(
    redis_server: RedisServer, client: Any, stream: str
) -> None:
    # The idle time is a minute: only handing back explains that the other one gets them.
    redis = RedisOptions(block=0.1, auto_claim_interval=0.1, auto_claim_idle=60)
    async with connect(f"{redis_server.url}/{stream}", ConnectOptions(redis=redis)) as streamer:
        await fill(client, stream, *numbers(0, 8))
        async with streamer.consumer(options=balanced()) as first:
            await first.next(5)
        async with streamer.consumer(options=balanced()) as second:
            assert sorted(one.payload for one in await take(second, 8)) == numbers(0, 8)


@pytest.mark.parametrize("mode", [Mode.RESUMABLE, Mode.LOAD_BALANCED])
async def test_t30_an_entry_lost_on_the_wire_arrives_once(
    streamer: Streamer, client: Any, stream: str, mode: Mode
) -> None:
    await fill(client, stream, b"before")
    options = resumable() if mode is Mode.RESUMABLE else balanced()
    async with streamer.consumer(options=options) as consumer:
        assert (await consumer.next(5)).payload == b"before"
        source = consumer._source
        assert isinstance(source, RedisSource)
        lane = source._lanes[0]
        read_response = lane._connection.read_response  # type: ignore[union-attr]  # is connected
        broke = asyncio.Event()

        async def break_after_reply(*args: object, **options: object) -> object:
            reply = await read_response(*args, **options)  # type: ignore[arg-type]  # passed on
            if not reply:
                return reply
            broke.set()
            raise ConnectionResetError("the reply never arrived")

        lane._connection.read_response = break_after_reply  # type: ignore[union-attr,method-assign]  # a fault
        await fill(client, stream, b"lost")
        async with asyncio.timeout(5):
            await broke.wait()
        await fill(client, stream, b"after")
        assert [one.payload for one in await take(consumer, 2)] == [b"lost", b"after"]
        assert await consumer.batch(10, 0.5) == []


async def test_entries_are_delivered_even_if_their_count_cannot_be_asked_for(
    streamer: Streamer, client: Any, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(client, stream, b"held")
    async with streamer.consumer(options=resumable()) as consumer:
        await consumer.next(5)

    async def lost(*_: object) -> dict[str, int]:
        raise ConnectionResetError("no answer")

    monkeypatch.setattr(Shards, "delivery_counts", lost)
    async with streamer.consumer(options=resumable()) as consumer:
        assert (await consumer.next(5)).payload == b"held"


async def test_t31_an_own_pending_entry_that_was_trimmed_is_skipped(
    streamer: Streamer, client: Any, stream: str
) -> None:
    await fill(client, stream, *numbers(0, 3))
    async with streamer.consumer(options=resumable()) as consumer:
        await take(consumer, 3)
    await client.xtrim(stream, maxlen=1, approximate=False)
    async with streamer.consumer(options=resumable()) as consumer:
        assert [one.payload for one in await take(consumer, 1)] == [b"2"]
    assert len(await pending(client, stream)) == 1


async def test_t36_a_group_that_is_gone_is_an_error(
    streamer: Streamer, client: Any, stream: str
) -> None:
    await fill(client, stream, b"1")
    async with streamer.consumer(options=resumable()) as consumer:
        await consumer.next(5)
        await client.xgroup_destroy(stream, "g")
        with pytest.raises(GroupLost, match="recreate_group"):
            await consumer.next(5)


async def test_t36_or_is_made_again_at_the_highest_ack(
    streamer: Streamer, client: Any, stream: str
) -> None:
    await fill(client, stream, *numbers(0, 3))
    options = resumable(redis=replace(FAST, recreate_group=True))
    async with streamer.consumer(options=options) as consumer:
        taken = await take(consumer, 3)
        for message in taken[:2]:
            consumer.ack(message)
        await consumer.commit()
        await client.xgroup_destroy(stream, "g")
        await fill(client, stream, b"3")
        assert (await consumer.next(5)).payload == b"3"  # the third is still in hand
        consumer.ack(taken[2])
        await consumer.commit()
        assert len(await pending(client, stream)) == 1


async def test_t37_slow_and_fast_members_share_the_work(
    streamer: Streamer, client: Any, stream: str
) -> None:
    await fill(client, stream, *numbers(0, 200))
    seen: dict[str, list[bytes]] = {"slow": [], "fast": []}

    async def work(name: str, delay: float) -> None:
        options = balanced(
            auto_commit=AutoCommit.ROLLING,
            prefetch=1,
            redis=RedisOptions(block=0.1, auto_claim_interval=None, batch=10),
        )
        async with streamer.consumer(options=options) as consumer:
            while len(seen["slow"]) + len(seen["fast"]) < 200:
                for message in await consumer.batch(1, 0.2):
                    await asyncio.sleep(delay)
                    seen[name].append(message.payload)
                    consumer.ack(message)

    async with asyncio.timeout(20):
        await asyncio.gather(work("slow", 0.02), work("fast", 0.0))
    assert len(seen["fast"]) > len(seen["slow"]) > 0
    assert sorted(seen["slow"] + seen["fast"]) == sorted(numbers(0, 200))


async def test_t23_a_seek_leaves_the_group(streamer: Streamer, client: Any, stream: str) -> None:
    await fill(client, stream, *numbers(0, 2))
    async with streamer.consumer(options=resumable()) as consumer:
        first = await consumer.next(5)
        assert consumer.group == "g"
        await consumer.seek(first.timestamp)
        assert consumer.group is None
        with pytest.raises(CommitNotAllowed, match="out of its group"):
            await consumer.commit()


async def test_t15_immediate_leaves_nothing_pending(
    streamer: Streamer, client: Any, stream: str
) -> None:
    await fill(client, stream, *numbers(0, 3))
    options = resumable(auto_commit=AutoCommit.IMMEDIATE)
    async with streamer.consumer(options=options) as consumer:
        assert (await consumer.next(5)).payload == b"0"
    assert await pending(client, stream) == {}
    async with streamer.consumer(options=options) as consumer:  # nothing was fetched ahead
        assert (await consumer.next(5)).payload == b"1"


async def test_t16_an_idle_stream_is_committed_in_time(
    streamer: Streamer, client: Any, stream: str
) -> None:
    await fill(client, stream, b"1")
    options = resumable(auto_commit=AutoCommit.ROLLING, auto_commit_interval=0.1)
    async with streamer.consumer(options=options) as consumer:
        consumer.ack(await consumer.next(5))
        await until_nothing_is_pending(client, stream)


async def test_t18_dead_letters_keep_where_they_came_from(
    streamer: Streamer, client: Any, stream: str
) -> None:
    await fill(client, stream, b"poison")
    dead = f"{stream}-dead"
    options = resumable(
        auto_commit=AutoCommit.ROLLING, max_deliveries=2, dead_letter=dead, auto_commit_interval=0.1
    )
    async with streamer.consumer(options=options) as consumer:
        first = await consumer.next(5)
        consumer.nack(first)
        second = await consumer.next(5)
        assert (second.delivery, second.payload) == (2, b"poison")
        consumer.nack(second)
        await until_nothing_is_pending(client, stream)
    ((_, fields),) = await client.xrange(dead)
    assert fields[b"msg"] == b"poison"
    assert fields[b"ottla-seq"] == str(first.seq).encode()


@pytest.mark.parametrize("choice", ["raise", "skip", "dead_letter"])
async def test_t35_an_entry_without_the_field(
    streamer: Streamer, client: Any, stream: str, choice: str
) -> None:
    await fill(client, stream, b"good")
    bad = await client.xadd(stream, {"other": b"1"})
    await fill(client, stream, b"next")
    options = resumable(
        auto_commit=AutoCommit.ROLLING,
        max_deliveries=9,
        drain_timeout=0.1,
        dead_letter=f"{stream}-dead",
        redis=replace(FAST, on_bad_entry=choice),
    )
    async with streamer.consumer(options=options) as consumer:
        assert (await consumer.next(5)).payload == b"good"
        if choice == "raise":
            with pytest.raises(FormatError, match="'msg'"):
                await consumer.next(5)
            return
        assert (await consumer.next(5)).payload == b"next"
    assert bad not in await pending(client, stream)
    dead = await client.xrange(f"{stream}-dead")
    assert [fields[b"id"] for _, fields in dead] == ([bad] if choice == "dead_letter" else [])


async def test_lag_counts_what_the_group_has_not_acknowledged(
    streamer: Streamer, client: Any, stream: str
) -> None:
    await fill(client, stream, *numbers(0, 5))
    async with streamer.consumer(options=resumable()) as consumer:
        consumer.ack(await consumer.next(5))
        await consumer.commit()
        assert list((await consumer.lag()).values()) == [4]


async def test_a_position_means_nothing_to_a_balanced_group(streamer: Streamer) -> None:
    from ottla.offsets import MemoryOffsetStore

    with pytest.raises(ConfigError, match="interleaved"):
        streamer.consumer(options=balanced(offsets=MemoryOffsetStore()))


async def consumers(client: Any, key: str) -> set[bytes]:
    return {row["name"] for row in await client.xinfo_consumers(key, "g")}


async def test_a_member_that_holds_nothing_leaves_the_group_when_it_closes(
    streamer: Streamer, client: Any, stream: str
) -> None:
    await fill(client, stream, *numbers(0, 2))
    options = balanced(redis=replace(FAST, consumer_id="tidy"))
    async with streamer.consumer(options=options) as consumer:
        for message in await take(consumer, 2):
            consumer.ack(message)
        assert await consumers(client, stream) == {b"tidy"}
        await consumer.commit()
    assert await consumers(client, stream) == set()
    # With something pending it stays: the group would forget the entry with its member.
    [entry] = await fill(client, stream, b"2")
    async with streamer.consumer(options=options) as consumer:
        await take(consumer, 1)
    assert await consumers(client, stream) == {b"tidy"}
    assert await pending(client, stream) == {entry: b"tidy"}


async def test_a_live_but_slow_member_keeps_what_it_has_in_hand(
    streamer: Streamer, client: Any, stream: str
) -> None:
    [entry] = await fill(client, stream, b"0")
    slow = balanced(redis=replace(FAST, consumer_id="slow", auto_claim_idle=0.6))
    other = balanced(redis=replace(FAST, consumer_id="other", auto_claim_idle=0.6))
    async with streamer.consumer(options=slow) as holder:
        message = await holder.next(5)
        # For three times the idle time the other asks for entries of dead members.
        async with streamer.consumer(options=other) as claimer:
            assert await claimer.batch(1, 1.8) == []
        assert await pending(client, stream) == {entry: b"slow"}
        holder.ack(message)
        await holder.commit()
    assert await pending(client, stream) == {}


async def test_closing_and_moving_right_after_opening_do_not_wait_for_the_block(
    redis_server: RedisServer, client: Any, stream: str
) -> None:
    """The block is longer than the patience: waiting for one of them is too long."""
    long = ConnectOptions(redis=RedisOptions(block=40))
    url = f"{redis_server.url}/{stream}"
    await fill(client, stream, b"0")
    async with asyncio.timeout(20):
        for options in (balanced(), resumable(), ConsumerOptions()):
            async with connect(url, long) as one:
                async with one.consumer(options=options):
                    pass
                async with one.consumer(options=options) as consumer:
                    await consumer.rewind(BEGINNING)
                    assert (await consumer.next(5)).payload == b"0"
                async with one.consumer(options=options) as consumer:
                    await asyncio.sleep(0)  # the reader has begun to connect
                    await consumer.seek(datetime.fromtimestamp(0, UTC))
                    assert (await consumer.next(5)).payload == b"0"
