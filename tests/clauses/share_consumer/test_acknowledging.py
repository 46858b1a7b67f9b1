"""Acknowledging: implicit and explicit, with the next poll or by a commit

Acknowledgements ride on the next fetch, or travel alone by `commit`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from ottla import Acknowledged, TopicPartition, errors
from tests.clauses.share_consumer.queue import PATIENCE, QUICK, offsets, poll_until

if TYPE_CHECKING:
    from ottla import EmbeddedBroker
    from tests.clauses.share_consumer.queue import Queue

BROKER_CONFIG: Final = QUICK
INVALID_RECORD_STATE: Final = 121


async def test_implicit_the_next_poll_accepts(queue: Queue) -> None:
    """In implicit mode the next fetch accepts what the poll before it has delivered."""
    await queue.produce(2)
    async with queue.consumer(close_implicit="release") as consumer:
        await poll_until(consumer, 2)
        assert await queue.lag() == 2
        await queue.produce(1)
        assert offsets(await poll_until(consumer, 1)) == [2]
    # The last record was released, the ones before it were accepted.
    assert await queue.lag() == 1


async def test_implicit_a_commit_accepts_earlier(queue: Queue) -> None:
    """In implicit mode `commit` accepts what was delivered, without a further poll."""
    await queue.produce(2)
    async with queue.consumer() as consumer:
        await poll_until(consumer, 2)
        assert await consumer.commit() == {TopicPartition(queue.topic, 0): None}
        assert await queue.lag() == 0


async def test_implicit_single_decisions_are_refused(queue: Queue) -> None:
    """`acknowledge` is for explicit mode."""
    await queue.produce(1)
    async with queue.consumer() as consumer:
        [record] = await poll_until(consumer, 1)
        with pytest.raises(errors.WrongAckMode, match='ack_mode="explicit"'):
            consumer.acknowledge(record, "accept")


async def test_explicit_decisions_ride_on_the_next_poll(queue: Queue) -> None:
    """In explicit mode `acknowledge` stages decisions, which the next fetch carries."""
    await queue.produce(1)
    async with queue.explicit() as consumer:
        [record] = await poll_until(consumer, 1)
        consumer.acknowledge(record)
        assert await queue.lag() == 1
        await queue.produce(1)
        assert offsets(await poll_until(consumer, 1)) == [1]
        assert await queue.lag() == 1


async def test_explicit_a_commit_sends_decisions_at_once(queue: Queue) -> None:
    """`commit` sends what is staged in a request of its own, and waits for the answer."""
    await queue.produce(1)
    async with queue.explicit() as consumer:
        [record] = await poll_until(consumer, 1)
        consumer.acknowledge(record)
        assert await consumer.commit() == {TopicPartition(queue.topic, 0): None}
        assert await queue.lag() == 0


async def test_a_commit_of_nothing_is_nothing(queue: Queue) -> None:
    """A commit without staged decisions sends nothing and succeeds."""
    async with queue.explicit() as consumer:
        assert await consumer.commit() == {}


async def test_accept_settles_a_record(queue: Queue) -> None:
    """ACCEPT: the record is done, and is never delivered again."""
    await _decide(queue, "accept")
    assert await queue.lag() == 0


async def test_release_delivers_again_with_a_higher_count(queue: Queue) -> None:
    """RELEASE: the record is delivered again, to any member, and the delivery count tells."""
    await _decide(queue, "release")
    async with queue.explicit() as other:
        [again] = await poll_until(other, 1)
        assert (again.offset, again.delivery_count) == (0, 2)


async def test_reject_gives_a_record_up(queue: Queue) -> None:
    """REJECT: the record is given up, and is never delivered again."""
    await _decide(queue, "reject")
    assert await queue.lag() == 0


async def test_renew_locks_for_another_while(queue: Queue) -> None:
    """RENEW (KIP-1222): the record stays locked for a further lock duration."""
    await queue.set(share_record_lock_duration_ms="2000")
    await queue.produce(2)
    async with queue.explicit() as consumer, queue.explicit() as other:
        renewed, not_renewed = await poll_until(consumer, 2)
        waiting = asyncio.create_task(poll_until(other, 1))
        while not waiting.done():
            consumer.acknowledge(renewed, "renew")
            await consumer.commit()
            await asyncio.wait([waiting], timeout=0.2)
        assert offsets(waiting.result()) == [not_renewed.offset]
        consumer.acknowledge(renewed)
        assert set((await consumer.commit()).values()) == {None}


async def test_an_unknown_decision_is_refused(queue: Queue) -> None:
    """Another type of acknowledgement is refused, and the record stays undecided."""
    await queue.produce(1)
    async with queue.explicit() as consumer:
        [record] = await poll_until(consumer, 1)
        with pytest.raises(errors.BadArgument, match="kind"):
            consumer.acknowledge(record, "maybe")  # type: ignore[arg-type]
        with pytest.raises(errors.UnacknowledgedRecords):
            await consumer.poll()


async def test_each_record_is_decided_alone(queue: Queue) -> None:
    """Decisions are about single offsets; neighbours may differ."""
    await queue.produce(3)
    async with queue.explicit() as consumer:
        one, two, three = await poll_until(consumer, 3)
        consumer.acknowledge(one, "accept")
        consumer.acknowledge(two, "release")
        consumer.acknowledge(three, "reject")
        await consumer.commit()
        [again] = await poll_until(consumer, 1)
        assert (again.offset, again.delivery_count) == (1, 2)


async def test_decisions_about_neighbours_are_one_range(queue: Queue) -> None:
    """Decisions are kept as ranges of offsets: topic, partition, first, last, type."""
    heard: list[Acknowledged] = []
    await queue.produce(4)
    async with queue.explicit(on_acknowledge=heard.append) as consumer:
        for record in await poll_until(consumer, 4):
            consumer.acknowledge(record, "accept" if record.offset < 3 else "reject")
        await consumer.commit()
    assert heard == [
        Acknowledged(queue.topic, 0, 0, 2, "accept", None),
        Acknowledged(queue.topic, 0, 3, 3, "reject", None),
    ]


async def test_until_it_is_sent_the_last_word_counts(queue: Queue) -> None:
    """A staged decision can be replaced."""
    await queue.produce(1)
    async with queue.explicit() as consumer:
        [record] = await poll_until(consumer, 1)
        consumer.acknowledge(record, "reject")
        consumer.acknowledge(record, "release")
        await consumer.commit()
        [again] = await poll_until(consumer, 1)
        assert again.delivery_count == 2


async def test_a_record_that_is_settled_cannot_be_decided_again(queue: Queue) -> None:
    """A decision that was sent is final for the caller."""
    await queue.produce(1)
    async with queue.explicit() as consumer:
        [record] = await poll_until(consumer, 1)
        consumer.acknowledge(record)
        await consumer.commit()
        with pytest.raises(errors.RecordNotHeld):
            consumer.acknowledge(record)


async def test_undecided_records_stop_the_next_poll(queue: Queue) -> None:
    """In explicit mode a poll with undecided records is an error that loses nothing."""
    await queue.produce(2)
    async with queue.explicit() as consumer:
        one, two = await poll_until(consumer, 2)
        consumer.acknowledge(one)
        with pytest.raises(errors.UnacknowledgedRecords, match="1"):
            await consumer.poll()
        consumer.acknowledge(two)
        await consumer.commit()
    assert await queue.lag() == 0


async def test_a_lock_that_ends_gives_the_record_back(queue: Queue) -> None:
    """What is not acknowledged within the lock duration is delivered again; a late word fails."""
    await queue.set(share_record_lock_duration_ms="1000")
    await queue.produce(1)
    async with queue.explicit() as slow, queue.explicit() as other:
        [record] = await poll_until(slow, 1)
        [again] = await poll_until(other, 1)
        assert (again.offset, again.delivery_count) == (0, 2)
        slow.acknowledge(record)
        with pytest.raises(errors.KafkaError) as refused:
            await slow.commit()
        assert refused.value.code == INVALID_RECORD_STATE


async def test_locks_can_be_kept_by_the_consumer(queue: Queue) -> None:
    """`auto_renew` keeps records locked while the caller works, however long that takes."""
    await queue.set(share_record_lock_duration_ms="2000")
    await queue.produce(2)
    one = {"max_poll_records": 1, "acquire_mode": "record_limit"}
    async with queue.explicit(auto_renew=True, **one) as consumer, queue.explicit() as slow:
        [kept] = await poll_until(consumer, 1)
        [lost] = await poll_until(slow, 1)
        async with queue.explicit() as other:
            assert offsets(await poll_until(other, 1)) == [lost.offset]
        consumer.acknowledge(kept)
        assert set((await consumer.commit()).values()) == {None}


async def test_the_lock_duration_can_be_read(queue: Queue) -> None:
    """The broker says with each fetch for how long records are locked."""
    await queue.set(share_record_lock_duration_ms="20000")
    await queue.produce(1)
    async with queue.explicit() as consumer:
        await poll_until(consumer, 1)
        assert consumer.acquisition_lock_timeout == 20.0


async def test_deliveries_are_limited(queue: Queue) -> None:
    """At the delivery count limit (5) a record is given up."""
    await queue.produce(1)
    counts = []
    async with queue.explicit() as consumer:
        async with asyncio.timeout(PATIENCE):
            while await queue.lag() != 0:
                for record in await consumer.poll(timeout=0.1):
                    counts.append(record.delivery_count)
                    consumer.acknowledge(record, "release")
                await consumer.commit()
    assert counts == [1, 2, 3, 4, 5]


async def test_a_failed_acknowledgement_is_told(queue: Queue, broker: EmbeddedBroker) -> None:
    """A refused acknowledgement is an error of the commit; `return_errors=True` returns it.

    The callback hears of every range.
    """
    heard: list[Acknowledged] = []
    await queue.produce(1)
    async with queue.explicit(on_acknowledge=heard.append) as consumer:
        [record] = await poll_until(consumer, 1)
        broker.delete_topic(queue.topic)
        consumer.acknowledge(record)
        outcome = await consumer.commit(return_errors=True)
        error = outcome[TopicPartition(queue.topic, 0)]
        assert isinstance(error, errors.KafkaError)
        assert [one.error for one in heard] == [error]


async def test_rows_of_a_table_are_acknowledged_like_records(queue: Queue) -> None:
    """Records can come as columns, and be acknowledged as such."""
    await queue.produce(3)
    async with queue.explicit() as consumer:
        table = await consumer.poll_arrow(timeout=PATIENCE)
        while table.num_rows < 3:
            consumer.acknowledge(table)
            table = await consumer.poll_arrow(timeout=PATIENCE)
        consumer.acknowledge(table)
        await consumer.commit()
    assert await queue.lag() == 0


async def _decide(queue: Queue, kind: str) -> None:
    await queue.produce(1)
    async with queue.explicit() as consumer:
        [record] = await poll_until(consumer, 1)
        consumer.acknowledge(record, kind)  # type: ignore[arg-type]
        assert set((await consumer.commit()).values()) == {None}
