"""Clients log in with tokens, over SASL_SSL (cases 21 and 42)."""

from __future__ import annotations

import asyncio
import time
import warnings
from typing import TYPE_CHECKING, Any, Final

import aiokafka
import confluent_kafka
import pytest
from aiokafka.abc import AbstractTokenProvider

import ottla
from ottla.testing.secured import certificates
from ottla.wire.records import Record
from tests.support.java_client import JavaClient
from tests.support.java_tools import kept_tools
from tests.support.tokens import AUDIENCE, ISSUER, claims, key_set, signer

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # see tests.support.python_clients
    import kafka
    from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonProvider

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JAVA_TOKENS: Final = "org.apache.kafka.common.security.oauthbearer"


def token(life: float = 300, **more: Any) -> str:
    now = time.time()
    return signer().sign(claims(now, exp=now + life, **more))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ottla.EmbeddedBroker]:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_bytes(key_set(signer()))
    with ottla.EmbeddedBroker(config=settings(keys)) as broker:
        broker.create_topic("orders")
        yield broker


def settings(keys: Path) -> dict[str, str]:
    return {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": str(certificates().server("127.0.0.1")),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }


def security(value: str, expires_in: float = 300) -> ottla.Security:
    async def give() -> ottla.Token:
        return ottla.Token(value, time.time() + expires_in)

    return ottla.Security("SASL_SSL", "OAUTHBEARER", ssl_ca=certificates().ca, token=give)


async def test_the_own_client_case_21(broker: ottla.EmbeddedBroker) -> None:
    async with ottla.Producer(broker.bootstrap, security=security(token())) as producer:
        await producer.send("orders", b"one")


def test_confluent_case_21(broker: ottla.EmbeddedBroker) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, **security(token()).librdkafka()}
    )
    producer.produce("orders", b"two")
    assert producer.flush(20) == 0


async def test_aiokafka_case_21(broker: ottla.EmbeddedBroker) -> None:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return token()

    import ssl

    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
        ssl_context=ssl.create_default_context(cafile=str(certificates().ca)),
    ) as producer:
        await producer.send_and_wait("orders", b"three")


def test_kafka_python_case_21(broker: ottla.EmbeddedBroker) -> None:
    class Provider(KafkaPythonProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token()

    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
        ssl_cafile=str(certificates().ca),
    )
    try:
        assert producer.send("orders", b"four").get(30).offset >= 0
    finally:
        producer.close()


@pytest.mark.jvm
def test_java_cases_21_and_42(
    broker: ottla.EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its token is in a file; a bad one is told as what it is."""
    file = tmp_path / "token.jwt"
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={file.as_uri()}"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", allowed)
    config = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.jwt.retriever.class": f"{JAVA_TOKENS}.FileJwtRetriever",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        "sasl.login.callback.handler.class": f"{JAVA_TOKENS}.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": f"{JAVA_TOKENS}.OAuthBearerLoginModule required;",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates().ca),
    }
    with kept_tools() as tools:
        client = JavaClient(broker.bootstrap, tools)
        file.write_text(token())
        assert len(client.produce("orders", [Record(0, 1000, None, b"five")], config=config)) == 1
        file.write_text(token(aud="other"))
        with pytest.raises(RuntimeError, match="SaslAuthenticationException: Authentication fail"):
            client.produce("orders", [Record(0, 1000, None, b"six")], config=config)


@pytest.mark.parametrize("wrong", [{"aud": "other"}, {"exp": 1}, {"iss": "me"}])
async def test_a_bad_token_case_42(broker: ottla.EmbeddedBroker, wrong: dict[str, Any]) -> None:
    async with ottla.Admin(
        broker.bootstrap, security=security(signer().sign(claims(time.time(), **wrong)))
    ) as admin:
        with pytest.raises(
            ottla.errors.AuthenticationFailed, match="the broker refused the token: invalid_token"
        ):
            await admin.list_topics()


def test_confluent_reports_a_bad_token_case_42(broker: ottla.EmbeddedBroker) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            **security(token(aud="other")).librdkafka(),
            "error_cb": errors.append,
        }
    )
    while not any(one.code() == confluent_kafka.KafkaError._AUTHENTICATION for one in errors):
        producer.poll(1)


async def test_the_session_lasts_as_long_as_the_token_case_42(
    broker: ottla.EmbeddedBroker,
) -> None:
    """The own client renews it on the same connection, with a new token."""
    asked = 0
    renewed = asyncio.Event()

    async def give() -> ottla.Token:
        nonlocal asked
        asked += 1
        if asked == 3:
            renewed.set()
        now = time.time()
        return ottla.Token(token(life=2), now + 2)

    short = ottla.Security("SASL_SSL", "OAUTHBEARER", ssl_ca=certificates().ca, token=give)
    async with ottla.Producer(broker.bootstrap, security=short) as producer:
        sent = 0
        while not renewed.is_set():
            await producer.send("orders", str(sent).encode())
            sent += 1
        await producer.send("orders", b"last")


@pytest.mark.parametrize(
    "missing",
    [
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.expected.audience",
    ],
)
def test_without_a_check_the_broker_does_not_start_case_41(missing: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set(signer()))
    config = settings(keys)
    del config[missing]
    with pytest.raises(ottla.errors.InvalidConfig, match=missing):
        ottla.EmbeddedBroker(config=config).start()
