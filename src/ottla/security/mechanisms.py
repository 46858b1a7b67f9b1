"""PLAIN (RFC 4616), and the mechanisms by name.

The token is `[authzid] NUL authcid NUL password`. A server checks the password against the user's
SCRAM credential, so that one credential serves all mechanisms: that takes milliseconds and comes
out as `Work`.

- After a right password a fast verifier of it is kept in memory (`Verifiers`). From then on a
  password of this user is right exactly if its verifier is the same, so neither right nor wrong
  ones are hashed slowly.
- The password of a user that does not exist is not hashed at all.
- So the time of a check tells who exists and who has logged in before. The caller must not let it
  be seen: answers to failures leave at a time that was fixed when the request came (`refusals` in
  the broker).
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final, NoReturn

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
MAX_VERIFIERS: Final = 10_000
"""About 4 MB; the one that was made first goes first, and costs its user one slow check more."""


class Verifiers:
    """Fast verifiers of passwords that were right, under a key that dies with the process.

    A verifier is HMAC-SHA256 of the credential's stored key and the password. It belongs to this
    very credential: one with another salt or password has none until its password was right.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: dict[tuple[str, bytes], bytes] = {}

    def __len__(self) -> int:
        return len(self._known)

    def verdict(self, name: str, credential: ScramCredential, password: str) -> bool | None:
        """Whether this is the password of the credential; None if there is no verifier."""
        known = self._known.get((name, credential.stored_key))
        if known is None:
            return None
        return hmac.compare_digest(known, self._made(credential, password))

    def keep(self, name: str, credential: ScramCredential, password: str) -> None:
        """Remember the password, which was right."""
        if len(self._known) >= MAX_VERIFIERS:
            del self._known[next(iter(self._known))]
        self._known[name, credential.stored_key] = self._made(credential, password)

    def forget(self, is_outdated: Callable[[str], bool]) -> None:
        """Drop the verifiers of users of these names: their credentials have changed."""
        for key in [key for key in self._known if is_outdated(key[0])]:
            del self._known[key]

    def _made(self, credential: ScramCredential, password: str) -> bytes:
        # The stored key has one length for each mechanism, so that nothing can shift.
        return hmac.digest(self._key, credential.stored_key + password.encode(), "sha256")

    def __reduce__(self) -> NoReturn:
        raise TypeError("verifiers of passwords are not pickled")


class PlainServer:
    """The server's side; `credential_of` has None for users that do not exist."""

    def __init__(
        self, credential_of: Callable[[str], ScramCredential | None], verifiers: Verifiers
    ) -> None:
        self._credential_of = credential_of
        self._verifiers = verifiers
        self._ended = False

    def step(self, token: bytes) -> Step:
        """The verdict if it is known at once, else Work that tells."""
        if self._ended:
            return Failure("message after the end of the exchange")
        self._ended = True
        found = _parsed(token)
        if isinstance(found, Failure):
            return found
        return password_step(*found, self._credential_of, self._verifiers)


def password_step(
    name: str,
    password: str,
    credential_of: Callable[[str], ScramCredential | None],
    verifiers: Verifiers,
) -> Success | Failure | Work:
    """Check a name and a password, as PLAIN and HTTP's Basic do."""
    credential = credential_of(name)
    if credential is None:
        return Failure("unknown user", name)
    is_right = verifiers.verdict(name, credential, password)
    if is_right is not None:
        return Success(name) if is_right else Failure("wrong password", name)

    def then(fits: bool) -> Step:
        if not fits:
            return Failure("wrong password", name)
        current = credential_of(name)
        if current is None or not credential.is_same(current):
            return Failure("credential changed within the exchange", name)
        verifiers.keep(name, credential, password)
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
