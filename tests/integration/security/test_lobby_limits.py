"""Limits before authentication, seen from outside: slots, rates, delays.

Cases 33, 71, 89 to 92 of the specification of security.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

import ottla
from ottla.broker.access import lobby
from ottla.client.errors import KafkaError
from ottla.metadata.changes.configs import SetConfigs
from ottla.metadata.changes.security import SetClientQuotas
from ottla.metadata.image import ResourceType
from ottla.metadata.security.quotas import IP, EntityPart
from ottla.wire.schema.api_versions import ApiVersionsRequest
from ottla.wire.schema.metadata import MetadataRequest
from tests.support.door_clients import Way, confluent_settings
from tests.support.doors import USERS, bootstrap, guarded_broker, node_of, run_in
from tests.support.raw_client import RawClient
from tests.support.sasl_client import log_in
from tests.support.tls_client import RawTlsClient

if TYPE_CHECKING:
    from ottla.broker.running.node import Node
    from tests.support.doors import TlsFiles

SASL = "SASL_PLAINTEXT"
NAMED = ApiVersionsRequest("tests", "1.0")
CONFIG = {
    "listeners": f"{SASL}://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
}


def silent(where: str) -> socket.socket:
    host, port = where.split(":")
    return socket.create_connection((host, int(port)), 20)


def lobby_of(broker: ottla.EmbeddedBroker) -> tuple[int, int]:
    def look(node: Node) -> tuple[int, int]:
        assert node.services.door is not None
        return node.services.door._lobby.waiting, node.services.door._lobby.authenticating

    found: tuple[int, int] = run_in(broker, look)
    return found


def until(broker: ottla.EmbeddedBroker, expected: tuple[int, int]) -> None:
    deadline = time.monotonic() + 20
    while lobby_of(broker) != expected:
        assert time.monotonic() < deadline, lobby_of(broker)


def time_is_over(node: Node) -> None:
    """Of all that have said nothing yet."""
    door = node.services.door
    assert door is not None
    silent = door._lobby._silent
    for connection, visitor in silent.items():
        silent[connection] = visitor._replace(deadline=0.0)
    door._time_is_up()


def test_case_89_silent_strangers_keep_no_honest_client_waiting(tls_files: TlsFiles) -> None:
    """From the very same address; they are closed when their time is over."""
    config = {
        **tls_files.config(),
        "listeners": "SSL://127.0.0.1:0",
        "ottla.authentications.max": "5",
        "ottla.authentication.timeout.ms": "600000",
    }
    with guarded_broker(config) as broker, ExitStack() as stack:
        where = bootstrap(broker, "SSL")
        strangers = [stack.enter_context(silent(where)) for _ in range(12)]
        until(broker, (12, 0))
        with RawTlsClient(where, tls_files.ca) as honest:
            assert honest.ask("api_versions", 3, NAMED).error_code == 0
        assert lobby_of(broker) == (12, 0)  # it did not have to wait for their end
        run_in(broker, time_is_over)
        for one in strangers:
            assert one.recv(1) == b""
        until(broker, (0, 0))


@pytest.mark.parametrize("protocol", ["SSL", SASL])
def test_case_90_strangers_that_trickle_lose_their_slots_to_others(
    tls_files: TlsFiles, protocol: str
) -> None:
    """They have sent the begin of a hello or of a request, and then nothing more."""
    config = {
        **tls_files.config(),
        **CONFIG,
        "listeners": f"{protocol}://127.0.0.1:0",
        "ottla.authentications.max": "3",
        "ottla.authentication.timeout.ms": "600000",
    }
    with guarded_broker(config) as broker, ExitStack() as stack:
        where = bootstrap(broker, protocol)
        strangers = [stack.enter_context(silent(where)) for _ in range(3)]
        for one in strangers:
            one.sendall(b"\x16" if protocol == "SSL" else b"\0")
        until(broker, (0, 3))
        if protocol == "SSL":
            honest: RawClient = stack.enter_context(RawTlsClient(where, tls_files.ca))
        else:
            honest = stack.enter_context(RawClient(where))
        assert honest.ask("api_versions", 3, NAMED).error_code == 0
        assert strangers[0].recv(1) == b""


def test_nobody_is_served_in_the_lobby(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: uvloop reads once after a connection is made, and that was served unasked."""
    monkeypatch.setattr(lobby, "STALLED_SECONDS", 3600.0)
    config = CONFIG | {
        "ottla.authentications.max": "1",
        "ottla.authentication.timeout.ms": "600000",
        "ottla.lobby.wait.ms": "600000",
    }
    with guarded_broker(config) as broker, ExitStack() as stack:
        where = bootstrap(broker, SASL)
        first = stack.enter_context(silent(where))
        first.sendall(b"\0")
        until(broker, (0, 1))
        for _ in range(5):
            client = stack.enter_context(RawClient(where))
            client.send("metadata", 12, MetadataRequest(()))
        honest = stack.enter_context(RawClient(where))
        honest.send("api_versions", 3, NAMED)
        until(broker, (6, 1))
        first.close()
        assert client.closed()
        assert honest.receive("api_versions", 3)[1].error_code == 0


def test_case_92_strangers_cost_little_memory() -> None:
    """Announced frames are not believed, and what waits is not read."""
    with guarded_broker(CONFIG) as broker, ExitStack() as stack:
        where = bootstrap(broker, SASL)
        for _ in range(50):
            one = stack.enter_context(silent(where))
            one.sendall(struct.pack(">ihhih", 131_072, 17, 1, 1, -1))
        one = stack.enter_context(silent(where))
        one.sendall(struct.pack(">i", 2_000_000_000))
        assert one.recv(1) == b""
        until(broker, (0, 50))

        def held(node: Node) -> tuple[int, int]:
            frames = [each._frames for each in node.dispatcher.connections]
            return sum(len(each._chunk) for each in frames), node.dispatcher.memory.held

        chunks, counted = run_in(broker, held)
        assert chunks <= 51 * 16 * 1024
        assert counted == 0
        with RawClient(where) as raw:
            assert log_in(raw, "PLAIN", "alice", USERS["alice"]).error_code == 0


def test_a_stranger_is_read_one_request_at_a_time() -> None:
    """Nothing more is read while a password is being hashed or an answer is held back."""
    with guarded_broker(CONFIG) as broker, silent(bootstrap(broker, SASL)) as one:
        frame = struct.pack(">ihhih", 14, 17, 1, 1, -1) + b"\0\2XX"
        one.sendall(frame)
        one.setblocking(False)
        sent = 0
        try:
            for _ in range(5_000):
                sent += one.send(bytes(4096))
        except BlockingIOError:
            pass
        one.setblocking(True)
        waiting = run_in(
            broker, lambda node: [each._waiting_bytes for each in node.dispatcher.connections]
        )
        assert sum(waiting) <= 64 * 1024


def test_the_limits_of_a_listener_and_of_an_address() -> None:
    config = {
        "listeners": f"{SASL}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.name.plaintext.max.connections": "2",
        "max.connections.per.ip.overrides": "127.0.0.1:4",
    }
    with guarded_broker(config) as broker, ExitStack() as stack:
        plain = bootstrap(broker, "PLAINTEXT")
        for _ in range(2):
            client = stack.enter_context(RawClient(plain))
            assert client.ask("api_versions", 3, NAMED).error_code == 0
        assert stack.enter_context(RawClient(plain)).closed()
        for _ in range(2):
            client = stack.enter_context(RawClient(bootstrap(broker, SASL)))
            assert client.ask("api_versions", 3, NAMED).error_code == 0
        assert stack.enter_context(RawClient(bootstrap(broker, SASL))).closed()


def connections_in(where: str, count: int) -> float:
    """Seconds until so many new connections were answered."""
    began = time.monotonic()
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(where)) for _ in range(count)]
        for client in clients:
            client.send("api_versions", 3, NAMED)
        for client in clients:
            client.receive("api_versions", 3)
    return time.monotonic() - began


@pytest.mark.parametrize("key", ["", "listener.name.plaintext."])
def test_case_71_new_connections_wait_for_the_rate(key: str) -> None:
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        f"{key}max.connection.creation.rate": "10",
    }
    with guarded_broker(config, users={}) as broker:
        assert connections_in(broker.bootstrap, 15) >= 0.4


def test_case_71_a_rate_that_is_set_while_the_broker_runs() -> None:
    with ottla.EmbeddedBroker() as broker:
        assert node_of(broker).services.door is None
        change = SetConfigs(ResourceType.BROKER, "", {"max.connection.creation.rate": "10"})
        broker._call(lambda node: node.cluster.change(change))
        deadline = time.monotonic() + 20
        while not run_in(broker, lambda node: len(node.entrance.guards)):
            assert time.monotonic() < deadline
        assert connections_in(broker.bootstrap, 15) >= 0.4


def test_case_71_an_address_over_its_quota_is_closed() -> None:
    with guarded_broker(CONFIG) as broker:
        where = bootstrap(broker, SASL)
        entity = (EntityPart(IP, "127.0.0.1"),)
        change = SetClientQuotas(entity, {"connection_creation_rate": 1.0})
        broker._call(lambda node: node.cluster.change(change))
        with RawClient(where) as first, RawClient(where) as second:
            assert first.ask("api_versions", 3, NAMED).error_code == 0
            assert second.closed()


def test_only_a_login_ends_the_delays(tls_files: TlsFiles) -> None:
    """Fault: a connection to a listener that asks nobody forgave the address its failures."""
    config = CONFIG | tls_files.config() | {"listeners": f"{SASL}://127.0.0.1:0,SSL://127.0.0.1:0"}
    with guarded_broker(config) as broker:
        with RawClient(bootstrap(broker, SASL)) as raw:
            log_in(raw, "PLAIN", "alice", "wrong")
        with RawTlsClient(bootstrap(broker, "SSL"), tls_files.ca) as raw:
            raw.ask("api_versions", 3, NAMED)
        assert run_in(broker, lambda node: len(node.services.door._refusals._failures)) == 1
        with RawClient(bootstrap(broker, SASL)) as raw:
            log_in(raw, "PLAIN", "alice", USERS["alice"])
        assert run_in(broker, lambda node: len(node.services.door._refusals._failures)) == 0


def test_the_limits_of_a_listener_are_altered_while_the_broker_runs() -> None:
    config = {"listeners": f"{SASL}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"}
    with guarded_broker(config) as broker, ExitStack() as stack:
        plain = bootstrap(broker, "PLAINTEXT")
        with ottla.sync.Admin(plain) as admin:
            limit = {"listener.name.plaintext.max.connections": "3"}
            admin.alter_configs("broker", "1", limit)
            with pytest.raises(KafkaError, match="no listener other"):
                admin.alter_configs("broker", "1", {"listener.name.other.max.connections": "3"})
            keys = {"listener.name.plaintext.ssl.keystore.location": "/etc/passwd"}
            with pytest.raises(KafkaError, match=r"ssl\.keystore\.location"):
                admin.alter_configs("broker", "1", keys)
        clients = [stack.enter_context(RawClient(plain)) for _ in range(3)]
        for client in clients:
            assert client.ask("api_versions", 3, NAMED).error_code == 0
        assert stack.enter_context(RawClient(plain)).closed()


@pytest.mark.long
def test_case_33_a_client_in_a_failure_loop_is_slowed_down() -> None:
    """librdkafka comes back at once after a failure, unless its answer is held back."""
    with guarded_broker(CONFIG) as broker:
        where = bootstrap(broker, SASL)
        way = Way(where, SASL, "PLAIN", "alice", "wrong")
        quick = {"reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 1}
        # One alone comes about once a second, and more rarely on a busy machine.
        producers = [confluent_kafka.Producer(confluent_settings(way) | quick) for _ in range(8)]
        failures = run_in(broker, lambda node: node.services.door._refusals._failures)
        deadline = time.monotonic() + 120  # librdkafka pauses as it likes
        while True:
            for producer in producers:
                producer.poll(0.01)
            known = failures._addresses.get("127.0.0.1")
            if known is not None and known.doublings >= 3:
                break
            assert time.monotonic() < deadline
        with RawClient(where) as raw:
            assert log_in(raw, "PLAIN", "alice", USERS["alice"]).error_code == 0
            assert len(raw.ask("metadata", 12, MetadataRequest(())).brokers) == 1


@pytest.mark.long
def test_case_91_a_flood_of_handshakes_from_one_address_keeps_nobody_else_out(
    tls_files: TlsFiles,
) -> None:
    """Hellos come as fast as they can be sent, and none of them goes on; then somebody logs in."""
    config = {
        **tls_files.config(),
        "listeners": "SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    hello = _hello()
    with guarded_broker(config) as broker:
        where = bootstrap(broker, "SASL_SSL")
        host, port = where.split(":")
        ends = threading.Event()
        sent = 0

        def flood() -> None:
            nonlocal sent
            while not ends.is_set():
                with ExitStack() as stack:
                    for _ in range(100):
                        one = stack.enter_context(socket.create_connection((host, int(port)), 20))
                        with suppress(ConnectionError):
                            one.sendall(hello)
                        sent += 1

        crowd = threading.Thread(target=flood)
        crowd.start()
        try:
            while sent < 500:
                time.sleep(0.01)
            for _ in range(5):
                with RawTlsClient(where, tls_files.ca, source="127.0.0.2") as raw:
                    assert log_in(raw, "SCRAM-SHA-256", "alice", USERS["alice"]).error_code == 0
        finally:
            ends.set()
            crowd.join()


def _hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="x")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()
