"""Several nodes in one process: `EmbeddedBroker(nodes=3)`."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla import EmbeddedBroker, Secured
from ottla.broker.membership import leadership, news
from ottla.broker.running import jobs
from ottla.broker.running.metrics import NodeCollector
from ottla.broker.running.node import Node
from ottla.client.errors import BadArgument
from ottla.metadata.config.broker import load_broker_config
from ottla.sync import Admin
from tests.support.cluster_clients import PATIENCE, QUICK, Writer, directories, read_all
from tests.support.nodes_process import wait_for
from tests.support.ports import free_base
from tests.support.raw_client import RawClient, batch

if TYPE_CHECKING:
    from pathlib import Path


def nodes_of(broker: EmbeddedBroker) -> dict[int, Node]:
    assert broker._nodes is not None
    return broker._nodes.running


def leaders(broker: EmbeddedBroker, topic: str) -> list[int]:
    (node, *_) = nodes_of(broker).values()
    return [partition.leader for partition in node.image.topics_by_name[topic].partitions]


def check(broker: EmbeddedBroker, writer: Writer) -> None:
    """Every acknowledged record is there once, in its order."""
    for partition, acked in writer.acked.items():
        assert read_all(broker.bootstrap, writer.topic, partition) == acked


def test_case_2_one_node_loads_nothing_for_several() -> None:
    code = """
import sys, ottla
with ottla.EmbeddedBroker() as broker:
    broker.create_topic("orders")
rooms = ("ottla.cluster", "ottla.broker.membership", "ottla.broker.running.supervisor")
assert not [name for name in sys.modules if name.startswith(rooms)], sorted(sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_case_3_partitions_are_spread() -> None:
    with EmbeddedBroker(nodes=4, config={"offsets.topic.num.partitions": "8"}) as broker:
        broker.create_topic("orders", partitions=8)
        writer = Writer(broker.bootstrap, "orders")
        writer.write(5, range(8))
        check(broker, writer)  # which makes the topic of offsets
        assert Counter(leaders(broker, "orders")) == dict.fromkeys(range(1, 5), 2)
        assert Counter(leaders(broker, "__consumer_offsets")) == dict.fromkeys(range(1, 5), 2)


def test_case_9_a_move_keeps_the_files(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, nodes=2) as broker:
        broker.create_topic("orders", configs={"segment.bytes": "1048576"})
        writer = Writer(broker.bootstrap, "orders")
        writer.write(2000, [0])
        (first,) = leaders(broker, "orders")
        (before,) = directories(tmp_path, "orders", 0)
        inodes = {path.name: path.stat().st_ino for path in before.glob("*.log")}
        broker.move("orders", 0, 3 - first)
        (after,) = directories(tmp_path, "orders", 0)
        assert after != before
        assert {path.name: path.stat().st_ino for path in after.glob("*.log")} == inodes
        writer.write(10, [0])
        check(broker, writer)


@pytest.mark.long
def test_case_9_a_gibibyte_moves_by_rename(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, nodes=2, config={"ottla.flush.mode": "os"}) as broker:
        broker.create_topic("orders", configs={"segment.bytes": "134217728"})
        (first,) = leaders(broker, "orders")
        large = bytes(batch(*[bytes(1000)] * 1000))
        with RawClient(broker.nodes[first]) as client:
            for _ in range(2**30 // len(large) + 1):
                assert client.produce("orders", large).error_code == 0
        (before,) = directories(tmp_path, "orders", 0)
        sizes = {path.stat().st_ino: path.stat().st_size for path in before.glob("*.log")}
        assert sum(sizes.values()) >= 2**30
        for node in (3 - first, first):
            broker.move("orders", 0, node)
            (after,) = directories(tmp_path, "orders", 0)
            found = {path.stat().st_ino: path.stat().st_size for path in after.glob("*.log")}
            assert found == sizes
            with RawClient(broker.nodes[node]) as client:
                assert client.offset("orders", -1).offset == (2**30 // len(large) + 1) * 1000


def test_case_15_a_change_is_told_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "METADATA_POLL_SECONDS", 3600.0)
    monkeypatch.setattr(leadership, "LOOK_SECONDS", 3600.0)
    monkeypatch.setattr(leadership, "REST_SECONDS", 3600.0)
    with EmbeddedBroker(nodes=3) as broker:
        broker.create_topic("orders", partitions=3)
        writer = Writer(broker.bootstrap, "orders")
        writer.write(1, range(3))
        for node in (3, 1, 2):
            broker.move("orders", 0, node)  # waits until all know of it
        writer.write(1, range(3))
        check(broker, writer)


@pytest.mark.parametrize("is_deaf", [False, True])
def test_nodes_look_often_only_where_nobody_can_tell_them(
    monkeypatch: pytest.MonkeyPatch, is_deaf: bool
) -> None:
    """Looking four times a second cost an idle node 4 ms of each second; it is told of changes."""
    if is_deaf:
        monkeypatch.setattr(news, "LONGEST_PATH", 0)  # of a socket
        monkeypatch.setattr(jobs, "METADATA_POLL_SECONDS", 3600.0)
        monkeypatch.setattr(leadership, "REST_SECONDS", 3600.0)
    with EmbeddedBroker(nodes=2) as broker:
        assert {node.jobs.is_deaf for node in nodes_of(broker).values()} == {is_deaf}
        broker.create_topic("orders")
        for node in (1, 2, 1):
            broker.move("orders", 0, node)
        writer = Writer(broker.bootstrap, "orders")
        writer.write(1, [0])
        check(broker, writer)


def test_case_16_nodes_come_and_go() -> None:
    before = set(threading.enumerate())
    with EmbeddedBroker(nodes=3) as broker:
        assert [*broker.nodes] == [1, 2, 3]
        assert broker.bootstrap == ",".join(broker.nodes.values())
        broker.create_topic("orders", partitions=6)
        writer = Writer(broker.bootstrap, "orders")
        writer.write(20, range(6))
        address = broker.nodes[2]
        broker.kill_node(2)
        assert [*broker.nodes] == [1, 3]
        broker.start_node(2)  # it finds what it had
        assert broker.nodes[2] == address
        writer.write(20, range(6))
        broker.stop_node(1)
        assert 1 not in leaders(broker, "orders")
        writer.write(20, range(6))
        broker.start_node(1)  # it gets back what it had
        assert Counter(leaders(broker, "orders")) == {1: 2, 2: 2, 3: 2}
        broker.kill_node(3)
        broker.stop_node(3)  # given up: the others take over
        assert 3 not in leaders(broker, "orders")
        writer.write(20, range(6))
        check(broker, writer)
    del writer
    left = {one.name for one in set(threading.enumerate()) - before}
    assert not {name for name in left if name.startswith("ottla")}


def test_two_nodes_die_and_the_third_has_all(ottla_cluster: EmbeddedBroker) -> None:
    broker = ottla_cluster
    broker.create_topic("orders", partitions=6)
    writer = Writer(broker.bootstrap, "orders")
    writer.write(20, range(6))
    for node in (1, 2):
        broker.kill_node(node)
        broker.stop_node(node)
    assert set(leaders(broker, "orders")) == {3}
    writer.write(20, range(6))
    check(broker, writer)


def test_what_a_forgotten_node_had_is_led_by_others() -> None:
    with EmbeddedBroker(nodes=3) as broker:
        broker.create_topic("orders", partitions=3)
        writer = Writer(broker.bootstrap, "orders")
        writer.write(20, range(3))
        broker.kill_node(2)
        broker.stop_node(2)
        with Admin(broker.bootstrap) as admin:
            admin.forget_node(2)
            assert [one.broker.id for one in admin.describe_nodes()] == [1, 3]
        writer.write(20, range(3))
        check(broker, writer)
        broker.start_node(2)
        broker.move("orders", 0, 2)
        writer.write(20, range(3))
        check(broker, writer)


def test_case_13_one_becomes_three_and_three_become_one(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("orders", partitions=4)
        writer = Writer(broker.bootstrap, "orders")
        writer.write(20, range(4))
        check(broker, writer)
    acked = writer.acked
    with EmbeddedBroker(tmp_path, nodes=3) as broker:
        for partition in range(4):
            broker.move("orders", partition, partition % 3 + 1)
        writer = Writer(broker.bootstrap, "orders")
        writer.acked = acked
        writer.write(20, range(4))
        check(broker, writer)
        assert set(leaders(broker, "orders")) == {1, 2, 3}
    with EmbeddedBroker(tmp_path, nodes=2) as broker:
        assert set(leaders(broker, "orders")) == {1, 2}
        check(broker, writer)
    with EmbeddedBroker(tmp_path) as broker:
        assert set(leaders(broker, "orders")) == {1}
        check(broker, writer)
        assert all(
            directories(tmp_path, "orders", one) == [tmp_path / f"orders-{one}"] for one in range(4)
        )


def metrics_of(node: Node) -> dict[str, float]:
    """Those of the cluster; the label of one that has labels is part of its name."""
    found = {}
    for family in NodeCollector(node).collect():
        for sample in family.samples:
            if sample.name.startswith("ottla_cluster_"):
                name = " ".join(
                    [sample.name.removeprefix("ottla_cluster_"), *sample.labels.values()]
                )
                found[name] = sample.value
    return found


@pytest.mark.long
def test_metrics_tell_who_leads_and_what_has_moved() -> None:
    with EmbeddedBroker(nodes=3) as broker:
        broker.create_topic("orders", partitions=3)
        writer = Writer(broker.bootstrap, "orders")
        writer.write(1, range(3))
        source = leaders(broker, "orders")[0]
        target = source % 3 + 1
        broker.move("orders", 0, target)
        nodes = nodes_of(broker)
        # The new leader may have the log before the old one has noted that it is gone.
        wait_for(lambda: metrics_of(nodes[source])["released_partitions_total"] == 1, "a release")
        assert metrics_of(nodes[target]) == {
            "nodes active": 3,
            "nodes draining": 0,
            "nodes fenced": 0,
            "leaderless_partitions": 0,
            "led_partitions": 2,
            "awaited_partitions": 0,
            "adopted_partitions_total": 1,
            "released_partitions_total": 0,
        }
        broker.stop_node(source)
        assert metrics_of(nodes[target])["nodes fenced"] == 1
        with Admin(broker.bootstrap) as admin:
            admin.alter_configs("broker", str(target), {"ottla.node.drain": "true"})
        wait_for(lambda: metrics_of(nodes[target])["nodes draining"] == 1, "a drain")


FEW = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}


@pytest.mark.long
def test_case_13_open_transactions_and_offsets_survive_both_ways(tmp_path: Path) -> None:
    port = free_base(3)
    addresses = ",".join(f"127.0.0.1:{port + 10 * node}" for node in range(4))
    producer = Producer(
        {
            "bootstrap.servers": addresses,
            "transactional.id": "payments",
            "transaction.timeout.ms": 120_000,
            **QUICK,
        }
    )
    places = [TopicPartition("orders", one, 7 + one) for one in range(3)]

    def begin(value: bytes) -> None:
        producer.begin_transaction()
        for partition in range(3):
            producer.produce("orders", value, partition=partition)
        assert producer.flush(PATIENCE) == 0

    def committed(broker: EmbeddedBroker) -> list[int]:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing", **QUICK})
        found = consumer.committed([TopicPartition("orders", one) for one in range(3)], PATIENCE)
        consumer.close()
        return [one.offset for one in found]

    def seen(broker: EmbeddedBroker) -> list[list[bytes]]:
        return [
            read_all(broker.bootstrap, "orders", one, **{"isolation.level": "read_committed"})
            for one in range(3)
        ]

    with EmbeddedBroker(tmp_path, port=port, config=FEW) as broker:
        broker.create_topic("orders", partitions=3)
        producer.init_transactions(PATIENCE)
        begin(b"first")
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing", **QUICK})
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()
    with EmbeddedBroker(tmp_path, port=port, nodes=3) as broker:
        assert committed(broker) == [7, 8, 9]
        for topic in ("orders", "__consumer_offsets", "__transaction_state"):
            for partition in range(len(leaders(broker, topic))):
                broker.move(topic, partition, partition % 3 + 1)
        assert seen(broker) == [[]] * 3  # it is open still
        producer.commit_transaction(PATIENCE)
        # The coordinator has answered; its markers reach the other nodes a little later.
        wait_for(lambda: seen(broker) == [[b"first"]] * 3, "markers")
        assert committed(broker) == [7, 8, 9]
        begin(b"second")
    with EmbeddedBroker(tmp_path, port=port) as broker:
        assert committed(broker) == [7, 8, 9]
        assert seen(broker) == [[b"first"]] * 3
        producer.abort_transaction(PATIENCE)
        begin(b"third")
        producer.commit_transaction(PATIENCE)
        wait_for(lambda: seen(broker) == [[b"first", b"third"]] * 3, "markers")


def test_several_nodes_are_secured() -> None:
    secured = Secured(users={"admin": "secret"}, super_users=["admin"])
    with EmbeddedBroker(nodes=3, security=secured) as broker:
        broker.create_topic("orders", partitions=3)
        login = broker.properties("admin")
        login.pop("bootstrap.servers")
        writer = Writer(broker.bootstrap, "orders", **login)
        writer.write(5, range(3))
        broker.kill_node(2)
        broker.stop_node(2)
        writer.write(5, range(3))
        for partition, acked in writer.acked.items():
            assert read_all(broker.bootstrap, "orders", partition, **login) == acked


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(BadArgument, match="nodes"):
        EmbeddedBroker(nodes=0)
    with pytest.raises(BadArgument, match=r"node\.id"):
        EmbeddedBroker(nodes=2, config={"node.id": "4"})
    with EmbeddedBroker() as broker, pytest.raises(BadArgument, match="nodes=3"):
        broker.kill_node(1)
    with EmbeddedBroker(nodes=2) as broker:
        with pytest.raises(BadArgument, match="one of"):
            broker.stop_node(3)
        with pytest.raises(BadArgument, match="does not exist"):
            broker.move("orders", 0, 1)
        broker.kill_node(2)
        with pytest.raises(BadArgument, match="not running"):
            broker.move("orders", 0, 2)


async def test_the_bootstrap_socket_has_the_buffers_that_are_set(tmp_path: Path) -> None:
    sets = ["listeners=PLAINTEXT://127.0.0.1:0", "socket.receive.buffer.bytes=65536"]
    with socket.create_server(("127.0.0.1", 0)) as shared:
        node = await Node.start(
            load_broker_config(sets=sets),
            tmp_path,
            ephemeral=True,
            siblings=True,
            shared={"PLAINTEXT": [shared]},
        )
        try:
            own = node.servers[0].sockets[0]
            sizes = [one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) for one in (own, shared)]
            assert sizes == [sizes[0], sizes[0]]
        finally:
            await node.stop()
