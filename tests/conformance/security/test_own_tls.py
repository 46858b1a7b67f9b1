"""What the own client says when TLS with a broker does not come about (cases 8, 9 and 18)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.security.certificates import Authority
from ottla.testing.secured import certificates
from tests.support.tls import ago

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.doors import TlsFiles

REFUSED = r"client's certificate|certificate of the client.*ssl\.keystore\.location"


@pytest.fixture(scope="module")
def asking() -> Iterator[ottla.EmbeddedBroker]:
    """Wants a certificate of every client."""
    with ottla.EmbeddedBroker(security=ottla.Secured(protocol="SSL")) as broker:
        yield broker


async def connect(broker: ottla.EmbeddedBroker, security: ottla.Security) -> None:
    async with ottla.Admin(broker.bootstrap, security=security, api_timeout=10) as admin:
        await admin.connect()


async def test_a_client_certificate_case_8(asking: ottla.EmbeddedBroker) -> None:
    await connect(asking, asking.security("carol"))


async def test_no_client_certificate_case_8(asking: ottla.EmbeddedBroker) -> None:
    """The broker's alert, or its hanging up, whichever arrives first."""
    with pytest.raises(ottla.errors.BrokerUnreachable, match=REFUSED):
        await connect(asking, ottla.Security("SSL", ssl_ca=asking.ca_file))


async def test_a_client_certificate_of_another_ca_case_8(
    asking: ottla.EmbeddedBroker, tmp_path: Path
) -> None:
    store = tmp_path / "mallory.pem"
    store.touch(0o600)
    store.write_bytes(Authority.make("another").client("carol").store)
    with pytest.raises(ottla.errors.BrokerUnreachable, match=REFUSED):
        await connect(asking, ottla.Security("SSL", ssl_ca=asking.ca_file, ssl_certificate=store))


async def test_an_expired_client_certificate_case_8(
    asking: ottla.EmbeddedBroker, tmp_path: Path
) -> None:
    store = tmp_path / "carol.pem"
    store.touch(0o600)
    store.write_bytes(certificates()._authority.client("carol", days=1, now=ago(20)).store)
    with pytest.raises(ottla.errors.BrokerUnreachable, match=REFUSED):
        await connect(asking, ottla.Security("SSL", ssl_ca=asking.ca_file, ssl_certificate=store))


async def test_an_unknown_ca_case_9(asking: ottla.EmbeddedBroker) -> None:
    with pytest.raises(ottla.errors.TlsFailed, match="not of a CA that is trusted"):
        await connect(asking, ottla.Security("SSL"))


@pytest.mark.parametrize(
    ("server", "client", "said"),
    [
        (
            {"protocols": "TLSv1.3"},
            {"protocols": "TLSv1.2"},
            r"no version.*ssl\.enabled\.protocols",
        ),
        (
            {"protocols": "TLSv1.2"},
            {"protocols": "TLSv1.3"},
            r"no version.*ssl\.enabled\.protocols",
        ),
        (
            {"protocols": "TLSv1.2", "ciphers": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"},
            {"protocols": "TLSv1.2", "ciphers": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
            r"nothing that both sides offer.*ssl\.cipher\.suites",
        ),
    ],
)
async def test_nothing_in_common_case_5(
    tls_files: TlsFiles, server: dict[str, str], client: dict[str, str], said: str
) -> None:
    """Versions and ciphers of the client's file are what it offers."""

    def keys(given: dict[str, str]) -> dict[str, str]:
        names = {"protocols": "ssl.enabled.protocols", "ciphers": "ssl.cipher.suites"}
        return {names[one]: value for one, value in given.items()}

    config = {"listeners": "SSL://127.0.0.1:0", **tls_files.config(), **keys(server)}
    with ottla.EmbeddedBroker(config=config) as broker:
        base = {"security.protocol": "SSL", "ssl.ca.location": str(tls_files.ca)}
        await connect(broker, ottla.Security.from_properties(base | keys(server)))
        with pytest.raises(ottla.errors.TlsFailed, match=said):
            await connect(broker, ottla.Security.from_properties(base | keys(client)))


async def test_tls_at_a_plain_listener_case_18(ottla_broker: ottla.EmbeddedBroker) -> None:
    with pytest.raises(
        ottla.errors.TlsFailed, match=r"does not speak TLS; set security\.protocol to PLAINTEXT"
    ):
        await connect(ottla_broker, ottla.Security("SSL", ssl_ca=certificates().ca))


async def test_a_plain_client_at_a_tls_listener_case_18(asking: ottla.EmbeddedBroker) -> None:
    with pytest.raises(ottla.errors.WrongProtocol, match="it wants TLS: set security"):
        await connect(asking, ottla.Security())


async def test_no_secret_in_the_debug_log_case_84(caplog: pytest.LogCaptureFixture) -> None:
    """Of client and broker, for the APIs that carry secrets."""
    secured = ottla.Secured(
        users={"alice": "canary-1"}, super_users=["alice"], mechanisms=["PLAIN", "SCRAM-SHA-512"]
    )
    with caplog.at_level(logging.DEBUG), ottla.EmbeddedBroker(security=secured) as broker:
        async with ottla.Admin(broker.bootstrap, security=broker.security("alice")) as admin:
            await admin.create_user("bob", "canary-2", iterations=4096)
            await admin.describe_users()
            await admin.create_topic("t", configs={"retention.ms": "1234567"})
        wrong = ottla.Security("SASL_SSL", "PLAIN", "alice", "canary-3", ssl_ca=broker.ca_file)
        with pytest.raises(ottla.errors.AuthenticationFailed):
            await connect(broker, wrong)
    assert "canary" not in caplog.text
