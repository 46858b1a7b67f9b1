"""UTF-8 in kernels."""

from __future__ import annotations

from typing import Final

import numpy as np

from ottla.wire.kernels.jit import byte_at, inlined, kernel, load_i64

_HIGHS: Final = np.uint64(0x8080808080808080)


@inlined
def utf8_end(position: int, end: int) -> int:
    """What follows the character at `position`, which is not ASCII; -1: not UTF-8."""
    first = byte_at(position)
    if first < 0xC2 or first > 0xF4:
        return -1
    size = 2 if first < 0xE0 else (3 if first < 0xF0 else 4)
    if end - position < size:
        return -1
    second = byte_at(position + 1)
    lowest = 0xA0 if first == 0xE0 else (0x90 if first == 0xF0 else 0x80)
    highest = 0x9F if first == 0xED else (0x8F if first == 0xF4 else 0xBF)
    if second < lowest or second > highest:
        return -1
    for at in range(position + 2, position + size):
        if byte_at(at) & 0xC0 != 0x80:
            return -1
    return position + size


@kernel
def _is_utf8_from(position: int, end: int) -> bool:
    while position < end:
        if byte_at(position) < 0x80:
            position += 1
        else:
            position = utf8_end(position, end)
            if position < 0:
                return False
    return True


@inlined
def is_utf8(position: int, end: int) -> bool:
    """Whether the bytes are UTF-8; ASCII is checked by words."""
    while position + 8 <= end:
        if np.uint64(load_i64(position, 0)) & _HIGHS != np.uint64(0):
            return _is_utf8_from(position, end)
        position += 8
    while position < end:
        if byte_at(position) >= 0x80:
            return _is_utf8_from(position, end)
        position += 1
    return True
