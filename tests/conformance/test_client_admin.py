"""The Admin client against Ottla's broker and Apache Kafka, with a foreign client as witness.

`admin_bootstrap` says which broker; every test makes topics and groups of its own, so that one
broker serves them all.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import pytest
from confluent_kafka import Consumer, Producer

import ottla
from ottla import Timestamp
from ottla.client.admin.admin import Admin
from ottla.client.admin.resets import NothingToReset, ShiftBy, ToOffset
from ottla.client.admin.types import ConfigSource, NodeState
from ottla.client.cluster.cluster import Client, Coordinator
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import KafkaError, PartialFailure, UnknownTopic, UnsupportedApi, check
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from ottla.client.admin.resets import ResetTarget

T = TypeVar("T")

_numbers = itertools.count()

# The first versions that Kafka 4 serves (-1: as if the API were not there).
OLDEST = {
    2: 1,  # ListOffsets
    3: 4,  # Metadata
    8: 2,  # OffsetCommit
    9: 2,  # OffsetFetch
    10: 0,  # FindCoordinator
    15: 0,  # DescribeGroups
    16: 0,  # ListGroups
    19: 4,  # CreateTopics
    20: 1,  # DeleteTopics
    21: 0,  # DeleteRecords
    32: 1,  # DescribeConfigs
    37: 0,  # CreatePartitions
    42: 0,  # DeleteGroups
    44: 0,  # IncrementalAlterConfigs
    69: -1,  # ConsumerGroupDescribe
}

LONG_AGO = 1_600_000_000_000


@pytest.fixture(scope="module", params=["ottla", "apache-kafka"])
def admin_bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """The bootstrap address of a broker that serves for the whole module."""
    if request.param == "ottla":
        with ottla.EmbeddedBroker() as broker:
            yield broker.bootstrap
        return
    yield request.getfixturevalue("apache_bootstrap")


@pytest.fixture
async def admin(admin_bootstrap: str) -> AsyncIterator[Admin]:
    async with Admin(admin_bootstrap, api_timeout=20.0) as admin:
        yield admin


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"admin-{next(_numbers)}"


@pytest.fixture
async def topic(admin: Admin, name: str) -> str:
    await admin.create_topic(name, partitions=2)
    return name


async def eventually(ask: Callable[[], Awaitable[T]], is_so: Callable[[T], bool]) -> T:
    """The first answer that is so: Kafka's brokers hear of a change after it has been answered."""
    deadline = time.monotonic() + 20.0
    while True:
        answer = await ask()
        if is_so(answer):
            return answer
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.02)


async def names_of_topics(admin: Admin) -> set[str]:
    return {one.name for one in await admin.list_topics()}


def produce(bootstrap: str, topic: str, partition: int, count: int) -> None:
    """Records with the times LONG_AGO, LONG_AGO + 1, ..."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, b"v", partition=partition, timestamp=LONG_AGO + number)
    assert producer.flush(20.0) == 0


def commit_everything(
    bootstrap: str, group: str, topic: str, count: int, protocol: str
) -> Consumer:
    """A member of the group that has read `count` records and committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    read = 0
    deadline = time.monotonic() + 30.0
    while read < count:
        assert time.monotonic() < deadline
        message = consumer.poll(1.0)
        read += message is not None and message.error() is None
    consumer.commit(asynchronous=False)
    return consumer


async def test_a_created_topic_is_listed_and_described(admin: Admin, name: str) -> None:
    made = await admin.create_topic(name, partitions=3, configs={"retention.ms": "1234"})
    assert (made.name, made.partitions, made.replication_factor) == (name, 3, 1)
    await eventually(lambda: names_of_topics(admin), lambda names: name in names)
    listed = {one.name: one for one in await admin.list_topics()}
    assert (listed[name].partitions, listed[name].id) == (3, made.id)
    [described] = await admin.describe_topics([name], configs=True)
    assert [one.index for one in described.partitions] == [0, 1, 2]
    [broker] = (await admin.describe_cluster()).brokers
    assert {one.leader for one in described.partitions} == {broker.id}
    settings = {one.name: one for one in described.configs}
    assert settings["retention.ms"].value == "1234"
    assert settings["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC
    assert settings["cleanup.policy"].is_default


async def test_defaults_of_the_broker_fill_in(admin: Admin, name: str) -> None:
    made = await admin.create_topic(name)
    assert (made.partitions, made.replication_factor) == (1, 1)


async def test_a_topic_that_is_only_validated_is_not_made(admin: Admin, name: str) -> None:
    await admin.create_topic(name, partitions=1, validate_only=True)
    await admin.create_topic(f"{name}-after-it", partitions=1)
    names = await eventually(
        lambda: names_of_topics(admin), lambda found: f"{name}-after-it" in found
    )
    assert name not in names


async def test_a_second_creation_is_refused_with_a_way_out(admin: Admin, topic: str) -> None:
    with pytest.raises(KafkaError, match="already exists") as refused:
        await admin.create_topic(topic)
    assert refused.value.name == "TOPIC_ALREADY_EXISTS"
    assert refused.value.hint is not None


async def test_a_bad_name_and_a_bad_setting_are_refused(admin: Admin, name: str) -> None:
    with pytest.raises(KafkaError) as bad_name:
        await admin.create_topic("no/slashes", partitions=1)
    assert bad_name.value.name == "INVALID_TOPIC_EXCEPTION"
    with pytest.raises(KafkaError) as bad_setting:
        await admin.create_topic(name, configs={"retention.ms": "soon"})
    assert bad_setting.value.name == "INVALID_CONFIG"


async def test_topics_are_deleted_one_by_one(admin: Admin, topic: str) -> None:
    missing = f"{topic}-missing"
    with pytest.raises(PartialFailure, match=r"1 of 2 failed: .*-missing") as refused:
        await admin.delete_topics([topic, missing])
    assert list(refused.value.failures) == [missing]
    with pytest.raises(UnknownTopic, match="delete topic"):
        await admin.delete_topics([missing])
    outcome = await admin.delete_topics([missing], return_errors=True)
    assert isinstance(outcome[missing], UnknownTopic)
    await eventually(lambda: names_of_topics(admin), lambda names: topic not in names)


async def test_a_topic_grows_and_does_not_shrink(admin: Admin, topic: str) -> None:
    await admin.create_partitions(topic, 5)
    await eventually(
        lambda: admin.describe_topics([topic]), lambda found: len(found[0].partitions) == 5
    )
    with pytest.raises(KafkaError) as refused:
        await admin.create_partitions(topic, 1)
    assert refused.value.name == "INVALID_PARTITIONS"


async def test_a_missing_topic_is_named(admin: Admin, name: str) -> None:
    with pytest.raises(KafkaError, match=name) as missing:
        await admin.describe_topics([name])
    assert missing.value.name == "UNKNOWN_TOPIC_OR_PARTITION"


async def test_settings_change_one_at_a_time(admin: Admin, topic: str) -> None:
    keys = ["retention.ms", "segment.bytes"]
    await admin.alter_configs("topic", topic, {"retention.ms": "1000"})
    await admin.alter_configs("topic", topic, {"segment.bytes": "2000000"})
    await eventually(
        lambda: admin.describe_configs("topic", topic, keys),
        lambda found: [one.value for one in found] == ["1000", "2000000"],
    )
    await admin.alter_configs("topic", topic, {"retention.ms": None})
    retention, segment = await eventually(
        lambda: admin.describe_configs("topic", topic, keys), lambda found: found[0].is_default
    )
    assert (retention.name, segment.value) == ("retention.ms", "2000000")


async def test_settings_of_brokers_and_groups(admin: Admin, name: str) -> None:
    [broker] = (await admin.describe_cluster()).brokers
    [found] = await admin.describe_configs("broker", str(broker.id), ["log.retention.ms"])
    assert found.name == "log.retention.ms"
    await admin.alter_configs("group", name, {"consumer.session.timeout.ms": "46000"})
    [timeout] = await eventually(
        lambda: admin.describe_configs("group", name, ["consumer.session.timeout.ms"]),
        lambda found: found[0].value == "46000",
    )
    assert timeout.source is ConfigSource.GROUP


async def test_offsets_by_position_and_by_time(
    admin: Admin, admin_bootstrap: str, topic: str
) -> None:
    produce(admin_bootstrap, topic, 1, 10)
    earliest = await admin.list_offsets([topic], "earliest")
    latest = await admin.list_offsets([topic], "latest")
    assert {key.partition: one.offset for key, one in earliest.items()} == {0: 0, 1: 0}
    assert {key.partition: one.offset for key, one in latest.items()} == {0: 0, 1: 10}
    timed = await admin.list_offsets([(topic, 1)], Timestamp(LONG_AGO + 4))
    assert [(one.offset, one.timestamp_ms) for one in timed.values()] == [(4, LONG_AGO + 4)]
    newest = await admin.list_offsets([(topic, 1)], "max-timestamp")
    assert [(one.offset, one.timestamp_ms) for one in newest.values()] == [(9, LONG_AGO + 9)]
    later = await admin.list_offsets([(topic, 1)], datetime.now(UTC))
    assert [one.offset for one in later.values()] == [-1]


async def test_deleted_records_move_the_log_start(
    admin: Admin, admin_bootstrap: str, topic: str
) -> None:
    produce(admin_bootstrap, topic, 0, 10)
    assert await admin.delete_records({(topic, 0): 6}) == {(topic, 0): 6}
    earliest = await admin.list_offsets([(topic, 0)], "earliest")
    assert [one.offset for one in earliest.values()] == [6]
    with pytest.raises(KafkaError) as refused:
        await admin.delete_records({(topic, 0): 99})
    assert refused.value.name == "OFFSET_OUT_OF_RANGE"
    with pytest.raises(PartialFailure) as partly:
        await admin.delete_records({(topic, 0): 7, (topic, 1): 99})
    assert list(partly.value.failures) == [(topic, 1)]
    assert len(await admin.list_offsets([(topic, 0)], "earliest")) == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_from_its_first_commit_to_its_end(
    admin: Admin, admin_bootstrap: str, topic: str, protocol: str
) -> None:
    group = f"group-of-{topic}"
    produce(admin_bootstrap, topic, 0, 10)
    consumer = commit_everything(admin_bootstrap, group, topic, 10, protocol)
    try:
        produce(admin_bootstrap, topic, 0, 3)
        [described] = await admin.describe_groups([group])
        assert (described.type, described.state) == (protocol, "Stable")
        [member] = described.members
        assert sorted(member.assignment) == [(topic, 0), (topic, 1)]
        offsets = {one.partition: one for one in await admin.list_group_offsets(group)}
        assert (offsets[0].offset, offsets[0].end, offsets[0].lag) == (10, 13, 3)
        with pytest.raises(KafkaError) as busy:
            await admin.alter_group_offsets(group, {(topic, 0): 0})
        assert busy.value.name == "UNKNOWN_MEMBER_ID"
        with pytest.raises(KafkaError) as subscribed:
            await admin.delete_group_offsets(group, [(topic, 0)])
        assert subscribed.value.name == "GROUP_SUBSCRIBED_TO_TOPIC"
        with pytest.raises(KafkaError) as not_empty:
            await admin.delete_groups([group])
        assert not_empty.value.name == "NON_EMPTY_GROUP"
    finally:
        consumer.close()

    listed = {one.id: one for one in await admin.list_groups()}
    assert (listed[group].state, listed[group].type) == ("Empty", protocol)
    assert group in {one.id for one in await admin.list_groups(states=["Empty"])}
    assert group not in {one.id for one in await admin.list_groups(types=["share"])}
    await admin.alter_group_offsets(group, {(topic, 0): 4})
    offsets = {one.partition: one for one in await admin.list_group_offsets(group)}
    assert (offsets[0].offset, offsets[0].lag) == (4, 9)
    await admin.delete_group_offsets(group, [(topic, 0)])
    assert 0 not in {one.partition for one in await admin.list_group_offsets(group)}
    await admin.delete_group(group)
    with pytest.raises(KafkaError) as gone:
        await admin.describe_groups([group])
    assert gone.value.name == "GROUP_ID_NOT_FOUND"


async def test_the_oldest_versions_a_broker_serves_will_do(admin_bootstrap: str, name: str) -> None:
    group = f"group-of-{name}"
    async with Admin(admin_bootstrap, api_timeout=20.0, max_versions=OLDEST) as admin:
        made = await admin.create_topic(name, partitions=2)
        assert made.partitions == -1
        await eventually(lambda: names_of_topics(admin), lambda names: name in names)
        produce(admin_bootstrap, name, 0, 5)
        latest = await admin.list_offsets([name])
        assert [one.offset for one in latest.values()] == [5, 0]
        await admin.delete_records({(name, 0): 1})
        await admin.alter_configs("topic", name, {"retention.ms": "-1"})
        assert await admin.describe_configs("topic", name, ["retention.ms"])
        await admin.create_partitions(name, 3)
        await admin.alter_group_offsets(group, {(name, 0): 4})
        [offset] = await admin.list_group_offsets(group)
        assert (offset.offset, offset.lag) == (4, 1)
        assert group in {one.id for one in await admin.list_groups()}
        with pytest.raises(UnsupportedApi, match="list_groups"):
            await admin.list_groups(states=["Empty"])
        [described] = await admin.describe_groups([group])
        assert (described.type, described.state) == ("classic", "Empty")
        await admin.delete_group(group)
        with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
            await admin.describe_groups([group])
        await admin.delete_topic(name)


@pytest.mark.parametrize(("metadata", "answered"), [(None, ""), ("", ""), ("note", "note")])
async def test_metadata_of_a_commit(
    admin: Admin, admin_bootstrap: str, topic: str, metadata: str | None, answered: str
) -> None:
    group = f"group-of-{topic}"
    commit = OffsetCommitRequest(
        group,
        topics=[
            OffsetCommitRequestTopic(
                topic, partitions=[OffsetCommitRequestPartition(0, 7, -1, metadata)]
            )
        ],
    )
    async with Client(admin_bootstrap) as client:

        async def attempt() -> None:
            answer = await client.send(commit, to=Coordinator(group), max_version=9)
            check(answer.topics[0].partitions[0].error_code, "commit")

        await client.retry(attempt)
    [found] = await admin.list_group_offsets(group)
    assert (found.offset, found.metadata) == (7, answered)


async def test_offsets_in_a_topic_that_is_gone_have_no_lag(
    admin: Admin, topic: str, name: str
) -> None:
    group = f"group-of-{name}"
    await admin.alter_group_offsets(group, {(topic, 0): 0})
    await admin.delete_topic(topic)
    await eventually(lambda: names_of_topics(admin), lambda names: topic not in names)
    # Kafka drops such offsets when it gets to it.
    assert {one.lag for one in await admin.list_group_offsets(group)} <= {None}


@pytest.mark.parametrize("at", [Timestamp(-1), 7, datetime(2026, 1, 1), "middle"])  # no zone
async def test_positions_that_are_none_are_refused(admin: Admin, at: object) -> None:
    with pytest.raises(ValueError, match=r"zone|at: expected"):
        await admin.list_offsets(["t"], at)  # type: ignore[arg-type]  # on purpose


async def test_a_broker_is_named_by_its_number(admin: Admin) -> None:
    with pytest.raises(ValueError, match="by its id"):
        await admin.describe_configs("broker", "first")


async def test_resets_are_planned_within_the_log(
    admin: Admin, admin_bootstrap: str, topic: str
) -> None:
    group = f"group-of-{topic}"
    produce(admin_bootstrap, topic, 0, 10)
    await admin.delete_records({(topic, 0): 2})
    with pytest.raises(NothingToReset, match="name the topics"):
        await admin.plan_offset_reset(group, "latest")
    await admin.alter_group_offsets(group, {(topic, 0): 5})

    async def planned(to: ResetTarget) -> list[tuple[int, int | None, int]]:
        moves = await admin.plan_offset_reset(group, to)
        return [(one.partition, one.before, one.after) for one in moves]

    assert await planned("earliest") == [(0, 5, 2)]
    assert await planned("latest") == [(0, 5, 10)]
    assert await planned(ToOffset(1)) == [(0, 5, 2)]
    assert await planned(ToOffset(99)) == [(0, 5, 10)]
    assert await planned(ShiftBy(-2)) == [(0, 5, 3)]
    assert await planned(datetime.fromtimestamp(LONG_AGO / 1000 + 0.007, UTC)) == [(0, 5, 7)]
    assert await planned(datetime.now(UTC)) == [(0, 5, 10)]
    whole = await admin.plan_offset_reset(group, "latest", [topic])
    assert [(one.partition, one.before, one.after) for one in whole] == [(0, 5, 10), (1, None, 0)]
    with pytest.raises(NothingToReset, match="to shift"):
        await admin.plan_offset_reset(group, ShiftBy(1), [topic])


async def test_nodes_and_who_leads(admin: Admin) -> None:
    topic = f"led-{next(_numbers)}"
    await admin.create_topic(topic, 1)
    (node,) = await admin.describe_nodes()
    assert node.state is NodeState.ACTIVE
    assert node.broker.id == 1
    place = TopicPartition(topic, 0)
    await admin.reassign_partitions({place: [1]})
    assert await admin.list_reassignments() == {}
    assert await admin.elect_leaders([place]) == []
    assert await admin.elect_leaders(unclean=True) == []
    with pytest.raises(KafkaError) as none:
        await admin.reassign_partitions({place: None})
    assert none.value.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    with pytest.raises(KafkaError) as unknown:
        await admin.reassign_partitions({place: [9]})
    assert unknown.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    with pytest.raises(UnknownTopic, match=f"{topic}-5"):
        await admin.reassign_partitions({place: [1], TopicPartition(topic, 5): [1]})
    with pytest.raises(KafkaError) as nobody:
        await admin.forget_node(99)
    assert nobody.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


async def test_sizes_of_logs_and_free_space(admin: Admin, admin_bootstrap: str, topic: str) -> None:
    produce(admin_bootstrap, topic, 0, 3)
    [found] = await admin.describe_log_dirs()
    assert found.error is None
    assert found.sizes[TopicPartition(topic, 0)] > 0
    assert found.sizes[TopicPartition(topic, 1)] == 0
    assert found.total_bytes is not None
    assert found.usable_bytes is not None
    assert 0 < found.usable_bytes <= found.total_bytes


async def test_offsets_of_many_groups_at_once(
    admin: Admin, admin_bootstrap: str, topic: str, name: str
) -> None:
    produce(admin_bootstrap, topic, 0, 3)
    groups = [f"{name}-{number}" for number in range(5)]
    for number, group in enumerate(groups[:3]):
        await admin.alter_group_offsets(group, {(topic, 0): number})
    found = await admin.list_group_offsets_of(groups)
    key = TopicPartition(topic, 0)
    assert found == {
        groups[0]: {key: 0},
        groups[1]: {key: 1},
        groups[2]: {key: 2},
        groups[3]: {},
        groups[4]: {},
    }
    async with Admin(admin_bootstrap, max_versions={9: 7}) as old:
        assert await old.list_group_offsets_of(groups[:2]) == {
            groups[0]: {key: 0},
            groups[1]: {key: 1},
        }
    assert await admin.list_group_offsets_of([]) == {}
