"""The four codecs of record batches, read in bounded memory.

Rules:

- It writes formats that every client reads: gzip, xerial-framed snappy in 32 KiB blocks, lz4 frames
  of independent blocks (Kafka's Java reader does not support linked ones), zstd.
- It reads all formats that clients write: snappy also as one bare block (librdkafka), gzip with
  several members, lz4 and zstd with several frames, several xerial streams. Bytes after the last
  frame are an error.
- A block never grows beyond `decompressed_limit`. The size that a frame announces is checked
  against that limit, and against the possible growth of its input, before memory is allocated;
  without an announced size the buffer starts small and grows geometrically. (zstd also keeps a
  window, never larger than its output: at worst twice the bytes.)
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import cramjam

from ottla.wire.batch import CODEC_MASK
from ottla.wire.errors import DecompressedTooLarge, DecompressionFailed, UnknownCodec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _typeshed import ReadableBuffer

DECOMPRESSION_RATIO: Final = 64
"""Allowed growth of a large block. Logs and JSON reach 10-30; more is a bomb or a row of zeros."""
DECOMPRESSION_FLOOR: Final = 16 * 1024 * 1024
"""Always allowed: a small block of very regular records may exceed the ratio."""
DECOMPRESSION_HARD_LIMIT: Final = 128 * 1024 * 1024
"""Upper limit for any ratio: a hostile batch must not take all memory."""

FIRST_GUESS_RATIO: Final = 4
SMALLEST_GUESS: Final = 1024
GROWTH: Final = 4  # per retry; each decodes from the start, in all a third more work at most

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_SIZE: Final = 32 * 1024
SNAPPY_MAX_RATIO: Final = 22  # the densest element copies 64 bytes out of 3

_I32 = struct.Struct(">i")
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_OUTPUT_FULL: Final = (
    "failed to write whole buffer"  # cramjam's message when the output buffer is too small
)


class Codec(IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> Codec:
        """The codec with this name in `compression.type`."""
        for codec in cls:
            if codec.name.lower() == name:
                return codec
        raise UnknownCodec([codec.name.lower() for codec in cls], name, "compression.type")


DEFAULT_LEVELS: Final = {Codec.GZIP: 1, Codec.LZ4: 1, Codec.ZSTD: 3}
"""Fast levels: cramjam's lz4 default is five times slower, gzip 6 eight times, for 15 % less."""


def codec_of(attributes: int) -> Codec:
    """The codec of a batch with these attributes; values 5-7 are not assigned."""
    try:
        return Codec(attributes & CODEC_MASK)
    except ValueError:
        raise UnknownCodec("0 to 4", attributes & CODEC_MASK, "batch attributes") from None


def decompressed_limit(compressed_size: int) -> int:
    """The most bytes that a block of `compressed_size` bytes may become."""
    allowed = max(DECOMPRESSION_RATIO * compressed_size, DECOMPRESSION_FLOOR)
    return min(allowed, DECOMPRESSION_HARD_LIMIT)


def compress(codec: Codec, data: ReadableBuffer, *, level: int | None = None) -> memoryview:
    """`data` as one block of `codec`; `level` is the level of gzip, lz4 or zstd."""
    if codec is Codec.NONE:
        return memoryview(data)
    if codec is Codec.SNAPPY:
        return memoryview(_compress_xerial(memoryview(data)))
    chosen = DEFAULT_LEVELS[codec] if level is None else level
    if codec is Codec.GZIP:
        return memoryview(cramjam.gzip.compress(data, level=chosen))
    if codec is Codec.ZSTD:
        return memoryview(cramjam.zstd.compress(data, level=chosen))
    frame = cramjam.lz4.Compressor(level=chosen, content_checksum=False, block_linked=False)
    frame.compress(bytes(data))  # this call accepts only bytes, no other buffers
    return memoryview(frame.finish())


def decompress(
    codec: Codec,
    data: ReadableBuffer,
    *,
    limit: int = DECOMPRESSION_HARD_LIMIT,
    where: str = "compressed block",
) -> memoryview:
    """The decompressed data; without a codec, `data` itself.

    Raises DecompressedTooLarge above the smaller of `limit` and `decompressed_limit`, and
    DecompressionFailed for bytes that are not a block of `codec`.
    """
    view = memoryview(data)
    if codec is Codec.NONE:
        return view
    cap = min(limit, decompressed_limit(len(view)))
    try:
        if codec is Codec.SNAPPY:
            return _decompress_snappy(view, cap, where)
        return _decompress_frames(codec, view, cap, where)
    except cramjam.DecompressionError as error:
        raise DecompressionFailed(f"a {codec.name.lower()} block", error, where) from None


def _compress_xerial(data: memoryview) -> bytes:
    pieces: list[ReadableBuffer] = [XERIAL_HEADER]
    # One block even without data: some readers do not recognise a header alone.
    for start in range(0, max(len(data), 1), XERIAL_BLOCK_SIZE):
        block = cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK_SIZE])
        pieces += (_I32.pack(len(block)), block)
    return b"".join(pieces)


def _decompress_snappy(view: memoryview, cap: int, where: str) -> memoryview:
    # Two passes instead of a list: there may be millions of blocks of a few bytes.
    size = sum(_snappy_size(block, where) for block in _snappy_blocks(view, where))
    if size > cap:
        raise DecompressedTooLarge(f"at most {cap} bytes", f"{size} bytes announced", where)
    output = memoryview(bytearray(size))
    position = 0
    for block in _snappy_blocks(view, where):
        position += cramjam.snappy.decompress_raw_into(block, output[position:])
    return output


def _snappy_blocks(view: memoryview, where: str) -> Iterator[memoryview]:
    # A bare block cannot start with the magic: it would copy from before its start.
    if not _starts_with(view, XERIAL_MAGIC):
        yield view
        return
    position = 0
    while position < len(view):
        # Several streams may follow each other. The two version numbers are ignored, because some
        # producers write them in the wrong byte order.
        starts_stream = _starts_with(view, XERIAL_MAGIC, position)
        head = len(XERIAL_HEADER) if starts_stream else _I32.size
        left = len(view) - position - head
        if left < 0:
            raise DecompressionFailed(f"{-left} bytes more of a xerial header", "the end", where)
        position += head
        if starts_stream:
            continue
        (length,) = _I32.unpack_from(view, position - head)
        if not 0 <= length <= left:
            raise DecompressionFailed(f"a snappy block length of 0 to {left}", length, where)
        yield view[position : position + length]
        position += length


def _snappy_size(block: memoryview, where: str) -> int:
    if not block:
        raise DecompressionFailed("a snappy block", "no bytes", where)
    size = cramjam.snappy.decompress_raw_len(block)
    if size > SNAPPY_MAX_RATIO * len(block):
        expected = f"at most {SNAPPY_MAX_RATIO} times the {len(block)} bytes of a snappy block"
        raise DecompressionFailed(expected, f"{size} bytes announced", where)
    return size


def _starts_with(view: memoryview, magic: bytes, position: int = 0) -> bool:
    return bytes(view[position : position + len(magic)]) == magic


def _decompress_frames(codec: Codec, view: memoryview, cap: int, where: str) -> memoryview:
    decompress_into = _DECOMPRESS_INTO[codec]
    announced = _announced_size(codec, view)
    if announced is None:
        guess = max(FIRST_GUESS_RATIO * len(view), SMALLEST_GUESS)
    elif announced > cap and codec is not Codec.GZIP:
        raise DecompressedTooLarge(f"at most {cap} bytes", f"{announced} bytes announced", where)
    else:
        guess = min(announced, DECOMPRESSION_RATIO * len(view))
    size = min(guess, cap)
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(view, output)
        except cramjam.DecompressionError as error:
            if str(error) != _OUTPUT_FULL:
                raise
        else:
            del output[written:]
            return memoryview(output)
        if size == cap:
            raise DecompressedTooLarge(f"at most {cap} bytes", "more", where)
        del output  # freed before the next one is allocated, so that there is only one
        size = min(max(size * GROWTH, SMALLEST_GUESS), cap)


_DECOMPRESS_INTO: Final[dict[Codec, Callable[[memoryview, bytearray], int]]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def _announced_size(codec: Codec, view: memoryview) -> int | None:
    """The content size that a frame announces, if any.

    lz4 and zstd give it in the first frame: if it is over the limit, the block is refused. gzip
    gives it at the end, modulo 2**32 and for the last member only, so there it is just a hint.
    """
    if codec is Codec.LZ4:
        return _lz4_content_size(view)
    if codec is Codec.ZSTD:
        return _zstd_content_size(view)
    return int.from_bytes(view[-4:], "little")


def _lz4_content_size(view: memoryview) -> int | None:
    if len(view) < 14 or not _starts_with(view, _LZ4_MAGIC) or not view[4] & 0x08:
        return None
    return int.from_bytes(view[6:14], "little")


def _zstd_content_size(view: memoryview) -> int | None:
    if len(view) < 5 or not _starts_with(view, _ZSTD_MAGIC):
        return None
    descriptor = view[4]
    single_segment = bool(descriptor & 0x20)
    size_flag = descriptor >> 6
    if size_flag == 0 and not single_segment:
        return None
    start = 5 + (not single_segment) + (0, 1, 2, 4)[descriptor & 0x03]
    width = 1 << size_flag
    if len(view) < start + width:
        return None
    size = int.from_bytes(view[start : start + width], "little")
    return size + 256 if size_flag == 1 else size
