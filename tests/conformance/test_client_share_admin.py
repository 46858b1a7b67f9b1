"""The Admin client's share group calls against Ottla's broker and Apache Kafka.

confluent-kafka's ShareConsumer is the member; every test has a topic and a group of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from confluent_kafka import Producer, ShareConsumer

import ottla
from ottla.client.admin.admin import Admin
from ottla.client.admin.resets import NothingToReset, ShiftBy, ToOffset
from ottla.client.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from ottla.client.admin.types import ShareGroupOffset

T = TypeVar("T")

# A member gets its partitions with the heartbeat after its first.
CONFIG = {
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "200",
}
PATIENCE = 40.0

_numbers = itertools.count()


@pytest.fixture(scope="module", params=["ottla", "apache-kafka"])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """The bootstrap address of a broker that serves for the whole module."""
    if request.param == "ottla":
        with ottla.EmbeddedBroker(config=CONFIG) as broker:
            yield broker.bootstrap
        return
    yield request.getfixturevalue("apache_bootstrap")


@pytest.fixture
async def admin(bootstrap: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap, api_timeout=20.0) as admin:
        yield admin


@pytest.fixture
async def topic(admin: Admin, bootstrap: str) -> str:
    """A topic with ten records in its first partition and none in its second."""
    name = f"share-admin-{next(_numbers)}"
    await admin.create_topic(name, partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(10):
        producer.produce(name, b"v", partition=0)
    assert producer.flush(20.0) == 0
    return name


@pytest.fixture
async def group(admin: Admin, topic: str) -> str:
    """The name of a group that is to read everything there is."""
    name = f"group-of-{topic}"
    await admin.alter_configs("group", name, {"share.auto.offset.reset": "earliest"})
    return name


async def eventually(ask: Callable[[], Awaitable[T]], is_so: Callable[[T], bool]) -> T:
    """The first answer that is so: members and brokers hear of changes after a while."""
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = await ask()
        if is_so(answer):
            return answer
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.05)


def member_of(bootstrap: str, group: str, topic: str) -> ShareConsumer:
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.subscribe([topic])
    return consumer


def read(consumer: ShareConsumer, count: int) -> list[Any]:
    """So many records, delivered and accepted."""
    records: list[Any] = []
    deadline = time.monotonic() + PATIENCE
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records came"
        records += [one for one in consumer.poll(0.5) if one.error() is None]
        consumer.commit_sync(20.0)
    return records


def places(offsets: list[ShareGroupOffset]) -> dict[int, tuple[int | None, int | None]]:
    return {one.partition: (one.start_offset, one.lag) for one in offsets}


async def test_a_group_with_a_member_is_listed_described_and_kept(
    admin: Admin, bootstrap: str, topic: str, group: str
) -> None:
    with member_of(bootstrap, group, topic) as consumer:
        await asyncio.to_thread(read, consumer, 10)
        [listed] = [one for one in await admin.list_groups(types=["share"]) if one.id == group]
        assert (listed.state, listed.type) == ("Stable", "share")
        [described] = await admin.describe_share_groups([group])
        assert (described.id, described.state, described.assignor) == (group, "Stable", "simple")
        [member] = described.members
        assert sorted(member.assignment) == [(topic, 0), (topic, 1)]
        assert (member.topics, member.client_id) == ([topic], "rdkafka")
        assert member.epoch == described.epoch == described.assignment_epoch
        offsets = await eventually(
            lambda: admin.list_share_group_offsets(group),
            # What is settled shows at once; the start offset is stored with the next settlement.
            lambda found: places(found)[0][1] == 0,
        )
        assert [(one.topic, one.partition) for one in offsets] == [(topic, 0), (topic, 1)]
        for refused in (
            admin.delete_share_group(group),
            admin.alter_share_group_offsets(group, {(topic, 0): 0}),
            admin.delete_share_group_offsets(group, [topic]),
        ):
            with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
                await refused


async def test_a_reset_group_reads_again_from_there(
    admin: Admin, bootstrap: str, topic: str, group: str
) -> None:
    with member_of(bootstrap, group, topic) as consumer:
        await asyncio.to_thread(read, consumer, 10)
    await eventually(
        lambda: admin.describe_share_groups([group]), lambda found: found[0].state == "Empty"
    )
    [move] = [
        one for one in await admin.plan_share_offset_reset(group, ToOffset(6)) if one.partition == 0
    ]
    assert (move.topic, move.after) == (topic, 6)
    await admin.alter_share_group_offsets(group, {(topic, 0): move.after})
    assert places(await admin.list_share_group_offsets(group))[0] == (6, 4)
    with member_of(bootstrap, group, topic) as consumer:
        again = await asyncio.to_thread(read, consumer, 4)
    assert [one.offset() for one in again] == [6, 7, 8, 9]


async def test_offsets_make_a_group_and_are_forgotten(admin: Admin, topic: str, group: str) -> None:
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        await admin.describe_share_groups([group])
    with pytest.raises(NothingToReset, match="name the topics"):
        await admin.plan_share_offset_reset(group, "latest")
    plan = await admin.plan_share_offset_reset(group, ToOffset(7), [topic])
    assert [(one.partition, one.before, one.after) for one in plan] == [(0, None, 7), (1, None, 0)]
    offsets = {(one.topic, one.partition): one.after for one in plan}
    await admin.alter_share_group_offsets(group, offsets)
    assert places(await admin.list_share_group_offsets(group)) == {0: (7, 3), 1: (0, 0)}
    shifted = await admin.plan_share_offset_reset(group, ShiftBy(-2))
    assert [(one.partition, one.before, one.after) for one in shifted] == [(0, 7, 5), (1, 0, 0)]
    await admin.delete_share_group_offsets(group, [topic])
    assert await admin.list_share_group_offsets(group) == []
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await admin.delete_share_group_offsets(group, [topic])
    assert await admin.delete_share_groups([group]) == {group: None}
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        await admin.describe_share_groups([group])


async def test_unknown_partitions_are_refused(admin: Admin, topic: str, group: str) -> None:
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await admin.alter_share_group_offsets(group, {(topic, 2): 0})


async def test_a_group_of_another_type_is_none_of_these_calls_business(
    admin: Admin, topic: str, group: str
) -> None:
    await admin.alter_group_offsets(group, {(topic, 0): 1})
    refused = (await admin.delete_share_groups([group], return_errors=True))[group]
    assert refused is not None
    assert refused.name == "GROUP_ID_NOT_FOUND"
    [kept] = await admin.list_group_offsets(group)
    assert kept.offset == 1


async def test_settings_of_a_share_group_are_group_settings(admin: Admin, group: str) -> None:
    await admin.alter_configs("group", group, {"share.record.lock.duration.ms": "20000"})
    wanted = ["share.auto.offset.reset", "share.record.lock.duration.ms"]
    found = await eventually(
        lambda: admin.describe_configs("group", group, wanted),
        lambda entries: not any(one.is_default for one in entries),
    )
    assert [one.value for one in found] == ["earliest", "20000"]
    with pytest.raises(KafkaError, match="INVALID_CONFIG"):
        await admin.alter_configs("group", group, {"share.record.lock.duration.ms": "1"})
