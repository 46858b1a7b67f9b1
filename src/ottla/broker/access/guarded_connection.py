"""A connection to a listener that asks who comes in.

- It waits in the lobby until it has a slot (`enter`). Nothing of it is served until then, and
  nothing is read but its first bytes, a few KiB: who says nothing needs no slot.
- A stranger has one request at a time and small frames, and its bytes do not count as those of
  clients: strangers have a bound of their own (`lobby`).
- From `welcome` on it is a connection like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.access.session import Session
from ottla.broker.serving.connection import Connection

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable

    from ottla.broker.access.guard import Guard
    from ottla.broker.serving.context import Parked, Peer
    from ottla.broker.serving.dispatch import Dispatcher

ALTER_USERS: Final = 51
# kafka-python takes an end that comes with the answer for a lost connection.
LAST_WORDS_SECONDS: Final = 0.25


class GuardedConnection(Connection):
    """Of a listener with SASL, or of any while new connections are limited."""

    def __init__(self, dispatcher: Dispatcher, peer: Peer, guard: Guard) -> None:
        super().__init__(dispatcher, peer, guard.max_frame_bytes)
        self._guard = guard
        self.must_speak = guard.listener.has_sasl or guard.listener.has_tls
        self._has_spoken = not self.must_speak
        self._has_slot = False
        self._is_known = False
        self._is_failed = False
        self._changes_users = False  # the request that is waited for
        self._is_outdated = False
        if guard.listener.has_sasl:
            # From the very beginning: without one a client is not asked who it is.
            peer.session = Session(self, guard)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not transport.is_closing():
            self._guard.door.arrived(self)
            self._update_reading()

    def buffer_updated(self, nbytes: int) -> None:
        if self.peer.session is not None:
            self.peer.session.received(len(self._waiting))
        super().buffer_updated(nbytes)
        self._spoke()

    def _spoke(self) -> None:
        if not self._has_spoken:
            self._has_spoken = True
            self._update_reading()
            self._guard.door.spoke(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._guard.door.left(self)
        super().connection_lost(exc)
        self.peer.session = None  # it refers to this connection

    def enter(self) -> None:
        """It has a slot: begin."""
        self._has_slot = True
        self._begin()
        self._update_reading()

    @property
    def is_served(self) -> bool:
        """Whether the client waits for this node, not the other way round."""
        return self._gate is not None or bool(self._waiting)

    def _begin(self) -> None:
        self._identify()

    def _identify(self) -> None:
        """Ask who it is, where that is not known yet."""
        if self.peer.session is None:
            self.welcome(self.peer.principal)
        self._serve()

    def welcome(self, principal: str) -> None:
        """The client is authenticated, or it need not be."""
        self._dispatcher.identify(self.peer, principal)
        if not self._is_known:
            self._is_known = True
            self._frames.max_frame_bytes = self._guard.max_request_bytes
            self._guard.door.left(self)
        if self.peer.session is not None or (self.peer.tls is not None and self.peer.tls.der):
            # Whoever is let in unasked has proven nothing.
            self._guard.door.succeeded(self.peer)

    def close_soon(self) -> None:
        """A last answer leaves; the client has a moment to read it before it meets the end."""
        self._is_failed = True
        self._loop.call_later(LAST_WORDS_SECONDS, self.close)

    def credential_changed(self) -> None:
        """Close; but a client that changed itself gets its answer first."""
        if self.peer.session is not None:
            self.peer.session.end("credential changed")
        if self._gate is None or not self._changes_users:
            self.close()
            return
        self._is_outdated = True
        self._waiting.clear()
        self._waiting_bytes = self._foreseen = 0
        self._update_reading()

    def _park(self, answer: Awaitable[Parked], frame: memoryview) -> None:
        self._changes_users = int.from_bytes(frame[:2], "big") == ALTER_USERS
        super()._park(answer, frame)

    def _unpark(self, parked: asyncio.Future[Parked]) -> None:
        super()._unpark(parked)
        if not self._is_known:
            self._guard.door.progressed(self)
        if self._is_outdated and self._gate is None:
            self.close_soon()

    def _serve(self) -> None:
        if self._has_slot:
            if not self._is_known and self._waiting:
                self._guard.door.progressed(self)
            super()._serve()
        else:
            self._update_reading()

    def _wants_to_read(self) -> bool:
        if self._is_failed or self._is_outdated:
            return False
        if not self._is_known and (self._gate is not None or self._waiting):
            return False
        if not self._has_slot and self._has_spoken:
            return False
        return super()._wants_to_read()

    def _account(self) -> None:
        if self._is_known:
            super()._account()
