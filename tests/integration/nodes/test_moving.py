"""Partitions with records move between nodes by elections, reassignments, drains and balance."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla import EmbeddedBroker, NodeState, TopicPartition, sync
from ottla.cluster.balance import Limits
from tests.support.cluster_clients import Writer, directories, read_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

TOPIC: Final = "orders"
PARTITIONS: Final = range(6)
PATIENCE: Final = 60.0


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def leaders(admin: sync.Admin) -> Counter[int]:
    (topic,) = admin.describe_topics([TOPIC])
    return Counter(one.leader for one in topic.partitions)


def check(broker: EmbeddedBroker, writer: Writer) -> None:
    """Every acknowledged record is there once, in its order."""
    for partition, acked in writer.acked.items():
        assert read_all(broker.bootstrap, writer.topic, partition) == acked


def test_records_survive_every_way_to_move(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, nodes=3) as broker, sync.Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, len(PARTITIONS))
        writer = Writer(broker.bootstrap, TOPIC)
        writer.write(20, PARTITIONS)
        writer.send(20, PARTITIONS)  # under way while they move
        admin.reassign_partitions({TopicPartition(TOPIC, one): [3, 1, 2] for one in PARTITIONS})
        writer.send(20, PARTITIONS)
        admin.elect_leaders()
        writer.write(20, PARTITIONS)
        wait_for(lambda: leaders(admin) == {3: 6})
        writer.send(20, PARTITIONS)
        admin.alter_configs("broker", "3", {"ottla.node.drain": "true"})
        wait_for(lambda: leaders(admin)[3] == 0)
        writer.write(20, PARTITIONS)
        wait_for(lambda: admin.describe_nodes()[2].state is NodeState.DRAINING)
        check(broker, writer)
        for one in PARTITIONS:
            (path,) = directories(tmp_path, TOPIC, one)
            assert "node.3" not in path.parts


def test_a_node_that_leads_more_gives_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a directory of one node is started with two."""
    at_once = partial(Limits, settled_seconds=0.0)
    monkeypatch.setattr("ottla.broker.running.balancing.Limits", at_once)
    config = {"leader.imbalance.check.interval.seconds": "1"}
    with EmbeddedBroker(nodes=2, config=config) as broker, sync.Admin(broker.bootstrap) as admin:
        admin.alter_configs("broker", "2", {"ottla.node.drain": "true"})
        wait_for(lambda: admin.describe_nodes()[1].state is NodeState.DRAINING)
        admin.create_topic(TOPIC, len(PARTITIONS))
        assert leaders(admin) == {1: 6}
        writer = Writer(broker.bootstrap, TOPIC)
        writer.write(20, PARTITIONS)
        admin.alter_configs("broker", "2", {"ottla.node.drain": None})
        wait_for(lambda: leaders(admin) == {1: 3, 2: 3})
        writer.write(20, PARTITIONS)
        check(broker, writer)
