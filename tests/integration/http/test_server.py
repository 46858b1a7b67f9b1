"""The HTTP server over sockets: several requests, slow clients, too many of them, TLS."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ottla.http.messages import Answer, Limits, Request
from ottla.http.routes import Routes
from ottla.http.server import HttpServer
from ottla.security.certificates import Authority
from ottla.security.contexts import TlsSettings, client_context, server_context

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable

LIMITS = Limits(head_bytes=2048, body_bytes=10_000, connections=4)
LONG = b"x" * 8_000_000


async def echo(request: Request) -> Answer:
    return Answer(200, request.body)


async def long(_: Request) -> Answer:
    return Answer(200, LONG)


async def broken(_: Request) -> Answer:
    raise RuntimeError("on purpose")


ROUTES = Routes({"POST /echo": echo, "GET /long": long, "GET /broken": broken})


@asynccontextmanager
async def serving(
    limits: Limits = LIMITS, tls: Callable[[], ssl.SSLContext] | None = None
) -> AsyncIterator[int]:
    server = HttpServer(ROUTES, limits, tls)
    one = socket.create_server(("127.0.0.1", 0))
    await server.start([one])
    try:
        yield one.getsockname()[1]
    finally:
        await server.close()


@pytest.fixture(scope="module")
def tls() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = Authority.make()
    issued = authority.server(["localhost", "127.0.0.1"])
    ours = TlsSettings(
        keystore_key=issued.key.decode(), keystore_certificate_chain=issued.chain.decode()
    )
    theirs = TlsSettings(truststore_certificates=authority.issued.chain.decode())
    return server_context(ours), client_context(theirs)


def post(body: bytes) -> bytes:
    head = f"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    (length,) = (
        int(line.split()[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")
    )
    return int(head.split()[1]), await reader.readexactly(length)


async def test_requests_sent_at_once_are_answered_in_order() -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"".join(post(str(number).encode()) for number in range(50)))
        found = [await answer_of(reader) for _ in range(50)]
        assert found == [(200, str(number).encode()) for number in range(50)]
        writer.close()


async def test_a_handler_that_fails_is_answered_and_the_next_request_served() -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /broken HTTP/1.1\r\nHost: a\r\n\r\n" + post(b"next"))
        status, text = await answer_of(reader)
        assert status == 500
        assert b"on purpose" not in text
        assert await answer_of(reader) == (200, b"next")
        writer.close()


async def test_case_96_one_connection_too_many_is_closed() -> None:
    async with serving() as port:
        there = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        for reader, writer in there:
            writer.write(post(b"in"))
            assert (await answer_of(reader))[0] == 200
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        for _, each in [*there, (reader, writer)]:
            each.close()


async def test_case_96_a_head_that_does_not_end_is_refused() -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /" + b"x" * 1_000_000)
        assert (await answer_of(reader))[0] == 431
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET /lo", post(b"half")[:-2]])
async def test_a_client_that_stops_sending_is_cut_off(sent: bytes) -> None:
    """One that has begun a request is told why."""
    async with serving(replace(LIMITS, request_seconds=0.2, idle_seconds=0.2)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        if sent:
            assert (await answer_of(reader))[0] == 408
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


async def test_a_byte_now_and_then_does_not_put_off_the_end() -> None:
    async with serving(replace(LIMITS, request_seconds=0.3)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def drip() -> None:
            while True:
                writer.write(b"G")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        assert (await answer_of(reader))[0] == 408
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        dripping.cancel()
        writer.close()


async def test_a_client_that_does_not_read_is_cut_off() -> None:
    async with serving(replace(LIMITS, request_seconds=0.3)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.6)  # it does something else meanwhile
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(len(LONG))
        writer.close()


async def test_tls_serves_short_and_long_answers(
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    ours, theirs = tls
    async with serving(tls=lambda: ours) as port:
        reader, writer = await asyncio.open_connection("localhost", port, ssl=theirs)
        for _ in range(2):
            writer.write(post(b"hello") + b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await answer_of(reader) == (200, b"hello")
            assert await answer_of(reader) == (200, LONG)
        writer.write(b"GET /x HTTP/1.0\r\n\r\n")
        assert (await answer_of(reader))[0] == 404
        assert await reader.read() == b""
        writer.close()


async def test_plain_bytes_at_a_tls_port_are_refused(
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    async with serving(tls=lambda: tls[0]) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post(b"hello"))
        assert b"HTTP" not in await reader.read()
        writer.close()
