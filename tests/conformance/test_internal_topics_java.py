"""What Ottla writes to its internal topics, read by Kafka's own formatters.

They decode keys and values with Kafka's schemas and print them as JSON; records that a formatter
does not know it leaves out. Where a JVM cannot run, the reason is the skip's reason.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import AcknowledgeType, Consumer

from ottla.testing.embedded import EmbeddedBroker
from tests.support.java_tools import JavaTools, kept_tools
from tests.support.jvm import why_no_jvm
from tests.support.raw_client import RawClient, batches_of
from tests.support.raw_offsets import RawOffsets
from tests.support.raw_transactions import RawProducer
from tests.support.share_member import SHARE_CONFIG
from tests.support.share_workers import (
    PATIENCE,
    poll_until,
    produce_numbers,
    set_group,
    share_consumer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMATTERS: Final = "org.apache.kafka.tools.consumer."
TOPIC, SHARERS, READERS, WORKERS = "queue", "sharers", "readers", "workers"
CONFIG: Final = {
    **SHARE_CONFIG,
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "2",
}


@pytest.fixture(scope="module")
def tools() -> Iterator[JavaTools]:
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)
    with kept_tools() as kept:
        yield kept


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """With the traces of a share group, which ends, of a classic group, and of transactions."""
    with EmbeddedBroker(config=CONFIG) as broker:
        broker.create_topic(TOPIC)
        produce_numbers(broker.bootstrap, TOPIC, range(5))
        set_group(broker.bootstrap, SHARERS, share_auto_offset_reset="earliest")
        member = share_consumer(
            broker.bootstrap, SHARERS, TOPIC, share_acknowledgement_mode="explicit"
        )
        kinds = [AcknowledgeType.RELEASE, AcknowledgeType.ACCEPT, AcknowledgeType.REJECT]
        for message in poll_until(member, 5):
            member.acknowledge(message, kinds[message.offset() % 3])
            member.commit_sync(PATIENCE)
        member.close()
        settings = {"group.id": READERS, "auto.offset.reset": "earliest"}
        reader = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
        reader.subscribe([TOPIC])
        while reader.poll(0.2) is None:
            pass
        reader.commit(asynchronous=False)
        reader.close()
        commit_in_transactions(broker.bootstrap)
        yield broker


def commit_in_transactions(bootstrap: str) -> None:
    """Offset 3 in one that commits, then 4 in one that does not."""
    with RawClient(bootstrap) as client:
        offsets, producer = RawOffsets(client, TOPIC, WORKERS), RawProducer(client)
        producer.init()
        for offset, commit, state in ((3, True, "CompleteCommit"), (4, False, "CompleteAbort")):
            offsets.commit_until_done(producer, offset, 5)
            assert producer.end_and_go_on(commit=commit).error_code == 0
            producer.wait_until(state)


def printed(
    tools: JavaTools, broker: EmbeddedBroker, topic: str, formatter: str
) -> list[dict[str, Any]]:
    """The records of a topic as the formatter shows them."""
    found: list[dict[str, Any]] = []
    with RawClient(broker.bootstrap) as client:
        for index in range(len(client.topic(topic).partitions)):
            batches = batches_of(client.fetch_one(topic, 0, partition=index))
            # Of markers the tool knows nothing; it would wait for them.
            count = sum(batch.record_count for batch in batches if not batch.is_control)
            if count:
                done = tools.run(
                    *("kafka-console-consumer", "--topic", topic, "--partition", str(index)),
                    *("--offset", "earliest", "--max-messages", str(count)),
                    *("--formatter", FORMATTERS + formatter, "--timeout-ms", "30000"),
                    bootstrap=broker.bootstrap,
                )
                assert done.returncode == 0, done
                found += documents(done.stdout)
    return found


def documents(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a text, which the formatters print one after the other."""
    decoder = json.JSONDecoder()
    end = 0
    while (begin := text.find("{", end)) >= 0:
        found, end = decoder.raw_decode(text, begin)
        yield found


def by_type(found: list[dict[str, Any]]) -> Counter[int]:
    return Counter(int(one["key"]["type"]) for one in found)


def test_share_state_is_what_kafka_prints(tools: JavaTools, broker: EmbeddedBroker) -> None:
    found = printed(
        tools, broker, "__share_group_state", "group.share.ShareGroupStateMessageFormatter"
    )
    snapshots, updates = range(2)
    types = by_type(found)
    assert set(types) == {snapshots, updates}
    assert types[snapshots] > 1
    assert {one["key"]["data"]["groupId"] for one in found} == {SHARERS}
    batches = [batch for one in found for batch in one["value"]["data"]["stateBatches"]]
    assert {batch["deliveryState"] for batch in batches} == {0, 2, 4}
    assert {batch["deliveryCount"] for batch in batches} >= {1}
    assert max(batch["lastOffset"] for batch in batches) == 4


def test_share_groups_are_what_kafka_prints(tools: JavaTools, broker: EmbeddedBroker) -> None:
    found = printed(tools, broker, "__consumer_offsets", "ShareGroupMessageFormatter")
    assert set(by_type(found)) == set(range(10, 16))
    assert {one["key"]["data"]["groupId"] for one in found} == {SHARERS}
    subscribed = [one["value"] for one in found if int(one["key"]["type"]) == 10]
    assert subscribed[0]["data"]["subscribedTopicNames"] == [TOPIC]
    assert subscribed[-1] is None  # it left
    [initialized] = [
        one["value"]["data"]["initializedTopics"]
        for one in found
        if int(one["key"]["type"]) == 15 and one["value"]["data"]["initializedTopics"]
    ]
    assert (initialized[0]["topicName"], initialized[0]["partitions"]) == (TOPIC, [0])


def test_classic_groups_and_offsets_are_what_kafka_prints(
    tools: JavaTools, broker: EmbeddedBroker
) -> None:
    found = printed(tools, broker, "__consumer_offsets", "OffsetsMessageFormatter")
    [committed, *_] = [one for one in found if one["key"]["data"]["group"] == READERS]
    assert committed["key"]["data"] == {"group": READERS, "topic": TOPIC, "partition": 0}
    assert committed["value"]["data"]["offset"] == 1
    transactional = [one for one in found if one["key"]["data"]["group"] == WORKERS]
    assert [one["value"]["data"]["offset"] for one in transactional] == [3, 4]
    found = printed(tools, broker, "__consumer_offsets", "GroupMetadataMessageFormatter")
    generations = [one["value"]["data"] for one in found if one["key"]["data"]["group"] == READERS]
    assert {one["protocolType"] for one in generations} == {"consumer"}
    assert [len(one["members"]) for one in generations] == [1, 0]  # it came, and left
