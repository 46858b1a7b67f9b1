"""The TLS channel: cuts, ends, limits (cases 15 and 17 of the security specification)."""

from __future__ import annotations

import mmap
import struct
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security import tls_channel
from ottla.security.kernel_copy import KernelCopy
from ottla.security.tls_channel import ENDED_EARLY, TOO_LONG, ReadBuffer, State, TlsChannel
from ottla.wire.frames import FrameParser
from tests.support.sizes import examples, some
from tests.support.tls import ROOM, End, Received, contexts, ends, opened, talk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DATA = bytes(range(256)) * 256  # 64 KiB
VERSIONS = ("TLSv1.2", "TLSv1.3")
CLOSE_NOTIFY_LIMIT = 64  # bytes of an encrypted alert


def cut_at(position: int) -> Callable[[bytes], Iterable[bytes]]:
    def cut(data: bytes) -> Iterable[bytes]:
        return (part for part in (data[:position], data[position:]) if part)

    return cut


def each_byte(data: bytes) -> Iterable[bytes]:
    return (data[at : at + 1] for at in range(len(data)))


@pytest.mark.sampled
@pytest.mark.parametrize("version", VERSIONS)
def test_15_every_cut_of_a_handshake_opens_the_channel(version: str) -> None:
    longest = 0

    def noting(data: bytes) -> list[bytes]:
        nonlocal longest
        longest = max(longest, len(data))
        return [data]

    talk(*ends(*contexts(version)), noting)
    assert longest > 300
    for position in some(range(1, longest + 1), VERSIONS.index(version)):
        client, server = ends(*contexts(version))
        client.channel.send([b"from the client"])
        server.channel.send([b"from the server"])
        talk(client, server, cut_at(position))
        assert client.channel.state is server.channel.state is State.OPEN, position
        assert bytes(server.sink.data) == b"from the client", position
        assert bytes(client.sink.data) == b"from the server", position


@pytest.mark.parametrize("version", VERSIONS)
def test_15_a_handshake_byte_by_byte(version: str) -> None:
    client, server = ends(*contexts(version))
    client.channel.send([DATA[:100]])
    talk(client, server, each_byte)
    assert bytes(server.sink.data) == DATA[:100]
    assert server.channel.peer is not None
    assert server.channel.peer.version == version
    assert server.channel.peer.der is None
    assert client.channel.peer is not None
    assert client.channel.peer.der is not None


@given(
    cuts=st.lists(st.integers(0, len(DATA) + 2000), max_size=20),
    parts=st.lists(st.integers(0, len(DATA)), max_size=8),
    size=st.integers(100, 70_000),
    room=st.integers(2000, 300_000),
    version=st.sampled_from(VERSIONS),
)
@settings(max_examples=examples(60), deadline=None)
def test_15_cuts_of_64_kib_give_the_same_bytes(
    cuts: list[int], parts: list[int], size: int, room: int, version: str
) -> None:
    client, server = opened(*contexts(version))
    server.sink = Received(size)
    bounds = [0, *sorted(parts), len(DATA)]
    pieces = [DATA[a:b] for a, b in pairwise(bounds)]
    client.channel.send([memoryview(piece) for piece in pieces])
    assert client.channel.waiting_bytes == len(DATA)
    encrypted = b""
    while client.channel.waiting_bytes:
        encrypted += b"".join(client.channel.ciphertext(room))
    at = [0, *sorted(cuts), len(encrypted)]
    server.hears(encrypted[a:b] for a, b in pairwise(at))
    assert bytes(server.sink.data) == DATA


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("position", range(0, 65_800, 1231))
def test_15_one_cut_in_64_kib(version: str, position: int) -> None:
    client, server = opened(*contexts(version))
    client.channel.send([DATA])
    server.hears(cut_at(position)(client.out()))
    assert bytes(server.sink.data) == DATA


@pytest.mark.skipif(sys.platform != "linux", reason="files in memory")
@given(
    parts=st.lists(
        st.tuples(st.integers(0, 40_000) | st.integers(0, 300), st.booleans()), max_size=40
    ),
    room=st.integers(1, 300_000),
)
@settings(max_examples=examples(60), deadline=None)
def test_mapped_and_other_parts_leave_in_their_order(
    parts: list[tuple[int, bool]], room: int
) -> None:
    client, server = opened(*contexts("TLSv1.3"))
    client.channel._copy = KernelCopy.make(tls_channel.SLICE_BYTES)
    memory = mmap.mmap(-1, len(DATA))
    memory[:] = DATA
    sent = b""
    for at, (size, is_mapped) in enumerate(parts):
        data = memory if is_mapped else DATA
        client.channel.send([memoryview(data)[at : at + size]])
        sent += DATA[at : at + size]
    while client.channel.waiting_bytes:
        server.hears(client.channel.ciphertext(room))
    assert bytes(server.sink.data) == sent


@pytest.mark.skipif(sys.platform != "linux", reason="files in memory")
def test_a_mapped_page_that_cannot_be_read_is_an_error() -> None:
    """Whoever reads it is killed."""
    client, server = opened(*contexts("TLSv1.3"))
    client.channel._copy = KernelCopy.make(tls_channel.SLICE_BYTES)
    unreadable = mmap.mmap(-1, 4 * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0)
    client.channel.send([b"head", memoryview(unreadable)])
    server.hears(client.channel.ciphertext(1))
    assert bytes(server.sink.data) == b"h"
    with pytest.raises(OSError, match="Bad address"):
        client.channel.ciphertext(ROOM)


def frame(size: int) -> bytes:
    return struct.pack(">i", size) + b"x" * size


class Frames(FrameParser):
    """A sink that keeps whole frames."""

    def __init__(self) -> None:
        super().__init__(1 << 20)
        self.found: list[int] = []

    def buffer_updated(self, nbytes: int) -> list[memoryview]:
        frames = super().buffer_updated(nbytes)
        self.found += map(len, frames)
        return frames


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("half", [b"", frame(40_000)[:20_000]])
@pytest.mark.parametrize("says_goodbye", [True, False])
def test_17_whole_frames_are_served_at_the_end(
    version: str, half: bytes, says_goodbye: bool
) -> None:
    client, server = opened(*contexts(version))
    client.channel.send([frame(10), frame(30_000), half])
    last = client.out()
    sink = Frames()
    if says_goodbye:
        last += client.channel.close()
        server.channel.received(last, sink)
        assert 0 < len(server.out()) < CLOSE_NOTIFY_LIMIT  # ours back
    else:
        server.channel.received(last, sink)
        assert server.channel.state is State.OPEN
        server.channel.ended()
        assert server.out() == b""
    assert server.channel.state is State.CLOSED
    assert sink.found == [10, 30_000]
    assert server.channel.fault is None


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_said_or_heard_after_the_end(version: str) -> None:
    client, server = opened(*contexts(version))
    client.channel.send([b"before"])
    late = client.out()
    assert client.channel.close()
    client.channel.send([b"after"])
    assert client.channel.waiting_bytes == 0
    assert client.out() == b""
    server.channel.ended()
    server.channel.received(late, server.sink)
    assert not server.sink.data
    assert client.channel.close() == b""


def test_a_stranger_is_told_an_alert_and_nothing_more() -> None:
    _, server = ends(*contexts())
    server.hears([b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"])
    assert server.channel.state is State.FAILED
    assert server.channel.fault is not None
    assert server.channel.fault.reason == "HTTP_REQUEST"
    said = server.out()
    assert len(said) <= 7  # one alert in clear, or nothing
    server.hears([b"more"])
    assert server.out() == b""


def test_a_plain_request_fails_the_handshake_at_once() -> None:
    _, server = ends(*contexts())
    server.hears([frame(20)])
    assert server.channel.state is State.FAILED


def test_the_end_during_a_handshake_is_a_failure() -> None:
    client, server = ends(*contexts())
    server.hears([client.out()[:100]])
    server.channel.ended()
    assert server.channel.fault is ENDED_EARLY
    assert server.channel.state is State.FAILED


def hello_of(size: int) -> bytes:
    """A handshake message that never ends, in records of 16 KiB."""
    message = b"\x01" + (size + 100_000).to_bytes(3, "big") + bytes(size)
    return b"".join(
        b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part
        for at in range(0, len(message), 16_384)
        for part in [message[at : at + 16_384]]
    )


def test_a_handshake_has_a_limit_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    # OpenSSL refuses a long hello by itself; the limit is for what it would take.
    monkeypatch.setattr(tls_channel, "MAX_HANDSHAKE_BYTES", 300)
    client, server = ends(*contexts())
    hello = client.out()
    assert len(hello) > 300
    server.hears([hello])
    assert server.channel.state is State.FAILED
    assert server.channel.fault is TOO_LONG
    assert server.out() == b""


def test_a_long_hello_fails_within_the_limit() -> None:
    _, server = ends(*contexts())
    server.hears([hello_of(tls_channel.MAX_HANDSHAKE_BYTES + 1)])
    assert server.channel.state is State.FAILED


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_behind_the_handshake_are_no_handshake_bytes(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, server = ends(*contexts(version))
    server.hears([client.out()])
    client.hears([server.out()])
    if version == "TLSv1.2":  # the client speaks last but one
        server.hears([client.out()])
        client.hears([server.out()])
        client.channel.send([DATA * 4])
        server.hears([client.out()])
    else:
        client.channel.send([DATA * 4])
        server.hears([client.out()])
    assert bytes(server.sink.data) == DATA * 4


def test_only_what_has_room_is_encrypted() -> None:
    client, server = opened(*contexts())
    big = memoryview(bytes(8 << 20))
    client.channel.send([b"head", big, b"tail"])
    before = client.channel.waiting_bytes
    first = client.channel.ciphertext(tls_channel.AHEAD_BYTES)
    sent = before - client.channel.waiting_bytes
    assert sent >= tls_channel.AHEAD_BYTES - tls_channel.SLICE_BYTES
    assert sent <= tls_channel.AHEAD_BYTES + tls_channel.SLICE_BYTES
    assert client.channel.ciphertext(0) == []
    server.hears(first)
    while client.channel.waiting_bytes:
        server.hears(client.channel.ciphertext(tls_channel.AHEAD_BYTES))
    assert bytes(server.sink.data) == b"head" + big + b"tail"


def test_small_parts_share_a_record() -> None:
    client, server = opened(*contexts("TLSv1.3"))
    client.channel.send([b"x"] * 1000)
    assert len(client.out()) < 1000 + 100
    client.channel.send([b"y"])
    server.hears([client.out()])
    assert client.channel.waiting_bytes == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_records_that_came_together_are_handed_over_together(version: str) -> None:
    """As librdkafka sends a batch: each piece of it is a record of its own."""
    client, server = opened(*contexts(version))
    heard: list[int] = []
    server.sink.on_data = lambda: heard.append(len(server.sink.data))
    encrypted = b""
    for piece in range(6):
        client.channel.send([bytes([piece]) * 1000])
        encrypted += client.out()
    server.hears([encrypted])
    assert heard == [4096, 6000]  # a buffer of the sink, and the rest
    assert bytes(server.sink.data) == b"".join(bytes([piece]) * 1000 for piece in range(6))


def test_whole_records_before_a_forged_one_are_handed_over() -> None:
    client, server = opened(*contexts())
    client.channel.send([b"good"])
    good = client.out()
    client.channel.send([b"evil"])
    forged = bytearray(client.out())
    forged[-1] ^= 1
    server.hears([good + bytes(forged)])
    assert bytes(server.sink.data) == b"good"
    assert server.channel.state is State.FAILED


def test_a_sink_that_closes_the_channel_gets_nothing_more() -> None:
    client, server = opened(*contexts())
    client.channel.send([DATA])
    server.sink.on_data = server.channel.close
    server.hears([client.out()])
    assert 0 < len(server.sink.data) <= server.sink.size


def test_an_answer_may_be_sent_while_bytes_come_in() -> None:
    client, server = opened(*contexts())
    answered: list[bytes] = []

    def answer() -> None:
        server.channel.send([b"answer"])
        answered.extend(server.channel.ciphertext(ROOM))

    server.sink.on_data = answer
    client.channel.send([DATA[:20_000]])
    server.hears([client.out()])
    client.hears(answered)
    assert bytes(client.sink.data) == b"answer" * 5
    assert len(server.sink.data) == 20_000


def test_a_forged_record_fails_the_channel() -> None:
    client, server = opened(*contexts())
    client.channel.send([b"records"])
    forged = bytearray(client.out())
    forged[-1] ^= 1
    server.hears([bytes(forged)])
    assert server.channel.state is State.FAILED
    assert not server.sink.data
    client.hears([server.out()])
    assert client.channel.state is State.FAILED
    assert client.channel.fault is not None


def test_a_wrong_host_name_is_told_apart() -> None:
    client, server = ends(*contexts(), host="elsewhere.example")
    talk(client, server)
    assert client.channel.fault is not None
    assert client.channel.fault.verify_code == 62  # X509_V_ERR_HOSTNAME_MISMATCH
    assert "elsewhere.example" in str(client.channel.fault)
    assert server.channel.state is State.FAILED


def test_one_read_buffer_serves_one_connection_at_a_time() -> None:
    buffer = ReadBuffer()
    one, other = object(), object()
    buffer.lend(one)[:3] = b"abc"
    assert bytes(buffer.take(one, 3)) == b"abc"
    buffer.lend(one)  # a read that found nothing
    buffer.lend(other)
    assert len(buffer.take(other, 7)) == 7
    buffer.lend(one)
    buffer.lend(other)
    with pytest.raises(AssertionError, match="two connections"):
        buffer.take(one, 1)


def test_a_channel_that_never_shook_hands_closes_quietly() -> None:
    channel = TlsChannel(contexts()[0], server_side=True)
    assert channel.close() == b""
    assert channel.state is State.CLOSED
    assert End(channel).out() == b""
