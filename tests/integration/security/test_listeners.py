"""Several listeners at once: a client is told the address of the listener it came in by."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from ottla import EmbeddedBroker
from ottla.broker.running.node import Node
from ottla.wire.schema.describe_cluster import DescribeClusterRequest
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.metadata import MetadataRequest
from tests.support.door_clients import Way, with_confluent
from tests.support.doors import run_in
from tests.support.raw_client import RawClient
from tests.support.tcp_proxy import TcpProxy

TWO = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INNER://127.0.0.1:0",
    "listener.security.protocol.map": "INNER:PLAINTEXT",
}


def addresses(broker: EmbeddedBroker) -> dict[str, tuple[str, int]]:
    node = broker._node
    assert isinstance(node, Node)
    return node.addresses


def told(bootstrap: str) -> set[tuple[str, int]]:
    """The addresses that the three APIs tell which have one."""
    with RawClient(bootstrap) as client:
        brokers = client.ask("metadata", 12, MetadataRequest(())).brokers
        described = client.ask("describe_cluster", 1, DescribeClusterRequest()).brokers
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        coordinators = client.ask("find_coordinator", 4, request).coordinators
    return {(one.host, one.port) for one in (*brokers, *described, *coordinators)}


def test_case_01_each_listener_shows_its_own_address() -> None:
    with EmbeddedBroker(config=TWO) as broker:
        found = addresses(broker)
        assert found.keys() == {"PLAINTEXT", "INNER"}
        for host, port in found.values():
            assert told(f"{host}:{port}") == {(host, port)}


def test_case_02_advertised_addresses_are_told() -> None:
    advertised = {"advertised.listeners": "INNER://broker.example:19092"}
    with EmbeddedBroker(config=TWO | advertised) as broker:
        found = addresses(broker)
        host, port = found["INNER"]
        assert told(f"{host}:{port}") == {("broker.example", 19092)}
        assert told("{}:{}".format(*found["PLAINTEXT"])) == {found["PLAINTEXT"]}


@pytest.mark.long
async def test_case_02_all_traffic_of_librdkafka_goes_to_the_advertised_address() -> None:
    async with TcpProxy() as proxy:
        advertised = {"advertised.listeners": f"INNER://127.0.0.1:{proxy.port}"}
        with EmbeddedBroker(config=TWO | advertised) as broker:
            host, proxy.upstream = addresses(broker)["INNER"]
            way = Way(f"{host}:{proxy.upstream}")
            assert await asyncio.to_thread(with_confluent, way) == [b"one", b"two"]
            served = run_in(broker, lambda node: dict(node.dispatcher.requests))
    for api_key in (0, 1):  # Produce and Fetch
        assert 0 < served[api_key] <= proxy.seen[api_key]


def run_broker(*args: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "ottla.cli", "broker", "--ephemeral", *args]
    return subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)


def test_case_93_a_reachable_broker_is_refused_in_one_sentence() -> None:
    run = run_broker("--listen", "0.0.0.0:0")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == (
        "ottla broker: PLAINTEXT://0.0.0.0:0 would let anyone on the network read and write; use "
        "--secure, bind 127.0.0.1, or pass --insecure if the network is yours\n"
    )


def test_case_93_insecure_starts_with_a_warning() -> None:
    program = [sys.executable, "-m", "ottla.cli", "broker", "--ephemeral", "--insecure"]
    with subprocess.Popen(
        [*program, "--listen", "0.0.0.0:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("ottla broker ready: 0.0.0.0:")
        process.terminate()
        assert "would let anyone on the network read and write" in process.stderr.read()
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("sets", "key"),
    [
        (["listeners=EXTERNAL://127.0.0.1:0"], "listener.security.protocol.map"),
        (["listeners=SSL://127.0.0.1:0"], "ssl.keystore.location"),
        (["advertised.listeners=PLAINTEXT://0.0.0.0:1"], "advertised.listeners"),
        (["listener.name.x.ssl.client.auth=none"], "listener.name.x.ssl.client.auth"),
        (
            [
                "listeners=SASL_PLAINTEXT://127.0.0.1:0",
                "sasl.enabled.mechanisms=PLAIN",
                (
                    "listener.name.sasl_plaintext.plain.sasl.jaas.config="
                    'com.sun.security.auth.module.JndiLoginModule required user.provider.url="x";'
                ),
            ],
            "listener.name.sasl_plaintext.plain.sasl.jaas.config",
        ),
        (
            ["listeners=SSL://127.0.0.1:0", "ssl.keystore.location=/nowhere"],
            "ssl.keystore.location",
        ),
        (["ottla.bootstrap.user.file=/nowhere"], "ottla.bootstrap.user.file"),
    ],
)
def test_case_03_a_wrong_listener_is_one_line_that_names_the_key(sets: list[str], key: str) -> None:
    run = run_broker(*(part for one in sets for part in ("--set", one)))
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.count("\n") == 1
    assert key in run.stderr
