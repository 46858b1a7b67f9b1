"""The life of a state: made at a join, kept, deleted

The group's coordinator drives the persister: it initializes what is newly assigned, and deletes
what is given up.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from ottla import Admin, EmbeddedBroker, Producer, errors
from tests.clauses.persister.state import INVALID_REQUEST, SNAPSHOT, Batch, ShareState, kinds
from tests.clauses.share_consumer.queue import PATIENCE, QUICK, Queue, offsets, poll_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BROKER_CONFIG: Final = QUICK


@pytest.fixture
def queue(broker: EmbeddedBroker, topic: str, group: str) -> Queue:
    return Queue(broker.bootstrap, topic, group)


async def test_joining_initializes_what_is_assigned(queue: Queue, state: ShareState) -> None:
    """When a group joins a topic, the state of each newly assigned partition is initialized."""
    assert state.read().error_code == INVALID_REQUEST
    async with queue.consumer():
        await _until(lambda: state.read().error_code == 0)
        found = state.read()
        assert (found.state_epoch, found.start_offset) == (1, -1)  # the group's first epoch


async def test_a_topic_that_is_added_later_is_initialized_then(
    queue: Queue, state: ShareState, broker: EmbeddedBroker
) -> None:
    """Only what is new is initialized; the state of other topics stays as it is."""
    other = f"{queue.topic}-more"
    broker.create_topic(other)
    async with queue.consumer() as consumer:
        await _until(lambda: state.read().error_code == 0)
        before = state.read().state_epoch
        consumer.subscribe([queue.topic, other])
        added = ShareState(queue.bootstrap, queue.group, other)
        await _until(lambda: added.read().error_code == 0)
        assert added.read().state_epoch > before
        assert state.read().state_epoch == before
        added.close()


async def test_partitions_that_are_added_later_are_initialized_then(
    queue: Queue, state: ShareState
) -> None:
    """New partitions of a topic get a state of their own."""
    async with queue.consumer(), Admin(queue.bootstrap) as admin:
        await _until(lambda: state.read().error_code == 0)
        await admin.create_partitions(queue.topic, 2)
        await _until(lambda: state.read(partition=1).error_code == 0)


async def test_the_start_is_written_when_it_is_resolved(queue: Queue, state: ShareState) -> None:
    """A state is initialized without a start offset, which the first fetch resolves.

    Differs: the resolved start is written at once, so that a restart before the first
    acknowledgement skips no records.
    """
    await queue.produce(2)
    async with queue.consumer(auto_offset_reset=None) as consumer:
        while state.read().start_offset != 2:
            assert await consumer.poll(timeout=0.05) == []


async def test_acknowledgements_are_written_before_they_are_answered(
    queue: Queue, state: ShareState
) -> None:
    """What a member is told of its acknowledgements is stored."""
    await queue.produce(3)
    async with queue.explicit() as consumer:
        one, two, _ = await poll_until(consumer, 3)
        consumer.acknowledge(two, "accept")
        consumer.acknowledge(one, "release")
        await consumer.commit()
        assert state.batches() == [Batch(0, 0, 0, 1), Batch(1, 1, 2, 1)]


async def test_a_topic_that_leaves_the_subscription_keeps_its_state(
    queue: Queue, broker: EmbeddedBroker
) -> None:
    """When a topic leaves the subscription its state is deleted.

    Differs: it is kept until the group, its offsets or the topic are deleted, as in Kafka; members
    that subscribe again go on where they were.
    """
    other = f"{queue.topic}-other"
    broker.create_topic(other)
    await queue.produce(2)
    async with queue.consumer() as consumer:
        await poll_until(consumer, 2)
        await consumer.commit()
        consumer.subscribe([other])
        async with Producer(queue.bootstrap) as producer:
            await producer.send(other, b"v")
        await poll_until(consumer, 1)
        consumer.subscribe([queue.topic])
        await queue.produce(1)
        assert offsets(await poll_until(consumer, 1)) == [2]


async def test_an_empty_group_keeps_its_state(queue: Queue, state: ShareState) -> None:
    """When the group empties its state is deleted.

    Differs: it is kept, as in Kafka, since members come back after a deployment.
    """
    await queue.produce(2)
    async with queue.consumer() as consumer:
        await poll_until(consumer, 2)
    assert (await queue.described()).state == "Empty"
    assert state.read().error_code == 0
    assert await queue.lag() == 0


async def test_deleting_the_group_deletes_its_state(queue: Queue, state: ShareState) -> None:
    """A group that is deleted has no state left, and starts over if it is made again."""
    await queue.produce(1)
    async with queue.consumer() as consumer:
        await poll_until(consumer, 1)
    async with Admin(queue.bootstrap) as admin:
        await admin.delete_share_group(queue.group)
    assert state.read().error_code == INVALID_REQUEST
    async with queue.consumer() as consumer:
        assert offsets(await poll_until(consumer, 1)) == [0]


async def test_deleting_offsets_deletes_the_state(queue: Queue, state: ShareState) -> None:
    """The delete operation is offered to administrators, topic by topic."""
    await queue.produce(1)
    async with queue.consumer() as consumer:
        await poll_until(consumer, 1)
    async with Admin(queue.bootstrap) as admin:
        await admin.delete_share_group_offsets(queue.group, [queue.topic])
    assert state.read().error_code == INVALID_REQUEST


async def test_deleting_the_topic_deletes_its_state(
    queue: Queue, state: ShareState, broker: EmbeddedBroker
) -> None:
    """A topic takes its state along; one of the same name begins anew."""
    await queue.produce(1)
    async with queue.consumer() as consumer:
        await poll_until(consumer, 1)
    broker.delete_topic(queue.topic)
    await _until(lambda: kinds(state.records())[-1] == (SNAPSHOT, None))
    broker.create_topic(queue.topic)
    await queue.produce(1)
    async with queue.consumer() as consumer:
        [again] = await poll_until(consumer, 1)
        assert (again.offset, again.delivery_count) == (0, 1)


async def test_a_group_with_members_is_not_deleted(queue: Queue, state: ShareState) -> None:
    """A state that is in use is not deleted."""
    async with queue.consumer():
        await _until(lambda: state.read().error_code == 0)
        async with Admin(queue.bootstrap) as admin:
            with pytest.raises(errors.KafkaError, match="NON_EMPTY_GROUP"):
                await admin.delete_share_group(queue.group)
        assert state.read().error_code == 0


async def test_a_new_start_has_a_new_state_epoch(queue: Queue, state: ShareState) -> None:
    """A state that is initialized anew fences what was read before."""
    await queue.produce(5)
    async with queue.consumer() as consumer:
        await poll_until(consumer, 5)
    before = state.read().state_epoch
    async with Admin(queue.bootstrap) as admin:
        await admin.alter_share_group_offsets(queue.group, {(queue.topic, 0): 3})
    found = state.read()
    assert (found.start_offset, list(found.state_batches)) == (3, [])
    assert found.state_epoch > before
    async with queue.consumer() as consumer:
        assert offsets(await poll_until(consumer, 2)) == [3, 4]


async def test_a_restart_keeps_what_was_acknowledged_and_forgets_locks(tmp_path: Path) -> None:
    """Share state is durable: a restart loses locks and nothing else."""
    async with EmbeddedBroker(tmp_path, config=QUICK) as broker:
        broker.create_topic("orders")
        queue = Queue(broker.bootstrap, "orders", "workers")
        await queue.produce(4)
        consumer = queue.explicit()
        async with consumer:
            one, two, _, _ = await poll_until(consumer, 4)
            consumer.acknowledge(one, "accept")
            consumer.acknowledge(two, "release")
            await consumer.commit()
            await asyncio.to_thread(broker.stop)
            await consumer.close(timeout=0.1)
    async with EmbeddedBroker(tmp_path, config=QUICK) as broker:
        queue = Queue(broker.bootstrap, "orders", "workers")
        async with queue.explicit() as consumer:
            found = await poll_until(consumer, 3)
        assert [(one.offset, one.delivery_count) for one in found[:1]] == [(1, 2)]
        assert offsets(found) == [1, 2, 3]


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.02)
