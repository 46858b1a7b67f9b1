"""`ottla doctor` names the step that fails, for set-ups that are broken in one way (case 109)."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

import ottla
from ottla.cli.common import sentences
from ottla.cli.whole import app
from ottla.client.cluster.cluster import Client
from ottla.client.cluster.connection import Address, Connection
from ottla.client.errors import BrokerUnreachable
from ottla.security.certificates import Authority, read_authority
from ottla.testing.secured import certificates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = """
security.protocol={protocol}
sasl.mechanism={mechanism}
sasl.username={user}
sasl.password={password}
ssl.truststore.location={ca}
"""


@pytest.fixture(scope="module")
def secure() -> Iterator[ottla.EmbeddedBroker]:
    secured = ottla.Secured(users={"alice": "a", "bob": "b"}, super_users=["alice"])
    with ottla.EmbeddedBroker(security=secured) as broker:
        broker.create_topic("orders")
        yield broker


@pytest.fixture(scope="module")
def clear() -> Iterator[ottla.EmbeddedBroker]:
    secured = ottla.Secured(users={"alice": "a"}, protocol="SASL_PLAINTEXT")
    with ottla.EmbeddedBroker(security=secured) as broker:
        yield broker


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ottla.EmbeddedBroker]:
    """Its certificate is for another host."""
    store = tmp_path_factory.mktemp("tls") / "server.pem"
    store.touch(0o600)
    store.write_bytes(read_authority(certificates().directory).server(["elsewhere.example"]).store)
    with ottla.EmbeddedBroker(
        security=ottla.Secured(users={"alice": "a"}), config={"ssl.keystore.location": str(store)}
    ) as broker:
        yield broker


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """Closes every connection at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


BROKEN: dict[str, tuple[str, dict[str, str], str]] = {
    "a name that does not exist": ("no-such-host.invalid:9092", {}, "name: "),
    "nobody listens": ("127.0.0.1:1", {}, "TCP: "),
    "no TLS where the broker has it": ("secure", {"protocol": "PLAINTEXT"}, "TLS: "),
    "TLS where the broker has none": ("clear", {}, "TLS: "),
    "another CA": ("secure", {"ca": "another"}, "certificate: "),
    "the system's CAs": ("secure", {"ca": ""}, "certificate: "),
    "another host name": ("other name", {}, "certificate: "),
    "a mechanism that is off": ("secure", {"mechanism": "PLAIN"}, "SASL: "),
    "a wrong password": ("secure", {"password": "canary"}, "SASL: "),
    "an unknown user": ("secure", {"user": "nobody"}, "SASL: "),
    "no login where the broker wants one": ("clear", {"protocol": "PLAINTEXT"}, "SASL: "),
    "a login where the broker has none": ("plain", {"protocol": "SASL_PLAINTEXT"}, "SASL: "),
    "no rights": ("secure", {"user": "bob", "password": "b"}, "ACL: "),
    "a server that says nothing": ("silent", {"protocol": "PLAINTEXT"}, "protocol: "),
}


@pytest.mark.parametrize("what", BROKEN)
def test_the_step_that_fails_case_109(
    what: str,
    secure: ottla.EmbeddedBroker,
    clear: ottla.EmbeddedBroker,
    ottla_broker: ottla.EmbeddedBroker,
    elsewhere: ottla.EmbeddedBroker,
    silent: str,
    tmp_path: Path,
) -> None:
    where, changes, step = BROKEN[what]
    another = tmp_path / "another.pem"
    another.write_bytes(Authority.make().issued.chain)
    address = {
        "secure": secure.bootstrap,
        "clear": clear.bootstrap,
        "plain": ottla_broker.bootstrap,
        "silent": silent,
        "other name": elsewhere.bootstrap,
    }.get(where, where)
    values = {
        "protocol": "SASL_SSL",
        "mechanism": "SCRAM-SHA-512",
        "user": "alice",
        "password": "a",
        "ca": str(secure.ca_file),
    } | changes
    if values["ca"] == "another":
        values["ca"] = str(another)
    config = tmp_path / "client.properties"
    config.write_text(CONFIG.format(**values))
    found = examined(address, config)
    assert found["found"].startswith(step), found
    assert found["verdict"] == ("note" if step == "ACL: " else "broken")
    assert "canary" not in str(found)


@pytest.mark.long
def test_an_advertised_address_that_nobody_reaches() -> None:
    """Fault: the doctor said nothing."""
    told = "PLAINTEXT://127.0.0.1:1"
    with ottla.EmbeddedBroker(config={"advertised.listeners": told}) as broker:
        # The embedded broker's own idea of its address is the advertised one.
        assert broker._node is not None
        [(host, port)] = broker._node.addresses.values()
        at = ("--bootstrap", f"{host}:{port}", "--timeout", "60")
        result = CliRunner().invoke(app, ["doctor", "--json", *at])
    assert result.exit_code == 1
    [found] = [one for one in json.loads(result.stdout) if one["check"].startswith("advertised")]
    assert (found["check"], found["verdict"]) == ("advertised 127.0.0.1:1", "broken")
    assert found["found"].startswith("TCP: cannot connect to 127.0.0.1:1")
    assert "advertised.listeners" in found["advice"]


async def test_a_client_says_who_told_it_the_address(capsys: pytest.CaptureFixture[str]) -> None:
    """Fault: commands blamed --bootstrap for an address of advertised.listeners."""
    with pytest.raises(BrokerUnreachable) as refused:
        await Connection(Address("127.0.0.1", 1), None, advertised=True).open(connect_timeout=60)
    with pytest.raises(typer.Exit), sentences():
        raise refused.value
    said = capsys.readouterr().err
    assert "cannot connect to 127.0.0.1:1: " in said
    assert "a broker tells its clients this address: set its advertised.listeners" in said
    assert "--bootstrap" not in said


async def test_an_address_that_was_not_given_is_an_advertised_one() -> None:
    async with Client("127.0.0.1:9092") as client:
        assert not client._new_connection(client.bootstrap[0])._advertised
        assert client._new_connection(Address("127.0.0.1", 1))._advertised


def test_what_works_is_well(secure: ottla.EmbeddedBroker) -> None:
    found = examined(secure.bootstrap, secure.properties_file("alice"))
    assert found["verdict"] == "ok", found


def examined(address: str, config: Path) -> dict[str, Any]:
    command = ["doctor", "--json", "--timeout", "5", "--bootstrap", address]
    result = CliRunner().invoke(app, [*command, "--command-config", str(config)])
    [found] = [one for one in json.loads(result.stdout) if one["check"].startswith("broker")]
    return dict(found)
