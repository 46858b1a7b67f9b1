"""`EmbeddedBroker(nodes=2, processes=True)`: nodes as processes below a supervisor."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ottla import EmbeddedBroker, Secured
from ottla.broker.errors import BrokerNotRunning
from ottla.client.errors import AuthenticationFailed, BadArgument
from ottla.sync import Admin, SchemaRegistry
from tests.support.cluster_clients import Writer, directories, read_all
from tests.support.nodes_process import gone, wait_for

if TYPE_CHECKING:
    from pathlib import Path


def pids(path: Path) -> list[int]:
    return [int(lock.read_text()) for lock in (path / ".lock", *path.glob("node.*/.lock"))]


@pytest.mark.long
def test_nodes_are_processes_that_die_come_back_and_hand_over(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, nodes=2, processes=True) as broker:
        assert [*broker.nodes] == [1, 2]
        before = pids(tmp_path)
        assert os.getpid() not in before
        broker.create_topic("orders", partitions=4)
        writer = Writer(broker.bootstrap, "orders")
        writer.write(20, range(4))
        address = broker.nodes[2]
        broker.kill_node(2)
        assert [*broker.nodes] == [1]
        broker.start_node(2)
        assert broker.nodes[2] == address
        assert pids(tmp_path)[0] == before[0]
        assert pids(tmp_path)[1] != before[1]
        writer.write(20, range(4))
        for partition in range(4):
            broker.move("orders", partition, 2)
            (found,) = directories(tmp_path, "orders", partition)
            assert found.parent == tmp_path / "node.2"
        writer.write(20, range(4))
        for partition in range(4):
            assert read_all(broker.bootstrap, "orders", partition) == writer.acked[partition]
        with pytest.raises(BadArgument, match="starts every node again"):
            broker.stop_node(2)
        with pytest.raises(BadArgument, match="expected 1 to 2"):
            broker.kill_node(3)
        again = EmbeddedBroker(tmp_path, nodes=2, processes=True)
        with pytest.raises(BrokerNotRunning, match="is in use by process"):
            again.start()
        last = pids(tmp_path)
    assert gone(last)


@pytest.mark.long
def test_processes_are_secured_and_end_with_the_test(tmp_path: Path) -> None:
    secured = Secured(users={"admin": "secret"}, super_users=["admin"])
    with EmbeddedBroker(nodes=2, processes=True, security=secured) as broker:
        broker.create_user("bob", "other")
        broker.create_acls("allow bob describe topic:orders")

        def sees(address: str) -> bool:
            try:
                with Admin(address, security=broker.security("bob")) as admin:
                    return admin.list_topics() == []
            except AuthenticationFailed:
                return False  # nodes learn of a user within a second

        for address in broker.nodes.values():
            wait_for(lambda address=address: sees(address), "a node knows the user")  # type: ignore[misc]
    code = f"""
import time, ottla
broker = ottla.EmbeddedBroker({str(tmp_path)!r}, nodes=2, processes=True).start()
print(broker.bootstrap, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as test:
        assert test.stdout is not None
        assert test.stdout.readline()
        nodes = pids(tmp_path)
        test.kill()
    wait_for(lambda: gone(nodes), "nodes of a killed test end")


@pytest.mark.long
def test_processes_serve_a_registry() -> None:
    with EmbeddedBroker(nodes=2, processes=True, registry=True) as broker:
        with SchemaRegistry(broker.registry_url) as registry:
            assert registry.register("orders-value", '"string"').version == 1
        broker.kill_node(1)
        with SchemaRegistry(broker.registry_url, timeout=60) as registry:  # of node 2
            assert registry.by_id(1).text == '"string"'


def test_a_wrong_setting_is_told_at_once() -> None:
    with pytest.raises(BadArgument, match=r"listeners and node\.id are not yours"):
        EmbeddedBroker(processes=True, config={"node.id": "3"})
