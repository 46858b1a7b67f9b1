"""Memory that a decompression bomb costs, in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.wire.compression import (
    Codec,
    compress,
    decompressed_limit,
)
from tests.support.bombs import rle_bomb

MIB = 1024 * 1024


def bomb(name: str) -> tuple[Codec, bytes]:
    """200 MiB of zeros in one block."""
    if name == "zstd-rle":
        return Codec.ZSTD, rle_bomb(1_600)
    codec = Codec.named(name)
    return codec, bytes(compress(codec, bytes(200 * MIB)))


MEASURE = """
import sys
from pathlib import Path
from ottla.wire.compression import Codec, decompress
from ottla.wire.errors import DecompressedTooLarge

def peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

block = sys.stdin.buffer.read()
decompress(Codec.ZSTD, bytes.fromhex("28b52ffd2000010000"))
before = peak()
try:
    decompress(Codec(int(sys.argv[1])), block)
except DecompressedTooLarge:
    print((peak() - before) * 1024)
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the kernel does not tell a process's peak"
)
@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd", "zstd-rle"])
def test_a_bomb_costs_no_more_than_its_limit(name: str) -> None:
    codec, block = bomb(name)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(int(codec))],
        input=block,
        capture_output=True,
        check=True,
    )
    grown = int(done.stdout)
    # A streaming zstd decoder keeps its window beside the output.
    allowed = decompressed_limit(len(block)) * (2 if codec is Codec.ZSTD else 1)
    assert grown <= allowed + 4 * MIB, f"{len(block)} bytes cost {grown}"
