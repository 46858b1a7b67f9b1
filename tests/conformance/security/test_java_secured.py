"""Kafka's own clients and tools come in over TLS and SASL (cases 1, 24, 36 and 94)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from ottla.broker.running.secure import secured
from ottla.wire.records import Record
from tests.support.doors import USERS, bootstrap, guarded_broker, run_in
from tests.support.java_client import JavaClient
from tests.support.java_tools import JavaTools, kept_tools
from tests.support.jvm import why_no_jvm
from tests.support.names import fresh

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import ottla
    from tests.support.doors import TlsFiles

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
LOGIN = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def tools() -> Iterator[JavaTools]:
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)
    with kept_tools() as kept:
        yield kept


@pytest.fixture(scope="module")
def broker(tls_files: TlsFiles) -> Iterator[ottla.EmbeddedBroker]:
    config = {
        **tls_files.config(),
        "listeners": "SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.connections.max.reauth.ms": "2000",
    }
    with guarded_broker(config) as broker:
        yield broker


def settings(protocol: str, mechanism: str, password: str, tls_files: TlsFiles) -> dict[str, str]:
    module = f"{LOGIN}.plain.PlainLoginModule"
    if mechanism != "PLAIN":
        module = f"{LOGIN}.scram.ScramLoginModule"
    found = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        found["ssl.truststore.type"] = "PEM"
        found["ssl.truststore.location"] = str(tls_files.ca)
    if protocol.startswith("SASL"):
        found["sasl.mechanism"] = mechanism
        found["sasl.jaas.config"] = f'{module} required username="alice" password="{password}";'
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


def test_case_36_the_java_consumer_authenticates_again(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles, tools: JavaTools
) -> None:
    """It waits idle for longer than two sessions last."""
    client = JavaClient(bootstrap(broker, "SASL_PLAINTEXT"), tools)
    config = settings("SASL_PLAINTEXT", "SCRAM-SHA-512", USERS["alice"], tls_files)
    topic = fresh("topic")
    client.produce(topic, values(5), config=config)
    before = run_in(broker, lambda node: node.services.door.expired_sessions)
    began = time.monotonic()
    assert len(client.consume(topic, 6, idle=5.0, config=config)) == 5
    assert time.monotonic() - began > 5
    assert run_in(broker, lambda node: node.services.door.expired_sessions) == before


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
