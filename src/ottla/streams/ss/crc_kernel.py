"""The checksums of many payloads in one compiled loop. Needs the `arrow` extra (numba, numpy)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ottla.streams.ss.crc import INITIAL, tables
from ottla.wire.kernels.jit import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


@kernel
def _sums(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    single: npt.NDArray[np.uint16],
    double: npt.NDArray[np.uint16],
    initial: int,
    out: npt.NDArray[np.int64],
) -> None:
    for row in range(len(starts)):
        crc = initial
        at, end = starts[row], ends[row]
        while at + 1 < end:
            crc = double[crc ^ (data[at] | data[at + 1] << 8)]
            at += 2
        if at < end:
            plain = (crc & 0xFF) << 8 | crc >> 8
            plain = ((plain << 8) & 0xFF00) ^ single[plain >> 8 ^ data[at]]
            crc = (plain & 0xFF) << 8 | plain >> 8
        out[row] = crc


@cache
def _tables() -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16]]:
    single, double = tables()
    return np.array(single, np.uint16), np.array(double, np.uint16)


def sums(data: bytes | bytearray, starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The checksum of each `data[start:end]`, in little form; spans lie within the data."""
    out = np.empty(len(starts), np.int64)
    single, double = _tables()
    _sums(
        np.frombuffer(data, np.uint8),
        np.array(starts, np.int64),
        np.array(ends, np.int64),
        single,
        double,
        INITIAL,
        out,
    )
    found: list[int] = out.tolist()
    return found
