"""Broken handshakes: refused with an alert, never an exception (case 20, without a socket)."""

from __future__ import annotations

import os
import random
from itertools import pairwise

import pytest

from ottla.security.tls_channel import State
from tests.support.tls import End, contexts, ends

ROUNDS = 100_000 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 3_000
MOST_ANSWERED = 8192  # the server's flight with its chain, or an alert
VERSIONS = ("TLSv1.2", "TLSv1.3")


def mutated(data: bytes, draw: random.Random) -> bytes:
    """A few bytes changed, left out, repeated or added."""
    found = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(found) + 1)
        match draw.randrange(5):
            case 0 if at < len(found):
                found[at] = draw.randrange(256)
            case 1:
                del found[at : at + draw.randint(1, 20)]
            case 2:
                found[at:at] = draw.randbytes(draw.randint(1, 20))
            case 3:
                found[at:at] = found[at : at + draw.randint(1, 200)]
            case _ if at + 2 <= len(found):
                # Lengths are two bytes.
                found[at : at + 2] = draw.choice([b"\x00\x00", b"\xff\xff", b"\x40\x01"])
        if not found:
            return b"\x16"
    return bytes(found)


def in_pieces(data: bytes, draw: random.Random) -> list[bytes]:
    cuts = sorted(draw.randrange(len(data) + 1) for _ in range(draw.randrange(4)))
    bounds = [0, *cuts, len(data)]
    return [data[a:b] for a, b in pairwise(bounds)]


def check(server: End, sent: int) -> None:
    """Nothing was believed, and the answer is no larger than a server's flight."""
    answered = len(server.out())
    assert answered <= MOST_ANSWERED, sent
    assert not server.sink.data
    if server.channel.state is State.FAILED:
        assert server.channel.fault is not None
        server.hears([b"\x16\x03\x01\x00\x05more!"])
        assert server.out() == b""


@pytest.mark.parametrize("version", VERSIONS)
def test_20_mutated_hellos(version: str) -> None:
    draw = random.Random(20)
    context, client = contexts(version)
    hello = ends(context, client)[0].out()
    failed = 0
    for _ in range(ROUNDS // 2):
        _, server = ends(context, client)
        wrong = mutated(hello, draw)
        server.hears(in_pieces(wrong, draw))
        check(server, len(wrong))
        failed += server.channel.state is State.FAILED
    assert failed > ROUNDS // 8  # others wait for the rest of a message


@pytest.mark.parametrize("version", VERSIONS)
def test_20_mutated_ends_of_handshakes(version: str) -> None:
    """The client's second flight: its key, and the proof that it has it."""
    draw = random.Random(21)
    context, client_context = contexts(version)
    for _ in range(ROUNDS // 20):
        client, server = ends(context, client_context)
        server.hears([client.out()])
        client.hears([server.out()])
        proof = client.out()
        wrong = mutated(proof, draw)
        server.hears(in_pieces(wrong, draw))
        if not wrong.startswith(proof):
            assert server.channel.state is not State.OPEN
            check(server, len(wrong))


def test_20_noise() -> None:
    draw = random.Random(22)
    context, client = contexts()
    for _ in range(ROUNDS // 4):
        _, server = ends(context, client)
        noise = draw.randbytes(draw.randint(1, 2000))
        server.hears(in_pieces(noise, draw))
        check(server, len(noise))


@pytest.mark.parametrize("version", VERSIONS)
def test_20_a_client_is_as_careful(version: str) -> None:
    draw = random.Random(23)
    context, client_context = contexts(version)
    for _ in range(ROUNDS // 20):
        client, server = ends(context, client_context)
        server.hears([client.out()])
        flight = server.out()
        wrong = mutated(flight, draw)
        client.hears(in_pieces(wrong, draw))
        if not wrong.startswith(flight):
            assert client.channel.state is not State.OPEN or version == "TLSv1.3"
        assert not client.sink.data
