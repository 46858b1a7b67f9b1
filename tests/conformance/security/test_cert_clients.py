"""What `ottla cert` makes is taken by clients and by Java (cases 14 and 19)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from typer.testing import CliRunner

import ottla
from ottla.cli.whole import app
from tests.support.doors import bootstrap, run_in
from tests.support.jvm import run_tool, why_no_jvm
from tests.support.names import fresh

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.broker.running.node import Node


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("cert") / "tls"
    for args in (
        ["ca"],
        ["server", "localhost,127.0.0.1", "--p12"],
        ["client", "alice", "--subject", "CN=alice,OU=billing", "--p12"],
    ):
        command, *rest = args
        done = CliRunner().invoke(app, ["cert", command, str(directory), *rest])
        assert done.exit_code == 0, done.output
    return directory


@pytest.fixture(scope="module", params=["server.keystore.pem", "server.p12"])
def broker(request: pytest.FixtureRequest, tls: Path) -> Iterator[ottla.EmbeddedBroker]:
    config = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(tls / request.param),
        "ssl.keystore.password.file": str(tls / "server.p12.password"),
        "ssl.truststore.location": str(tls / "ca.pem"),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),OU=billing$/$1@billing/",
    }
    with ottla.EmbeddedBroker(config=config) as made:
        yield made


def principals(broker: ottla.EmbeddedBroker) -> set[str]:
    def found(node: Node) -> set[str]:
        return {one.peer.principal for one in node.dispatcher.connections}

    seen: set[str] = run_in(broker, found)
    return seen


def test_19_confluent_takes_it(broker: ottla.EmbeddedBroker, tls: Path) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap(broker, "SSL"),
            "security.protocol": "SSL",
            "ssl.ca.location": str(tls / "ca.pem"),
            "ssl.certificate.location": str(tls / "client-alice.pem"),
            "ssl.key.location": str(tls / "client-alice.key"),
        }
    )
    producer.produce(fresh("topic"), b"x")
    assert producer.flush(20) == 0
    assert principals(broker) == {"User:alice@billing"}


async def test_19_our_own_clients_take_it(broker: ottla.EmbeddedBroker, tls: Path) -> None:
    security = ottla.Security(
        security_protocol="SSL",
        ssl_ca=str(tls / "ca.pem"),
        ssl_certificate=str(tls / "client-alice.pem"),
        ssl_key=str(tls / "client-alice.key"),
    )
    async with ottla.Producer(bootstrap(broker, "SSL"), security=security) as producer:
        await producer.send(fresh("topic"), b"x")
        assert "User:alice@billing" in principals(broker)


@pytest.mark.jvm
@pytest.mark.skipif(why_no_jvm() is not None, reason=str(why_no_jvm()))
@pytest.mark.parametrize("store", ["client-alice.keystore.pem", "client-alice.p12"])
def test_14_and_19_java_takes_it(
    broker: ottla.EmbeddedBroker, tls: Path, tmp_path: Path, store: str
) -> None:
    is_pem = store.endswith(".pem")
    password = (tls / "client-alice.p12.password").read_text()
    lines = [
        "security.protocol=SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={tls / 'ca.pem'}",
        f"ssl.keystore.type={'PEM' if is_pem else 'PKCS12'}",
        f"ssl.keystore.location={tls / store}",
    ]
    if not is_pem:
        lines += [f"ssl.keystore.password={password}", f"ssl.key.password={password}"]
    file = tmp_path / "client.properties"
    file.write_text("\n".join(lines))
    topic = fresh("topic")
    done = run_tool(
        *("kafka-topics", "--create", "--topic", topic, "--command-config", str(file)),
        bootstrap=bootstrap(broker, "SSL"),
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert run_in(broker, lambda node: node.image.topic(topic)) is not None
