"""The client against servers that answer what no registry should."""

from __future__ import annotations

import json
import math
import re
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from ottla.schemas.cache import MISSING_SECONDS, SchemaCache
from ottla.schemas.model import Schema, SchemaError
from ottla.schemas.registry_client import (
    BlockingRegistry,
    RegistryRefused,
    RegistryUnreachable,
    SchemaRegistry,
)
from tests.support.clocks import HOUR_MS, ManualClock

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator


class Server:
    """Gives prepared answers, one a connection, and keeps what it was asked."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.answers: list[bytes] = []
        self.asked: list[bytes] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                one, _ = self._socket.accept()
            except OSError:
                return
            with one:
                self.asked.append(one.recv(65536))
                one.sendall(self.answers.pop(0))

    def close(self) -> None:
        """A thread in `accept` is woken by a shutdown alone."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()


def http(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


FOUND = http(200, json.dumps({"schema": '"int"'}).encode())
MISSING = http(404, json.dumps({"error_code": 40403, "message": "Schema not found"}).encode())


async def test_an_answer(server: Server) -> None:
    server.answers = [FOUND]
    async with SchemaRegistry(server.url + "/base") as registry:
        assert (await registry.by_id(7)).text == '"int"'
    assert server.asked[0].startswith(b"GET /base/schemas/ids/7 HTTP/1.1\r\n")


async def test_a_refusal_has_its_code(server: Server) -> None:
    server.answers = [MISSING]
    async with SchemaRegistry(server.url) as registry:
        with pytest.raises(
            RegistryRefused, match=r"Schema not found \(error code 40403\)"
        ) as error:
            await registry.by_id(7)
    assert (error.value.status, error.value.code) == (404, 40403)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_the_server_is_asked_again(server: Server, status: int) -> None:
    server.answers = [http(status, b"<html>busy</html>"), FOUND]
    assert BlockingRegistry(server.url).request("GET", "/x") == {"schema": '"int"'}
    assert len(server.asked) == 2


class Tokens:
    """Gives a token that lives for so many seconds, and another one each time."""

    sasl_username = sasl_password = None

    def __init__(self, life: float) -> None:
        self.clock = ManualClock(1_000_000)
        self._life = life
        self.given = 0

    def bearer(self) -> tuple[str, float]:
        self.given += 1
        return f"token-{self.given}", self.clock.wall() + self._life

    def context(self) -> ssl.SSLContext:
        raise AssertionError("there is no TLS")


class TokenRegistry:
    """A client with tokens for 60 s, and the number of the token in each of its requests."""

    def __init__(self, server: Server) -> None:
        self._server = server
        tokens = Tokens(60)
        self.clock = tokens.clock
        self._client = BlockingRegistry(server.url, security=tokens, clock=self.clock)

    def token_of(self, answer: bytes) -> int:
        self._server.answers = [answer]
        with suppress(SchemaError):
            self._client.request("GET", "/x")
        found = re.search(rb"Authorization: Bearer token-(\d+)\r\n", self._server.asked.pop())
        assert found is not None
        return int(found[1])


def test_a_token_is_sent_for_most_of_its_life(server: Server) -> None:
    registry = TokenRegistry(server)
    assert [registry.token_of(FOUND) for _ in range(2)] == [1, 1]
    registry.clock.step(-HOUR_MS)
    registry.clock.advance(47_999)
    assert registry.token_of(FOUND) == 1
    registry.clock.advance(1)
    assert registry.token_of(FOUND) == 2
    registry.clock.step(HOUR_MS)
    assert registry.token_of(FOUND) == 2


@pytest.mark.parametrize("body", [b"{}", b'{"error_code": 401, "message": "Unauthorized"}'])
def test_a_token_that_was_refused_is_not_sent_again(server: Server, body: bytes) -> None:
    registry = TokenRegistry(server)
    assert registry.token_of(http(401, body)) == 1
    assert registry.token_of(http(403, body)) == 2
    assert registry.token_of(FOUND) == 2


@pytest.mark.parametrize("life", [0.0, -1.0, math.nan])
def test_a_token_that_has_expired_is_not_sent(server: Server, life: float) -> None:
    tokens = Tokens(life)
    registry = BlockingRegistry(server.url, security=tokens, clock=tokens.clock)
    with pytest.raises(SchemaError, match="expired; check the token provider and this machine's"):
        registry.request("GET", "/x")
    assert (tokens.given, server.asked) == (1, [])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (http(200, b"<html>hello</html>"), "status 200, '<html>hello</html>'"),
        (http(302, b"", "Location: http://elsewhere/"), "status 302"),
        (http(401, b"x" * 1000), "status 401, '" + "x" * 200 + "'"),
    ],
)
def test_what_is_no_registry_is_told(server: Server, answer: bytes, said: str) -> None:
    server.answers = [answer]
    with pytest.raises(RegistryUnreachable, match=said):
        BlockingRegistry(server.url).request("GET", "/x")
    assert len(server.asked) == 1


def test_half_an_answer(server: Server) -> None:
    server.answers = [FOUND[:-3]] * 2
    with pytest.raises(RegistryUnreachable, match="half an answer"):
        BlockingRegistry(server.url, timeout=0.15).request("GET", "/x")


def test_nobody_there(server: Server) -> None:
    server.close()
    with pytest.raises(RegistryUnreachable, match="no schema registry answers at"):
        BlockingRegistry(server.url, timeout=0.05).request("GET", "/x")


@pytest.mark.parametrize("url", ["", "127.0.0.1:8081", "ftp://x", "http://", "http://x?y=1"])
def test_urls_that_cannot_be(url: str) -> None:
    with pytest.raises(SchemaError, match="http://HOST:PORT"):
        SchemaRegistry(url)


def test_kinds_that_cannot_be() -> None:
    registry = SchemaRegistry("http://127.0.0.1:1")
    with pytest.raises(SchemaError, match="avro, json and protobuf"):
        registry.register("x", "", kind="xml").send(None)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_case_34_a_missing_id_is_asked_for_once_in_five_seconds(server: Server) -> None:
    clock = Clock()
    cache = SchemaCache(BlockingRegistry(server.url), clock)
    server.answers = [MISSING, MISSING, FOUND]
    assert [cache.by_id(7) for _ in range(3)] == [None] * 3
    clock.now += MISSING_SECONDS - 0.1
    assert cache.by_id(7) is None
    assert len(server.asked) == 1
    clock.now += 0.2
    assert cache.by_id(7) is None
    clock.now += MISSING_SECONDS + 0.1
    found = cache.by_id(7)
    assert isinstance(found, Schema)
    assert cache.by_id(7) is found
    assert len(server.asked) == 3


def test_guids_are_asked_for_as_text(server: Server) -> None:
    server.answers = [FOUND]
    assert SchemaCache(BlockingRegistry(server.url)).by_guid(bytes(range(16))) is not None
    assert b"/schemas/guids/00010203-0405-0607-0809-0a0b0c0d0e0f " in server.asked[0]


@pytest.mark.parametrize("number", [0, -1, 2**31])
def test_ids_that_cannot_be_are_not_asked_for(server: Server, number: int) -> None:
    assert SchemaCache(BlockingRegistry(server.url)).by_id(number) is None
    assert not server.asked
