"""What a supervisor tells its nodes, and how it joins what they tell."""

from __future__ import annotations

import io

import pytest

from ottla.broker.access.listeners import Listener
from ottla.broker.running.children import Birth, Lines, check_ports, child_config, line
from ottla.broker.running.joint_monitoring import joined
from ottla.metadata.config.broker import BrokerConfig
from ottla.metadata.errors import InvalidConfig


def test_a_birth_is_read_as_it_was_written() -> None:
    birth = Birth({"node.id": "2"}, "/data", False, "text", "info", {"A": [3, 4]}, None, "/data")
    source = io.BytesIO(birth.encode() + b'{"replace": 1}\n')
    assert Birth.read(source) == birth
    assert source.read() == b'{"replace": 1}\n'


def test_a_birth_that_is_cut_is_an_end() -> None:
    whole = Birth({}, "/data", True, "text", "info").encode()
    for size in range(len(whole)):
        with pytest.raises(EOFError):
            Birth.read(io.BytesIO(whole[:size]))


def test_lines_come_in_pieces() -> None:
    lines = Lines()
    data = b"\n" + line({"ready": {}}) + b"\n"
    assert [one for byte in data for one in lines.feed(bytes([byte]))] == [
        None,
        {"ready": {}},
        None,
    ]


def test_a_line_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="a line of more than"):
        Lines().feed(b"x" * 70_000)


def test_a_node_has_ports_of_its_own_and_no_settings_of_the_supervisor() -> None:
    config = BrokerConfig(
        {
            "listeners": "PLAINTEXT://127.0.0.1:9092",
            "ottla.nodes": "4",
            "ottla.metrics.listener": "http://127.0.0.1:9100",
            "listener.name.metrics.ssl.keystore.location": "x",
        }
    )
    listeners = [Listener("PLAINTEXT", "127.0.0.1", 9092), Listener("B", "::1", 0)]
    told = {"PLAINTEXT": ("broker.example", 19092)}
    assert child_config(config, listeners, told, 3, {"B": 777}) == {
        "node.id": "3",
        "listeners": "PLAINTEXT://127.0.0.1:9122,B://[::1]:777",
        "advertised.listeners": "PLAINTEXT://broker.example:19122",
    }


def test_ports_of_other_hosts_do_not_meet() -> None:
    check_ports([Listener("A", "10.0.0.1", 9092), Listener("B", "10.0.0.2", 9102)], 4)
    check_ports([Listener("A", "10.0.0.1", 9092), Listener("B", "10.0.0.1", 9093)], 4)
    with pytest.raises(InvalidConfig, match=r"port 9102 of A of node 1 and of B"):
        check_ports([Listener("A", "0.0.0.0", 9092), Listener("B", "10.0.0.2", 9102)], 4)


def test_samples_of_all_nodes_stand_together() -> None:
    one = (
        "# HELP a says\n# TYPE a counter\na_total 1.0\n"
        '# HELP b says\n# TYPE b gauge\nb{x="y"} 2.0\n'
    )
    two = '# HELP b says\n# TYPE b gauge\nb{x="y z"} 3.0\n'
    assert joined({1: one, 2: two, 3: None}).splitlines() == [
        "# HELP ottla_node_up Whether the node answers.",
        "# TYPE ottla_node_up gauge",
        'ottla_node_up{node="1"} 1.0',
        'ottla_node_up{node="2"} 1.0',
        'ottla_node_up{node="3"} 0.0',
        "# HELP a says",
        "# TYPE a counter",
        'a_total{node="1"} 1.0',
        "# HELP b says",
        "# TYPE b gauge",
        'b{node="1",x="y"} 2.0',
        'b{node="2",x="y z"} 3.0',
    ]
