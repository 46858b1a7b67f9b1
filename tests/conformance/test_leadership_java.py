"""Kafka's own tools see and move the leaders of three nodes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla import sync
from ottla.wire.records import Record
from tests.support.java_tools import JavaTools, kept_tools
from tests.support.jvm import why_no_jvm
from tests.support.topics import produce, read_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.jvm

TOPIC = "led"
LINE = re.compile(r"Partition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S*)")


@pytest.fixture(scope="module")
def tools() -> Iterator[JavaTools]:
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)
    with kept_tools() as tools:
        yield tools


@pytest.fixture
def broker() -> Iterator[ottla.EmbeddedBroker]:
    with ottla.EmbeddedBroker(nodes=3) as broker:
        yield broker


def run(tools: JavaTools, broker: ottla.EmbeddedBroker, command: str) -> str:
    name, *args = command.split()
    done = tools.run(name, *args, bootstrap=broker.bootstrap)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def described(
    tools: JavaTools, broker: ottla.EmbeddedBroker
) -> dict[int, tuple[str, list[str], list[str]]]:
    """The leader, the replicas and those in sync of each partition."""
    text = run(tools, broker, f"kafka-topics --describe --topic {TOPIC}")
    return {
        int(partition): (leader, replicas.split(","), isr.split(","))
        for partition, leader, replicas, isr in LINE.findall(text)
    }


def test_a_topic_is_made_described_and_reassigned(
    tools: JavaTools, broker: ottla.EmbeddedBroker, tmp_path: Path
) -> None:
    run(
        tools,
        broker,
        f"kafka-topics --create --topic {TOPIC} --partitions 6 --replication-factor 2",
    )
    found = described(tools, broker)
    assert sorted(leader for leader, _, _ in found.values()) == ["1", "1", "2", "2", "3", "3"]
    assert all(replicas == isr and len(isr) == 2 for _, replicas, isr in found.values())
    under = run(tools, broker, "kafka-topics --describe --under-replicated-partitions")
    assert "Partition:" not in under
    produce(broker.bootstrap, TOPIC, [Record(0, 0, None, b"before")])
    to = next(node for node in "123" if node not in found[0][1])
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps(
            {
                "version": 1,
                "partitions": [{"topic": TOPIC, "partition": 0, "replicas": [int(to)]}],
            }
        )
    )
    reassign = f"kafka-reassign-partitions --reassignment-json-file {plan}"
    assert "Successfully started" in run(tools, broker, f"{reassign} --execute")
    assert f"Reassignment of partition {TOPIC}-0 is completed" in run(
        tools, broker, f"{reassign} --verify"
    )
    assert described(tools, broker)[0] == (to, [to], [to])
    assert "No partition reassignments found" in run(
        tools, broker, "kafka-reassign-partitions --list"
    )
    produce(broker.bootstrap, TOPIC, [Record(0, 0, None, b"after")])
    values = [one.record.value for one in read_all(broker.bootstrap, TOPIC)]
    assert values == [b"before", b"after"]


def test_leaders_are_elected(tools: JavaTools, broker: ottla.EmbeddedBroker) -> None:
    assignment = "1:2,2:1"
    run(tools, broker, f"kafka-topics --create --topic {TOPIC} --replica-assignment {assignment}")
    broker.move(TOPIC, 0, 3)
    with sync.Admin(broker.bootstrap) as admin:
        admin.reassign_partitions({ottla.TopicPartition(TOPIC, 0): [1, 2]})
    elect = "kafka-leader-election --election-type"
    text = run(tools, broker, f"{elect} preferred --topic {TOPIC} --partition 1")
    assert f"Valid replica already elected for partitions {TOPIC}-1" in text
    run(tools, broker, f"{elect} preferred --all-topic-partitions")
    assert described(tools, broker)[0][0] == "1"
    text = run(tools, broker, f"{elect} unclean --topic {TOPIC} --partition 0")
    assert f"Valid replica already elected for partitions {TOPIC}-0" in text


def test_a_stopped_node_leaves_partitions_under_replicated(
    tools: JavaTools, broker: ottla.EmbeddedBroker
) -> None:
    run(tools, broker, f"kafka-topics --create --topic {TOPIC} --replica-assignment 1:3,3:2")
    broker.stop_node(3)
    found = described(tools, broker)
    assert found[0] == ("1", ["1", "3"], ["1"])
    assert found[1][0] in {"1", "2"}
    assert "3" not in found[1][2]
    under = run(tools, broker, "kafka-topics --describe --under-replicated-partitions")
    assert [int(one[0]) for one in LINE.findall(under)] == [0, 1]
    unavailable = run(tools, broker, "kafka-topics --describe --unavailable-partitions")
    assert "Partition:" not in unavailable
    told = run(tools, broker, "kafka-cluster unregister --id 3")
    assert "Broker 3 is no longer registered." in told
    assert all("3" not in replicas for _, replicas, _ in described(tools, broker).values())
