"""Compressed blocks that grow when they are decompressed."""

from __future__ import annotations


def rle_bomb(blocks: int) -> bytes:
    """A zstd frame of repeated bytes, 128 KiB out of four, under a window of 128 MiB."""
    block = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"x"
    last = (128 * 1024 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"x"
    return b"\x28\xb5\x2f\xfd\x00" + bytes([(27 - 10) << 3]) + block * (blocks - 1) + last
