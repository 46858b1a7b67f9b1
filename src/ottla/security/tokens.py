"""A token of an OAuth server, kept by a client until most of its life has passed.

When a token expires is a moment of the wall clock, which anybody can set. So the wall clock is
read once, when the token has come; what is left then is counted by the machine's own time, which
goes on while a laptop sleeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.clock import SYSTEM
from ottla.security.errors import SecurityError

if TYPE_CHECKING:
    from ottla.clock import Clock

LIFE_USED: Final = 0.8
"""A token is asked for anew after this part of its life."""


class KeptToken:
    """The last token that was given, if any."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._value: str | None = None
        self._until = 0.0

    @property
    def value(self) -> str | None:
        """None: ask for another one, and keep it."""
        return self._value if self._clock.boot() < self._until else None

    def keep(self, value: str, expires_at: float) -> None:
        """Keep a token that has just come; one that is of no use any more is refused."""
        self.forget()
        left = expires_at - self._clock.wall()
        if not left > 0:  # NaN is not, either
            raise SecurityError(
                "the token that was given has expired; check the token provider and this "
                "machine's clock"
            )
        self._value, self._until = value, self._clock.boot() + left * LIFE_USED

    def forget(self) -> None:
        """For a token that a server did not take."""
        self._value = None
