"""A connection to a listener with TLS: the shell around `TlsChannel`.

- Bytes from the socket go through the channel into the memory of the plain class, which serves the
  requests in them. All answers to one read leave together.
- Answers wait in the channel as views, also of mapped files. They are encrypted as the socket takes
  them, so that only a little of a large answer lies in memory twice. As with the plain class
  nothing is served and read while anything waits to leave.
- Of a large request the loop is woken for a good part, not for each record (`low_water`).
- A step of a handshake takes most of a millisecond. Steps of all connections wait in one queue, and
  a few run in a turn of the loop (`Handshakes`).
- On a listener without SASL the client's certificate says who it is; without one it is ANONYMOUS.
  With SASL the certificate is another door, and the user is who logs in.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.broker.access.authentication import RESERVED_NAME
from ottla.broker.access.credentials import RESERVED_PREFIX
from ottla.broker.access.guarded_connection import GuardedConnection
from ottla.broker.access.low_water import LowWater
from ottla.broker.serving.connection import MAX_ANSWER_BYTES, Connection
from ottla.security.principal import UnreadableCertificate, subject_of
from ottla.security.tls_channel import AHEAD_BYTES, READ_BUFFER, State, TlsChannel

if TYPE_CHECKING:
    from ottla.broker.access.guard import Guard
    from ottla.broker.serving.context import Peer
    from ottla.broker.serving.dispatch import Dispatcher

FIRST_BYTES: Final = 4 * 1024  # a hello; what may be read from a connection in the lobby
STRANGERS_BYTES: Final = 16 * 1024  # read at once from a client that has not authenticated
STEPS_A_TURN: Final = 4  # of handshakes: 3 to 4 ms
# Encrypted for one client in a turn of the loop, about a millisecond; then others are served.
PUMPED_BYTES: Final = 1024 * 1024

logger = logging.getLogger(__name__)


class Handshakes:
    """The connections whose handshake goes on when it is their turn."""

    def __init__(self) -> None:
        self._waiting: deque[TlsConnection] = deque()

    def put(self, connection: TlsConnection) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._run)
        self._waiting.append(connection)

    def _run(self) -> None:
        for _ in range(min(STEPS_A_TURN, len(self._waiting))):
            self._waiting.popleft().shake()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._run)


class _Plain:
    """Where the channel puts plain bytes."""

    __slots__ = ("_connection",)

    def __init__(self, connection: TlsConnection) -> None:
        self._connection = connection

    def get_buffer(self, sizehint: int, /) -> memoryview:
        self._connection.opened()
        return Connection.get_buffer(self._connection, sizehint)

    def buffer_updated(self, nbytes: int, /) -> None:
        if not self._connection.leaves:
            GuardedConnection.buffer_updated(self._connection, nbytes)


class TlsConnection(GuardedConnection):
    """Of a listener with TLS."""

    def __init__(self, dispatcher: Dispatcher, peer: Peer, guard: Guard) -> None:
        super().__init__(dispatcher, peer, guard)
        self._channel: TlsChannel | None = None  # from the slot in the lobby on
        self._unshaken = b""  # bytes of a handshake whose turn comes
        self._corked = False  # answers are being collected
        self._is_open = False
        self._closes = False  # when all has left
        self._low_water = LowWater()

    # -- the transport calls ----------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = READ_BUFFER.lend(self)
        if self._is_known:
            return buffer
        return buffer[: FIRST_BYTES if self._channel is None else STRANGERS_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        view = READ_BUFFER.take(self, nbytes)
        if self._channel is None:
            self._unshaken += view  # in the lobby; at most two reads of few bytes
            self._spoke()
        elif self._channel.state is State.HANDSHAKING:
            self._unshaken = bytes(view)
            self._update_reading()
            self._guard.door.handshakes.put(self)
        else:
            self._feed(self._channel, view)
            self._await_more()

    def eof_received(self) -> bool:
        if self._channel is not None:
            self._channel.ended()
        return super().eof_received()

    def resume_writing(self) -> None:
        self._writable = True
        self._pump()
        if not self._writable:
            self.last_active = self._loop.time()  # the client reads
        elif self._closes:
            self._finish()
        else:
            super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._channel = None
        self._unshaken = b""

    # -- reading ----------------------------------------------------------------------------------

    @property
    def is_served(self) -> bool:
        return bool(self._unshaken) or super().is_served

    def _begin(self) -> None:
        copy = self._guard.door.copy
        self._channel = TlsChannel(self._guard.context, server_side=True, copy=copy)
        if self._unshaken:
            self._guard.door.handshakes.put(self)

    def shake(self) -> None:
        """Its turn in the queue of handshakes."""
        data, self._unshaken = self._unshaken, b""
        if self._channel is None or self._transport is None or self._transport.is_closing():
            return
        self._feed(self._channel, data)
        self._update_reading()

    def _feed(self, channel: TlsChannel, data: bytes | memoryview) -> None:
        self._corked = True
        channel.received(data, _Plain(self))
        self._corked = False
        if channel.state is State.OPEN:
            self.opened()
        self._send()
        self._pump()
        if channel.state is State.FAILED:
            self._failed(channel)
        elif channel.state is State.CLOSED and not self._ended:
            self.eof_received()

    def _await_more(self) -> None:
        """Sleep until a good part of a large request has come."""
        if self._is_known and self._transport is not None and not self._transport.is_closing():
            missing = self._frames.announced_bytes - self._frames.pending_bytes
            self._low_water.wait_for(missing, self._transport)

    def frame_is_slow(self, now: float, grace: float, min_rate: float) -> bool:
        if not super().frame_is_slow(now, grace, min_rate):
            return False
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        # What has come may wait in the kernel; then the next look decides.
        return not self._low_water.release(transport)

    def _failed(self, channel: TlsChannel) -> None:
        """The alert is on its way."""
        self._guard.tls_failed(self, str(channel.fault))
        if self._transport is not None:
            self._transport.close()

    def opened(self) -> None:
        """The handshake is over; called before anything plain is looked at."""
        channel = self._channel
        if self._is_open or channel is None or channel.peer is None:
            return
        self._is_open = True
        self._guard.door.progressed(self)
        self.peer.tls = channel.peer
        if channel.peer.der is not None and not self._guard.listener.has_sasl:
            name = self._name_of(channel.peer.der)
            if name is None:
                self._turn_away("no mapping rule")
                return
            if name.startswith(RESERVED_PREFIX):
                self._turn_away(RESERVED_NAME)
                return
            self.peer.principal = f"User:{name}"
        self._identify()

    def _turn_away(self, reason: str) -> None:
        self._guard.tls_failed(self, reason)
        self.leaves = True  # nothing that it has sent is looked at
        self._loop.call_soon(self.close)

    def _name_of(self, der: bytes) -> str | None:
        try:
            return self._guard.rules.apply(subject_of(der))
        except UnreadableCertificate:
            return None

    def _wants_to_read(self) -> bool:
        return not self._unshaken and not self._closes and super()._wants_to_read()

    # -- writing ----------------------------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        waiting = 0 if self._channel is None else self._channel.waiting_bytes
        return waiting + super().unsent_bytes

    def _sends_as_it_is(self, transport: asyncio.Transport) -> bool:
        return self._guard.door.copy is not None  # encrypted here, from copies of the kernel

    def _send(self) -> None:
        if self._corked and self._answer_bytes <= MAX_ANSWER_BYTES:
            return
        answers, self._answers = self._answers, []
        size, self._answer_bytes = self._answer_bytes, 0
        if not answers or self._transport is None or self._channel is None:
            return
        self._channel.send(answers)
        self._pump()
        if not self._writable:
            self._dispatcher.answers.hold(self, size)
        elif not self._transport.is_closing():
            self._all_is_sent()

    def _pump(self) -> None:
        """Encrypt while the socket takes it."""
        channel, transport = self._channel, self._transport
        if channel is None or transport is None or transport.is_closing():
            return
        left = PUMPED_BYTES
        while self._writable and (parts := self._ciphertext(channel, transport)):
            if len(parts) == 1:
                transport.write(parts[0])
            else:
                transport.writelines(parts)
            left -= sum(map(len, parts))
            if left <= 0 and channel.waiting_bytes:
                self._rest()
                return

    def _ciphertext(self, channel: TlsChannel, transport: asyncio.Transport) -> list[bytes]:
        try:
            return channel.ciphertext(AHEAD_BYTES)
        except OSError:  # a page of a mapped file that cannot be read
            self._distrust_maps()
            transport.abort()
            return []

    def _rest(self) -> None:
        """Go on in the next turn of the loop, unless the socket says when."""
        if self._writable:
            self._writable = False
            self._loop.call_soon(self.resume_writing)

    def close(self) -> None:
        """Once all answers have left."""
        if self._transport is None or self._transport.is_closing() or self._closes:
            return
        self._corked = False
        self._send()
        if self._channel is None or not self._channel.waiting_bytes:
            self._finish()
            return
        self._closes = True
        self._waiting.clear()
        self._waiting_bytes = self._foreseen = 0
        self._update_reading()

    def _finish(self) -> None:
        if self._transport is None:
            return
        if self._channel is not None:
            goodbye = self._channel.close()
            if goodbye:
                self._transport.write(goodbye)
        self._transport.close()
