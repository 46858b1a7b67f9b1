"""CRC-16/CDMA2000 (polynomial C867, initial FFFF, not reflected), two bytes at a time.

Values are kept with their bytes swapped ("little"): then the table is indexed by 16-bit words as
the memory of a little-endian machine holds them, and `struct` writes them in file order with `<H`.
"""

from __future__ import annotations

import sys
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    class Kernel(Protocol):
        """The module `kernel.py`."""

        def sums(
            self, data: bytes | bytearray, starts: Sequence[int], ends: Sequence[int]
        ) -> list[int]: ...

        def sound(
            self, data: bytes | bytearray, starts: Sequence[int], tails: Sequence[int]
        ) -> int: ...

        def frames(
            self,
            lead: bytes,
            seq: int,
            stamp: bytes,
            payloads: Sequence[bytes],
            running: int,
            into: bytearray,
        ) -> tuple[list[int], list[int]]: ...


POLYNOMIAL = 0xC867
INITIAL = 0xFFFF

KERNEL_FROM = 256 * 1024
"""Bytes in one call that are worth loading the compiled loop; below, the plain one is used."""


@cache
def tables() -> tuple[list[int], list[int]]:
    """The table for one byte (values as they are) and for a word (everything swapped)."""
    single = []
    for byte in range(256):
        crc = byte << 8
        for _ in range(8):
            crc = ((crc << 1) ^ POLYNOMIAL if crc & 0x8000 else crc << 1) & 0xFFFF
        single.append(crc)
    double = [0] * 65536
    for first, one in enumerate(single):
        high, low = one >> 8, (one & 0xFF) << 8
        for second in range(256):
            crc = low ^ single[high ^ second]
            double[second << 8 | first] = (crc & 0xFF) << 8 | crc >> 8
    return single, double


def swap(crc: int) -> int:
    """Between a CRC and its little form."""
    return (crc & 0xFF) << 8 | crc >> 8


def crc16_little(data: bytes | memoryview, crc: int = INITIAL) -> int:
    """The CRC of `data`, continued from `crc`, both in little form."""
    single, double = tables()
    size = len(data)
    words = memoryview(data)[: size & ~1].cast("H")
    if sys.byteorder == "little":
        for word in words:
            crc = double[crc ^ word]
    else:
        for word in words:
            crc = double[crc ^ swap(word)]
    if size & 1:
        plain = swap(crc)
        return swap(((plain << 8) & 0xFF00) ^ single[plain >> 8 ^ data[-1]])
    return crc


def crc16(data: bytes | memoryview, crc: int = INITIAL) -> int:
    """The CRC of `data`, continued from `crc`."""
    return swap(crc16_little(data, swap(crc)))


def crc16_spans(data: bytes | bytearray, starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The CRC of each `data[start:end]`, in little form; compiled where that is installed."""
    if (compiled := kernel(len(data))) is not None:
        return compiled.sums(data, starts, ends)
    view = memoryview(data)
    return [crc16_little(view[start:end]) for start, end in zip(starts, ends, strict=True)]


def crc16_each(payloads: Sequence[bytes]) -> list[int]:
    """The CRC of each payload, in little form."""
    ends = list(accumulate(map(len, payloads)))
    return crc16_spans(b"".join(payloads), [0, *ends[:-1]], ends)


def kernel(size: int) -> Kernel | None:
    """The compiled loops: loaded when so many bytes are worth it; None where there are none."""
    return _kernel() if size >= KERNEL_FROM or _kernel.cache_info().currsize else None


@cache
def _kernel() -> Kernel | None:
    try:
        from ottla.streams.ss import kernel
    except ModuleNotFoundError:
        return None
    return kernel
