"""OAUTHBEARER (RFC 7628): messages of both sides. Whether a token is good is decided elsewhere.

The client sends `n,[a=name],^A auth=Bearer TOKEN ^A (key=value ^A)* ^A` without the blanks. A
server that refuses the token answers with a JSON text, the client says `^A`, and the exchange
fails; so that a client can tell why.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.security.steps import Challenge, Failure, Step, Success, Work

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_TOKEN_CHARACTERS: Final = 32 * 1024
"""Real tokens have a few KiB."""

_SEPARATOR: Final = "\x01"
_DUMMY: Final = b"\x01"
_HEADER: Final = re.compile(r"n,(?:a=(?P<authzid>[^,\x01]*))?,\x01")
_PAIR: Final = re.compile(r"(?P<key>[A-Za-z]+)=(?P<value>[\x20-\x7e\t\r\n]*)")
_BEARER: Final = re.compile(r"bearer (?P<token>[A-Za-z0-9_.=-]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GoodToken:
    """Whose token it is, and until when (seconds since 1970)."""

    name: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class BadToken:
    """Why a token is refused: for the operator, and by status for the client."""

    reason: str
    status: str = "invalid_token"
    scope: str | None = None

    def told(self) -> bytes:
        """What the client learns."""
        said = {"status": self.status}
        if self.scope is not None:
            said["scope"] = self.scope
        return json.dumps(said).encode()


@dataclass(frozen=True, slots=True)
class Unfetched:
    """The token's key is not known yet: run `call` in a thread, then pass its result to `then`."""

    call: Callable[[], object]
    then: Callable[[object], GoodToken | BadToken]


Verdict: TypeAlias = GoodToken | BadToken | Unfetched


class OAuthBearerServer:
    """The server's side; `judge` says what a token is worth."""

    def __init__(self, judge: Callable[[str], Verdict]) -> None:
        self._judge = judge
        self._refused: str | None = None
        self._ended = False

    def step(self, token: bytes) -> Step:
        """Success for a good token; a Challenge and then a Failure for a bad one."""
        if self._refused is not None:
            return Failure(self._refused)
        if self._ended:
            return Failure("message after the end of the exchange")
        self._ended = True
        found = _parsed(token)
        if isinstance(found, Failure):
            return found
        authzid, bearer = found
        verdict = self._judge(bearer)
        if isinstance(verdict, Unfetched):
            then = verdict.then
            return Work(verdict.call, lambda result: self._told(then(result), authzid))
        return self._told(verdict, authzid)

    def _told(self, verdict: GoodToken | BadToken, authzid: str) -> Step:
        if isinstance(verdict, BadToken):
            self._refused = verdict.reason
            return Challenge(verdict.told())
        if authzid not in ("", verdict.name):
            return Failure("authorization id differs from the user")
        return Success(verdict.name, expires_at=verdict.expires_at)


def _parsed(message: bytes) -> tuple[str, str] | Failure:
    """The authorization id and the token."""
    if len(message) > 2 * MAX_TOKEN_CHARACTERS:
        return Failure("message too long")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        return Failure("message is not UTF-8")
    header = _HEADER.match(text)
    if header is None or not text.endswith(2 * _SEPARATOR):
        return Failure("malformed message")
    values: dict[str, str] = {}
    for pair in text[header.end() : -2].split(_SEPARATOR):
        found = _PAIR.fullmatch(pair)
        if found is None or found["key"] in values:
            return Failure("malformed message")
        values[found["key"]] = found["value"]
    bearer = _BEARER.fullmatch(values.get("auth", ""))
    if bearer is None:
        return Failure("message without a bearer token")
    if len(bearer["token"]) > MAX_TOKEN_CHARACTERS:
        return Failure(f"token longer than {MAX_TOKEN_CHARACTERS} characters")
    return header["authzid"] or "", bearer["token"]


@dataclass(slots=True)
class OAuthBearerClient:
    """The client's side. `refusal` is what the server said against the token, if it did."""

    token: str = field(repr=False)
    refusal: str | None = None

    def first(self) -> bytes:
        """The message with the token."""
        return f"n,,{_SEPARATOR}auth=Bearer {self.token}{2 * _SEPARATOR}".encode()

    def step(self, token: bytes) -> Step:
        """Success for an empty answer; else the server has said why it will refuse."""
        if self.refusal is not None:
            return Failure(self.refusal)
        if not token:
            return Success("")
        self.refusal = _said(token)
        return Challenge(_DUMMY)


def _said(answer: bytes) -> str:
    """The status in a server's answer; it is somebody else's text, so it is cut and checked."""
    try:
        said = json.loads(answer[:4096])
    except ValueError:
        said = None
    status = said.get("status") if isinstance(said, dict) else None
    if isinstance(status, str) and re.fullmatch(r"[\x20-\x7e]{1,80}", status):
        return f"the broker refused the token: {status}"
    return "the broker refused the token"
