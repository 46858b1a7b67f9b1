"""Joining: the options of a consumer, and becoming a member

The document's builder is our constructor with `async with`, or with `start` and `close`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from ottla import Admin, Security, ShareConsumer, TopicPartition, errors
from tests.clauses.share_consumer.queue import PATIENCE, QUICK, offsets, poll_until
from tests.support.share_member import ShareMember

if TYPE_CHECKING:
    from ottla import EmbeddedBroker
    from tests.clauses.share_consumer.queue import Queue

BROKER_CONFIG: Final = QUICK
GROUP_ID_NOT_FOUND: Final = 69
GROUP_MAX_SIZE_REACHED: Final = 81


async def test_opening_returns_a_member_of_the_group(queue: Queue) -> None:
    """Building a consumer joins the group: it is a member when the call returns."""
    async with queue.consumer() as consumer:
        assert await queue.members() == [consumer.member_id]


async def test_start_joins_without_a_block(queue: Queue) -> None:
    """`start` joins the group and returns as a member; whoever calls it calls `close`."""
    consumer = queue.consumer()
    await consumer.start()
    assert await queue.members() == [consumer.member_id]
    await consumer.close()
    assert await queue.members() == []


async def test_the_bootstrap_is_one_address_or_several(queue: Queue) -> None:
    """`bootstrap` says where the cluster is."""
    several = f"{queue.bootstrap},{queue.bootstrap}"
    for bootstrap in (queue.bootstrap, [queue.bootstrap], several):
        async with ShareConsumer(bootstrap, group=queue.group, topics=[queue.topic]) as consumer:
            assert consumer.member_id


async def test_nothing_at_the_bootstrap_address_is_an_error_that_names_it(queue: Queue) -> None:
    """Building fails if no broker can be reached."""
    consumer = ShareConsumer(
        "127.0.0.1:1", group=queue.group, topics=[queue.topic], api_timeout=0.2
    )
    with pytest.raises(errors.BrokerUnreachable, match=r"127\.0\.0\.1:1"):
        async with consumer:
            pass


async def test_the_client_id_is_seen_in_the_group(queue: Queue) -> None:
    """`client_id` is an option."""
    async with queue.consumer(client_id="packing-3"):
        [member] = (await queue.described()).members
        assert member.client_id == "packing-3"


async def test_the_client_id_has_a_default(queue: Queue) -> None:
    """Without `client_id` the name of the library is used."""
    async with queue.consumer():
        [member] = (await queue.described()).members
        assert member.client_id == "ottla-share-consumer"


def test_an_empty_group_is_refused_before_anything_is_sent() -> None:
    """`group_id` is required: an empty one is an error."""
    with pytest.raises(errors.EmptyGroupId, match="group="):
        ShareConsumer("127.0.0.1:1", group="", topics=["orders"])


async def test_without_topics_a_poll_is_refused(queue: Queue) -> None:
    """`subscribe` is required: an empty list is the error `NotSubscribed`.

    Differs: the error comes with the first poll, since `subscribe` may be called after opening.
    """
    async with queue.consumer(topics=[]) as consumer:
        with pytest.raises(errors.NotSubscribed, match="subscribe"):
            await consumer.poll()
        await queue.produce(1)
        consumer.subscribe([queue.topic])
        assert offsets(await poll_until(consumer, 1)) == [0]


@pytest.mark.parametrize("topics", ["orders", [""], [None]])
def test_topics_are_a_list_of_names(topics: object) -> None:
    """`subscribe` is a list of topic names."""
    with pytest.raises(errors.BadArgument, match="topics"):
        ShareConsumer("127.0.0.1:1", group="workers", topics=topics)  # type: ignore[arg-type]


async def test_the_ack_mode_is_implicit_by_default(queue: Queue) -> None:
    """`ack_mode` defaults to implicit."""
    await queue.produce(1)
    async with queue.consumer() as consumer:
        [record] = await poll_until(consumer, 1)
        with pytest.raises(errors.WrongAckMode, match="explicit"):
            consumer.acknowledge(record)


def test_an_unknown_ack_mode_is_refused() -> None:
    """`ack_mode` is one of two values."""
    with pytest.raises(errors.BadArgument, match="ack_mode: expected one of"):
        ShareConsumer("127.0.0.1:1", group="g", topics=["t"], ack_mode="auto")  # type: ignore[arg-type]


async def test_the_session_timeout_is_a_setting_of_the_group(queue: Queue) -> None:
    """`session_timeout` (45 s) is accepted, and reserved: the broker takes it from the group.

    Differs: there is no such option, as an option that does nothing misleads; the group has
    `share.session.timeout.ms`, 45 s by default.
    """
    async with Admin(queue.bootstrap) as admin:
        [entry] = await admin.describe_configs("group", queue.group, ["share.session.timeout.ms"])
    assert entry.value == "45000"
    with pytest.raises(TypeError, match="session_timeout"):
        queue.consumer(session_timeout=45)


async def test_the_heartbeat_interval_is_the_brokers(queue: Queue) -> None:
    """The interval that the broker names is used; the client's own is for brokers that name none.

    Differs: there is no `heartbeat_interval` option; without a word of the broker it is 3 s.
    """
    await queue.set(share_heartbeat_interval_ms="50", share_session_timeout_ms="1000")
    async with queue.consumer() as consumer:
        # A session ends before the 3 s of a client that was told nothing have passed.
        await _outlive_a_silent_member(queue, consumer)


async def test_the_heartbeat_interval_can_be_read(queue: Queue) -> None:
    """The join captures the heartbeat interval."""
    consumer = queue.consumer()
    assert consumer.heartbeat_interval is None
    async with consumer:
        assert consumer.heartbeat_interval == 0.1


async def test_security_is_an_option_and_plaintext_its_default(queue: Queue) -> None:
    """`security` is optional; without it connections are plaintext."""
    async with queue.consumer(security=Security("PLAINTEXT")) as consumer:
        assert consumer.member_id


async def test_the_member_id_is_the_clients_own(queue: Queue) -> None:
    """A member joins with an empty id and epoch 0 and takes the id that the broker answers with.

    Differs: the consumer makes its id, as KIP-932 has it since Kafka 4.1; it is known before the
    join, stays through rejoins, and a join can therefore not end without one.
    """
    consumer = queue.consumer()
    before = consumer.member_id
    assert len(before) == 22
    async with consumer:
        assert consumer.member_id == before
        assert await queue.members() == [before]


async def test_a_member_that_joins_without_an_id_is_given_one(queue: Queue) -> None:
    """The broker assigns an id to a member that has none (such as crabka's own client)."""
    with ShareMember(queue.bootstrap, queue.group, queue.topic) as member:
        member.member_id = ""
        answer = await asyncio.to_thread(member.join)
        assert answer.member_id
        assert answer.member_epoch > 0
        assert answer.heartbeat_interval_ms == 100


async def test_the_brokers_refusal_is_an_error_with_its_code(queue: Queue) -> None:
    """A join that the broker refuses fails with the broker's error code."""
    async with queue.consumer(), queue.consumer(), queue.consumer():
        with pytest.raises(errors.KafkaError, match="GROUP_MAX_SIZE_REACHED") as refused:
            async with queue.consumer():
                pass
        assert refused.value.code == GROUP_MAX_SIZE_REACHED
        assert len(await queue.members()) == 3


async def test_a_name_that_another_kind_of_group_has_is_refused(queue: Queue) -> None:
    """A join that the broker refuses fails, and says why: the name is that of a consumer group."""
    async with Admin(queue.bootstrap) as admin:
        await admin.alter_group_offsets(queue.group, {(queue.topic, 0): 0})
    with pytest.raises(errors.GroupOfAnotherKind, match="kind") as refused:
        async with ShareConsumer(queue.bootstrap, group=queue.group, topics=[queue.topic]):
            pass
    assert refused.value.code == GROUP_ID_NOT_FOUND


async def test_the_group_id_can_be_read(queue: Queue) -> None:
    """`group_id()` is the group."""
    async with queue.consumer() as consumer:
        assert consumer.group == queue.group


async def test_the_assignment_is_in_topic_names(queue: Queue) -> None:
    """Topic ids of the assignment are resolved to names; `assignment()` is a snapshot of pairs."""
    async with queue.consumer() as consumer:
        await _assigned(consumer, {(queue.topic, 0)})
        taken = consumer.assignment
        taken.clear()
        assert consumer.assignment == {TopicPartition(queue.topic, 0)}


async def test_the_assignment_follows_the_group(queue: Queue) -> None:
    """The heartbeats keep the assignment current."""
    async with queue.consumer() as consumer, Admin(queue.bootstrap) as admin:
        await _assigned(consumer, {(queue.topic, 0)})
        await admin.create_partitions(queue.topic, 2)
        await _assigned(consumer, {(queue.topic, 0), (queue.topic, 1)})


async def test_members_share_a_partition(queue: Queue) -> None:
    """A share group's members may be more than its partitions."""
    async with queue.consumer() as one, queue.consumer() as two:
        await _assigned(one, {(queue.topic, 0)})
        await _assigned(two, {(queue.topic, 0)})


async def test_a_topic_that_is_made_later_is_assigned_then(
    queue: Queue, broker: EmbeddedBroker
) -> None:
    """Ids that metadata does not know yet are looked up again."""
    name = f"{queue.topic}-later"
    async with queue.consumer(topics=[name]) as consumer:
        with pytest.raises(errors.UnknownTopic, match=name):
            await consumer.poll(timeout=PATIENCE)
        broker.create_topic(name)
        await _assigned(consumer, {(name, 0)})


async def test_the_member_epoch_advances_with_the_group(queue: Queue) -> None:
    """The member epoch is the broker's: 0 before the join, and advanced by heartbeats."""
    consumer = queue.consumer()
    assert consumer.member_epoch == 0
    async with consumer:
        before = consumer.member_epoch
        assert before > 0
        async with queue.consumer(), asyncio.timeout(PATIENCE):
            while consumer.member_epoch <= before:  # noqa: ASYNC110  # nobody tells
                await asyncio.sleep(0.02)
        [member] = (await queue.described()).members
        assert member.epoch in (consumer.member_epoch, consumer.member_epoch + 1)


async def test_heartbeats_keep_the_membership_without_polls(queue: Queue) -> None:
    """A background heartbeat keeps the membership alive, whether the caller polls or not."""
    await queue.set(share_heartbeat_interval_ms="50", share_session_timeout_ms="1000")
    async with queue.consumer() as consumer:
        await _outlive_a_silent_member(queue, consumer)


async def test_a_waiting_poll_does_not_delay_heartbeats(queue: Queue) -> None:
    """Heartbeats have a connection of their own, so that a parked fetch cannot hold them up."""
    await queue.set(share_heartbeat_interval_ms="50", share_session_timeout_ms="1000")
    async with queue.consumer(max_wait=PATIENCE - 1) as consumer:
        waiting = asyncio.create_task(consumer.poll(timeout=PATIENCE))
        await _outlive_a_silent_member(queue, consumer)
        assert not waiting.done()
        await queue.produce(1)
        assert offsets(await waiting) == [0]


async def test_a_fenced_member_joins_again_by_itself(queue: Queue) -> None:
    """The heartbeat loop owns the epoch: a member that was fenced starts over at epoch 0."""
    async with queue.consumer() as consumer:
        await _assigned(consumer, {(queue.topic, 0)})
        await asyncio.to_thread(_remove, queue, consumer.member_id)
        await _members(queue, [consumer.member_id])
        await queue.produce(1)
        assert offsets(await poll_until(consumer, 1)) == [0]


async def _outlive_a_silent_member(queue: Queue, consumer: ShareConsumer) -> None:
    """One that joins now and sends nothing more loses its membership; the consumer never does."""
    with ShareMember(queue.bootstrap, queue.group, queue.topic) as silent:
        await asyncio.to_thread(silent.join)
        async with asyncio.timeout(PATIENCE):
            while silent.member_id in (found := await queue.members()):
                assert consumer.member_id in found
                await asyncio.sleep(0.02)
        assert found == [consumer.member_id]


async def _members(queue: Queue, wanted: list[str]) -> None:
    async with asyncio.timeout(PATIENCE):
        while await queue.members() != wanted:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.02)


def _remove(queue: Queue, member_id: str) -> None:
    """Leave the group in the member's name."""
    with ShareMember(queue.bootstrap, queue.group, queue.topic, member_id=member_id) as member:
        assert member.leave().error_code == 0


async def _assigned(consumer: ShareConsumer, wanted: set[tuple[str, int]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while consumer.assignment != wanted:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.02)
