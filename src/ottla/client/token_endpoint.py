"""Tokens of an OAuth server for a client that has an id and a secret (RFC 6749, section 4.4)."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

from ottla.client.cluster.protection import tls_settings
from ottla.client.errors import AuthenticationFailed
from ottla.client.https import FetchFailed, fetch
from ottla.client.security import Token
from ottla.security.contexts import TlsSettings, client_context

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from ottla.client.security import Security

TIMEOUT_SECONDS: Final = 10.0
DEFAULT_LIFE_SECONDS: Final = 300.0
"""For servers that do not say how long a token lasts."""


def fetch_token(security: Security, clock: Callable[[], float]) -> Token:
    """Ask for a token; blocks. `AuthenticationFailed` says why there is none."""
    url = security.sasl_oauthbearer_token_endpoint_url
    assert url is not None
    fields = {"grant_type": "client_credentials"}
    if security.sasl_oauthbearer_scope is not None:
        fields["scope"] = security.sasl_oauthbearer_scope
    name, secret = security.sasl_oauthbearer_client_id, security.sasl_oauthbearer_client_secret
    basic = base64.b64encode(f"{name}:{secret}".encode()).decode()
    try:
        body = fetch(
            url,
            seconds=TIMEOUT_SECONDS,
            context=_context(security),
            data=urlencode(fields).encode(),
            headers={"Authorization": f"Basic {basic}", "Accept": "application/json"},
        )
        return token_in(body, clock())
    except FetchFailed as failure:
        where = urlsplit(url).hostname or "the token endpoint"
        raise AuthenticationFailed(
            f"cannot log in with OAUTHBEARER: no token from {where}: {failure}; check "
            "sasl.oauthbearer.token.endpoint.url, the client id and the client secret"
        ) from None


def _context(security: Security) -> ssl.SSLContext:
    """The token server is verified by the same CA as the broker, as Kafka's clients do."""
    settings = tls_settings(security)
    return client_context(
        TlsSettings(
            truststore_location=settings.truststore_location,
            truststore_certificates=settings.truststore_certificates,
            truststore_password=settings.truststore_password,
        )
    )


def token_in(body: bytes, now: float) -> Token:
    """The token in an answer."""
    try:
        said = json.loads(body)
        value = said["access_token"]
        life = float(said.get("expires_in", DEFAULT_LIFE_SECONDS))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise FetchFailed("its answer has no access_token") from None
    if not isinstance(value, str) or not value:
        raise FetchFailed("its answer has no access_token")
    return Token(value, now + life)
