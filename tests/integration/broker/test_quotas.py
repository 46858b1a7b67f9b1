"""Clients over their quota: told, muted, and served again (cases 65 to 68, 74 and 75)."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.metadata.security.quotas import CLIENT_ID, USER
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.schema.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.schema.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.schema.metadata import MetadataRequest
from tests.support.names import fresh
from tests.support.quotas import set_quotas
from tests.support.raw_client import (
    RawClient,
    batch,
    fetch_request,
    produce_request,
    values_of,
)
from tests.support.share_member import (
    SHARE_CONFIG,
    ShareMember,
    partitions_of,
    set_group_configs,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

KIB = 1024
ANYBODY = {USER: "ANONYMOUS"}


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.EmbeddedBroker]:
    with ottla.EmbeddedBroker(config=SHARE_CONFIG) as made:
        yield made


@pytest.fixture
def topic(broker: ottla.EmbeddedBroker) -> str:
    name = fresh("topic")
    broker.create_topic(name)
    return name


@pytest.fixture
def client_id() -> str:
    return fresh("client")


@pytest.fixture
def client(broker: ottla.EmbeddedBroker, client_id: str) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap, client_id=client_id) as made:
        yield made


def has_answer(broker: ottla.EmbeddedBroker, client: RawClient) -> bool:
    """Whether anything comes on a connection while another one is served."""
    with RawClient(broker.bootstrap, client_id="other") as other:
        for _ in range(20):
            other.ask("metadata", 12, MetadataRequest([]))
    return bool(select.select([client._socket], [], [], 0)[0])


def test_65_a_producer_over_its_quota_is_told_and_not_read_any_more(
    broker: ottla.EmbeddedBroker, client: RawClient, client_id: str, topic: str
) -> None:
    set_quotas(broker, {CLIENT_ID: client_id}, producer_byte_rate=10)
    request = produce_request(topic, {0: batch(bytes(KIB))})
    first = client.ask("produce", 11, request)
    assert first.responses[0].partition_responses[0].error_code == 0
    assert first.throttle_time_ms > 90_000
    client.send("produce", 11, request)
    client.send("metadata", 12, MetadataRequest([]))
    assert not has_answer(broker, client)

    # 74: what holds now holds for muted connections, too.
    set_quotas(broker, {CLIENT_ID: client_id}, producer_byte_rate=1_000_000)
    _, second = client.receive("produce", 11)
    assert second.responses[0].partition_responses[0].base_offset == 1
    assert second.throttle_time_ms == 0
    client.receive("metadata", 12)


def test_65_acks_0_is_slowed_down_as_well(
    broker: ottla.EmbeddedBroker, client: RawClient, client_id: str, topic: str
) -> None:
    set_quotas(broker, {CLIENT_ID: client_id}, producer_byte_rate=10)
    client.send("produce", 11, produce_request(topic, {0: batch(bytes(KIB))}, acks=0))
    client.send("metadata", 12, MetadataRequest([]))
    assert not has_answer(broker, client)
    set_quotas(broker, {CLIENT_ID: client_id}, producer_byte_rate=None)
    client.receive("metadata", 12)


def fill(client: RawClient, topic: str, count: int) -> list[bytes]:
    values = [number.to_bytes(4, "big") + bytes(KIB) for number in range(count)]
    for value in values:
        client.produce(topic, batch(value))
    return values


def test_66_a_fetch_over_its_quota_is_empty_and_nothing_is_lost(
    broker: ottla.EmbeddedBroker, client: RawClient, client_id: str, topic: str
) -> None:
    values = fill(client, topic, 40)
    set_quotas(broker, {CLIENT_ID: client_id}, consumer_byte_rate=KIB)
    read: list[bytes | None] = []
    while True:
        answer = client.fetch(fetch_request({(topic, 0): len(read)}, min_bytes=KIB * 30))
        if answer.throttle_time_ms:
            assert answer.responses == ()
            break
        read += values_of(answer.responses[0].partitions[0])
    # Ten windows of one second.
    assert 8 <= len(read) <= 11
    client.send("metadata", 12, MetadataRequest([]))
    assert not has_answer(broker, client)
    set_quotas(broker, {CLIENT_ID: client_id}, consumer_byte_rate=1_000_000_000)
    client.receive("metadata", 12)
    while len(read) < len(values):
        read += values_of(client.fetch_one(topic, len(read)))
    assert read == values


def test_66_a_session_goes_on_after_an_empty_answer(
    broker: ottla.EmbeddedBroker, client: RawClient, client_id: str, topic: str
) -> None:
    fill(client, topic, 20)
    opened = client.fetch(fetch_request({(topic, 0): 0}, session_epoch=0, partition_max_bytes=KIB))
    session = opened.session_id
    assert session
    set_quotas(broker, {CLIENT_ID: client_id}, consumer_byte_rate=1)
    wanted = {(topic, 0): 1}
    client.fetch(fetch_request(wanted, session_id=session, session_epoch=1))
    throttled = client.fetch(fetch_request(wanted, session_id=session, session_epoch=2))
    assert throttled.throttle_time_ms > 0
    assert (throttled.error_code, throttled.session_id, throttled.responses) == (0, session, ())
    set_quotas(broker, {CLIENT_ID: client_id}, consumer_byte_rate=None)
    after = client.fetch(fetch_request({}, session_id=session, session_epoch=3))
    assert after.error_code == 0
    assert values_of(after.responses[0].partitions[0])


def test_66_a_whole_fetch_over_its_quota_opens_no_session(
    broker: ottla.EmbeddedBroker, client: RawClient, client_id: str, topic: str
) -> None:
    fill(client, topic, 2)
    set_quotas(broker, {CLIENT_ID: client_id}, consumer_byte_rate=1)
    client.fetch(fetch_request({(topic, 0): 0}))
    throttled = client.fetch(fetch_request({(topic, 0): 0}, session_epoch=0))
    assert throttled.throttle_time_ms > 0
    assert (throttled.session_id, throttled.responses) == (0, ())


def test_67_a_share_fetch_over_its_quota_acquires_nothing(
    broker: ottla.EmbeddedBroker, topic: str
) -> None:
    group = fresh("group")
    with RawClient(broker.bootstrap) as admin:
        fill(admin, topic, 30)
        set_group_configs(admin, group, share_auto_offset_reset="earliest")
    with ShareMember(broker.bootstrap, group, topic) as member:
        member.join()
        assert member.first(max_records=5).offsets == [0, 1, 2, 3, 4]
        set_quotas(broker, ANYBODY, consumer_byte_rate=1)
        try:
            used_up = member.acquire(max_records=5)
            last = used_up.offsets[-1]
            # Acknowledgements are taken all the same.
            throttled = member.fetch(acks={0: [(0, last, 1)]}, max_records=5)
            assert throttled.throttle_time_ms > 0
            (row,) = partitions_of(throttled).values()
            assert (row.acknowledge_error_code, row.acquired_records) == (0, ())
        finally:
            set_quotas(broker, ANYBODY, consumer_byte_rate=None)
        later = member.acquire(max_records=5)
        assert later.offsets[0] == last + 1
        assert {count for _, _, count in later.ranges} == {1}


SLOW = 150_000
SLOW_VALUES = [number.to_bytes(4, "big") + bytes(10_000) for number in range(30)]
"""More than two windows have at once."""


@pytest.fixture(scope="module")
def slow() -> Iterator[ottla.EmbeddedBroker]:
    """Its clients may send and fetch at a rate, over two windows; topic "full" has all values."""
    with ottla.EmbeddedBroker(config={**SHARE_CONFIG, "quota.window.num": "2"}) as made:
        made.create_topic("full")
        with ottla.sync.Producer(made.bootstrap) as producer:
            producer.send_many("full", [ottla.ProducerRecord(value) for value in SLOW_VALUES])
        set_quotas(made, ANYBODY, producer_byte_rate=SLOW, consumer_byte_rate=SLOW)
        yield made


async def test_65_our_own_producer_waits_and_loses_nothing(slow: ottla.EmbeddedBroker) -> None:
    topic = fresh("topic")
    slow.create_topic(topic)
    async with ottla.Producer(slow.bootstrap, linger_ms=0) as producer:
        for value in SLOW_VALUES:
            await producer.send(topic, value)
        assert producer.throttled_seconds > 0
    async with ottla.Reader(slow.bootstrap, topic, stop="latest") as reader:
        assert [record.value async for record in reader.records()] == SLOW_VALUES


@pytest.mark.long
async def test_66_our_own_reader_waits_and_loses_nothing(slow: ottla.EmbeddedBroker) -> None:
    async with ottla.Reader(slow.bootstrap, "full", stop="latest") as reader:
        assert [record.value async for record in reader.records()] == SLOW_VALUES
        # The answers before it may have been within the quota.
        await reader.seek("earliest")
        assert [record.value async for record in reader.records()] == SLOW_VALUES
        assert reader.throttled_seconds > 0


@pytest.mark.long
async def test_66_our_own_consumer_waits_and_loses_nothing(slow: ottla.EmbeddedBroker) -> None:
    async with ottla.Consumer(slow.bootstrap, group=fresh("group"), topics=["full"]) as consumer:
        for _ in range(2):
            read: list[bytes | None] = []
            while len(read) < len(SLOW_VALUES):
                read += [record.value for record in await consumer.poll(timeout=1)]
            assert read == SLOW_VALUES
            await consumer.seek(ottla.TopicPartition("full", 0), "earliest")
        assert consumer.throttled_seconds > 0


@pytest.mark.long
async def test_67_our_own_share_consumer_waits_and_acquires_each_record_once(
    slow: ottla.EmbeddedBroker,
) -> None:
    for _ in range(2):
        group = fresh("group")
        with RawClient(slow.bootstrap) as admin:
            set_group_configs(admin, group, share_auto_offset_reset="earliest")
        async with ottla.ShareConsumer(slow.bootstrap, group=group, topics=["full"]) as consumer:
            read: list[ottla.ShareRecord] = []
            while len(read) < len(SLOW_VALUES):
                read += await consumer.poll(timeout=1)
            assert [record.value for record in read] == SLOW_VALUES
            assert {record.delivery_count for record in read} == {1}
            throttled = consumer.throttled_seconds
    assert throttled > 0


def test_68_time_in_handlers_costs_at_most_a_window(
    broker: ottla.EmbeddedBroker, client: RawClient, client_id: str
) -> None:
    set_quotas(broker, {CLIENT_ID: client_id}, request_percentage=1e-6)
    answer = client.ask("metadata", 12, MetadataRequest([]))
    assert answer.throttle_time_ms == 1000
    # And then it is served again.
    assert client.ask("metadata", 12, MetadataRequest([])).throttle_time_ms == 1000


def create(client: RawClient, version: int, *partitions: int) -> CreateTopicsResponse:
    request = CreateTopicsRequest([CreatableTopic(fresh("topic"), one, -1) for one in partitions])
    answer: CreateTopicsResponse = client.ask("create_topics", version, request)
    return answer


def test_69_changes_beyond_the_quota_are_refused_in_order(
    broker: ottla.EmbeddedBroker, client: RawClient, client_id: str
) -> None:
    set_quotas(broker, {CLIENT_ID: client_id}, controller_mutation_rate=0.1)
    answer = create(client, 7, 1, 2, 1)  # 1.1 are there
    codes = [topic.error_code for topic in answer.topics]
    assert codes == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert answer.throttle_time_ms > 10_000
    set_quotas(broker, {CLIENT_ID: client_id}, controller_mutation_rate=1000)
    # What it owes is settled in two milliseconds; clients repeat a refused request, too.
    while (topic := create(client, 7, 1).topics[0]).error_code:
        assert topic.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    # The creation may have used the last token, so this one waits a millisecond for the next, too.
    grown = CreatePartitionsRequest([CreatePartitionsTopic(topic.name, 2000, None)])
    while code := client.ask("create_partitions", 3, grown).results[0].error_code:
        assert code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    set_quotas(broker, {CLIENT_ID: client_id}, controller_mutation_rate=0.1)
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(topic.name)])
    deleted = client.ask("delete_topics", 6, gone)
    assert deleted.responses[0].error_code in (0, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def test_69_older_clients_are_slowed_down_instead(
    broker: ottla.EmbeddedBroker, client: RawClient, client_id: str
) -> None:
    set_quotas(broker, {CLIENT_ID: client_id}, controller_mutation_rate=0.1)
    answer = create(client, 5, 1, 2, 1)
    assert [topic.error_code for topic in answer.topics] == [0, 0, 0]
    assert answer.throttle_time_ms > 20_000


def test_70_a_users_connections_share_its_quota(
    broker: ottla.EmbeddedBroker, client: RawClient, topic: str
) -> None:
    set_quotas(broker, ANYBODY, producer_byte_rate=150)
    try:
        request = produce_request(topic, {0: batch(bytes(KIB))})
        assert client.ask("produce", 11, request).throttle_time_ms == 0
        with RawClient(broker.bootstrap, client_id="another") as other:
            assert other.ask("produce", 11, request).throttle_time_ms > 0
    finally:
        set_quotas(broker, ANYBODY, producer_byte_rate=None)


def test_75_a_stop_does_not_wait_for_muted_connections() -> None:
    with ottla.EmbeddedBroker() as broker:
        name = fresh("topic")
        broker.create_topic(name)
        set_quotas(broker, ANYBODY, producer_byte_rate=1)
        client = RawClient(broker.bootstrap)
        request = produce_request(name, {0: batch(bytes(KIB))})
        assert client.ask("produce", 11, request).throttle_time_ms > 1_000_000
        client.send("produce", 11, request)
    assert client.closed()
    client.close()


def test_75_a_muted_connection_is_not_idle(broker: ottla.EmbeddedBroker, topic: str) -> None:
    client_id = fresh("client")
    set_quotas(broker, {CLIENT_ID: client_id}, producer_byte_rate=1)
    with RawClient(broker.bootstrap, client_id=client_id) as client:
        client.ask("produce", 11, produce_request(topic, {0: batch(bytes(KIB))}))
        port = client._socket.getsockname()[1]
        assert broker._node is not None
        (muted,) = (
            one
            for one in broker._node.dispatcher.connections
            if one._transport is not None and one._transport.get_extra_info("peername")[1] == port
        )
        assert muted.idle_seconds(muted.last_active + 1e9) == 0.0
        set_quotas(broker, {CLIENT_ID: client_id}, producer_byte_rate=None)
        client.ask("metadata", 12, MetadataRequest([]))
        assert muted.idle_seconds(muted.last_active + 1e9) > 1e8
