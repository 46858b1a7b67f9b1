"""PLAIN (RFC 4616), and the mechanisms by name.

The token is `[authzid] NUL authcid NUL password`. A server checks the password against the user's
SCRAM credential, so that one credential serves all mechanisms: that takes milliseconds and comes
out as `Work`. A password that was right is remembered for ten minutes as a keyed digest, so that
clients that reconnect cost microseconds.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from ottla.security.scram import ScramCredential, is_password
from ottla.security.steps import Failure, Step, Success, Work, name_fault

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
MECHANISM_NAMES: Final = (SCRAM_SHA_512, SCRAM_SHA_256, PLAIN, OAUTHBEARER)
"""All that Ottla knows, the best first. GSSAPI needs C libraries and a key distribution centre."""

MAX_NAME_BYTES: Final = 255
MAX_PASSWORD_BYTES: Final = 1024
"""Longer ones would make a stranger's login dear."""
REMEMBERED_SECONDS: Final = 600.0
MAX_REMEMBERED: Final = 10_000
"""About 3 MB; the oldest goes first."""


class _Remembered(NamedTuple):
    digest: bytes
    until: float


class RememberedPasswords:
    """Digests of passwords that were right, by user, under a key that dies with the process.

    The digest includes the credential: after a changed password it does not fit any more.
    """

    def __init__(self, key: bytes, clock: Callable[[], float]) -> None:
        self._key = key
        self._clock = clock
        self._known: dict[str, _Remembered] = {}

    def __len__(self) -> int:
        return len(self._known)

    def has(self, name: str, credential: ScramCredential, password: str) -> bool:
        """Whether this password was right for this credential within the last ten minutes."""
        digest = self._digest(credential, password)
        known = self._known.get(name)
        if known is None or self._clock() >= known.until:
            return False
        return hmac.compare_digest(known.digest, digest) and credential.is_known

    def keep(self, name: str, credential: ScramCredential, password: str) -> None:
        """Remember that the password was right."""
        self._known.pop(name, None)
        if len(self._known) >= MAX_REMEMBERED:
            del self._known[next(iter(self._known))]
        until = self._clock() + REMEMBERED_SECONDS
        self._known[name] = _Remembered(self._digest(credential, password), until)

    def _digest(self, credential: ScramCredential, password: str) -> bytes:
        # The stored key has one length for each mechanism, so that nothing can shift.
        return hmac.digest(self._key, credential.stored_key + password.encode(), "sha512")

    def __reduce__(self) -> NoReturn:
        raise TypeError("remembered passwords are not pickled")


class PlainServer:
    """The server's side; `credential_of` has an answer for every name, made up if need be."""

    def __init__(
        self, credential_of: Callable[[str], ScramCredential], remembered: RememberedPasswords
    ) -> None:
        self._credential_of = credential_of
        self._remembered = remembered
        self._ended = False

    def step(self, token: bytes) -> Step:
        """Success for a remembered password, else Work that tells."""
        if self._ended:
            return Failure("message after the end of the exchange")
        self._ended = True
        found = _parsed(token)
        if isinstance(found, Failure):
            return found
        return password_step(*found, self._credential_of, self._remembered)


def password_step(
    name: str,
    password: str,
    credential_of: Callable[[str], ScramCredential],
    remembered: RememberedPasswords,
) -> Success | Failure | Work:
    """Check a name and a password, as PLAIN and HTTP's Basic do."""
    credential = credential_of(name)
    if remembered.has(name, credential, password):
        return Success(name)

    def then(fits: bool) -> Step:
        if not fits:
            return Failure("wrong password" if credential.is_known else "unknown user", name)
        if not credential.is_same(credential_of(name)):
            return Failure("credential changed within the exchange", name)
        remembered.keep(name, credential, password)
        return Success(name)

    return Work(lambda: is_password(credential, password), then)


def _parsed(token: bytes) -> tuple[str, str] | Failure:
    """Name and password of a token."""
    if len(token) > 2 * MAX_NAME_BYTES + MAX_PASSWORD_BYTES + 2:
        return Failure("message too long")
    parts = token.split(b"\0")
    if len(parts) != 3:
        return Failure("malformed message")
    authzid, raw_name, raw_password = parts
    if len(raw_name) > MAX_NAME_BYTES or len(raw_password) > MAX_PASSWORD_BYTES:
        return Failure("user name or password too long")
    try:
        name, password = raw_name.decode(), raw_password.decode()
        who = authzid.decode()
    except UnicodeDecodeError:
        return Failure("message is not UTF-8")
    if not password:
        return Failure("empty password")
    fault = name_fault(name)
    if fault is not None:
        return Failure(fault)
    if who not in ("", name):
        return Failure("authorization id differs from the user", name)
    return name, password


class PlainClient:
    """The client's side: one message, and the server's word for it."""

    def __init__(self, name: str, password: str) -> None:
        self._name = name
        self._password = password

    def first(self) -> bytes:
        """The only message."""
        return b"\0".join((b"", self._name.encode(), self._password.encode()))

    def step(self, token: bytes) -> Step:
        """Success; a server that refuses answers with an error instead of a token."""
        return Failure("unexpected challenge") if token else Success(self._name)
