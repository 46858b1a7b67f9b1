"""The producer against real brokers, read back and judged by other people's clients.

Ottla's broker, librdkafka's mock cluster and, where there is a JVM, Apache Kafka. The mock ends a
flexible Metadata answer with one byte too many, so Metadata stays below version 9 there.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from confluent_kafka import Producer as Rdkafka
from confluent_kafka import TopicPartition as Assignment

from ottla import EmbeddedBroker, Producer, ProducerRecord
from ottla.client.admin.admin import Admin
from ottla.client.errors import KafkaError
from ottla.client.producer.partitioner import partition_of_key
from ottla.client.producer.types import RecordTooLarge
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
METADATA = 3


def read_back(bootstrap: str, topic: str, partitions: int, count: int) -> dict[int, list[bytes]]:
    """The values of a topic, by partition, as confluent-kafka reads them."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reads", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([Assignment(topic, index, 0) for index in range(partitions)])
    found: dict[int, list[bytes]] = defaultdict(list)
    seen = 0
    try:
        while seen < count:
            messages = consumer.consume(count - seen, timeout=20.0)
            assert messages, f"{seen} of {count} records arrived"
            for message in messages:
                assert message.error() is None, message.error()
                partition, value = message.partition(), message.value()
                assert partition is not None
                found[partition].append(value or b"")
                seen += 1
        # Nothing beyond what was asked for.
        assert consumer.consume(1, timeout=0.2) == []
    finally:
        consumer.close()
    return dict(found)


@pytest.mark.parametrize("codec", CODECS)
async def test_every_codec_is_read_back(
    ottla_broker: EmbeddedBroker, new_topic: Callable[..., str], codec: str
) -> None:
    topic = new_topic(partitions=2)
    values = [b"value %d " % n * 20 for n in range(300)]
    async with Producer(ottla_broker.bootstrap, compression_type=codec) as producer:
        await producer.send_many(topic, [ProducerRecord(one, partition=0) for one in values])
        await producer.send_arrow(topic, pa.table({"value": values}), partition=1)
    read = await asyncio.to_thread(read_back, ottla_broker.bootstrap, topic, 2, 600)
    assert read == {0: values, 1: values}


async def test_all_of_a_record_arrives(
    ottla_broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    headers = (("a", b"1"), ("none", None), ("a", b""))
    async with Producer(ottla_broker.bootstrap) as producer:
        sent = await producer.send(topic, b"v", key=b"k", headers=headers, timestamp_ms=1234)
        await producer.send(topic, None, key=b"")
    assert sent == (topic, 0, 0, 1234)
    consumer = Consumer({"bootstrap.servers": ottla_broker.bootstrap, "group.id": topic})
    consumer.assign([Assignment(topic, 0, 0)])
    first, second = await asyncio.to_thread(consumer.consume, 2, 20.0)
    consumer.close()
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"k", b"v", 1234)
    assert first.headers() == list(headers)
    assert (second.key(), second.value(), second.headers()) == (b"", None, None)


async def test_log_append_time_is_reported(
    ottla_broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    async with Producer(ottla_broker.bootstrap) as producer:
        assert (await producer.send(topic, b"v", timestamp_ms=1)).timestamp_ms > 1


async def test_keys_go_where_librdkafka_sends_them(
    ottla_broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=7)
    keys = [b"key-%d" % n * (n % 5) for n in range(1, 2000)]
    expected: dict[bytes, int] = {}

    def judge() -> None:
        rdkafka = Rdkafka(
            {"bootstrap.servers": ottla_broker.bootstrap, "partitioner": "murmur2_random"}
        )

        def delivered(error: object, message: object) -> None:
            assert error is None
            expected[message.key()] = message.partition()  # type: ignore[attr-defined]  # untyped

        for key in keys:
            rdkafka.produce(topic, b"", key, on_delivery=delivered)
        assert rdkafka.flush(20.0) == 0

    await asyncio.to_thread(judge)
    expected.pop(b"", None)  # to librdkafka an empty key is none
    assert expected == {key: partition_of_key(key, 7) for key in expected}
    async with Producer(ottla_broker.bootstrap) as producer:
        table = pa.table({"key": keys, "value": keys})
        await producer.send_arrow(topic, table)
    read = await asyncio.to_thread(read_back, ottla_broker.bootstrap, topic, 7, 2 * len(keys))
    for partition, values in read.items():
        ours = [one for one in values if one]
        assert ours == [key for key in keys if key and expected[key] == partition]


async def test_without_acknowledgement_there_is_no_offset(
    ottla_broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    values = [b"%d" % n for n in range(50)]
    options = {"acks": 0, "enable_idempotence": False}
    async with Producer(ottla_broker.bootstrap, **options) as producer:  # type: ignore[arg-type]  # of mixed types
        for value in values:
            assert (await producer.send(topic, value)).offset == -1
    assert await asyncio.to_thread(read_back, ottla_broker.bootstrap, topic, 1, 50) == {0: values}


async def test_a_batch_that_the_topic_does_not_take(
    ottla_broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(max_message_bytes="1000")
    async with Producer(ottla_broker.bootstrap) as producer:
        with pytest.raises(RecordTooLarge, match=r"raise max\.message\.bytes of the topic"):
            await producer.send(topic, bytes(2000))
        assert (await producer.send(topic, b"small")).offset == 0
        assert (await producer.send(topic, b"another")).offset == 1


async def test_topics_are_made_only_where_that_is_allowed() -> None:
    async with EmbeddedBroker() as broker, Producer(broker.bootstrap) as producer:
        assert (await producer.send("new", b"v")).offset == 0
    config = {"auto.create.topics.enable": "false"}
    async with EmbeddedBroker(config=config) as broker, Producer(broker.bootstrap) as producer:
        with pytest.raises(KafkaError, match="create it first"):
            await producer.send("new", b"v")


async def test_restarts_lose_and_double_nothing(tmp_path: Path) -> None:
    values = [b"%d" % n for n in range(3000)]
    port = free_port()
    broker = await asyncio.to_thread(EmbeddedBroker(tmp_path, port=port).start)
    broker.create_topic("t", partitions=3)
    done = asyncio.Event()

    async def restart() -> EmbeddedBroker:
        current = broker
        while not done.is_set():
            await asyncio.sleep(0.1)
            await asyncio.to_thread(current.stop)
            current = EmbeddedBroker(tmp_path, port=port)
            await asyncio.to_thread(current.start)
        return current

    restarting = asyncio.create_task(restart())
    try:
        async with Producer(broker.bootstrap, batch_size=500) as producer:
            for start in range(0, len(values), 300):
                part = values[start : start + 300]
                calls = [
                    producer.send("t", value, partition=(start + at) % 3)
                    for at, value in enumerate(part)
                ]
                table = pa.table({"value": part})
                await asyncio.gather(*calls, producer.send_arrow("t", table, partition=0))
    finally:
        done.set()
        last = await restarting
    try:
        read = await asyncio.to_thread(read_back, last.bootstrap, "t", 3, 2 * len(values))
    finally:
        await asyncio.to_thread(last.stop)
    assert read[1] == values[1::3]
    assert read[2] == values[2::3]
    assert sorted(read[0]) == sorted(values + values[0::3])


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[str]:
    """Three brokers, which live as long as the client that made them."""
    rdkafka = Rdkafka({"bootstrap.servers": "none:1", "test.mock.num.brokers": 3, "log_level": 0})
    brokers = rdkafka.list_topics(timeout=20.0).brokers.values()
    yield ",".join(f"{one.host}:{one.port}" for one in brokers)
    rdkafka.flush(20.0)


async def test_librdkafkas_mock_of_three_brokers(mock_cluster: str) -> None:
    async with Producer(mock_cluster, max_versions={METADATA: 8}) as producer:
        records = [ProducerRecord(b"%d" % n, b"%d" % n) for n in range(500)]
        found = await producer.send_many("spread", records)
        await producer.send_arrow("spread", pa.table({"value": [b"x"] * 100}))
    assert len({one.partition for one in found}) == 4
    for partition in range(4):
        offsets = [one.offset for one in found if one.partition == partition]
        assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("codec", CODECS)
async def test_apache_kafka_takes_what_is_sent(apache_bootstrap: str, codec: str) -> None:
    topic = f"codec-{codec}"
    values = [b"value %d " % n * 20 for n in range(300)]
    async with Admin(apache_bootstrap) as admin:
        await admin.create_topic(topic, partitions=2, configs={"max.message.bytes": "20000"})
    async with Producer(
        apache_bootstrap, compression_type=codec, max_request_size=10_000
    ) as producer:
        calls = [producer.send(topic, value, partition=0) for value in values]
        found = await asyncio.gather(*calls)
        assert [one.offset for one in found] == list(range(300))
        delivered = await producer.send_arrow(topic, pa.table({"value": values}), partition=1)
        assert sum(one.records for one in delivered) == 300
    read = await asyncio.to_thread(read_back, apache_bootstrap, topic, 2, 600)
    assert read == {0: values, 1: values}


async def test_apache_kafka_refuses_what_ottla_refuses(apache_bootstrap: str) -> None:
    async with Admin(apache_bootstrap) as admin:
        await admin.create_topic("small", configs={"max.message.bytes": "1000"})
        await admin.create_topic("compacted", configs={"cleanup.policy": "compact"})
    async with Producer(apache_bootstrap) as producer:
        with pytest.raises(KafkaError, match="create it first"):
            await producer.send("nope", b"v")
        with pytest.raises(RecordTooLarge):
            await producer.send("small", bytes(2000))
        assert (await producer.send("small", b"fits")).offset == 0
        with pytest.raises(KafkaError, match="send to compacted-0: INVALID_RECORD"):
            await producer.send("compacted", b"no key")
        assert (await producer.send("compacted", b"v", key=b"k")).offset == 0
