"""Checksums and frames of many payloads, compiled. Needs the `arrow` extra (numba, numpy).

A checksum takes eight bytes a step: the CRC is linear, so the share of each of the eight is looked
up in a table of its own, which all fit the processor's nearest cache. The loops hold no lock of the
interpreter.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ottla.streams.ss.crc import tables
from ottla.wire.kernels.jit import inlined, kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    U8 = npt.NDArray[np.uint8]
    I64 = npt.NDArray[np.int64]
    Slices = npt.NDArray[np.int32]

_STEP = 8
_HEAD = 12  # sequence and size; the rest of it is the same in all frames
_TAIL = 3
_CR = 0x0D


@inlined
def _crc(data: U8, start: int, end: int, slices: Slices) -> int:
    crc = 0xFFFF
    at = start
    while at + _STEP <= end:
        crc = (
            slices[7, data[at] ^ (crc >> 8)]
            ^ slices[6, data[at + 1] ^ (crc & 0xFF)]
            ^ slices[5, data[at + 2]]
            ^ slices[4, data[at + 3]]
            ^ slices[3, data[at + 4]]
            ^ slices[2, data[at + 5]]
            ^ slices[1, data[at + 6]]
            ^ slices[0, data[at + 7]]
        )
        at += _STEP
    while at < end:
        crc = ((crc << 8) & 0xFFFF) ^ slices[0, (crc >> 8) ^ data[at]]
        at += 1
    return crc


@kernel
def _sums(data: U8, starts: I64, ends: I64, slices: Slices, out: I64) -> None:
    for row in range(len(starts)):
        crc = _crc(data, starts[row], ends[row], slices)
        out[row] = (crc & 0xFF) << 8 | crc >> 8


@kernel
def _sound(data: U8, starts: I64, tails: I64, slices: Slices) -> int:
    for row in range(len(starts)):
        tail = tails[row]
        crc = _crc(data, starts[row], tail, slices)
        if data[tail] != crc >> 8 or data[tail + 1] != crc & 0xFF or data[tail + 2] != _CR:
            return row
    return len(starts)


@kernel
def _frames(
    payloads: U8,
    sizes: I64,
    lead: U8,
    seq: int,
    stamp: U8,
    running: int,
    slices: Slices,
    out: U8,
    ends: I64,
    runnings: I64,
) -> None:
    read = at = 0
    for row in range(len(sizes)):
        size = sizes[row]
        for byte in range(len(lead)):
            out[at + byte] = lead[byte]
        at += len(lead)
        for byte in range(8):
            out[at + byte] = ((seq + row) >> (56 - 8 * byte)) & 0xFF
            out[at + 8 + byte] = stamp[byte]
        for byte in range(4):
            out[at + 16 + byte] = (size >> (24 - 8 * byte)) & 0xFF
        at += _HEAD + len(stamp)
        out[at : at + size] = payloads[read : read + size]
        crc = _crc(payloads, read, read + size, slices)
        read += size
        at += size
        high, low = crc >> 8, crc & 0xFF
        out[at] = high
        out[at + 1] = low
        out[at + 2] = _CR
        at += _TAIL
        running = slices[1, high ^ (running >> 8)] ^ slices[0, low ^ (running & 0xFF)]
        ends[row] = at
        runnings[row] = (running & 0xFF) << 8 | running >> 8


@cache
def _slices() -> Slices:
    """Row n: what a byte followed by n zeros adds. Signed, as all numbers of the loops are."""
    single = np.array(tables()[0], np.int32)
    rows = [single]
    for _ in range(_STEP - 1):
        last = rows[-1]
        rows.append((last << 8 & 0xFFFF) ^ single[last >> 8])
    return np.array(rows, np.int32)


def sums(data: bytes | bytearray, starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The checksum of each `data[start:end]`, in little form; spans lie within the data."""
    out = np.empty(len(starts), np.int64)
    _sums(
        np.frombuffer(data, np.uint8),
        np.array(starts, np.int64),
        np.array(ends, np.int64),
        _slices(),
        out,
    )
    found: list[int] = out.tolist()
    return found


def sound(data: bytes | bytearray, starts: Sequence[int], tails: Sequence[int]) -> int:
    """How many frames are sound, up to the first that is not; frames lie within the data.

    A payload is `data[start:tail]`, and its checksum and the end of its frame follow.
    """
    found: int = _sound(
        np.frombuffer(data, np.uint8),
        np.array(starts, np.int64),
        np.array(tails, np.int64),
        _slices(),
    )
    return found


def frames(
    lead: bytes, seq: int, stamp: bytes, payloads: Sequence[bytes], running: int, into: bytearray
) -> tuple[list[int], list[int]]:
    """See `frames.frame_run`: `lead` is a frame up to its sequence, `stamp` its time.

    The frames are written to `into`, which is large enough.
    """
    ends = np.empty(len(payloads), np.int64)
    runnings = np.empty(len(payloads), np.int64)
    _frames(
        np.frombuffer(b"".join(payloads), np.uint8),
        np.fromiter(map(len, payloads), np.int64, len(payloads)),
        np.frombuffer(lead, np.uint8),
        seq,
        np.frombuffer(stamp, np.uint8),
        (running & 0xFF) << 8 | running >> 8,
        _slices(),
        np.frombuffer(into, np.uint8),
        ends,
        runnings,
    )
    return ends.tolist(), runnings.tolist()
