"""What sending costs with and without TLS when nothing else is done."""

from __future__ import annotations

import multiprocessing
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ottla.security.contexts import TlsSettings, client_context, server_context
from ottla.security.tls_channel import AHEAD_BYTES, SLICE_BYTES, State, TlsChannel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

FLOOR_BYTES: Final = 256 << 20


class Nowhere:
    """Takes what a channel has read."""

    def get_buffer(self, _: int) -> memoryview:
        return memoryview(bytearray(1 << 16))

    def buffer_updated(self, _: int) -> None:
        pass


def sending_costs(store: Path, ca: Path) -> tuple[float, float, float]:
    """CPU microseconds of a KiB: plain, with TLS, and of the encryption alone."""
    shown = server_context(TlsSettings(keystore_location=str(store)))
    trusting = client_context(TlsSettings(truststore_location=str(ca)))
    server = TlsChannel(shown, server_side=True)
    client = TlsChannel(trusting, server_side=False, server_hostname="localhost")
    while server.state is State.HANDSHAKING or client.state is State.HANDSHAKING:
        server.received(b"".join(client.ciphertext(0)), Nowhere())
        client.received(b"".join(server.ciphertext(0)), Nowhere())
    data = memoryview(bytes(AHEAD_BYTES))
    kibibytes = FLOOR_BYTES >> 10

    def pieces() -> Iterator[list[bytes]]:
        for _ in range(FLOOR_BYTES // AHEAD_BYTES):
            server.send([data[at : at + SLICE_BYTES] for at in range(0, AHEAD_BYTES, SLICE_BYTES)])
            yield server.ciphertext(AHEAD_BYTES)

    def spent(parts: Iterable[list[Any]], to: socket.socket | None) -> float:
        began = time.process_time()
        for some in parts:
            if to is not None:
                for part in some:
                    to.sendall(part)
        return (time.process_time() - began) / kibibytes * 1e6

    with drained() as to:
        plain = spent(([data] for _ in range(FLOOR_BYTES // AHEAD_BYTES)), to)
        tls = spent(pieces(), to)
    return plain, tls, spent(pieces(), None)


@contextmanager
def drained() -> Iterator[socket.socket]:
    """A connection to a process that reads all and keeps nothing."""
    context = multiprocessing.get_context("spawn")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        reader = context.Process(target=drain, args=(listening.getsockname()[1],), daemon=True)
        reader.start()
        to, _ = listening.accept()
        with to:
            yield to
        reader.join()


def drain(port: int) -> None:
    buffer = bytearray(1 << 20)
    with socket.create_connection(("127.0.0.1", port)) as source:
        while source.recv_into(buffer):
            pass
