"""Nobody becomes a node by its name: tokens, certificates and configured passwords as `__node`."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

import ottla
from ottla.metadata.errors import ConfigError
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.api_versions import ApiVersionsRequest
from tests.support.doors import bootstrap, guarded_broker, node_of
from tests.support.raw_client import RawClient
from tests.support.sasl_client import authenticate, handshake, log_in
from tests.support.tls_client import RawTlsClient
from tests.support.tokens import AUDIENCE, ISSUER, claims, key_set, signer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.doors import TlsFiles

SASL = "SASL_PLAINTEXT"
LISTENER = f"{SASL}://127.0.0.1:0"
AUTHORIZED = {"authorizer.class.name": "standard", "super.users": "User:admin"}


def told(file: Path, event: str) -> list[dict[str, Any]]:
    lines = map(json.loads, file.read_text().splitlines())
    return [line for line in lines if line["event"] == event]


def test_a_token_of_a_reserved_name_is_refused(tmp_path: Path) -> None:
    """Fault: its sub claim made the client a node, on the listener of nodes."""
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set(signer()))
    config = AUTHORIZED | {
        "listeners": LISTENER,
        "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-512",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "ottla.audit.file": str(tmp_path / "audit.log"),
    }
    now = time.time()
    with guarded_broker(config, users={}) as broker:
        for name in ("__node", "__other"):
            token = signer().sign(claims(now, exp=now + 300, sub=name))
            with RawClient(bootstrap(broker, SASL)) as raw:
                assert handshake(raw, "OAUTHBEARER").error_code == 0
                answer = authenticate(raw, f"n,,\x01auth=Bearer {token}\x01\x01".encode())
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                assert raw.closed()
    failed = told(tmp_path / "audit.log", "authenticate")
    assert [(line["outcome"], line["reason"], line["user"]) for line in failed] == [
        ("failed", "reserved name", "__node"),
        ("failed", "reserved name", "__other"),
    ]


def test_a_certificate_of_a_reserved_name_is_refused(tls_files: TlsFiles, tmp_path: Path) -> None:
    """Fault: a mapping rule that takes the common name made the client a node."""
    config = AUTHORIZED | {
        **tls_files.config(),
        "listeners": "SSL://127.0.0.1:0",
        "ssl.client.auth": "required",
        "ssl.truststore.location": str(tls_files.ca),
        "ssl.truststore.type": "PEM",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/",
        "ottla.audit.file": str(tmp_path / "audit.log"),
    }
    named = ApiVersionsRequest("tests", "1.0")
    with guarded_broker(config, users={}) as broker:
        where = bootstrap(broker, "SSL")
        with RawTlsClient(where, tls_files.ca, certificate=tls_files.client("__node")) as raw:
            assert raw.closed()
        with RawTlsClient(where, tls_files.ca, certificate=tls_files.client("carol")) as raw:
            assert raw.ask("api_versions", 3, named).error_code == 0
    (line,) = told(tmp_path / "audit.log", "tls")
    assert (line["outcome"], line["reason"]) == ("failed", "reserved name")


def test_a_configured_password_of_a_reserved_name_is_an_error_at_start() -> None:
    """Fault: `user___node` in the listener's login module was the node."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    config = AUTHORIZED | {
        "listeners": LISTENER,
        "sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{SASL.lower()}.plain.sasl.jaas.config": (
            f'{module} required user___node="x" user_alice="y";'
        ),
    }
    with (
        pytest.raises(ConfigError, match=r"sasl\.jaas\.config.*user___node"),
        ottla.EmbeddedBroker(config=config),
    ):
        pass


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_the_node_itself_comes_in_with_its_own_credential(mechanism: str) -> None:
    config = AUTHORIZED | {"listeners": LISTENER, "sasl.enabled.mechanisms": mechanism}
    with guarded_broker(config, users={}) as broker, RawClient(bootstrap(broker, SASL)) as raw:
        door = node_of(broker).services.door
        assert door is not None
        assert log_in(raw, mechanism, "__node", door._own_passwords["__node"]).error_code == 0
        (connection,) = node_of(broker).dispatcher.connections
        assert connection.peer.session is not None
        assert connection.peer.session.is_node
        assert connection.peer.access._trusted
