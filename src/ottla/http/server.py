"""Connections, deadlines and tasks around `Exchange`.

A connection serves one request at a time, in order. While one is served nothing is read, so a
client that sends faster than it is answered waits in its own socket. A request must arrive, and an
answer must be read, within `request_seconds`; a TLS handshake is part of the wait for the first
request.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol, cast

from ottla.http.exchange import Exchange
from ottla.http.messages import SHORT_BODY, Answer, Refused

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Sequence

    from ottla.http.messages import Limits, Request
    from ottla.http.routes import Routes

logger = logging.getLogger(__name__)


class Admission(Protocol):
    """Which new connections are let in, beside `Limits.connections`."""

    def opened(self, host: str) -> bool:
        """Whether there is room for a connection from this address; it is counted if so."""

    def closed(self, host: str) -> None:
        """A connection that was let in is gone."""


class HttpServer:
    """`await server.start(sockets)` serves the routes; `await server.close()` ends it."""

    def __init__(
        self,
        routes: Routes,
        limits: Limits,
        tls: Callable[[], ssl.SSLContext] | None = None,
        told: Callable[[Refused], Answer] = lambda refused: refused.answer,
        count: Callable[[Answer], None] = lambda _: None,
        admission: Admission | None = None,
    ) -> None:
        """`tls` is asked at every connection, so that it can give a renewed certificate.

        `told` makes the answer to what is refused; `count` sees each answer to a whole request.
        """
        self._routes = routes
        self._limits = limits
        self.told = told
        self.count = count
        self._tls = tls
        self._admission = admission
        self._servers: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._long_bytes = 0  # of the bodies that count towards `long_bodies_bytes`

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        for one in sockets:
            self._servers.append(await loop.create_server(self._accept, sock=one))

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = [task for each in self._connections if (task := each.task) is not None]
        for connection in tuple(self._connections):
            connection.abort()
        if tasks:
            await asyncio.wait(tasks)

    def _accept(self) -> Connection:
        if self._tls is None:
            return Connection(self, self._routes, self._limits)
        from ottla.http.tls import TlsConnection

        return TlsConnection(self, self._routes, self._limits, self._tls())

    def opened(self, connection: Connection) -> bool:
        """Whether there is room for it."""
        if len(self._connections) >= self._limits.connections:
            return False
        if self._admission is not None and not self._admission.opened(connection.host):
            return False
        self._connections.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        if connection not in self._connections:
            return  # there was no room for it
        self._connections.remove(connection)
        if self._admission is not None:
            self._admission.closed(connection.host)

    def hold(self, more: int) -> bool:
        """Whether there is memory for so many bytes of long bodies; they are counted if so."""
        if more > 0 and self._long_bytes + more > self._limits.long_bodies_bytes:
            return False
        self._long_bytes += more
        return True


class Connection(asyncio.Protocol):
    def __init__(self, server: HttpServer, routes: Routes, limits: Limits) -> None:
        self._server = server
        self._routes = routes
        self._limits = limits
        self._exchange = Exchange(limits)
        self._deadline: asyncio.TimerHandle | None = None
        self._arriving = False
        self._long_bytes = 0
        self._drained = asyncio.Event()
        self._drained.set()
        self.host = ""
        """The address of the client, once it is connected."""
        self.task: asyncio.Task[None] | None = None

    # -- what the event loop calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have all methods of asyncio's, and another base.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if peer else ""
        if not self._server.opened(self):
            self._transport.abort()
            return
        self._exchange = Exchange(self._limits, self.host)
        self._wait_for_bytes()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.closed(self)
        self._hold(0)
        self._stop_waiting()
        self._drained.set()
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        self._exchange.received(data)
        self._advance()

    def eof_received(self) -> bool:
        self.data_received(b"")
        return self.task is not None  # a request that was whole is still answered

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    def abort(self) -> None:
        self._transport.abort()

    # -- one request after the other --------------------------------------------------------------

    def _advance(self) -> None:
        if self.task is not None or self._transport.is_closing():
            return
        try:
            request = self._exchange.next_request()
        except Refused as refused:
            self._send_last(self._server.told(refused))
            return
        size = self._exchange.arrived_bytes if request is None else len(request.body)
        if not self._hold(size):
            full = Refused(503, "too many long requests at once", ("Retry-After", "1"))
            self._send_last(self._server.told(full))
        elif request is not None:
            self._stop_waiting()
            self._transport.pause_reading()
            self.task = asyncio.get_running_loop().create_task(self._serve(request))
        elif self._exchange.is_over:
            self._close()
        else:
            self._write(self._exchange.go_on())
            self._wait_for_bytes()

    async def _serve(self, request: Request) -> None:
        try:
            answer = await self._routes.answer(request)
        except Refused as refused:
            answer = self._server.told(refused)
        except Exception:
            logger.exception("%s %s failed", request.method, request.path[:200])
            answer = self._server.told(Refused(500, "the server failed; its log says why"))
        self._server.count(answer)
        self._hold(0)
        self._write(self._exchange.answered(answer))
        try:
            await asyncio.wait_for(self._drained.wait(), self._limits.request_seconds)
        except TimeoutError:
            self._transport.abort()
        self.task = None
        if self._exchange.is_over:
            self._close()
        elif not self._transport.is_closing():
            self._transport.resume_reading()
            self._advance()

    def _hold(self, size: int) -> bool:
        """Count a body of this size in place of the one before."""
        size = size if size > SHORT_BODY else 0
        if not self._server.hold(size - self._long_bytes):
            return False
        self._long_bytes = size
        return True

    def _send_last(self, answer: Answer) -> None:
        self._stop_waiting()
        self._write(self._exchange.answered(answer, last=True))
        self._close()
        # Closing waits for the client to read; one that does not read is cut off.
        self._set_deadline(self._limits.request_seconds)

    def _write(self, data: bytes) -> None:
        if data:
            self._transport.write(data)

    def _close(self) -> None:
        self._transport.close()

    # -- deadlines --------------------------------------------------------------------------------

    def _wait_for_bytes(self) -> None:
        """Begin to wait for a request, or go on waiting for the rest of one."""
        arriving = not self._exchange.is_idle
        if arriving and self._arriving:
            return  # each further byte would put off the end
        self._arriving = arriving
        limits = self._limits
        self._set_deadline(limits.request_seconds if arriving else limits.idle_seconds)

    def _set_deadline(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(seconds, self._time_is_up)

    def _time_is_up(self) -> None:
        if self._arriving and not self._transport.is_closing():
            seconds = self._limits.request_seconds
            refused = Refused(408, f"a request must arrive within {seconds:g} s")
            self._send_last(self._server.told(refused))
        else:
            self._transport.abort()

    def _stop_waiting(self) -> None:
        self._arriving = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
