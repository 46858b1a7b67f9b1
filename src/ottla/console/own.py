"""With `auth = "sasl"`: the clusters as each person sees them, over connections of their own.

Nothing is shared between logins: each has clients, snapshots and histories. The password stays in
memory for the life of the login, and nowhere else. Connections that nobody used for `IDLE_SECONDS`
are closed, and opened again when the person comes back; `MAX_OPEN` people have connections at a
time, the one who asked longest ago loses them first.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.client.errors import AuthenticationFailed, ClientError, UnsupportedSecurity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.console.watching import Watched

MAX_OPEN: Final = 32
"""Each has a connection to every broker, a snapshot and a history."""
IDLE_SECONDS: Final = 15 * 60.0


class WrongLogin(Exception):
    """No cluster knows the user with this password."""


@dataclass(slots=True)
class _Own:
    name: str
    password: str = field(repr=False)
    last: float
    clusters: Mapping[str, Watched] | None = None


class Owners:
    """Clusters by login. `make` gives the clusters of a user with a password."""

    def __init__(self, make: Callable[[str, str], Mapping[str, Watched]]) -> None:
        self._make = make
        self._own: dict[str, _Own] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def open(self) -> int:
        """People with connections."""
        return sum(one.clusters is not None for one in self._own.values())

    async def check(self, name: str, password: str) -> None:
        """Raise `WrongLogin` if a broker refuses, or the error if none can be asked."""
        try:
            clusters = self._make(name, password)
        except UnsupportedSecurity as error:  # such as an empty password
            raise WrongLogin from error
        asked = [one for one in clusters.values() if one.cluster.settings.security.has_sasl]
        try:
            answers = await asyncio.gather(
                *(one.client.connection_to("any") for one in asked), return_exceptions=True
            )
        finally:  # also if the person has gone meanwhile
            for one in clusters.values():
                self._close(one)
        failed = [one for one in answers if isinstance(one, BaseException)]
        if len(failed) < len(answers):
            return
        for one_failed in failed:
            if isinstance(one_failed, AuthenticationFailed):
                raise WrongLogin from one_failed
        raise failed[0] if failed else ClientError("no cluster asks for a login")

    def add(self, login: str, name: str, password: str, now: float) -> None:
        self._own[login] = _Own(name, password, now)

    def of(self, login: str, now: float) -> Mapping[str, Watched] | None:
        """The clusters of a login, opened if they are not; None if the login is over."""
        own = self._own.pop(login, None)
        if own is None:
            return None
        self._own[login] = own  # the last to go
        own.last = now
        if own.clusters is None:
            own.clusters = self._make(own.name, own.password)
            for one in own.clusters.values():
                one.start()
            self._shut_down_to(MAX_OPEN)
        return own.clusters

    def end(self, login: str) -> None:
        """The login is over."""
        own = self._own.pop(login, None)
        if own is not None:
            self._shut(own)

    def sweep(self, now: float) -> None:
        """Close connections that nobody uses."""
        for own in self._own.values():
            if now - own.last > IDLE_SECONDS:
                self._shut(own)

    async def close(self) -> None:
        for own in self._own.values():
            self._shut(own)
        self._own.clear()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _shut_down_to(self, most: int) -> None:
        having = [own for own in self._own.values() if own.clusters is not None]
        for own in having[: max(0, len(having) - most)]:
            self._shut(own)

    def _shut(self, own: _Own) -> None:
        clusters, own.clusters = own.clusters, None
        for one in (clusters or {}).values():
            self._close(one)

    def _close(self, watched: Watched) -> None:
        task = asyncio.create_task(watched.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
