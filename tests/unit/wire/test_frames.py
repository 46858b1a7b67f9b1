from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.errors import FrameError, FrameTooLarge, FrameTooShort, NegativeFrameLength
from ottla.wire.frames import CHUNK_BYTES, FIRST_CHUNK_BYTES, GROWTH, FrameParser

LIMIT = 1 << 20


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


bodies_strategy = st.lists(
    st.binary(min_size=4, max_size=40)
    | st.integers(4, 3 * CHUNK_BYTES).map(lambda size: bytes(size % 251 for _ in range(3)) * size),
    max_size=6,
)


@given(bodies=bodies_strategy, cuts=st.lists(st.integers(1, 50_000), min_size=1, max_size=20))
def test_any_chunking_gives_the_same_frames(bodies: list[bytes], cuts: list[int]) -> None:
    bodies = [body[:LIMIT] for body in bodies]
    stream = framed(*bodies)
    parser = FrameParser(LIMIT)
    frames: list[memoryview] = []
    position = turn = 0
    while position < len(stream):
        piece = stream[position : position + cuts[turn % len(cuts)]]
        frames += parser.feed(piece)
        position += len(piece)
        turn += 1
    # Compared only now: views handed out early must have survived all later reads.
    assert [bytes(frame) for frame in frames] == bodies
    assert parser.pending_bytes == 0


def test_one_byte_at_a_time() -> None:
    parser = FrameParser(LIMIT)
    stream = framed(b"hello", b"world!")
    frames = [frame for byte in stream for frame in parser.feed(bytes([byte]))]
    assert [bytes(frame) for frame in frames] == [b"hello", b"world!"]


def test_a_large_frame_moves_rarely_and_ends_in_memory_of_its_size() -> None:
    parser = FrameParser(LIMIT)
    body = bytes(range(256)) * 2048  # 512 KiB: larger than a chunk
    stream = memoryview(framed(body))
    frames: list[memoryview] = []
    chunks: list[object] = []
    while stream:
        buffer = parser.get_buffer()
        nbytes = min(len(buffer), len(stream))
        buffer[:nbytes] = stream[:nbytes]
        if not chunks or chunks[-1] is not buffer.obj:
            chunks.append(buffer.obj)
        frames += parser.buffer_updated(nbytes)
        stream = stream[nbytes:]
    assert bytes(frames[0]) == body
    assert len(chunks) == 3  # the first chunk, a larger one, then one of exactly the frame's size
    assert len(frames[0].obj) == len(body) + 4  # type: ignore[arg-type]


def test_after_a_large_frame_the_next_one_is_received_where_it_stays() -> None:
    parser = FrameParser(LIMIT)
    body = bytes(100_000)
    assert len(parser.feed(framed(body))) == 1
    buffer = parser.get_buffer()
    assert len(buffer) == len(framed(body))
    buffer[:] = framed(body)
    (frame,) = parser.buffer_updated(len(buffer))
    assert frame.obj is buffer.obj
    parser.feed(framed(b"less"))
    assert len(parser.get_buffer()) <= CHUNK_BYTES


def test_an_idle_connection_keeps_no_large_chunk() -> None:
    tracemalloc.start()
    parser = FrameParser(LIMIT)
    parser.feed(framed(bytes(LIMIT)))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < CHUNK_BYTES


def test_frames_may_be_patched_in_place() -> None:
    parser = FrameParser(LIMIT)
    first, second = parser.feed(framed(b"aaaa", b"bbbb"))
    first[0] = ord("X")
    parser.feed(framed(b"c" * CHUNK_BYTES))
    assert (bytes(first), bytes(second)) == (b"Xaaa", b"bbbb")


@pytest.mark.parametrize(
    ("size", "error"),
    [
        (-1, NegativeFrameLength),
        (-(2**31), NegativeFrameLength),
        (0, FrameTooShort),
        (3, FrameTooShort),
        (LIMIT + 1, FrameTooLarge),
        (2**31 - 1, FrameTooLarge),
    ],
)
def test_impossible_sizes_are_refused_before_memory_is_spent(
    size: int, error: type[FrameError]
) -> None:
    parser = FrameParser(LIMIT)
    tracemalloc.start()
    frames = parser.feed(framed(b"good") + struct.pack(">i", size) + b"never looked at")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * CHUNK_BYTES
    assert [bytes(frame) for frame in frames] == [b"good"]
    assert isinstance(parser.error, error)
    assert parser.error.got == size
    assert parser.feed(framed(b"too late")) == []


def test_the_limit_itself_passes_and_can_be_raised() -> None:
    parser = FrameParser(8)
    assert [bytes(f) for f in parser.feed(framed(b"12345678"))] == [b"12345678"]
    parser.max_frame_bytes = 16
    assert [bytes(f) for f in parser.feed(framed(b"1234567890123456"))] == [b"1234567890123456"]


def test_memory_follows_what_arrives_not_what_is_announced() -> None:
    parser = FrameParser(1 << 30)
    tracemalloc.start()
    parser.feed(struct.pack(">i", 1 << 30) + b"x" * CHUNK_BYTES)
    parser.get_buffer()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < (GROWTH + 3) * CHUNK_BYTES


def test_a_connection_that_says_little_holds_little() -> None:
    """Fault: each of 5,000 idle connections took 64 KiB to learn that its client had closed."""
    parser = FrameParser(1 << 20)
    assert len(parser.get_buffer()) == FIRST_CHUNK_BYTES
    assert parser.feed(framed(b"hello")) == [b"hello"]
    assert len(parser.get_buffer()) < FIRST_CHUNK_BYTES
    sizes = []
    for _ in range(20):
        sizes.append(len(parser.get_buffer()))
        parser.feed(framed(b"x" * (FIRST_CHUNK_BYTES // 2)))
    assert max(sizes) == CHUNK_BYTES, "one that sends a lot has the reads of one"
    parser.feed(framed(b"x" * 2 * CHUNK_BYTES))
    parser.feed(framed(b"hello"))
    parser.feed(framed(b"x" * CHUNK_BYTES))
    parser.feed(framed(b"hello"))
    assert len(parser.get_buffer()) <= CHUNK_BYTES, "also some time after a large frame"
