"""The client's side of a login, without a socket: requests out, answers in.

    begin()                 -> SaslHandshake, with the name of the mechanism
    shaken(answer)          -> SaslAuthenticate, with the mechanism's first message
    answered(answer)        -> SaslAuthenticate | Work | LoggedIn

Everything that a broker refuses raises `AuthenticationFailed`, which names the mechanism and the
user and never the password. A broker that answers what it should not (a SCRAM server that does not
know the password, a handshake without an end) is refused as well: it may be a false one.

A session that ends is renewed on the same connection (KIP-368), at a random 85 to 95 percent of
its lifetime, so that clients that came together do not come back together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from ottla.client.errors import AuthenticationFailed, UnsupportedSecurity, kafka_error
from ottla.security.steps import Challenge, Failure, Success, Work
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.schema.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from ottla.client.security import Security
    from ottla.security.scram import SaltedPasswords
    from ottla.security.steps import Step
    from ottla.wire.schema.sasl_authenticate import SaslAuthenticateResponse
    from ottla.wire.schema.sasl_handshake import SaslHandshakeResponse

HANDSHAKE_VERSION: Final = 1  # version 0 is followed by tokens without a frame
RENEWED_FROM: Final = 0.85
RENEWED_UNTIL: Final = 0.95
MAX_MESSAGES: Final = 8
"""A SCRAM login has two; a server that never ends would hold the client."""


class ClientMechanism(Protocol):
    """The client's side of a mechanism."""

    def first(self) -> bytes:
        """The first message."""
        ...

    def step(self, token: bytes) -> Step:
        """The answer to the server's message."""
        ...


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """The login is over; `lifetime` is how many seconds the session lasts, None for ever."""

    lifetime: float | None

    def renewed_after(self, random: float) -> float | None:
        """Seconds after which to log in again; `random` is from [0, 1)."""
        if self.lifetime is None:
            return None
        return self.lifetime * (RENEWED_FROM + random * (RENEWED_UNTIL - RENEWED_FROM))


class Login:
    """One login, or its renewal."""

    def __init__(self, mechanism: str, user: str, side: ClientMechanism) -> None:
        self._mechanism = mechanism
        self._user = user
        self._side = side
        self._messages = 0
        self._is_done = False
        self._refusal: str | None = None

    def begin(self) -> SaslHandshakeRequest:
        """The first request."""
        return SaslHandshakeRequest(self._mechanism)

    def shaken(self, answer: SaslHandshakeResponse) -> SaslAuthenticateRequest:
        """The next request, if the broker has this mechanism."""
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(map(_printable, answer.mechanisms)) or "none"
            raise UnsupportedSecurity(
                f"the broker does not offer {self._mechanism} on this listener; it offers {offered}"
            )
        if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise UnsupportedSecurity(
                "the listener has no SASL; set security.protocol to PLAINTEXT or SSL"
            )
        if answer.error_code:
            raise kafka_error(answer.error_code, f"log in with {self._mechanism}")
        return SaslAuthenticateRequest(self._side.first())

    def answered(
        self, answer: SaslAuthenticateResponse
    ) -> SaslAuthenticateRequest | Work | LoggedIn:
        """The next request, slow work whose result `worked` takes, or the end."""
        if answer.error_code:
            said = _printable(answer.error_message or "")
            raise self._failed(self._refusal or said or f"error code {answer.error_code}")
        self._messages += 1
        if self._messages > MAX_MESSAGES:
            raise self._failed("the broker does not come to an end")
        lifetime = answer.session_lifetime_ms
        return self._next(self._side.step(bytes(answer.auth_bytes)), lifetime)

    def worked(self, work: Work, result: object) -> SaslAuthenticateRequest | LoggedIn:
        """What follows slow work."""
        following = self._next(work.then(result), 0)
        assert not isinstance(following, Work), "work follows no work"
        return following

    def _next(self, step: Step, lifetime_ms: int) -> SaslAuthenticateRequest | Work | LoggedIn:
        match step:
            case Challenge(data):
                self._refusal = getattr(self._side, "refusal", None)
                return SaslAuthenticateRequest(data)
            case Success():
                return LoggedIn(lifetime_ms / 1000 if lifetime_ms > 0 else None)
            case Failure(reason):
                raise self._failed(reason)
            case Work():
                return step

    def _failed(self, why: str) -> AuthenticationFailed:
        return AuthenticationFailed(
            f"cannot log in as {self._user!r} with {self._mechanism}: {why.rstrip('.')}; check the "
            "user name, the password and the mechanism"
            if self._user
            else f"cannot log in with {self._mechanism}: {why.rstrip('.')}; check the token"
        )


def mechanism_of(
    security: Security, salted: SaltedPasswords, nonce: str, token: str | None
) -> ClientMechanism:
    """The client's side of the mechanism asked for; `token` is for OAUTHBEARER."""
    name = security.sasl_mechanism
    if name == "OAUTHBEARER":
        from ottla.security.oauthbearer import OAuthBearerClient

        assert token is not None
        return OAuthBearerClient(token)
    user, password = security.sasl_username, security.sasl_password
    assert user is not None, "checked with the settings"
    assert password is not None, "checked with the settings"
    if name == "PLAIN":
        from ottla.security.mechanisms import PlainClient

        return PlainClient(user, password)
    from ottla.security.scram import MECHANISMS, ScramClient

    assert name is not None
    return ScramClient(MECHANISMS[name], user, password, nonce, salted)


def _printable(text: str) -> str:
    """A broker's words for a message of ours: one line, not long."""
    return "".join(one if one.isprintable() else "?" for one in text[:200])
