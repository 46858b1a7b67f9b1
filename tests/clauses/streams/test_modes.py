"""Modes: RealTime, Resumable and LoadBalanced"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ottla.offsets import LockFileOffsetStore
from ottla.streams import (
    Backend,
    ConsumerOptions,
    Message,
    Mode,
    RedisOptions,
    Reset,
    Unsupported,
)
from ottla.streams.errors import (
    CommitNotAllowed,
    ConfigError,
    GroupIsSet,
    GroupNotSet,
    StreamKeyEmpty,
)
from tests.clauses.streams.places import (
    EARLIEST,
    PATIENCE,
    in_group,
    messages,
    new_name,
    nothing_more,
    send,
    send_everywhere,
    take,
)

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tests.clauses.streams.places import Place

RESUMABLE = Mode.RESUMABLE


async def test_one_consumer_for_four_backends(anywhere: Place) -> None:
    """Kafka, Redis, Stdio and File implement the same consumer; the URL says which."""
    async with anywhere.connect() as streamer:
        assert streamer.backend is Backend(anywhere.backend)
        async with streamer.consumer(anywhere.stream) as consumer:
            await send(streamer, anywhere.stream, "hello")
            [message] = await messages(consumer, 1)
            assert isinstance(message, Message)
            assert (message.stream, message.shard, message.text()) == (
                anywhere.stream,
                0,
                "hello",
            )


def test_there_are_three_modes() -> None:
    """There are three modes: `RealTime`, `Resumable` and `LoadBalanced`.

    Differs: a fourth, `SHARED`, is a share group of a Kafka-compatible broker.
    """
    assert {mode.name for mode in Mode} == {"REAL_TIME", "RESUMABLE", "LOAD_BALANCED", "SHARED"}


async def test_real_time_consumes_from_now_on(anywhere: Place) -> None:
    """A `RealTime` consumer gets messages from now on; it is the default."""
    assert ConsumerOptions().mode is Mode.REAL_TIME
    async with anywhere.connect() as streamer:
        if anywhere.backend != "stdio":
            await send(streamer, anywhere.stream, "before")
        async with streamer.consumer(anywhere.stream) as consumer:
            await send(streamer, anywhere.stream, "after")
            assert await take(consumer, 1) == ["after"]


async def test_real_time_consumers_all_get_everything(anywhere: Place) -> None:
    """It is the vanilla consumer: each one gets every message."""
    async with (
        anywhere.connect() as streamer,
        streamer.consumer(anywhere.stream) as one,
        streamer.consumer(anywhere.stream) as two,
    ):
        await send(streamer, anywhere.stream, "a", "b")
        assert await take(one, 2) == await take(two, 2) == ["a", "b"]


async def test_real_time_commits_nothing(anywhere: Place) -> None:
    """A `RealTime` consumer does not commit: there is nothing to commit to."""
    async with anywhere.connect() as streamer, streamer.consumer(anywhere.stream) as consumer:
        with pytest.raises(CommitNotAllowed, match="real-time"):
            await consumer.commit()


async def test_real_time_takes_no_group(anywhere: Place) -> None:
    """A group belongs to the other modes; with `RealTime` it is an error."""
    async with anywhere.connect() as streamer:
        with pytest.raises(GroupIsSet, match="LOAD_BALANCED or RESUMABLE"):
            streamer.consumer(anywhere.stream, options=ConsumerOptions(group="g"))


async def test_resumable_goes_on_where_it_stopped(served: Place) -> None:
    """When the process restarts, it resumes from the previous committed sequence."""
    options = in_group(RESUMABLE)
    for expected in (["a", "b"], ["c", "d"]):
        async with served.connect() as streamer:
            if expected == ["a", "b"]:
                await send(streamer, served.stream, "a", "b", "c", "d")
            async with streamer.consumer(served.stream, options=options) as consumer:
                assert await take(consumer, 2) == expected


async def test_resumable_repeats_what_was_not_committed(served: Place) -> None:
    """It resumes from the committed sequence: what was read and not acknowledged comes again."""
    options = in_group(RESUMABLE)
    async with served.connect() as streamer:
        await send(streamer, served.stream, "a", "b")
        async with streamer.consumer(served.stream, options=options) as consumer:
            consumer.ack(await consumer.next(PATIENCE))
            await consumer.next(PATIENCE)
            await consumer.commit()
            await consumer.close(drain=False)
        async with streamer.consumer(served.stream, options=options) as consumer:
            assert await take(consumer, 1) == ["b"]


async def test_resumable_has_a_group_of_this_host(
    served: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uses a group id unique to this host: the MAC address, or the id of the container.

    Differs: `HOST_ID` if it is set, and the name of the program as well, or two programs of a host
    would share their position.
    """
    monkeypatch.setenv("HOST_ID", "host-7")
    options = ConsumerOptions(mode=RESUMABLE, app=new_name("app"), reset=Reset.EARLIEST)
    async with (
        served.connect() as streamer,
        streamer.consumer(served.stream, options=options) as consumer,
    ):
        assert consumer.group == f"host-7:{options.app}:r"


async def test_resumable_takes_a_group_that_is_given(served: Place) -> None:
    """A group can be set instead."""
    options = in_group(RESUMABLE, "mine")
    async with (
        served.connect() as streamer,
        streamer.consumer(served.stream, options=options) as consumer,
    ):
        assert consumer.group == "mine"


async def members(redis: Place, consumer: Any, group: str) -> list[str]:
    found = await consumer.native.xinfo_consumers(redis.stream, group)
    return [one["name"].decode() for one in found]


async def test_redis_consumers_get_an_id_of_their_own(
    redis: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one, a Redis consumer's id is host, process, thread and time."""
    monkeypatch.setenv("HOST_ID", "host-7")
    options = in_group()
    async with redis.connect() as streamer:
        await send(streamer, redis.stream, "a", "b")
        async with streamer.consumer(redis.stream, options=options) as consumer:
            await take(consumer, 1)
            [name] = await members(redis, consumer, options.group or "")
    host, process, thread, time = name.split(":")
    assert host == "host-7"
    assert all(part.isdigit() for part in (process, thread, time))


async def test_redis_consumer_ids_can_be_assigned(redis: Place) -> None:
    """Redis requires consumers to assign their ids: it is an option."""
    options = replace(in_group(), redis=RedisOptions(consumer_id="packing-3"))
    async with redis.connect() as streamer:
        await send(streamer, redis.stream, "a")
        async with streamer.consumer(redis.stream, options=options) as consumer:
            await consumer.next(PATIENCE)
            assert await members(redis, consumer, options.group or "") == ["packing-3"]


async def test_redis_resumable_keeps_its_id(redis: Place) -> None:
    """A resumable consumer has an id like any other.

    Differs: its id is its group, so that entries which it had not acknowledged are its own again.
    """
    options = in_group(RESUMABLE, "mine")
    async with redis.connect() as streamer:
        await send(streamer, redis.stream, "a")
        async with streamer.consumer(redis.stream, options=options) as consumer:
            await consumer.next(PATIENCE)
            assert await members(redis, consumer, "mine") == ["mine"]
            await consumer.close(drain=False)


async def test_resumable_is_unsupported_on_pipes(stdio: Place) -> None:
    """`Resumable` is unsupported by Stdio."""
    async with stdio.connect() as streamer:
        with pytest.raises(Unsupported, match="cannot be replayed"):
            streamer.consumer(stdio.stream, options=ConsumerOptions(mode=RESUMABLE))


async def test_resumable_on_a_file_needs_a_store_of_offsets(file: Place, tmp_path: Path) -> None:
    """`Resumable` is unsupported by File.

    Differs: it works with an offset store; without one it is an error, because a file keeps no
    positions.
    """
    async with file.connect() as streamer:
        await send(streamer, file.stream, "a", "b")
        with pytest.raises(ConfigError, match="offsets="):
            streamer.consumer(file.stream, options=ConsumerOptions(mode=RESUMABLE))
        options = ConsumerOptions(
            mode=RESUMABLE, group="g", offsets=LockFileOffsetStore(tmp_path / "offsets")
        )
        for expected in ("a", "b"):
            async with streamer.consumer(file.stream, options=options) as consumer:
                assert await take(consumer, 1) == [expected]


async def test_load_balanced_needs_a_group(anywhere: Place) -> None:
    """A group is assigned by hand; without one it is an error."""
    async with anywhere.connect() as streamer:
        with pytest.raises(GroupNotSet, match="group="):
            streamer.consumer(anywhere.stream, options=ConsumerOptions(mode=Mode.LOAD_BALANCED))


async def test_load_balanced_members_divide_the_messages(anywhere: Place) -> None:
    """Members of a group divide the messages; how is the backend's business."""
    spread = anywhere.with_shards(2)
    options = in_group()
    if anywhere.backend == "stdio":
        options = replace(options, reset=Reset.LATEST)
    async with (
        spread.connect() as streamer,
        streamer.consumer(spread.stream, options=options) as one,
        streamer.consumer(spread.stream, options=options) as two,
    ):
        await send_everywhere(streamer, spread, "abcdef")
        found: list[Message] = []
        async with asyncio.timeout(PATIENCE):
            while len(found) < 12:
                found += [*await one.batch(12, 0.1), *await two.batch(12, 0.1)]
        assert sorted(message.text() for message in found) == sorted("abcdef" * 2)
        for consumer in (one, two):
            await consumer.close(drain=False)


async def test_a_consumer_has_streams(anywhere: Place) -> None:
    """A consumer subscribes to one stream or several; none is an error."""
    async with anywhere.connect() as streamer:
        with pytest.raises(StreamKeyEmpty):
            streamer.consumer()
        other = anywhere.another_stream()
        async with streamer.consumer(anywhere.stream, other) as consumer:
            await send(streamer, anywhere.stream, "a")
            await send(streamer, other, "b")
            assert sorted(await take(consumer, 2)) == ["a", "b"]


async def test_words_do_for_modes(file: Place) -> None:
    """Options are enumerations.

    Differs: the words for their members do as well.
    """
    options = ConsumerOptions(mode="real_time", reset="earliest")  # type: ignore[arg-type]  # words do
    assert options == EARLIEST
    async with file.connect() as streamer:
        await send(streamer, file.stream, "a")
        async with streamer.consumer(file.stream, options=options) as consumer:
            assert await take(consumer, 1) == ["a"]
            assert await nothing_more(consumer)
