"""Two ends of a TLS connection in memory, and certificates to try them with."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from ottla.security.certificates import Authority, Issued
from ottla.security.contexts import TlsSettings, client_context, server_context
from ottla.security.tls_channel import State, TlsChannel

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable

ROOM = 1 << 20


@dataclass
class Received:
    """A sink that keeps what it gets; `size` is that of each buffer."""

    size: int = 4096
    data: bytearray = field(default_factory=bytearray)
    on_data: Callable[[], object] | None = None

    def get_buffer(self, _: int) -> memoryview:
        self._buffer = bytearray(self.size)
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self._buffer[:nbytes]
        if self.on_data is not None:
            self.on_data()


@dataclass
class End:
    """One side: its channel, and what it was told."""

    channel: TlsChannel
    sink: Received = field(default_factory=Received)

    def out(self) -> bytes:
        return b"".join(self.channel.ciphertext(ROOM))

    def hears(self, parts: Iterable[bytes]) -> None:
        for part in parts:
            self.channel.received(part, self.sink)


def whole(data: bytes) -> list[bytes]:
    return [data] if data else []


def talk(client: End, server: End, cut: Callable[[bytes], Iterable[bytes]] = whole) -> None:
    """Carry what both say, until neither says anything."""
    while True:
        to_server = client.out()
        server.hears(cut(to_server))
        to_client = server.out()
        client.hears(cut(to_client))
        if not to_server and not to_client:
            return


def ends(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost"
) -> tuple[End, End]:
    """Client and server, before their handshake."""
    return (
        End(TlsChannel(client, server_side=False, server_hostname=host)),
        End(TlsChannel(server, server_side=True)),
    )


def opened(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost"
) -> tuple[End, End]:
    pair = ends(server, client, host)
    talk(*pair)
    assert [end.channel.state for end in pair] == [State.OPEN, State.OPEN], [
        end.channel.fault for end in pair
    ]
    return pair


@cache
def authority(name: str = "test CA") -> Authority:
    return Authority.make(name)


@cache
def server_issued() -> Issued:
    return authority().server(["localhost", "127.0.0.1"])


def ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


def shows(issued: Issued, **more: Any) -> TlsSettings:
    """Settings of a side that shows this certificate."""
    return TlsSettings(
        keystore_key=issued.key.decode(), keystore_certificate_chain=issued.chain.decode(), **more
    )


def trusts(ca: Authority, **more: Any) -> TlsSettings:
    return TlsSettings(truststore_certificates=ca.issued.chain.decode(), **more)


@cache
def contexts(*protocols: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server and a client that agree."""
    told: dict[str, Any] = {"enabled_protocols": protocols} if protocols else {}
    return (
        server_context(shows(server_issued(), **told)),
        client_context(trusts(authority(), **told)),
    )
