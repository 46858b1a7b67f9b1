"""The four codecs: what is read, what is refused, and what it may cost."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import random
import struct
import sys
import tracemalloc
from typing import TYPE_CHECKING

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.compression import (
    DECOMPRESSION_FLOOR,
    DECOMPRESSION_HARD_LIMIT,
    XERIAL_HEADER,
    Codec,
    codec_of,
    compress,
    decompress,
    decompressed_limit,
)
from ottla.wire.errors import (
    DecompressedTooLarge,
    DecompressionFailed,
    UnknownCodec,
)
from tests.support.bombs import rle_bomb

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1024 * 1024
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
RANDOM = random.Random(5).randbytes(100_000)
SAMPLES = [b"", b"a", b"ottla " * 20_000, RANDOM, bytes(XERIAL_HEADER)]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", SAMPLES, ids=["empty", "one", "regular", "random", "header"])
def test_round_trip(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, cramjam.Buffer])
def test_both_ways_take_any_buffer(codec: Codec, kind: Callable[[bytes], bytes]) -> None:
    block = compress(codec, kind(RANDOM))
    assert decompress(codec, kind(bytes(block))) == RANDOM


@given(st.sampled_from(COMPRESSED), st.binary(max_size=2_000), st.integers(1, 50))
def test_round_trip_of_anything(codec: Codec, data: bytes, times: int) -> None:
    assert decompress(codec, compress(codec, data * times)) == data * times


@pytest.mark.parametrize("codec", COMPRESSED)
def test_frames_back_to_back_are_read_as_one(codec: Codec) -> None:
    frames = b"".join(compress(codec, data) for data in SAMPLES)
    assert decompress(codec, frames) == b"".join(SAMPLES)


@pytest.mark.parametrize(("codec", "low", "high"), [(1, 1, 9), (3, 1, 9), (4, 1, 19)])
def test_levels_trade_time_for_size(codec: int, low: int, high: int) -> None:
    data = b"".join(b"user%d likes topic %d;" % (i * i % 977, i % 13) for i in range(3_000))
    fast, small = (compress(Codec(codec), data, level=level) for level in (low, high))
    assert len(small) < len(fast)
    assert decompress(Codec(codec), small) == data


def test_codecs_by_name_and_by_attributes() -> None:
    names = ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [Codec.named(name) for name in names] == list(Codec)
    assert [codec_of(attributes) for attributes in range(5)] == list(Codec)
    assert codec_of(0x7C) is Codec.ZSTD
    with pytest.raises(UnknownCodec, match="got brotli"):
        Codec.named("brotli")


@pytest.mark.parametrize("attributes", [5, 6, 7, 0x0F, -1])
def test_unassigned_codecs_are_refused(attributes: int) -> None:
    with pytest.raises(UnknownCodec):
        codec_of(attributes)


def test_a_bare_snappy_block_is_read() -> None:
    assert decompress(Codec.SNAPPY, cramjam.snappy.compress_raw(RANDOM)) == RANDOM


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    stream = bytes(compress(Codec.SNAPPY, bytes(32 * 1024 + 1)))
    assert stream.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    (first,) = struct.unpack_from(">i", stream, 16)
    assert cramjam.snappy.decompress_raw_len(stream[20 : 20 + first]) == 32 * 1024
    assert cramjam.snappy.decompress_raw_len(stream[24 + first :]) == 1


def test_xerial_version_numbers_in_the_wrong_byte_order_are_read() -> None:
    stream = bytearray(compress(Codec.SNAPPY, b"data"))
    struct.pack_into("<ii", stream, 8, 1, 1)
    assert bytes(decompress(Codec.SNAPPY, stream)) == b"data"


def test_lz4_is_written_as_one_frame_of_independent_blocks() -> None:
    frame = compress(Codec.LZ4, RANDOM)
    assert bytes(frame[:4]) == b"\x04\x22\x4d\x18"
    assert frame[4] & 0x20, "the Java reader refuses linked blocks"
    assert not frame[4] & 0x01, "no dictionary"


def announcing(codec: Codec, size: int) -> bytes:
    """A small block that says it holds `size` bytes."""
    if codec is Codec.SNAPPY:
        varint = bytes(size >> shift & 0x7F | 0x80 for shift in (0, 7, 14, 21)) + bytes(
            [size >> 28]
        )
        return varint + bytes(50)
    if codec is Codec.LZ4:
        return b"\x04\x22\x4d\x18\x68\x40" + struct.pack("<Q", size) + bytes(50)
    if codec is Codec.ZSTD:
        return b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", size) + bytes(50)
    return gzip.compress(b"small")[:-4] + struct.pack("<I", size)


@pytest.mark.parametrize("size", [DECOMPRESSION_FLOOR + 1, 2**32 - 1])
@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_an_announced_size_over_the_limit_is_refused_unread(codec: Codec, size: int) -> None:
    with pytest.raises(DecompressedTooLarge, match=f"{size} bytes announced"):
        decompress(codec, announcing(codec, size))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_an_announced_size_below_the_limit_is_not_trusted_either(codec: Codec) -> None:
    block = announcing(codec, DECOMPRESSION_FLOOR - 1)
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionFailed):
            decompress(codec, block)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("single_segment", [False, True])
@pytest.mark.parametrize("dictionary", [0, 1, 2, 3])
def test_the_zstd_content_size_is_found_in_every_header(
    width: int, single_segment: bool, dictionary: int
) -> None:
    flag = {1: 0, 2: 1, 4: 2, 8: 3}[width]
    descriptor = flag << 6 | single_segment << 5 | dictionary
    header = b"\x28\xb5\x2f\xfd" + bytes([descriptor])
    header += bytes(not single_segment) + bytes((0, 1, 2, 4)[dictionary])
    block = header + b"\xff" * width + bytes(10)
    announced = 2 ** (8 * width) - 1 + (256 if width == 2 else 0)
    if width == 1 and not single_segment:  # this header has no such field
        announced = 0
    error = DecompressedTooLarge if announced else DecompressionFailed
    with pytest.raises(error, match=f"{announced} bytes announced" if announced else None):
        decompress(Codec.ZSTD, block, limit=100)


def test_a_header_cut_inside_its_content_size_is_not_a_size() -> None:
    for size, codec in itertools.product(range(13), (Codec.LZ4, Codec.ZSTD)):
        with pytest.raises(DecompressionFailed):
            decompress(codec, announcing(codec, 2**40)[:size])


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_limit_is_exact(codec: Codec) -> None:
    for data in (b"ottla" * 2_000, RANDOM[:10_000]):
        block = compress(codec, data)
        assert decompress(codec, block, limit=10_000) == data
        with pytest.raises(DecompressedTooLarge, match="at most 9999 bytes"):
            decompress(codec, block, limit=9_999)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_several_frames_count_together_against_the_limit(codec: Codec) -> None:
    frames = bytes(compress(codec, b"ottla" * 2_000)) * 3
    assert len(decompress(codec, frames, limit=30_000)) == 30_000
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, frames, limit=29_999)


def test_limits_by_size() -> None:
    assert decompressed_limit(1) == DECOMPRESSION_FLOOR == 16 * MIB
    assert decompressed_limit(MIB) == 64 * MIB
    assert decompressed_limit(3 * MIB) == DECOMPRESSION_HARD_LIMIT == 128 * MIB


def test_the_window_of_the_bomb_is_a_valid_one() -> None:
    assert decompress(Codec.ZSTD, rle_bomb(8)) == b"x" * MIB


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_small_block_costs_little(codec: Codec) -> None:
    block = bytes(compress(codec, b"ottla " * 170))
    tracemalloc.start()
    try:
        decompress(codec, block)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 1024


def test_a_stream_of_tiny_blocks_costs_little() -> None:
    stream = XERIAL_HEADER + b"\x00\x00\x00\x03\x01\x00x" * 20_000
    tracemalloc.start()
    try:
        assert len(decompress(Codec.SNAPPY, stream)) == 20_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_comes_back_holds_no_spare_room(codec: Codec) -> None:
    back = decompress(codec, compress(codec, b"x"))
    assert sys.getsizeof(back.obj) < 100


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("garbage", [b"", b"\x01", b"garbage garbage", RANDOM, b"\xff" * 64])
def test_garbage_is_refused(codec: Codec, garbage: bytes) -> None:
    with pytest.raises(DecompressionFailed):
        decompress(codec, garbage)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_truncation_is_refused(codec: Codec) -> None:
    block = compress(codec, b"ottla " * 50)
    for size in range(len(block)):
        if codec is Codec.SNAPPY and size == len(XERIAL_HEADER):
            continue  # what Java writes for no data
        with pytest.raises(DecompressionFailed):
            decompress(codec, block[:size])


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bytes_after_the_last_frame_are_refused(codec: Codec) -> None:
    with pytest.raises(DecompressionFailed):
        decompress(codec, bytes(compress(codec, b"data")) + b"tail")


@pytest.mark.parametrize("length", [-1, 0, 7, 2**31 - 1])
def test_a_xerial_block_length_that_lies(length: int) -> None:
    stream = bytearray(compress(Codec.SNAPPY, b"data"))
    struct.pack_into(">i", stream, len(XERIAL_HEADER), length)
    with pytest.raises(DecompressionFailed):
        decompress(Codec.SNAPPY, stream)


def test_a_bare_xerial_header_holds_nothing() -> None:
    assert len(decompress(Codec.SNAPPY, XERIAL_HEADER)) == 0


def test_errors_say_where() -> None:
    with pytest.raises(DecompressionFailed, match="in batch at offset 9: expected a gzip block"):
        decompress(Codec.GZIP, b"garbage", where="batch at offset 9")


@given(
    st.sampled_from(COMPRESSED),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 200),
)
def test_a_damaged_block_raises_nothing_else(
    codec: Codec, damage: list[tuple[int, int]], cut: int
) -> None:
    block = bytearray(compress(codec, b"ottla " * 40 + RANDOM[:100]))
    for position, byte in damage:
        block[position % len(block)] = byte
    del block[len(block) - min(cut // 2, len(block)) :]
    with contextlib.suppress(DecompressionFailed, DecompressedTooLarge):
        decompress(codec, block)
