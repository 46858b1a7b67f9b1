"""`ottla broker --nodes N`: processes that die, stop, hang and come back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from ottla import sync
from ottla.log.directory import DataDirectory, DirectoryLocked
from tests.support.nodes_load import PARTITIONS, Load
from tests.support.nodes_process import NodesProcess, gone, wait_for
from tests.support.ports import free_base, free_port
from tests.support.raw_client import RawClient, batch


def make_topic(bootstrap: str, name: str = "orders", partitions: int = PARTITIONS) -> None:
    with sync.Admin(bootstrap) as admin:
        admin.create_topic(name, partitions=partitions)


def leaders(bootstrap: str, topic: str = "orders") -> list[int]:
    with sync.Admin(bootstrap) as admin:
        (found,) = admin.describe_topics([topic])
        return [one.leader for one in found.partitions]


def ottla(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ottla.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_case_1_one_ready_line_one_address_and_partitions_of_all_nodes(tmp_path: Path) -> None:
    with NodesProcess(tmp_path / "data", 4) as broker:
        make_topic(broker.bootstrap)
        assert sorted(leaders(broker.bootstrap)) == sorted([1, 2, 3, 4] * 2)  # case 3
        load = Load(broker.bootstrap)
        load.send(400)
        load.check(broker.bootstrap)
        assert broker.stop() == 0
        assert broker.errors() == ""
        assert not broker.nodes()


class Asking(threading.Thread):
    """Records for a node over one connection, one after the other; each is acknowledged."""

    def __init__(self, bootstrap: str, topic: str, node: int) -> None:
        super().__init__()
        with sync.Admin(bootstrap) as admin:
            (address,) = (
                str(one.broker.address) for one in admin.describe_nodes() if one.broker.id == node
            )
        self._topic = topic
        self._partition = leaders(bootstrap, topic).index(node)
        self._client = RawClient(address)
        self._ends = threading.Event()
        self.answers: list[int] = []

    def run(self) -> None:
        one = bytes(batch(b"value"))
        while not self._ends.is_set():
            done = self._client.produce(self._topic, one, partition=self._partition)
            self.answers.append(done.error_code)

    def end(self) -> None:
        self._ends.set()
        self.join()
        self._client.close()
        assert set(self.answers) == {0}


@pytest.mark.long
def test_case_4_a_killed_node_comes_back_and_others_serve_meanwhile(tmp_path: Path) -> None:
    # On a busy machine a node may need long to start again, and others would take over.
    options = ("--port", "0", "--set", "ottla.nodes.restart.timeout.ms=60000")
    with NodesProcess(tmp_path / "data", 2, *options) as broker:
        make_topic(broker.bootstrap)
        make_topic(broker.bootstrap, "asked", 2)
        load = Load(broker.bootstrap)
        for victim in (1, 2, 1):
            load.send(80)
            load.send(80, wait=False)
            other = Asking(broker.bootstrap, "asked", 3 - victim)
            other.start()
            killed = broker.signal_node(victim, signal.SIGKILL)
            load.send(80)
            wait_for(lambda: broker.nodes().get(victim, killed) != killed, "a new process")  # noqa: B023
            other.end()
            # Three exits of one node within a minute would be another case.
        load.check(broker.bootstrap)
        assert set(leaders(broker.bootstrap)) == {1, 2}


@pytest.mark.long
def test_case_5_siblings_take_over_from_a_node_that_keeps_dying(tmp_path: Path) -> None:
    with NodesProcess(tmp_path / "data", 3) as broker:
        make_topic(broker.bootstrap)
        load = Load(broker.bootstrap)
        load.send(80)
        killed = 0
        for _ in range(3):
            wait_for(lambda: broker.nodes().get(2, killed) != killed, "a new process")  # noqa: B023
            killed = broker.signal_node(2, signal.SIGKILL)
        wait_for(lambda: 2 not in leaders(broker.bootstrap), "other leaders")
        load.send(160)
        load.check(broker.bootstrap)
        # It is tried again, and can lead again.
        wait_for(lambda: broker.nodes().get(2, killed) != killed, "another try")
        assert broker.stop() == 0
        assert "node 2 keeps failing; other nodes take over" in broker.errors()


@pytest.mark.long
def test_case_6_a_stopped_node_is_killed_and_started_again(tmp_path: Path) -> None:
    options = ("--port", "0", "--set", "broker.session.timeout.ms=2000")
    with NodesProcess(tmp_path / "data", 2, *options) as broker:
        make_topic(broker.bootstrap)
        load = Load(broker.bootstrap)
        load.send(80)
        stopped = broker.signal_node(2, signal.SIGSTOP)
        with pytest.raises(DirectoryLocked):  # nobody else may append to its logs
            DataDirectory(tmp_path / "data" / "node.2").close()
        load.send(80)
        assert broker.nodes()[2] != stopped
        load.check(broker.bootstrap)


@pytest.mark.long
def test_a_supervisor_that_was_stopped_kills_no_node_that_is_well(tmp_path: Path) -> None:
    # On a busy machine node 2 may need long to start again.
    options = ("--port", "0", "--set", "ottla.nodes.restart.timeout.ms=60000")
    with NodesProcess(tmp_path / "data", 2, *options) as broker:
        well = broker.nodes()[1]
        os.kill(broker.pid, signal.SIGSTOP)
        time.sleep(10)  # longer than broker.session.timeout.ms
        os.kill(broker.pid, signal.SIGCONT)
        killed = broker.signal_node(2, signal.SIGKILL)
        wait_for(lambda: broker.nodes().get(2, killed) != killed, "a new process")
        assert broker.nodes()[1] == well
        assert "node 1 does not answer" not in broker.errors()


@pytest.mark.long
def test_a_stop_tells_which_node_it_waits_for_and_which_it_kills(tmp_path: Path) -> None:
    options = ("--port", "0", "--set", "broker.session.timeout.ms=600000")
    with NodesProcess(tmp_path / "data", 2, *options) as broker:
        broker.signal_node(2, signal.SIGSTOP)
        os.kill(broker.pid, signal.SIGTERM)
        wait_for(lambda: "node 2 has not stopped yet" in broker.errors(), "a word of node 2")
        wait_for(lambda: set(broker.nodes()) == {2}, "the end of node 1")
        assert broker.stop() == 1
        assert "node 2 has not stopped; it is killed" in broker.errors()
        assert "node 1 has not stopped; it is killed" not in broker.errors()


@pytest.mark.long
def test_case_7_nodes_stop_cleanly_without_their_supervisor(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodesProcess(data, 3) as broker:
        make_topic(broker.bootstrap)
        load = Load(broker.bootstrap)
        load.send(160)
        pids = list(broker.nodes().values())
        broker.kill()
        wait_for(lambda: gone(pids), "the end of all nodes")
    for path in (data, data / "node.2", data / "node.3"):
        assert (path / ".kafka_cleanshutdown").exists()
    with NodesProcess(data, 3) as broker:
        load.check(broker.bootstrap)
        assert broker.stop() == 0


@pytest.mark.long
def test_a_new_supervisor_waits_for_the_nodes_of_one_that_died(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodesProcess(data, 2) as broker:
        make_topic(broker.bootstrap)
        load = Load(broker.bootstrap)
        load.send(80)
        broker.kill()
        with NodesProcess(data, 2) as again:
            load.check(again.bootstrap)


def test_case_8_a_second_supervisor_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodesProcess(data, 2) as broker:
        for arguments in (["--nodes", "2"], []):
            done = ottla("broker", "--port", "0", *arguments, "--data-dir", str(data))
            assert (done.returncode, done.stdout) == (2, "")
            told = f"ottla broker: data directory {data} is in use by process {broker.pid}\n"
            assert done.stderr == told


@pytest.mark.long
def test_a_broker_is_refused_while_all_nodes_wait_for_their_next_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodesProcess(data, 2) as broker:

        def all_fail() -> bool:
            """Fenced three times, a node is tried again after 4 s; that may be over by then."""
            for pid in broker.nodes().values():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return broker.errors().count("keeps failing") >= 6

        wait_for(all_fail, "nodes that keep failing")
        done = ottla("broker", "--port", "0", "--data-dir", str(data))
        assert (done.returncode, done.stdout) == (2, "")
        assert f"is in use by process {broker.pid}\n" in done.stderr


@pytest.mark.long
def test_case_13_one_node_becomes_four_and_four_become_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodesProcess(data, 1) as broker:
        make_topic(broker.bootstrap)
        load = Load(broker.bootstrap)
        load.send(160)
        assert broker.stop() == 0
    with NodesProcess(data, 4) as broker:
        wait_for(lambda: set(leaders(broker.bootstrap)) == {1, 2, 3, 4}, "a spread")
        load.check(broker.bootstrap)
        more = Load(broker.bootstrap, "more")
        make_topic(broker.bootstrap, "more")
        more.send(80)
        assert broker.stop() == 0
    with NodesProcess(data, 2) as broker:
        assert set(leaders(broker.bootstrap)) == {1, 2}
        load.check(broker.bootstrap)
        more.check(broker.bootstrap)
        assert broker.stop() == 0
    with NodesProcess(data, 1) as broker:
        assert set(leaders(broker.bootstrap)) == {1}
        load.check(broker.bootstrap)
        more.check(broker.bootstrap)
        assert broker.stop() == 0


@pytest.mark.long
def test_metrics_of_all_nodes_at_one_address(tmp_path: Path) -> None:
    port = free_port()
    options = ("--port", "0", "--metrics-port", str(port))
    with NodesProcess(tmp_path / "data", 2, *options) as broker:
        assert get(port, "/readyz")[0] == 200
        text = get(port, "/metrics")[1]
        assert text.count("# TYPE ottla_node_up gauge") == 1
        assert 'ottla_node_up{node="1"} 1.0' in text
        for node in (1, 2):
            assert f'ottla_connections{{node="{node}"' in text
        broker.signal_node(2, signal.SIGSTOP)
        status, reasons = get(port, "/readyz")
        assert status == 503
        assert "node 2: it does not answer" in reasons


def get(port: int, route: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{route}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_secrets_are_in_no_argument_and_no_environment(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodesProcess(data, 2, "--secure", "--port", "0") as broker:
        assert broker.line() == f"client settings of the user admin: {data / 'admin.properties'}"
        settings = (data / "admin.properties").read_text()
        password = settings.split('password="')[1].split('"')[0]
        for pid in broker.nodes().values():
            for name in ("cmdline", "environ"):
                assert password.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
        client = ("--bootstrap", broker.bootstrap, "--command-config", f"{data}/admin.properties")
        done = ottla("topic", "create", "t", "--partitions", "4", *client)
        assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_every_listener_of_every_node_has_its_port_and_its_protection(tmp_path: Path) -> None:
    """A secured listener and an open one beside it: P, and P + 10 k for node k, of both."""
    data = tmp_path / "data"
    outer = free_base(3)
    inner = free_base(3)
    options = (
        *("--secure", "--set", f"listeners=OUTER://127.0.0.1:{outer},INNER://127.0.0.1:{inner}"),
        *("--set", "listener.security.protocol.map=OUTER:SASL_SSL,INNER:PLAINTEXT"),
        *("--set", "inter.broker.listener.name=OUTER"),
        *("--set", "super.users=User:admin;User:ANONYMOUS"),
    )
    with NodesProcess(data, 3, *options) as broker:
        make_topic(f"127.0.0.1:{inner}")
        config = data / "admin.properties"
        for port, more in ((inner, []), (outer, ["--command-config", str(config)])):
            for asked in (port, port + 20):
                done = ottla(
                    "cluster", "status", "--json", "--bootstrap", f"127.0.0.1:{asked}", *more
                )
                assert done.returncode == 0, done.stderr
                found = json.loads(done.stdout)["nodes"]
                assert [one["address"] for one in found] == [
                    f"127.0.0.1:{port + 10 * node}" for node in (1, 2, 3)
                ]
        refused = ottla("cluster", "status", "--bootstrap", f"127.0.0.1:{outer + 20}")
        assert refused.returncode == 1
        assert broker.stop() == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--nodes", "0"), "ottla.nodes"),
        (("--nodes", "65"), "ottla.nodes"),
        (("--nodes", "many"), "ottla.nodes"),
        (("--nodes", "2", "--set", "node.id=7"), "leave out node.id"),
        (("--nodes", "2", "--port", "65530"), "ports up to 65535"),
        (
            ("--nodes", "2", "--set", "advertised.listeners=PLAINTEXT://h:65530"),
            "clients reach node 2 at 20 more",
        ),
        (
            (
                *("--nodes", "2", "--set", "listeners=A://127.0.0.1:9092,B://127.0.0.1:9102"),
                *("--set", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"),
            ),
            "port 9102 of A of node 1 and of B",
        ),
        (("--nodes", "2", "--listen", "0.0.0.0:9092"), "--secure"),
    ],
)
def test_wrong_options_are_refused_with_a_sentence(
    tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    done = ottla("broker", *options, "--data-dir", str(tmp_path / "d"))
    assert done.returncode == 2
    assert done.stderr.startswith("ottla broker: ")
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_port_of_a_node_that_is_taken_ends_the_start(tmp_path: Path) -> None:
    with NodesProcess(tmp_path / "one", 2) as broker:
        port = int(broker.bootstrap.rpartition(":")[2])
        two = str(tmp_path / "two")
        done = ottla("broker", "--nodes", "2", "--port", str(port), "--data-dir", two)
        assert done.returncode == 2
        assert "the address is in use" in done.stderr


def test_ctrl_c_stops_all_nodes(tmp_path: Path) -> None:
    with NodesProcess(tmp_path / "data", 2) as broker:
        pids = list(broker.nodes().values())
        assert broker.process is not None
        os.kill(broker.pid, signal.SIGINT)
        assert broker.process.wait(60) == 0
        assert gone(pids)


@pytest.mark.long
def test_the_registry_of_all_nodes_is_told_with_the_ready_line(tmp_path: Path) -> None:
    settings = ("--port", "0", "--set", "ottla.registry.listener=http://127.0.0.1:0")
    with NodesProcess(tmp_path / "data", 2, *settings) as broker:
        wait_for(lambda: "\n" in broker.errors(), "a line about the registry")
        told = broker.errors().splitlines()[0]
        assert told.startswith("ottla broker: schema registry at http://127.0.0.1:")
        with sync.SchemaRegistry(told.rpartition(" ")[2], timeout=60) as registry:
            assert registry.register("orders-value", '"string"').version == 1
            assert registry.by_id(1).text == '"string"'
        assert broker.stop() == 0
