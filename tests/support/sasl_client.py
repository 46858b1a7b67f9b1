"""The client's half of SASL, byte by byte, over a `RawClient`."""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING, Any

from ottla.security.scram import MECHANISMS, SaltedPasswords, ScramClient
from ottla.security.steps import Challenge, Success, Work
from ottla.wire.schema.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.schema.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from tests.support.raw_client import RawClient


def handshake(raw: RawClient, mechanism: str) -> Any:
    return raw.ask("sasl_handshake", 1, SaslHandshakeRequest(mechanism))


def authenticate(raw: RawClient, token: bytes, version: int = 2) -> Any:
    return raw.ask("sasl_authenticate", version, SaslAuthenticateRequest(token))


def plain_token(name: str, password: str, authzid: str = "") -> bytes:
    return b"\0".join(part.encode() for part in (authzid, name, password))


def scram_client(mechanism: str, name: str, password: str) -> ScramClient:
    nonce = base64.b64encode(secrets.token_bytes(24)).decode()
    return ScramClient(MECHANISMS[mechanism], name, password, nonce, SaltedPasswords())


def log_in(raw: RawClient, mechanism: str, name: str, password: str) -> Any:
    """The last answer of an exchange."""
    assert handshake(raw, mechanism).error_code == 0
    if mechanism == "PLAIN":
        return authenticate(raw, plain_token(name, password))
    client = scram_client(mechanism, name, password)
    token = client.first()
    while True:
        answer = authenticate(raw, token)
        if answer.error_code:
            return answer
        step = client.step(bytes(answer.auth_bytes))
        while isinstance(step, Work):
            step = step.finish()
        if isinstance(step, Success):
            return answer
        assert isinstance(step, Challenge)
        token = step.data
