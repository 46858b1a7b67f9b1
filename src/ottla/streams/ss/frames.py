"""Frames of messages that share stream, shard and time, one after the other; beacons come later."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.streams.ss.crc import crc16_each, kernel, tables
from ottla.streams.ss.format import CR, FRAME_HEAD, FRAME_OVERHEAD, FRAME_TAIL

if TYPE_CHECKING:
    from collections.abc import Sequence

_SIGNED: Final = 2**63  # sequences beyond it are not for the compiled loop
_word = struct.Struct(">Q").pack
_pack_head = FRAME_HEAD.pack
_pack_tail = FRAME_TAIL.pack


KEPT: Final = 512 * 1024
"""Bytes of memory that are kept for frames and used again and again. Fresh memory for each batch
would cost more than the work itself: the system has to find and clear every page of it."""


class Frames(NamedTuple):
    """`ends[i]` is where frame i ends in `data`, `running[i]` the running checksum after it."""

    data: memoryview
    ends: Sequence[int]
    running: Sequence[int]


class Framer:
    """Frames of runs; what it returns holds until the next one."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def run(
        self,
        prefix: bytes,
        shard: int,
        seq: int,
        timestamp_ms: int,
        payloads: Sequence[bytes],
        running: int,
    ) -> Frames:
        """Sequences count up from `seq`; `running` is what the last frame left, little form."""
        size = sum(map(len, payloads))
        compiled = kernel(size) if seq + len(payloads) < _SIGNED else None
        if compiled is not None:
            lead, stamp = prefix + _word(shard), _word(timestamp_ms)
            total = size + (len(prefix) - 1 + FRAME_OVERHEAD) * len(payloads)
            into = self._room(total)
            ends, runnings = compiled.frames(lead, seq, stamp, payloads, running, into)
            return Frames(memoryview(into)[:total], ends, runnings)
        return _frame_each(prefix, shard, seq, timestamp_ms, payloads, running)

    def _room(self, total: int) -> bytearray:
        if total > KEPT:
            return bytearray(total)  # a large payload
        if not self._kept:
            self._kept = bytearray(KEPT)
        return self._kept


def stretch(prefix: bytes, payloads: Sequence[bytes]) -> int:
    """How many of these payloads to frame at once, so that the memory that is kept suffices."""
    average = sum(map(len, payloads)) // len(payloads) + len(prefix) + FRAME_OVERHEAD
    return max(KEPT // average, 1)


def _frame_each(
    prefix: bytes,
    shard: int,
    seq: int,
    timestamp_ms: int,
    payloads: Sequence[bytes],
    running: int,
) -> Frames:
    double = tables()[1]
    parts: list[bytes] = []
    ends: list[int] = []
    runnings: list[int] = []
    for payload, checksum in zip(payloads, crc16_each(payloads), strict=True):
        head = _pack_head(shard, seq, timestamp_ms, len(payload))
        parts += (prefix, head, payload, _pack_tail(checksum, CR))
        running = double[running ^ checksum]
        ends.append(len(prefix) - 1 + FRAME_OVERHEAD + len(payload) + (ends[-1] if ends else 0))
        runnings.append(running)
        seq += 1
    return Frames(memoryview(b"".join(parts)), ends, runnings)
