"""A connection over TLS: requests are decrypted on their way in, answers on their way out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.http.server import Connection
from ottla.security.tls_channel import AHEAD_BYTES, State, TlsChannel

if TYPE_CHECKING:
    import asyncio
    import ssl

    from ottla.http.messages import Limits
    from ottla.http.routes import Routes
    from ottla.http.server import HttpServer

RECORD_BYTES: Final = 16 * 1024  # the longest record of TLS


class TlsConnection(Connection):
    def __init__(
        self, server: HttpServer, routes: Routes, limits: Limits, context: ssl.SSLContext
    ) -> None:
        super().__init__(server, routes, limits)
        self._channel = TlsChannel(context, server_side=True)
        self._buffer = bytearray(RECORD_BYTES)
        self._plain = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._transport.set_write_buffer_limits(high=AHEAD_BYTES)

    def data_received(self, data: bytes) -> None:
        self._channel.received(data, self)
        self._flush()
        if self._plain:
            assert self._channel.peer is not None, "plain bytes come after the handshake"
            self._exchange.certificate = self._channel.peer.der
            plain = bytes(self._plain)
            self._plain.clear()
            super().data_received(plain)
        if self._channel.state in (State.CLOSED, State.FAILED) and self.task is None:
            self._transport.close()

    def eof_received(self) -> bool:
        self._channel.ended()
        return self.task is not None

    def resume_writing(self) -> None:
        self._flush()
        if not self._channel.waiting_bytes:
            super().resume_writing()

    # -- what the channel calls -------------------------------------------------------------------

    def get_buffer(self, _: int, /) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int, /) -> None:
        self._plain += memoryview(self._buffer)[:nbytes]

    def _write(self, data: bytes) -> None:
        self._channel.send([data])
        self._flush()
        if self._channel.waiting_bytes:
            self._drained.clear()

    def _close(self) -> None:
        if self._channel.waiting_bytes:
            return  # the deadline, or the client that has read all of it, ends the connection
        self._transport.write(self._channel.close())
        self._transport.close()

    def _flush(self) -> None:
        while parts := self._channel.ciphertext(AHEAD_BYTES - self._ahead()):
            self._transport.writelines(parts)

    def _ahead(self) -> int:
        return min(self._transport.get_write_buffer_size(), AHEAD_BYTES)
