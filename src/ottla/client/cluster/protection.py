"""What the connections of one client share: the TLS context, salted passwords, a token.

All of it is made when the first connection needs it, in a thread where files are read or a token
server is asked, and kept for the life of the client. A client of a PLAINTEXT listener has none.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from typing import TYPE_CHECKING, Any

from ottla.client.errors import AuthenticationFailed, UnsupportedSecurity
from ottla.client.sasl import Login, mechanism_of
from ottla.client.security import Token, offered
from ottla.client.security_properties import is_pem_text
from ottla.clock import SYSTEM
from ottla.security.contexts import TlsSettings, client_context
from ottla.security.errors import SecurityError
from ottla.security.scram import NONCE_BYTES, SaltedPasswords
from ottla.security.tls_channel import TlsChannel
from ottla.security.tokens import KeptToken

if TYPE_CHECKING:
    import ssl

    from ottla.client.security import Security
    from ottla.clock import Clock

logger = logging.getLogger(__name__)


class Protection:
    """Makes channels and logins for the connections of a client."""

    def __init__(self, security: Security, clock: Clock = SYSTEM) -> None:
        self.security = security
        self._clock = clock
        self._context: ssl.SSLContext | None = security.ssl_context
        self._salted = SaltedPasswords()
        self._token = KeptToken(clock)
        if not security.ssl_check_hostname:
            logger.warning(
                "ssl_check_hostname is off: any server with a certificate of a trusted CA is taken "
                "for the broker"
            )

    async def channel(self, host: str) -> TlsChannel:
        """The client's side of a new TLS connection."""
        if self._context is None:
            try:
                self._context = await asyncio.to_thread(context_of, self.security)
            except SecurityError as error:
                # A broker's key for the same thing has another name.
                said = str(error).replace("ottla.ssl.crl.location", "ssl.crl.location (ssl_crl)")
                raise UnsupportedSecurity(said) from error
        # An address is checked against the certificate; only a name is told to the server (SNI).
        return TlsChannel(self._context, server_side=False, server_hostname=host.strip("[]"))

    async def login(self, within: float) -> Login:
        """A new login; a token must come within these seconds."""
        security = self.security
        token = None
        if security.sasl_mechanism == "OAUTHBEARER":
            try:
                async with asyncio.timeout(within):
                    token = await self._fresh_token()
            except TimeoutError:
                raise AuthenticationFailed(
                    "cannot log in with OAUTHBEARER: the token provider gave no token in "
                    f"{within:g} s"
                ) from None
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        side = mechanism_of(security, self._salted, nonce, token)
        assert security.sasl_mechanism is not None
        return Login(security.sasl_mechanism, security.sasl_username or "", side)

    def refused(self) -> None:
        """A broker refused a login: the next one has another token, if it is by token."""
        self._token.forget()

    async def _fresh_token(self) -> str:
        kept = self._token.value
        if kept is not None:
            return kept
        given = await asked_token(self.security, self._clock)
        try:
            self._token.keep(given.value, given.expires_at)
        except SecurityError as error:
            raise AuthenticationFailed(f"cannot log in with OAUTHBEARER: {error}") from None
        return given.value


async def asked_token(security: Security, clock: Clock = SYSTEM) -> Token:
    if security.token is None:
        from ottla.client.token_endpoint import fetch_token

        return await asyncio.to_thread(fetch_token, security, clock.wall)
    given: Any
    try:
        given = await security.token()
        value, expires_at = given
    except Exception as error:
        raise AuthenticationFailed(
            f"cannot log in with OAUTHBEARER: the token provider failed with {type(error).__name__}"
        ) from error
    if not isinstance(value, str) or not isinstance(expires_at, int | float):
        raise AuthenticationFailed(
            "cannot log in with OAUTHBEARER: the token provider must return "
            "Token(value, expires_at)"
        )
    return Token(value, expires_at)


def context_of(security: Security) -> ssl.SSLContext:
    return client_context(tls_settings(security), check_hostname=security.ssl_check_hostname)


def tls_settings(security: Security) -> TlsSettings:
    """The files and texts of a client, in the words of `ssl.*` settings."""
    trust = _text(security.ssl_ca)
    chain, key = _text(security.ssl_certificate), _text(security.ssl_key)
    given: dict[str, Any] = {
        **offered(security),
        "truststore_password": security.ssl_ca_password,
        "key_password": security.ssl_key_password,
        "crl_location": _text(security.ssl_crl),
    }
    if trust is not None:
        given["truststore_certificates" if is_pem_text(trust) else "truststore_location"] = trust
    if chain is None:
        pass
    elif key is None and not is_pem_text(chain):
        given["keystore_location"] = chain
        given["keystore_password"] = security.ssl_key_password
    elif key is None or (is_pem_text(chain) and is_pem_text(key)):
        given["keystore_certificate_chain"] = chain
        given["keystore_key"] = chain if key is None else key
    elif is_pem_text(chain) or is_pem_text(key):
        raise UnsupportedSecurity(
            "ssl_certificate and ssl_key are both files, or both PEM text; not one of each"
        )
    else:
        given["certificate_location"] = chain
        given["key_location"] = key
    return TlsSettings(**given)


def _text(given: str | os.PathLike[str] | None) -> str | None:
    return None if given is None else os.fspath(given)
