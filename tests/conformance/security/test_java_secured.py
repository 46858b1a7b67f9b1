"""Kafka's own clients and tools come in over TLS and SASL.

Cases 1, 2, 12, 21, 24, 25, 36, 44 and 94 of the specification of security.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.broker.running.secure import secured
from ottla.wire.records import Record
from tests.support.doors import USERS, bootstrap, guarded_broker, run_in
from tests.support.java_client import JavaClient
from tests.support.java_tools import JavaTools, kept_tools
from tests.support.jvm import why_no_jvm
from tests.support.names import fresh
from tests.support.python_clients import until
from tests.support.still_sessions import still_sessions
from tests.support.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.doors import TlsFiles

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
LOGIN = "org.apache.kafka.common.security"
SESSION_SECONDS = 2


@pytest.fixture(scope="module")
def tools() -> Iterator[JavaTools]:
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)
    with kept_tools() as kept:
        yield kept


@pytest.fixture(scope="module")
def audit_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def broker(tls_files: TlsFiles, audit_file: Path) -> Iterator[ottla.EmbeddedBroker]:
    protocols = {
        "SSL": "SSL",
        "SASL_SSL": "SASL_SSL",
        "SOUGHT": "SSL",
        "ONE": "SASL_PLAINTEXT",
        "AGAIN": "SASL_PLAINTEXT",
    }
    config = {
        **tls_files.config(),
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in protocols),
        "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.again.connections.max.reauth.ms": str(SESSION_SECONDS * 1000),
        "listener.name.one.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.sought.ssl.client.auth": "requested",
        "listener.name.sasl_ssl.ssl.client.auth": "requested",
        "ssl.truststore.location": str(tls_files.ca),
        "ottla.audit.file": str(audit_file),
        "ottla.audit.allowed": "all",
    }
    with guarded_broker(config) as broker:
        yield broker


def settings(
    protocol: str, mechanism: str, password: str, tls_files: TlsFiles, user: str = "alice"
) -> dict[str, str]:
    module = f"{LOGIN}.plain.PlainLoginModule"
    if mechanism != "PLAIN":
        module = f"{LOGIN}.scram.ScramLoginModule"
    found = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        found["ssl.truststore.type"] = "PEM"
        found["ssl.truststore.location"] = str(tls_files.ca)
    if protocol.startswith("SASL"):
        found["sasl.mechanism"] = mechanism
        found["sasl.jaas.config"] = f'{module} required username="{user}" password="{password}";'
    return found


def values(count: int) -> list[Record]:
    return [Record(0, 1000 + number, None, b"%d" % number) for number in range(count)]


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SSL", ""), *(("SASL_SSL", one) for one in MECHANISMS)],
)
def test_case_01_and_21_the_java_client(
    broker: ottla.EmbeddedBroker,
    tls_files: TlsFiles,
    tools: JavaTools,
    protocol: str,
    mechanism: str,
) -> None:
    client = JavaClient(bootstrap(broker, protocol), tools)
    config = settings(protocol, mechanism, USERS["alice"], tls_files)
    topic = fresh("topic")
    assert len(client.produce(topic, values(10), config=config)) == 10
    assert len(client.consume(topic, 10, config=config)) == 10


def test_case_24_a_wrong_password_is_told(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles, tools: JavaTools
) -> None:
    client = JavaClient(bootstrap(broker, "SASL_SSL"), tools)
    config = settings("SASL_SSL", "SCRAM-SHA-256", "wrong", tls_files)
    with pytest.raises(RuntimeError, match="SaslAuthenticationException: Authentication failed"):
        client.produce(fresh("topic"), values(1), config=config)


async def test_case_02_all_traffic_goes_to_the_advertised_address(tools: JavaTools) -> None:
    topic = fresh("topic")
    async with TcpProxy() as proxy:
        config = {
            "listeners": "OUTER://127.0.0.1:0",
            "listener.security.protocol.map": "OUTER:PLAINTEXT",
            "advertised.listeners": f"OUTER://127.0.0.1:{proxy.port}",
        }
        with ottla.EmbeddedBroker(config=config) as broker:
            where = bootstrap(broker, "OUTER")
            proxy.upstream = int(where.rpartition(":")[2])
            client = JavaClient(where, tools)
            await asyncio.to_thread(client.produce, topic, values(10))
            assert len(await asyncio.to_thread(client.consume, topic, 10)) == 10
            served = run_in(broker, lambda node: dict(node.dispatcher.requests))
    for api_key in (0, 1):  # Produce and Fetch
        assert 0 < served[api_key] <= proxy.seen[api_key]


def produces(
    broker: ottla.EmbeddedBroker,
    audit_file: Path,
    tools: JavaTools,
    listener: str,
    config: dict[str, str],
) -> set[str]:
    """Who the broker takes a client for that produces, by its audit log."""
    name = fresh("client")
    client = JavaClient(bootstrap(broker, listener), tools)
    client.produce(fresh("topic"), values(1), config={**config, "client.id": name})
    found: set[str] = set()

    def look() -> None:
        lines = map(json.loads, audit_file.read_text().splitlines())
        found.update(
            line["principal"]
            for line in lines
            if line.get("client_id") == name and line.get("api") == "produce"
        )
        time.sleep(0.02)

    until(lambda: found, "a line of the audit log", look)
    return found


def certificate(tls_files: TlsFiles, name: str) -> dict[str, str]:
    """Settings of a client that shows one."""
    store = tls_files.directory / f"{name}.store.pem"
    store.write_bytes(tls_files.authority.client(name).store)
    store.chmod(0o600)
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}


def test_case_12_without_a_certificate_java_is_anonymous(
    broker: ottla.EmbeddedBroker, audit_file: Path, tls_files: TlsFiles, tools: JavaTools
) -> None:
    config = settings("SSL", "", "", tls_files)
    assert produces(broker, audit_file, tools, "SOUGHT", config) == {"User:ANONYMOUS"}
    shown = config | certificate(tls_files, "carol")
    assert produces(broker, audit_file, tools, "SOUGHT", shown) == {"User:CN=carol"}


def test_case_12_the_sasl_user_counts_whatever_certificate_java_shows(
    broker: ottla.EmbeddedBroker, audit_file: Path, tls_files: TlsFiles, tools: JavaTools
) -> None:
    config = settings("SASL_SSL", "SCRAM-SHA-512", USERS["alice"], tls_files)
    config |= certificate(tls_files, "carol")
    assert produces(broker, audit_file, tools, "SASL_SSL", config) == {"User:alice"}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_case_25_java_is_told_the_mechanisms(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles, tools: JavaTools, mechanism: str
) -> None:
    client = JavaClient(bootstrap(broker, "ONE"), tools)
    config = settings("SASL_PLAINTEXT", mechanism, USERS["alice"], tls_files)
    told = rf"UnsupportedSaslMechanismException: .*'{mechanism}'.* \[SCRAM-SHA-256\]"
    with pytest.raises(RuntimeError, match=told):
        client.produce(fresh("topic"), values(1), config=config)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_case_44_java_logs_in_with_an_odd_name(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles, tools: JavaTools, mechanism: str
) -> None:
    client = JavaClient(bootstrap(broker, "SASL_SSL"), tools)
    config = settings("SASL_SSL", mechanism, USERS["a,b=c"], tls_files, "a,b=c")
    assert len(client.produce(fresh("topic"), values(1), config=config)) == 1


def properties(tmp_path: Path, config: dict[str, str]) -> Path:
    """The file that tools take."""
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    return file


@pytest.mark.parametrize("name", ["__node", "x" * 256, "a\u0007b"])
def test_case_44_kafka_configs_is_refused_an_impossible_name(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles, tools: JavaTools, tmp_path: Path, name: str
) -> None:
    config = settings("SASL_SSL", "SCRAM-SHA-512", USERS["alice"], tls_files)
    done = tools.run(
        *("kafka-configs", "--alter", "--entity-type", "users", "--entity-name", name),
        *("--add-config", "SCRAM-SHA-256=[password=x]"),
        *("--command-config", str(properties(tmp_path, config))),
        bootstrap=bootstrap(broker, "SASL_SSL"),
    )
    assert "UnacceptableCredentialException" in done.stdout + done.stderr
    users = run_in(broker, lambda node: set(node.cluster.image.scram))
    assert users == set(USERS)


def test_case_36_the_java_producer_authenticates_again_and_loses_nothing(
    broker: ottla.EmbeddedBroker,
    tls_files: TlsFiles,
    tools: JavaTools,
    tmp_path: Path,
) -> None:
    topic, rate = fresh("topic"), 50
    records = 4 * SESSION_SECONDS * rate
    config = settings("SASL_PLAINTEXT", "SCRAM-SHA-256", USERS["alice"], tls_files)
    with still_sessions() as logins:
        done = tools.run(
            *("kafka-producer-perf-test", "--topic", topic, "--num-records", str(records)),
            *("--record-size", "10", "--throughput", str(rate)),
            *("--command-config", str(properties(tmp_path, config))),
            bootstrap=bootstrap(broker, "AGAIN"),
        )
    assert f"{records} records sent" in done.stdout, done.stderr
    assert max(logins.values()) > 1  # on one connection
    log = run_in(broker, lambda node: node.partitions.find(topic, 0).log)
    assert log.high_watermark == records


def test_case_36_the_java_consumer_authenticates_again(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles, tools: JavaTools
) -> None:
    """It waits idle for longer than two sessions last."""
    client = JavaClient(bootstrap(broker, "AGAIN"), tools)
    config = settings("SASL_PLAINTEXT", "SCRAM-SHA-512", USERS["alice"], tls_files)
    topic = fresh("topic")
    client.produce(topic, values(5), config=config)
    with still_sessions() as logins:
        assert len(client.consume(topic, 6, idle=3 * SESSION_SECONDS, config=config)) == 5
    assert max(logins.values()) > 1  # on one connection


def test_case_94_kafkas_tools_take_the_file_that_secure_makes(
    tools: JavaTools, tmp_path: Path
) -> None:
    made = secured(tmp_path, "127.0.0.1:0", [])
    with guarded_broker(made, users={}, data_dir=tmp_path) as broker:
        where = bootstrap(broker, "SASL_SSL")
        config = ("--command-config", str(tmp_path / "admin.properties"))
        for args in (("--create", "--topic", "tools"), ("--list",)):
            done = tools.run("kafka-topics", *args, *config, bootstrap=where)
            assert done.returncode == 0, done.stderr
        assert "tools" in done.stdout


def test_case_94_kafkas_console_clients_take_the_file(tools: JavaTools, tmp_path: Path) -> None:
    made = secured(tmp_path, "127.0.0.1:0", [])
    with guarded_broker(made, users={}, data_dir=tmp_path) as broker:
        where = bootstrap(broker, "SASL_SSL")
        config = ("--command-config", str(tmp_path / "admin.properties"))
        topic = ("--topic", "console")

        def run(tool: str, *args: str, stdin: str = "") -> list[str]:
            done = tools.run(f"kafka-{tool}", *args, *config, bootstrap=where, stdin=stdin)
            assert done.returncode == 0, done.stderr
            return done.stdout.split()

        run("topics", "--create", *topic)
        group = ("--entity-type", "groups", "--entity-name", "crew")
        run("configs", "--alter", *group, "--add-config", "share.auto.offset.reset=earliest")
        run("console-producer", *topic, stdin="one\ntwo\n")
        read = ("--max-messages", "2", "--timeout-ms", "60000")
        assert run("console-consumer", *topic, "--from-beginning", *read) == ["one", "two"]
        shared = run("console-share-consumer", *topic, "--group", "crew", *read)
        assert shared == ["one", "two"]
        wrong = tmp_path / "wrong.properties"
        text = (tmp_path / "admin.properties").read_text()
        wrong.write_text(text.replace('password="', 'password="x'))
        refused = ("--command-config", str(wrong), *topic, "--timeout-ms", "60000")
        done = tools.run("kafka-console-consumer", *refused, bootstrap=where)
        assert "SaslAuthenticationException: Authentication failed" in done.stdout + done.stderr
