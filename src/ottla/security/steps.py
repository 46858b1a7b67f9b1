"""What one step of a SASL mechanism comes to, and which names it may prove.

A mechanism, of the server or of the client, is an object with `step(token) -> Step`:

- `Challenge`: send these bytes; the exchange goes on with the peer's answer.
- `Work`: slow work (hashing a password, fetching keys). The caller runs `call` in a thread and
  passes its result to `then`, on its own thread, which returns the next step. No token may be
  passed to the mechanism in between.
- `Success`: the exchange is over. A server sends the bytes, which may be empty.
- `Failure`: the exchange is over. The reason is for the audit log, never for the peer.

Neither a `Success` nor a `Failure` is followed by another step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_NAME_CHARACTERS: Final = 255
"""Kafka's limit for the name of a user; metadata and audit lines rely on it."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """Bytes for the peer, who answers them."""

    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Success:
    """Who has logged in, the last bytes for the peer, and until when (seconds since 1970)."""

    name: str
    data: bytes = field(default=b"", repr=False)
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the exchange failed, in words for the operator, and who the peer said it was."""

    reason: str
    user: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Work:
    """`then(call())` is the next step; `call` runs in a thread, `then` does not."""

    call: Callable[[], Any]
    then: Callable[[Any], Step]

    def finish(self) -> Step:
        """The next step, waited for: for tests, and for callers that may block."""
        return self.then(self.call())


Step: TypeAlias = Challenge | Work | Success | Failure


class Mechanism(Protocol):
    """One exchange; it is made for a connection and thrown away after it."""

    def step(self, token: bytes) -> Step:
        """The answer to the peer's token."""
        ...


def name_fault(name: str) -> str | None:
    """What is wrong with the name of a user, or None."""
    if not name:
        return "empty user name"
    if len(name) > MAX_NAME_CHARACTERS:
        return f"user name longer than {MAX_NAME_CHARACTERS} characters"
    if not name.isprintable():
        return "user name with control characters"
    return None
