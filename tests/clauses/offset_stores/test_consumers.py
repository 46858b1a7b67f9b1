"""Consumers with a store: the broker keeps nothing"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from ottla import Admin, Producer
from ottla.offsets import (
    CollectingCommitHook,
    HookedOffsetStore,
    LockFileOffsetStore,
    MemoryOffsetStore,
    OffsetConflict,
    OffsetCorrupt,
    OffsetKey,
    SqliteOffsetStore,
    assign_range,
    assign_round_robin,
    assign_sticky,
)
from ottla.streams import At, AutoCommit, ConsumerOptions, Mode, connect
from ottla.streams.errors import PositionOutOfRange

if TYPE_CHECKING:
    from pathlib import Path

    from ottla import EmbeddedBroker
    from ottla.offsets import OffsetStore
    from ottla.streams import SeqPos

PATIENCE: Final = 30.0


def url(broker: EmbeddedBroker, topic: str) -> str:
    return f"kafka://{broker.bootstrap}/{topic}"


def damage(directory: Path) -> None:
    [file] = directory.rglob("*.offset")
    file.write_text("damaged")


async def produce(broker: EmbeddedBroker, topic: str, count: int) -> None:
    async with Producer(broker.bootstrap) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number)


async def consume(
    broker: EmbeddedBroker,
    topic: str,
    store: OffsetStore,
    count: int,
    *,
    app: str = "billing",
    start: SeqPos | None = None,
) -> list[int]:
    """Read so many messages, mark them as done, and close."""
    options = ConsumerOptions(mode=Mode.RESUMABLE, group=app, offsets=store)
    if start is not None:
        options = ConsumerOptions(
            mode=Mode.RESUMABLE, group=app, offsets=store, start_position=start
        )
    async with (
        connect(url(broker, topic)) as streamer,
        streamer.consumer(options=options) as consumer,
    ):
        return [(await consumer.next(PATIENCE)).seq for _ in range(count)]


async def test_a_consumer_resumes_from_its_store(
    broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    """Consumers resume from their last position after a restart, from a store of their own."""
    await produce(broker, topic, 6)
    assert await consume(broker, topic, LockFileOffsetStore(tmp_path), 3) == [0, 1, 2]
    assert await consume(broker, topic, LockFileOffsetStore(tmp_path), 3) == [3, 4, 5]


async def test_the_broker_keeps_no_offsets(broker: EmbeddedBroker, topic: str) -> None:
    """The broker is stateless: offsets of such a consumer are not stored there.

    Differs: on Kafka it still is a member of a group, which divides the partitions.
    """
    await produce(broker, topic, 3)
    await consume(broker, topic, MemoryOffsetStore(), 3, app="stateless")
    async with Admin(broker.bootstrap) as admin:
        assert await admin.list_group_offsets("stateless") == []


async def test_another_machine_goes_on_with_the_same_store(
    broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    """Horizontal scaling needs no state of a worker: whoever has the store can go on."""
    await produce(broker, topic, 4)
    first, second = (SqliteOffsetStore(tmp_path / "offsets.db") for _ in range(2))
    assert await consume(broker, topic, first, 2) == [0, 1]
    assert await consume(broker, topic, second, 2) == [2, 3]


async def test_consumers_of_two_names_are_independent(broker: EmbeddedBroker, topic: str) -> None:
    """An offset belongs to a consumer: another name starts for itself."""
    await produce(broker, topic, 2)
    store = MemoryOffsetStore()
    assert await consume(broker, topic, store, 2, app="one") == [0, 1]
    assert await consume(broker, topic, store, 2, app="two") == [0, 1]
    assert set(await store.list_all()) == {OffsetKey("one", topic), OffsetKey("two", topic)}


async def test_without_an_offset_a_consumer_begins_where_it_is_told(
    broker: EmbeddedBroker, topic: str
) -> None:
    """On the first run a consumer begins at 0, or where its program says."""
    await produce(broker, topic, 3)
    assert await consume(broker, topic, MemoryOffsetStore(), 1) == [0]
    assert await consume(broker, topic, MemoryOffsetStore(), 1, start=At(2)) == [2]


async def test_what_is_stored_is_the_next_to_read(broker: EmbeddedBroker, topic: str) -> None:
    """A program saves the new offset after it has processed records.

    Differs: a consumer does so by itself, and what it stores is the position, the next to read.
    """
    await produce(broker, topic, 3)
    store = MemoryOffsetStore()
    await consume(broker, topic, store, 3)
    assert await store.list_all() == {OffsetKey("billing", topic): 3}


async def test_work_that_is_not_done_is_not_saved(broker: EmbeddedBroker, topic: str) -> None:
    """`save` is called after records were processed, so that a crash repeats and loses none."""
    await produce(broker, topic, 3)
    store = MemoryOffsetStore()
    options = ConsumerOptions(
        mode=Mode.RESUMABLE, group="billing", offsets=store, auto_commit=AutoCommit.DISABLED
    )
    async with connect(url(broker, topic)) as streamer:
        async with streamer.consumer(options=options) as consumer:
            messages = [await consumer.next(PATIENCE) for _ in range(3)]
            consumer.ack(messages[0])
            consumer.ack(messages[2])
            await consumer.commit()
        async with streamer.consumer(options=options) as consumer:
            assert (await consumer.next(PATIENCE)).seq == 1


async def test_hooks_hear_of_what_a_consumer_commits(broker: EmbeddedBroker, topic: str) -> None:
    """A store with hooks is a store: consumers commit through it."""
    await produce(broker, topic, 2)
    hook = CollectingCommitHook()
    await consume(broker, topic, HookedOffsetStore(MemoryOffsetStore(), hook), 2)
    assert [one.position for one in hook.commits()] == [2]


async def test_an_offset_that_cannot_be_loaded_stops_the_start(
    broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    """Errors of a store are errors of the consumer.

    Differs: LANCE starts without an offset if the store fails, and reads everything again.
    """
    store = LockFileOffsetStore(tmp_path)
    await store.save(OffsetKey("billing", topic), 1)
    damage(tmp_path)
    with pytest.raises(OffsetCorrupt):
        await consume(broker, topic, store, 1)


async def test_an_offset_beyond_the_end_is_an_error(broker: EmbeddedBroker, topic: str) -> None:
    """A stored offset that the log does not have is reset.

    Differs: it is a `PositionOutOfRange` unless `on_out_of_range` says what to do, because it means
    that the log or the store is not the one that was meant.
    """
    await produce(broker, topic, 1)
    store = MemoryOffsetStore()
    await store.save(OffsetKey("billing", topic), 100)
    with pytest.raises(PositionOutOfRange):
        await consume(broker, topic, store, 1)


async def test_two_workers_cannot_both_go_on() -> None:
    """Offsets are stored by consumer.

    Differs: a worker that was replaced is refused with an `OffsetConflict` if it saves what it
    expects to replace.
    """
    store, key = MemoryOffsetStore(), OffsetKey("billing", "orders")
    old = new = await store.load(key)
    await store.save(key, 5, expected=new)
    with pytest.raises(OffsetConflict):
        await store.save(key, 2, expected=old)


def test_topics_are_divided_between_workers() -> None:
    """Workers divide topics among themselves: by turns, by ranges, or so that few move."""
    topics = [f"t{number}" for number in range(1, 8)]
    workers = ["w1", "w2", "w3"]
    assert assign_round_robin(topics[:6], workers) == {
        "w1": ["t1", "t4"],
        "w2": ["t2", "t5"],
        "w3": ["t3", "t6"],
    }
    assert [len(own) for own in assign_range(topics, workers).values()] == [3, 2, 2]
    before = assign_round_robin(topics[:6], workers)
    after = assign_sticky(topics[:6], ["w1", "w2"], before)
    assert set(before["w1"]) <= set(after["w1"])
    assert sorted(after["w1"] + after["w2"]) == topics[:6]


async def test_stores_of_asyncio_do_not_block_the_event_loop(tmp_path: Path) -> None:
    """A store blocks its caller.

    Differs: those without `Sync` in their names are for asyncio; they wait in a thread.
    """
    store = LockFileOffsetStore(tmp_path)
    keys = [OffsetKey("billing", f"orders-{number}") for number in range(8)]
    await asyncio.gather(*(store.save(key, 1) for key in keys))
    assert await store.list_all() == dict.fromkeys(keys, 1)
