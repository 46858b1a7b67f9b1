"""Groups: members, load balancing, acknowledgement, failover"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ottla.streams import AutoCommit, ConsumerOptions, FileOptions, Mode, RedisOptions, Reset
from ottla.streams.errors import AckNotAllowed, NoWildcardInGroup, SameGroupSameMode
from ottla.streams.types import WILDCARD
from tests.clauses.streams.places import (
    PATIENCE,
    in_group,
    messages,
    new_name,
    nothing_more,
    send,
    take,
    until,
)

if TYPE_CHECKING:
    from typing import Any

    from ottla.streams import Consumer, Message
    from tests.clauses.streams.places import Place

RESUMABLE = Mode.RESUMABLE


async def share(*consumers: Consumer, number: int) -> list[list[Message]]:
    """What each of them gets of so many messages, acknowledged."""
    found: list[list[Message]] = [[] for _ in consumers]
    async with asyncio.timeout(PATIENCE):
        while sum(map(len, found)) < number:
            for mine, consumer in zip(found, consumers, strict=True):
                for message in await consumer.batch(number, 0.05):
                    consumer.ack(message)
                    mine.append(message)
    return found


async def assigned(kafka: Place, options: ConsumerOptions, wanted: list[int]) -> None:
    """Until two members divide the stream's shards into parts of these sizes."""
    async with (
        kafka.connect() as streamer,
        streamer.consumer(kafka.stream, options=options) as one,
        streamer.consumer(kafka.stream, options=options) as two,
    ):
        async with asyncio.timeout(PATIENCE):
            while True:
                for shard in range(sum(wanted)):
                    await send(streamer, kafka.stream, "x", shard=shard)
                found = await share(one, two, number=sum(wanted))
                sizes = sorted((len({m.shard for m in mine}) for mine in found), reverse=True)
                if sizes == wanted:
                    assert {m.shard for m in found[0]}.isdisjoint({m.shard for m in found[1]})
                    return


async def test_a_group_keeps_its_state_on_the_server(served: Place) -> None:
    """A group is a string that clients go by: whoever reconnects with it goes on from its state."""
    options = in_group()
    async with served.connect() as streamer:
        await send(streamer, served.stream, "a", "b")
        async with streamer.consumer(served.stream, options=options) as consumer:
            assert await take(consumer, 1) == ["a"]
    async with (
        served.connect() as elsewhere,
        elsewhere.consumer(served.stream, options=options) as consumer,
    ):
        assert await take(consumer, 1) == ["b"]


async def test_groups_are_independent(served: Place) -> None:
    """The group is all that matters to the server: each has a state of its own."""
    async with served.connect() as streamer:
        await send(streamer, served.stream, "a")
        for _ in range(2):
            async with streamer.consumer(served.stream, options=in_group()) as consumer:
                assert await take(consumer, 1) == ["a"]


async def test_kafka_gives_a_message_to_one_member(kafka: Place) -> None:
    """If several consumers share a group, only one of them receives a message."""
    spread = kafka.with_shards(2)
    options = in_group()
    async with (
        spread.connect() as streamer,
        streamer.consumer(spread.stream, options=options) as one,
        streamer.consumer(spread.stream, options=options) as two,
    ):
        for shard in (0, 1):
            await send(streamer, spread.stream, *"abc", shard=shard)
        first, second = await share(one, two, number=6)
        assert sorted(m.text() for m in (*first, *second)) == ["a", "a", "b", "b", "c", "c"]


async def test_kafka_two_members_have_one_of_two_partitions_each(kafka: Place) -> None:
    """Each partition is assigned to one consumer of a group: of two partitions each gets one."""
    await assigned(kafka.with_shards(2), in_group(), [1, 1])


async def test_kafka_two_members_have_two_and_one_of_three_partitions(kafka: Place) -> None:
    """With two consumers and three partitions one has two and the other one."""
    await assigned(kafka.with_shards(3), in_group(), [2, 1])


async def test_kafka_members_without_a_partition_stand_by(kafka: Place) -> None:
    """With one partition one consumer gets all messages; another is in stand-by, and takes over."""
    options = in_group()
    async with kafka.connect() as streamer:
        first = streamer.consumer(kafka.stream, options=options)
        async with first, streamer.consumer(kafka.stream, options=options) as second:
            await send(streamer, kafka.stream, "a", "b")
            busy, idle = await share(first, second, number=2)
            assert sorted(map(len, (busy, idle))) == [0, 2]
            await (first if busy else second).close()
            await send(streamer, kafka.stream, "c")
            assert await take(second if busy else first, 1) == ["c"]


async def test_redis_members_take_what_they_ask_for(redis: Place) -> None:
    """In Redis it is first-ask-first-served: a consumer that asks more often gets more."""
    options = replace(in_group(), prefetch=1, redis=RedisOptions(batch=1, block=0.5))
    async with redis.connect() as streamer:
        await send(streamer, redis.stream, *map(str, range(30)))
        async with (
            streamer.consumer(redis.stream, options=options) as fast,
            streamer.consumer(redis.stream, options=options) as slow,
        ):
            mine = await messages(slow, 1)
            others: list[Message] = []
            async with asyncio.timeout(PATIENCE):
                while len(others) < 25:
                    others += await messages(fast, 1)
            assert {m.seq for m in mine}.isdisjoint({m.seq for m in others})


async def pending(redis: Place, consumer: Any, group: str | None) -> int:
    """How many entries the server waits for."""
    found = await consumer.native.xpending(redis.stream, group)
    number: int = found["pending"]
    return number


async def all_done(redis: Place, consumer: Any, group: str | None) -> bool:
    return await pending(redis, consumer, group) == 0


async def test_redis_acks_are_per_message_and_buffered(redis: Place) -> None:
    """`ack` is per message and does not block: it is buffered until it is committed."""
    options = replace(in_group(RESUMABLE), auto_commit=AutoCommit.DISABLED)
    async with redis.connect() as streamer:
        await send(streamer, redis.stream, "a", "b", "c")
        async with streamer.consumer(redis.stream, options=options) as consumer:
            first, _, third = [await consumer.next(PATIENCE) for _ in range(3)]
            consumer.ack(first)
            consumer.ack(third)
            assert await pending(redis, consumer, options.group) == 3
            await consumer.commit()
            assert await pending(redis, consumer, options.group) == 1
        async with streamer.consumer(redis.stream, options=options) as consumer:
            assert await take(consumer, 1) == ["b"]


async def test_rolling_commits_at_an_interval(redis: Place) -> None:
    """`Rolling`: what was acknowledged is committed at a regular interval."""
    options = replace(in_group(RESUMABLE), auto_commit_interval=0.02)
    async with redis.connect() as streamer:
        await send(streamer, redis.stream, "a")
        async with streamer.consumer(redis.stream, options=options) as consumer:
            await messages(consumer, 1)
            await until(lambda: all_done(redis, consumer, options.group))


async def test_rolling_commits_on_request(served: Place) -> None:
    """Acks are committed upon request.

    Differs: with `Rolling` too, where SeaStreamer refuses it.
    """
    options = in_group(RESUMABLE)
    async with served.connect() as streamer:
        await send(streamer, served.stream, "a")
        async with streamer.consumer(served.stream, options=options) as consumer:
            [message] = await messages(consumer, 1)
            assert [*(await consumer.commit()).values()] == [message.seq + 1]


async def test_disabled_commits_only_on_request(served: Place) -> None:
    """`Disabled`: nothing is acknowledged or committed by itself, not even at the close."""
    options = replace(in_group(RESUMABLE), auto_commit=AutoCommit.DISABLED)
    async with served.connect() as streamer:
        await send(streamer, served.stream, "a")
        for _ in range(2):
            async with streamer.consumer(served.stream, options=options) as consumer:
                assert await take(consumer, 1) == ["a"]


async def test_immediate_is_at_most_once(redis: Place) -> None:
    """`Immediate`: messages are acknowledged when they are fetched; nothing stays pending."""
    options = replace(in_group(RESUMABLE), auto_commit=AutoCommit.IMMEDIATE)
    async with redis.connect() as streamer:
        await send(streamer, redis.stream, "a", "b")
        async with streamer.consumer(redis.stream, options=options) as consumer:
            assert (await consumer.next(PATIENCE)).text() == "a"
            assert await pending(redis, consumer, options.group) == 0


async def test_delayed_acknowledges_some_time_after_delivery(redis: Place) -> None:
    """`Delayed`: messages are acknowledged after a delay, 5 seconds unless set, not by the user."""
    assert ConsumerOptions().auto_commit_delay == 5
    options = replace(
        in_group(RESUMABLE),
        auto_commit=AutoCommit.DELAYED,
        auto_commit_delay=0.2,
        auto_commit_interval=0.02,
    )
    async with redis.connect() as streamer:
        await send(streamer, redis.stream, "a")
        async with streamer.consumer(redis.stream, options=options) as consumer:
            message = await consumer.next(PATIENCE)
            with pytest.raises(AckNotAllowed, match="ROLLING or DISABLED"):
                consumer.ack(message)
            assert await pending(redis, consumer, options.group) == 1
            await until(lambda: all_done(redis, consumer, options.group))


async def test_the_default_acknowledges_with_the_next_request(served: Place) -> None:
    """There are several mechanisms to choose from, and `Delayed` is the default.

    Differs: the default is `NEXT`. A message is done when the next one is asked for, so that no
    delay has to be guessed; a failure repeats the message that was in hand.
    """
    assert ConsumerOptions().auto_commit is AutoCommit.NEXT
    options = replace(in_group(RESUMABLE), auto_commit=AutoCommit.NEXT)
    async with served.connect() as streamer:
        await send(streamer, served.stream, "a", "b", "c")
        with suppress(ZeroDivisionError):
            async with streamer.consumer(served.stream, options=options) as consumer:
                assert await take(consumer, 1) == ["a"]
                assert await take(consumer, 1) == ["b"]
                raise ZeroDivisionError
        async with streamer.consumer(served.stream, options=options) as consumer:
            assert await take(consumer, 2) == ["b", "c"]


async def test_the_mechanisms_work_on_every_store(kafka: Place) -> None:
    """Mechanisms of acknowledgement are Redis'.

    Differs: they are the same on all stores; on Kafka the committed position never passes a
    message that is not acknowledged.
    """
    options = replace(in_group(RESUMABLE), auto_commit=AutoCommit.DISABLED)
    async with kafka.connect() as streamer:
        await send(streamer, kafka.stream, "a", "b", "c")
        async with streamer.consumer(kafka.stream, options=options) as consumer:
            first, _, third = [await consumer.next(PATIENCE) for _ in range(3)]
            consumer.ack(third)
            assert [*consumer.positions().values()] == [0]
            consumer.ack(first)
            assert [*(await consumer.commit()).values()] == [1]


async def test_redis_claims_what_a_dead_member_has_left(redis: Place) -> None:
    """Messages of other consumers are claimed after a set time, assuming that they are dead."""
    options = in_group()
    claiming = replace(
        options, redis=RedisOptions(block=0.1, auto_claim_interval=0.1, auto_claim_idle=0.2)
    )
    async with redis.connect() as streamer:
        await send(streamer, redis.stream, "a")
        async with streamer.consumer(redis.stream, options=claiming) as consumer:
            await take(consumer, 1)
            await consumer.commit()
            client: Any = consumer.native
            await send(streamer, redis.stream, "b")
            # A member that reads and is never heard of again.
            await client.xgroup_createconsumer(redis.stream, options.group, "dead")
            last = (await client.xinfo_stream(redis.stream))["last-generated-id"]
            await client.xclaim(redis.stream, options.group, "dead", 0, [last], force=True)
            [message] = await messages(consumer, 1)
            assert message.text() == "b"


async def test_claiming_can_be_set_and_turned_off(redis: Place) -> None:
    """The time and the interval of claims are options; without an interval nothing is claimed."""
    defaults = RedisOptions()
    assert (defaults.auto_claim_interval, defaults.auto_claim_idle) == (30, 60)
    options = replace(
        in_group(), redis=RedisOptions(block=0.1, auto_claim_interval=None, auto_claim_idle=0.01)
    )
    async with redis.connect() as streamer:
        await send(streamer, redis.stream, "a")
        async with streamer.consumer(redis.stream, options=options) as consumer:
            client: Any = consumer.native
            await take(consumer, 1)
            await consumer.commit()
            last = (await client.xinfo_stream(redis.stream))["last-generated-id"]
            await client.xgroup_createconsumer(redis.stream, options.group, "dead")
            await client.xclaim(redis.stream, options.group, "dead", 0, [last], force=True)
            assert await nothing_more(consumer)


async def test_a_slow_member_keeps_what_it_works_on(redis: Place) -> None:
    """A consumer that takes longer than the idle time counts as dead.

    Differs: it renews what it has in hand, so that only dead members lose their messages.
    """
    options = replace(
        in_group(),
        prefetch=1,
        redis=RedisOptions(block=0.1, auto_claim_interval=0.05, auto_claim_idle=0.3),
    )
    async with redis.connect() as streamer:
        await send(streamer, redis.stream, "a")
        async with (
            streamer.consumer(redis.stream, options=options) as slow,
            streamer.consumer(redis.stream, options=options) as other,
        ):
            busy = await asyncio.wait_for(_first(slow, other), PATIENCE)
            idle = other if busy is slow else slow
            assert await idle.batch(1, 0.7) == []


async def _first(*consumers: Consumer) -> Consumer:
    """Who gets the message."""
    while True:
        for consumer in consumers:
            if await consumer.batch(1, 0.05):
                return consumer


async def test_a_consumer_that_closes_leaves_its_group(redis: Place) -> None:
    """A consumer has a name in its group.

    Differs: it leaves the group at the close if nothing is pending; SeaStreamer's names stay for
    ever.
    """
    options = in_group()
    async with redis.connect() as streamer:
        await send(streamer, redis.stream, "a")
        async with streamer.consumer(redis.stream, options=options) as consumer:
            client: Any = consumer.native
            await take(consumer, 1)
        assert await client.xinfo_consumers(redis.stream, options.group) == []


async def test_files_and_pipes_take_turns(file: Place, stdio: Place) -> None:
    """On Stdio and File only one of a group receives a message, in a round-robin fashion."""
    for here in (file, stdio):
        options = replace(in_group(), reset=Reset.LATEST)
        async with (
            here.connect() as streamer,
            streamer.consumer(here.stream, options=options) as one,
            streamer.consumer(here.stream, options=options) as two,
        ):
            await send(streamer, here.stream, *"abcdef")
            assert sorted(await take(one, 3) + await take(two, 3)) == [*"abcdef"]
            assert await nothing_more(one)
            assert await nothing_more(two)


async def test_members_of_a_file_group_begin_together(file: Place) -> None:
    """Members of a group share a reader: they must agree where it starts."""
    async with file.connect() as streamer:
        await send(streamer, file.stream, "a")
        options = in_group()
        async with streamer.consumer(file.stream, options=options):
            with pytest.raises(SameGroupSameMode):
                streamer.consumer(file.stream, options=replace(options, reset=Reset.LATEST))


async def test_all_streams_of_a_file_are_for_consumers_without_a_group(file: Place) -> None:
    """A consumer of a file may subscribe to all its streams, outside of groups only."""
    other = new_name()
    async with file.connect() as streamer:
        await send(streamer, file.stream, "a")
        await send(streamer, other, "b")
        replay = ConsumerOptions(reset=Reset.EARLIEST, file=FileOptions(follow=False))
        async with streamer.consumer(WILDCARD, options=replay) as consumer:
            assert [message.text() async for message in consumer] == ["a", "b"]
        with pytest.raises(NoWildcardInGroup):
            streamer.consumer(WILDCARD, options=in_group())
