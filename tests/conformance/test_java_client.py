"""Kafka's Java client writes to Ottla, reads from it and shares topics in groups.

What it wrote is read back by librdkafka too. Where a JVM cannot run, the reason is the skip's
reason.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from ottla.broker.handlers import api_versions
from ottla.broker.serving.apis import SERVED
from ottla.testing.embedded import EmbeddedBroker
from ottla.wire.compression import Codec
from ottla.wire.records import Record
from tests.support.java_client import JavaClient
from tests.support.java_tools import JavaTools, kept_tools
from tests.support.jvm import why_no_jvm
from tests.support.topics import PATIENCE, Placed, create_topic, produce, read_all

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW: Final = int(time.time() * 1000)
# Clients send a batch uncompressed where compression does not pay. With this it does.
FILLER: Final = b"ottla " * 60
RECORDS: Final = [
    Record(0, NOW, b"key", FILLER, (("a", b"1"), ("none", None), ("\u00fc", b""), ("a", b"2"))),
    Record(1, NOW + 7, None, b"no key"),
    Record(2, NOW - 3_600_000, b"tombstone", None),
    Record(3, NOW, b"", b""),
    *(Record(4 + n, NOW + n, b"%d" % (n % 3), FILLER + b"%d" % n) for n in range(996)),
]
PROTOCOLS: Final = ("classic", "consumer")


@pytest.fixture(scope="module", autouse=True)
def jvm() -> None:
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def tools(jvm: None) -> Iterator[JavaTools]:
    with kept_tools() as kept:
        yield kept


@pytest.fixture(scope="module")
def java(ottla_broker: EmbeddedBroker, tools: JavaTools) -> JavaClient:
    return JavaClient(ottla_broker.bootstrap, tools)


@pytest.mark.parametrize("codec", Codec, ids=[codec.name.lower() for codec in Codec])
def test_records_of_every_codec_come_back(java: JavaClient, codec: Codec) -> None:
    name = codec.name.lower()
    topic = f"java-{name}"
    create_topic(java.bootstrap, topic)
    idempotent = codec in (Codec.NONE, Codec.LZ4)
    config = {
        "compression.type": name,
        "enable.idempotence": str(idempotent).lower(),
        "acks": "all" if idempotent else "1",
        "linger.ms": "20",
    }
    sent = java.produce(topic, RECORDS, config=config)
    assert [one.record for one in sent] == RECORDS
    assert read_all(java.bootstrap, topic) == [Placed(0, record) for record in RECORDS]
    assert [one.record for one in java.consume(topic, len(RECORDS))] == RECORDS


def test_the_brokers_time_is_the_same_for_all(java: JavaClient) -> None:
    create_topic(java.bootstrap, "java-append-time", message_timestamp_type="LogAppendTime")
    sent = [one.record for one in java.produce("java-append-time", RECORDS[:3])]
    assert all(record.timestamp >= NOW for record in sent)
    assert [record._replace(timestamp=0) for record in sent] == [
        record._replace(timestamp=0) for record in RECORDS[:3]
    ]
    assert read_all(java.bootstrap, "java-append-time") == [Placed(0, record) for record in sent]
    assert [one.record for one in java.consume("java-append-time", 3)] == sent


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_goes_on_where_it_was(java: JavaClient, protocol: str) -> None:
    """Three records at a time: two Java members one after the other, then librdkafka."""
    topic = f"java-resume-{protocol}"
    create_topic(java.bootstrap, topic)
    produce(java.bootstrap, topic, RECORDS[:7])
    config = {
        "group.id": topic,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "max.poll.records": "3",
    }
    read = [java.consume(topic, 3, idle=PATIENCE, config=config) for _ in range(2)]
    assert [[one.record.offset for one in part] for part in read] == [[0, 1, 2], [3, 4, 5]]
    consumer = Consumer({"bootstrap.servers": java.bootstrap, "group.id": topic})
    (position,) = consumer.committed([Position(topic, 0)], PATIENCE)
    consumer.close()
    assert position.offset == 6


def test_offsets_are_found_by_time(java: JavaClient) -> None:
    create_topic(java.bootstrap, "java-times", 3)
    early = [Record(0, NOW + after, None, b"%d" % after) for after in (0, 20, 10, 40, 30)]
    late = [Record(0, NOW + after, None, b"%d" % after) for after in (25, 60)]
    produce(java.bootstrap, "java-times", early, partition=0)
    produce(java.bootstrap, "java-times", late, partition=2)
    found = {one.partition: one.record for one in java.seek("java-times", NOW + 15)}
    assert found == {0: early[1]._replace(offset=1), 2: late[0]}
    assert java.seek("java-times", NOW + 61) == []


STRATEGIES: Final = {
    "range": {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor"},
    "cooperative-sticky": {
        "partition.assignment.strategy": (
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
        )
    },
    "uniform": {"group.protocol": "consumer", "group.remote.assignor": "uniform"},
}
# Members learn of a rebalance by their heartbeats.
HEARTBEAT_MS: Final = 200


@pytest.fixture(scope="module")
def quick_groups() -> Iterator[EmbeddedBroker]:
    beat = str(HEARTBEAT_MS)
    config = {
        "group.consumer.heartbeat.interval.ms": beat,
        "group.consumer.min.heartbeat.interval.ms": beat,
    }
    with EmbeddedBroker(config=config) as broker:
        yield broker


def test_members_share_a_topic_as_they_come_and_go(quick_groups: EmbeddedBroker) -> None:
    create_topic(quick_groups.bootstrap, "shared", 6)
    for partition in range(6):
        produce(quick_groups.bootstrap, "shared", RECORDS[:50], partition=partition)
    java = JavaClient(quick_groups.bootstrap)

    def run(strategy: str) -> object:
        config = STRATEGIES[strategy]
        if "group.protocol" not in config:
            config = {**config, "heartbeat.interval.ms": str(HEARTBEAT_MS)}
        return java.rebalance("shared", 6, 300, group=strategy, config=config)

    with ThreadPoolExecutor(2) as pool:
        histories = dict(zip(STRATEGIES, pool.map(run, STRATEGIES), strict=True))
    steps = [[6], [3, 3], [2, 2, 2], [3, 3]]
    expected = (steps, 300, dict.fromkeys(range(6), 50))
    assert histories == dict.fromkeys(STRATEGIES, expected)


def test_java_does_without_the_optional_apis(
    monkeypatch: pytest.MonkeyPatch, tools: JavaTools
) -> None:
    """A broker of before DescribeCluster, ConsumerGroupDescribe and DescribeTopicPartitions."""
    gone = (60, 69, 75)
    for key in gone:
        monkeypatch.delitem(SERVED, key)
    listed = [one for one in api_versions.API_KEYS if one.api_key not in gone]
    monkeypatch.setattr(api_versions, "API_KEYS", listed)
    with EmbeddedBroker() as broker:
        bootstrap = broker.bootstrap
        create_topic(bootstrap, "t", 2)
        produce(bootstrap, "t", RECORDS[:3])
        described = tools.run("kafka-topics", "--describe", "--topic", "t", bootstrap=bootstrap)
        assert described.stdout.count("Leader: 1") == 2, described
        offsets = tools.run("kafka-get-offsets", "--topic", "t", bootstrap=bootstrap)
        assert offsets.stdout == "t:0:3\nt:1:0\n", offsets
        read = tools.run(
            *("kafka-console-consumer", "--topic", "t", "--group", "g", "--from-beginning"),
            *("--max-messages", "3", "--timeout-ms", "20000"),
            bootstrap=bootstrap,
        )
        assert len(read.stdout.splitlines()) == 3, read
        group = tools.run(
            "kafka-consumer-groups", "--describe", "--group", "g", bootstrap=bootstrap
        )
        assert "t               0          3               3               0" in group.stdout, group
