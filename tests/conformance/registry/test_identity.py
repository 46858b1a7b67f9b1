"""Who asks the registry: by token, by client certificate, by password; quotas; through any node."""

from __future__ import annotations

import http.client
import ssl
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

import ottla
from ottla import EmbeddedBroker, SchemaRegistry, Secured
from ottla.sync import Admin
from ottla.testing.secured import RULES, certificates
from tests.support.registry_http import Answered, ask
from tests.support.tokens import AUDIENCE, ISSUER, claims, key_set, signer

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long

PASSWORDS = {"admin": "a-secret", "writer": "w-secret", "slow": "s-secret"}
ACLS = ["allow writer write topic:orders", "allow slow describe topic:orders"]
SCHEMA = {"schema": '"int"'}
PATH = "/subjects/orders-value/versions"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_bytes(key_set(signer()))
    security = Secured(
        users=PASSWORDS,
        super_users=["admin"],
        acls=ACLS,
        quotas={"slow": {"request_percentage": 0.0001}},
    )
    own = "listener.name.registry."
    config = {
        f"{own}sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        f"{own}sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        f"{own}sasl.oauthbearer.expected.issuer": ISSUER,
        f"{own}sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{own}ssl.client.auth": "requested",
        f"{own}ssl.truststore.location": str(certificates().ca),
        f"{own}ssl.principal.mapping.rules": RULES,
    }
    with EmbeddedBroker(security=security, registry=True, config=config) as made:
        yield made


def trusting(user: str | None = None) -> ssl.SSLContext:
    """Of a client, with the certificate of a user."""
    context = ssl.create_default_context(cafile=str(certificates().ca))
    if user is not None:
        context.load_cert_chain(str(certificates().client(user)))
    return context


def token(user: str, **more: object) -> str:
    return signer().sign(claims(time.time(), sub=user, **more))


def by_token(url: str, given: str) -> Answered:
    headers = {"Authorization": f"Bearer {given}"}
    return ask(url, "POST", PATH, SCHEMA, context=trusting(), headers=headers)


def test_a_token_has_the_rights_of_its_user(broker: EmbeddedBroker) -> None:
    url = broker.registry_url
    assert by_token(url, token("writer")).status == 200
    assert by_token(url, token("stranger")).code == 40301
    for bad in (token("writer", exp=1), token("writer", aud="x"), token("__node"), "x.y.z", ""):
        answer = by_token(url, bad)
        assert (answer.status, answer.code) == (401, 401)
        assert "Bearer" in answer.headers["www-authenticate"]


def test_a_certificate_has_the_rights_of_its_user(broker: EmbeddedBroker) -> None:
    url = broker.registry_url
    assert ask(url, "POST", PATH, SCHEMA, context=trusting("writer")).status == 200
    assert ask(url, "POST", PATH, SCHEMA, context=trusting("stranger")).code == 40301
    assert ask(url, "POST", PATH, SCHEMA, context=trusting()).status == 401
    who = ("admin", PASSWORDS["admin"])
    answer = ask(url, "DELETE", "/config", user=who, context=trusting("stranger"))
    assert answer.status == 200, "the header says who asks"


def test_clients_of_confluent_log_in_by_token_and_by_certificate(broker: EmbeddedBroker) -> None:
    trust = {"url": broker.registry_url, "ssl.ca.location": str(certificates().ca)}
    bearer = {
        "bearer.auth.credentials.source": "STATIC_TOKEN",
        "bearer.auth.token": token("writer"),
        "bearer.auth.logical.cluster": "lsrc-1",
        "bearer.auth.identity.pool.id": "pool-1",
    }
    file = str(certificates().client("writer"))
    certificate = {"ssl.certificate.location": file, "ssl.key.location": file}
    for proof in (bearer, certificate):
        with SchemaRegistryClient({**trust, **proof}) as client:
            assert client.get_versions("orders-value") == [1]


async def test_our_client_logs_in_by_token_and_by_certificate(broker: EmbeddedBroker) -> None:
    async def give() -> ottla.Token:
        return ottla.Token(token("writer"), time.time() + 300)

    ca = certificates().ca
    by_function = ottla.Security("SASL_SSL", "OAUTHBEARER", ssl_ca=ca, token=give)
    by_file = ottla.Security("SSL", ssl_ca=ca, ssl_certificate=certificates().client("writer"))
    for security in (by_function, by_file):
        async with SchemaRegistry(broker.registry_url, security=security) as registry:
            assert (await registry.register("orders-value", '"int"')).version == 1


def test_a_user_over_its_request_quota_is_told_to_wait(broker: EmbeddedBroker) -> None:
    def asked() -> Answered:
        who = ("slow", PASSWORDS["slow"])
        return ask(broker.registry_url, "GET", PATH, user=who, context=trusting())

    answer = asked()
    while answer.status == 200:  # within eleven seconds the next one is over it
        answer = asked()
    assert (answer.status, answer.code) == (429, 429)
    assert answer.headers["retry-after"] == "1"
    who = ("admin", PASSWORDS["admin"])
    assert ask(broker.registry_url, "GET", PATH, user=who, context=trusting()).status == 200


def test_the_listener_has_its_number_of_connections() -> None:
    config = {"listener.name.registry.max.connections": "3"}
    with EmbeddedBroker(registry=True, config=config) as broker:
        held = [_connected(broker.registry_url) for _ in range(3)]
        with pytest.raises(ConnectionError):
            _connected(broker.registry_url)
        for one in held:
            one.close()


def _connected(url: str) -> http.client.HTTPConnection:
    """A connection that has been served, and stays open."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    connection.request("GET", "/subjects")
    assert connection.getresponse().read() == b"[]"
    return connection


def test_a_certificate_counts_on_every_node() -> None:
    security = Secured(users=PASSWORDS, super_users=["admin"], acls=ACLS, client_certificates=True)
    with EmbeddedBroker(nodes=3, security=security, registry=True) as broker:
        urls = []
        for address in broker.nodes.values():
            with Admin(address, security=broker.security("admin")) as admin:
                urls.append(admin.registry_url())
        assert len(set(urls)) == 3
        for url in urls:
            assert url is not None
            assert ask(url, "POST", PATH, SCHEMA, context=trusting("writer")).status == 200
            assert ask(url, "POST", PATH, SCHEMA, context=trusting("stranger")).code == 40301
            who = ("admin", PASSWORDS["admin"])
            answer = ask(url, "GET", PATH, user=who, context=trusting("stranger"))
            assert answer.body == [1]
            forged = {"X-Ottla-Forwarded": "1", "X-Ottla-Principal": "User%3Aadmin"}
            forged |= {"X-Ottla-Client": "127.0.0.1", "X-Ottla-Signature": "0" * 64}
            forged["X-Ottla-Signed-At"] = str(int(time.time()))
            answer = ask(url, "GET", PATH, context=trusting("writer"), headers=forged)
            assert answer.status == 401
