"""Moving: `assign`, `unassign`, `rewind` and `seek`"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest

from ottla.streams import BEGINNING, END, At, ConsumerOptions, FileOptions, Mode, Reset, Unsupported
from ottla.streams.errors import (
    CommitNotAllowed,
    SeekOutOfRange,
    ShardNotAssigned,
    StreamKeyEmpty,
    StreamKeyNotFound,
)
from tests.clauses.streams.places import (
    EARLIEST,
    PATIENCE,
    in_group,
    messages,
    new_name,
    nothing_more,
    send,
    take,
)

if TYPE_CHECKING:
    from tests.clauses.streams.places import Place

NOON: Final = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
HOURS: Final = [NOON + timedelta(hours=number) for number in range(4)]


async def test_assign_chooses_shards(stored: Place) -> None:
    """`assign` assigns the consumer to a shard; called again, to several."""
    spread = stored.with_shards(3)
    async with spread.connect() as streamer:
        for shard in range(3):
            await send(streamer, spread.stream, f"s{shard}", shard=shard)
        async with streamer.consumer(spread.stream, options=EARLIEST) as consumer:
            assert sorted(await take(consumer, 3)) == ["s0", "s1", "s2"]
            consumer.assign(spread.stream, 1)
            await consumer.rewind(BEGINNING)
            assert await take(consumer, 1) == ["s1"]
            assert await nothing_more(consumer)
            consumer.assign(spread.stream, 2)
            await consumer.rewind(BEGINNING)
            assert sorted(await take(consumer, 2)) == ["s1", "s2"]
            assert await nothing_more(consumer)


async def test_only_subscribed_streams_are_assigned(stored: Place) -> None:
    """You cannot assign a stream that has not been subscribed."""
    async with (
        stored.connect() as streamer,
        streamer.consumer(stored.stream) as consumer,
    ):
        with pytest.raises(StreamKeyNotFound, match="subscribe"):
            consumer.assign("another", 0)


async def test_assign_takes_effect_with_the_next_move(stored: Place) -> None:
    """`assign` takes effect on the next `seek` or `rewind`, not before."""
    spread = stored.with_shards(2)
    async with spread.connect() as streamer:
        for shard in range(2):
            await send(streamer, spread.stream, f"s{shard}", shard=shard)
        async with streamer.consumer(spread.stream, options=EARLIEST) as consumer:
            consumer.assign(spread.stream, 1)
            assert sorted(await take(consumer, 2)) == ["s0", "s1"]


async def test_unassign_takes_a_shard_away(stored: Place) -> None:
    """`unassign` unassigns a shard."""
    spread = stored.with_shards(2)
    async with spread.connect() as streamer:
        for shard in range(2):
            await send(streamer, spread.stream, f"s{shard}", shard=shard)
        async with streamer.consumer(spread.stream, options=EARLIEST) as consumer:
            for shard in range(2):
                consumer.assign(spread.stream, shard)
            consumer.unassign(spread.stream, 0)
            await consumer.rewind(BEGINNING)
            assert await take(consumer, 1) == ["s1"]
            assert await nothing_more(consumer)


async def test_unassign_of_what_is_not_assigned_is_an_error(stored: Place) -> None:
    """`unassign` returns `ConsumerNotAssigned` if the stream or shard is not assigned.

    Differs: the error is `ShardNotAssigned`, a kind of `StreamKeyNotFound`.
    """
    async with stored.connect() as streamer, streamer.consumer(stored.stream) as consumer:
        consumer.assign(stored.stream, 0)
        for stream, shard in ((stored.stream, 1), ("another", 0)):
            with pytest.raises(ShardNotAssigned):
                consumer.unassign(stream, shard)
        assert issubclass(ShardNotAssigned, StreamKeyNotFound)


async def test_the_last_shard_stays_assigned(stored: Place) -> None:
    """A consumer has at least one shard.

    Differs: the last one cannot be unassigned; SeaStreamer's code removes it and then complains.
    """
    async with stored.connect() as streamer:
        await send(streamer, stored.stream, "a")
        async with streamer.consumer(stored.stream) as consumer:
            consumer.assign(stored.stream, 0)
            with pytest.raises(StreamKeyEmpty):
                consumer.unassign(stored.stream, 0)
            await consumer.rewind(BEGINNING)
            assert await take(consumer, 1) == ["a"]


async def test_rewind_goes_to_a_sequence(stored: Place) -> None:
    """`rewind` goes to a particular sequence number.

    Differs: to the message that has it, on every backend; SeaStreamer's Redis skips it.
    """
    async with stored.connect() as streamer:
        receipts = await send(streamer, stored.stream, *"abcd")
        async with streamer.consumer(stored.stream, options=EARLIEST) as consumer:
            await take(consumer, 4)
            await consumer.rewind(At(receipts[2].seq))
            assert await take(consumer, 2) == ["c", "d"]


async def test_rewind_goes_to_the_beginning_and_the_end(stored: Place) -> None:
    """`rewind` goes to the beginning or to the end."""
    async with stored.connect() as streamer:
        await send(streamer, stored.stream, "a", "b")
        async with streamer.consumer(stored.stream) as consumer:
            await consumer.rewind(BEGINNING)
            assert await take(consumer, 2) == ["a", "b"]
            await consumer.rewind(BEGINNING)
            await consumer.rewind(END)
            await send(streamer, stored.stream, "c")
            assert await take(consumer, 1) == ["c"]


async def test_rewind_beyond_the_end_waits(stored: Place) -> None:
    """A consumer that is ahead of a live stream waits for what is to come."""
    async with stored.connect() as streamer:
        [receipt] = await send(streamer, stored.stream, "a")
        async with streamer.consumer(stored.stream) as consumer:
            await consumer.rewind(At(receipt.seq + 1))
            await send(streamer, stored.stream, "b")
            assert await take(consumer, 1) == ["b"]


async def test_rewind_commits_nothing(served: Place) -> None:
    """Rewinding moves this consumer only: what its group has committed stays."""
    options = in_group()
    async with served.connect() as streamer:
        await send(streamer, served.stream, "a", "b")
        async with streamer.consumer(served.stream, options=options) as consumer:
            await take(consumer, 2)
            await consumer.commit()
            await consumer.rewind(BEGINNING)
        async with streamer.consumer(served.stream, options=options) as consumer:
            assert await nothing_more(consumer)


async def test_kafka_rewind_without_an_assignment(kafka: Place) -> None:
    """On Kafka, shard zero is rewound if the consumer is not assigned.

    Differs: all shards that the consumer reads are, because the others would be forgotten.
    """
    spread = kafka.with_shards(2)
    async with spread.connect() as streamer:
        for shard in range(2):
            await send(streamer, spread.stream, f"s{shard}", shard=shard)
        async with streamer.consumer(spread.stream) as consumer:
            await consumer.rewind(BEGINNING)
            assert sorted(await take(consumer, 2)) == ["s0", "s1"]


async def test_a_move_that_is_cancelled_is_finished(stored: Place) -> None:
    """On Kafka, `rewind` and `seek` are not cancel safe.

    Differs: they are, on every backend. What was begun is finished in the background, and calls
    wait for it.
    """
    async with stored.connect() as streamer:
        await send(streamer, stored.stream, "a", "b")
        async with streamer.consumer(stored.stream) as consumer:
            moving = asyncio.create_task(consumer.rewind(BEGINNING))
            await asyncio.sleep(0)
            moving.cancel()
            assert await take(consumer, 2) == ["a", "b"]


async def test_redis_rewinds_within_a_millisecond(redis: Place) -> None:
    """A sequence of Redis comprises a timestamp: `rewind` is precise within a millisecond."""
    async with redis.connect() as streamer:
        receipts = await send(streamer, redis.stream, *"abc", timestamps=[NOON] * 3)
        assert {receipt.timestamp_ns for receipt in receipts} == {receipts[0].timestamp_ns}
        async with streamer.consumer(redis.stream) as consumer:
            await consumer.rewind(At(receipts[1].seq))
            assert await take(consumer, 2) == ["b", "c"]


async def test_files_move_all_streams_by_the_first(file: Place) -> None:
    """On a file, all streams move; the place is looked up in the first stream of the consumer."""
    other = new_name()
    async with file.connect() as streamer:
        [first] = await send(streamer, file.stream, "a1")
        await send(streamer, other, "b1")
        await send(streamer, file.stream, "a2")
        await send(streamer, other, "b2")
        async with streamer.consumer(file.stream, other) as consumer:
            await consumer.rewind(At(first.seq + 1))
            assert await take(consumer, 2) == ["a2", "b2"]


async def test_files_revoke_the_group_of_a_consumer_that_moves(file: Place) -> None:
    """On a file, `rewind` and `seek` revoke the group membership: it gets every message then."""
    options = in_group()
    for move in (At(1), NOON):
        async with file.connect() as streamer:
            stream = new_name()
            await send(streamer, stream, *"abcd")
            group = replace(options, group=new_name("group"))
            async with (
                streamer.consumer(stream, options=group) as mover,
                streamer.consumer(stream, options=group),
            ):
                assert mover.group == group.group
                await (mover.seek(move) if isinstance(move, datetime) else mover.rewind(move))
                assert mover.group is None
                assert await take(mover, 4) == [*"abcd"]
                with pytest.raises(CommitNotAllowed):
                    await mover.commit()


async def test_rewind_is_not_implemented_by_pipes(stdio: Place) -> None:
    """`rewind` is not implemented by Stdio.

    Differs: nor are `assign` and `unassign`, which could never take effect.
    """
    async with stdio.connect() as streamer, streamer.consumer(stdio.stream) as consumer:
        with pytest.raises(Unsupported, match="cannot be replayed"):
            await consumer.rewind(BEGINNING)
        with pytest.raises(Unsupported):
            consumer.assign(stdio.stream, 0)
        with pytest.raises(Unsupported):
            consumer.unassign(stdio.stream, 0)


async def test_seek_goes_to_the_first_message_that_is_later(stored: Place) -> None:
    """`seek` starts with the earliest message whose timestamp is later than `to`."""
    async with stored.connect() as streamer:
        await send(streamer, stored.stream, *"abcd", timestamps=HOURS)
        async with streamer.consumer(stored.stream) as consumer:
            await consumer.seek(HOURS[1])
            assert await take(consumer, 2) == ["c", "d"]
            await consumer.seek(HOURS[1] - timedelta(minutes=1))
            assert await take(consumer, 3) == ["b", "c", "d"]


async def test_seek_moves_all_streams(served: Place) -> None:
    """`seek` seeks all streams to the point in time."""
    other = served.another_stream()
    async with served.connect() as streamer:
        for stream in (served.stream, other):
            await send(streamer, stream, "old", "new", timestamps=HOURS[:2])
        async with streamer.consumer(served.stream, other) as consumer:
            await consumer.seek(HOURS[0])
            assert await take(consumer, 2) == ["new", "new"]
            assert await nothing_more(consumer)


async def test_seek_before_everything_and_after(stored: Place) -> None:
    """Before the first message it is the beginning; after the last one it waits for more."""
    async with stored.connect() as streamer:
        await send(streamer, stored.stream, "a", timestamps=HOURS[:1])
        async with streamer.consumer(stored.stream) as consumer:
            await consumer.seek(NOON - timedelta(days=1))
            assert await take(consumer, 1) == ["a"]
            await consumer.seek(HOURS[0])
            await send(streamer, stored.stream, "b", timestamps=HOURS[1:2])
            assert await take(consumer, 1) == ["b"]


async def test_a_file_that_is_not_followed_ends(file: Place) -> None:
    """A replay has an end: a place beyond it is an error, and the consumer stays where it is."""
    replay = ConsumerOptions(reset=Reset.EARLIEST, file=FileOptions(follow=False))
    async with file.connect() as streamer:
        await send(streamer, file.stream, "a")
        async with streamer.consumer(file.stream, options=replay) as consumer:
            with pytest.raises(SeekOutOfRange):
                await consumer.rewind(At(100))
            assert await take(consumer, 1) == ["a"]


async def test_kafka_seek_assigns_all_shards(kafka: Place) -> None:
    """On Kafka, `seek` assigns all shards to the consumer, whatever its group has given it."""
    spread = kafka.with_shards(2)
    options = in_group()
    async with spread.connect() as streamer:
        for shard in range(2):
            await send(streamer, spread.stream, f"s{shard}", shard=shard)
        async with (
            streamer.consumer(spread.stream, options=options) as consumer,
            streamer.consumer(spread.stream, options=options),
        ):
            await consumer.seek(NOON)
            assert sorted(await take(consumer, 2)) == ["s0", "s1"]


async def test_redis_seek_leaves_the_group(redis: Place) -> None:
    """On Redis, seeking detaches a consumer from its group: it is a RealTime consumer then."""
    options = in_group(Mode.RESUMABLE)
    async with redis.connect() as streamer:
        await send(streamer, redis.stream, "a")
        async with streamer.consumer(redis.stream, options=options) as consumer:
            assert consumer.group == options.group
            await consumer.seek(NOON)
            assert consumer.group is None
            assert (await messages(consumer, 1))[0].text() == "a"
            with pytest.raises(CommitNotAllowed, match="seek"):
                await consumer.commit()


async def test_seek_is_not_implemented_by_pipes(stdio: Place) -> None:
    """`seek` is not implemented by Stdio."""
    async with stdio.connect() as streamer, streamer.consumer(stdio.stream) as consumer:
        with pytest.raises(Unsupported, match="cannot be replayed"):
            await consumer.seek(NOON)


async def test_other_calls_wait_for_a_move(stored: Place) -> None:
    """A consumer is unusable until a move is finished.

    Differs: reads and commits wait for it.
    """
    async with stored.connect() as streamer:
        await send(streamer, stored.stream, "a")
        async with streamer.consumer(stored.stream) as consumer:
            moving = asyncio.create_task(consumer.rewind(BEGINNING))
            await asyncio.sleep(0)
            assert (await consumer.next(PATIENCE)).text() == "a"
            await moving
