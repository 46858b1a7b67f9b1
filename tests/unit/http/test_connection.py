"""A connection of the server without a socket: memory of bodies, certificates, who is let in."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.http.messages import KIB, Answer, Limits, Request
from ottla.http.routes import Routes
from ottla.http.server import Connection, HttpServer

LIMITS = Limits(body_bytes=300 * KIB, long_bodies_bytes=400 * KIB, connections=9)


class Transport:
    """Keeps what is written."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.written = b""
        self.is_closed = False

    def get_extra_info(self, name: str) -> Any:
        return (self.host, 1) if name == "peername" else None

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    @property
    def status(self) -> int | None:
        return int(self.written.split()[1]) if self.written else None


class Bench:
    def __init__(self, admission: Any = None) -> None:
        self.gate = asyncio.Event()
        routes = Routes({"POST /echo": self._echo})
        self.server = HttpServer(routes, LIMITS, admission=admission)

    async def _echo(self, request: Request) -> Answer:
        await self.gate.wait()
        return Answer(200, str(len(request.body)).encode())

    def connect(self, host: str = "10.0.0.1") -> tuple[Connection, Transport]:
        connection = Connection(self.server, self.server._routes, LIMITS)
        transport: Any = Transport(host)
        connection.connection_made(transport)
        return connection, transport

    def send(self, length: int, sent: int) -> tuple[Connection, Transport]:
        """A request that announces so many bytes, and sends a part of them."""
        connection, transport = self.connect()
        head = f"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {length * KIB}\r\n\r\n"
        connection.data_received(head.encode() + bytes(sent * KIB))
        return connection, transport

    async def answered(self) -> None:
        self.gate.set()
        while tasks := [one.task for one in self.server._connections if one.task is not None]:
            await asyncio.wait(tasks)


async def test_long_bodies_have_a_limit_together_and_short_ones_are_always_taken() -> None:
    """Fault: 256 strangers could send 5 MiB each before anybody asked who they are."""
    bench = Bench()
    _, first = bench.send(200, 200)  # whole, and waits for its answer
    waiting, second = bench.send(250, 150)
    _, third = bench.send(250, 100)
    assert (first.status, second.status, third.status) == (None, None, 503)
    assert b"Retry-After: 1" in third.written
    assert third.is_closed
    short = [bench.send(60, 60)[1] for _ in range(5)]
    assert [one.status for one in short] == [None] * 5
    waiting.data_received(bytes(100 * KIB))  # grows beyond what is left
    assert second.status == 503
    await bench.answered()
    assert first.status == 200
    assert [one.status for one in short] == [200] * 5


async def test_memory_is_given_back_by_an_answer_and_by_a_client_that_goes() -> None:
    bench = Bench()
    gone, _ = bench.send(300, 299)
    assert bench.send(200, 200)[1].status == 503
    gone.connection_lost(None)
    for _ in range(3):
        _, transport = bench.send(300, 300)
        await bench.answered()
        assert transport.status == 200


async def test_a_connection_that_is_not_let_in_is_closed_and_not_counted() -> None:
    class Admission:
        def __init__(self) -> None:
            self.counted: list[str] = []

        def opened(self, host: str) -> bool:
            if host != "10.0.0.1":
                return False
            self.counted.append(host)
            return True

        def closed(self, host: str) -> None:
            self.counted.remove(host)

    admission = Admission()
    bench = Bench(admission)
    inside, _ = bench.connect()
    outside, transport = bench.connect("10.0.0.2")
    assert transport.is_closed
    outside.connection_lost(None)
    assert admission.counted == ["10.0.0.1"]
    inside.connection_lost(None)
    assert admission.counted == []
