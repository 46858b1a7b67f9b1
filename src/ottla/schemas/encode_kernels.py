"""One kernel runs an encode program over rows, twice: it measures each value, then writes it.

A program is a table of operations with WIDTH numbers each: a code, a slot, and three operands. A
slot has SLOT_WIDTH numbers: where its validity, its numbers and its bounds begin in the arenas. The
arenas hold all columns: `valid` a byte for each entry, `numbers` whole numbers, bits of floats and
bounds of texts and lists, `data` bytes. The index of an entry is that of its row, or of the entry
of the list around it.

The walk reads arenas that `encode` made of whole Arrow arrays; their bounds are checked there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ottla.wire.kernels.jit import kernel

if TYPE_CHECKING:
    from ottla.wire.kernels.jit import I64, U8

WIDTH: Final = 5
SLOT_WIDTH: Final = 3
VALID, NUMBERS, BOUNDS = range(SLOT_WIDTH)
MAX_DEPTH: Final = 32
"""Of lists in lists; schemas have at most 16 levels of columns."""
WORST_VARINT: Final = 10

END: Final = 0
LONG: Final = 1  # slot
BITS: Final = 2  # slot; bytes (1, 4 or 8)
TEXT: Final = 3  # slot
FIXED: Final = 4  # slot
CONST: Final = 5  # -; begin, end in `data`
NULLABLE: Final = 6  # slot; branch of null, branch of the value, where to go on after a null
REQUIRED: Final = 7  # slot
LIST: Final = 8  # slot; where to go on after an empty one
NEXT: Final = 9  # -; first operation of the body


@kernel
def run(  # noqa: C901  # one walk; parts would be calls
    ops: I64,
    slots: I64,
    numbers: I64,
    valid: U8,
    data: U8,
    rows: int,
    ends: I64,
    out: U8,
    fill: bool,
) -> int:
    """Measure values into `ends[1:]`, or write them to where `ends` says.

    Returns -1, or `row * len(ops) + operation` of the first null that the schema does not allow.
    """
    frames = np.zeros((MAX_DEPTH, 2), np.int64)
    for row in range(rows):
        at = ends[row] if fill else 0
        pc = 0
        index = row
        depth = 0
        while True:
            code = ops[pc, 0]
            slot = ops[pc, 1]
            value = 0
            is_varint = False
            if code == END:
                break
            if code == LONG:
                value = numbers[slots[slot, NUMBERS] + index]
                is_varint = True
            elif code == BITS:
                size = ops[pc, 2]
                if fill:
                    bits = numbers[slots[slot, NUMBERS] + index]
                    for place in range(size):
                        out[at + place] = (bits >> (8 * place)) & 255
                at += size
            elif code in (TEXT, FIXED):
                begin = numbers[slots[slot, BOUNDS] + index]
                end = numbers[slots[slot, BOUNDS] + index + 1]
                if code == TEXT:
                    at = _varint(out, at, end - begin, fill)
                if fill:
                    for place in range(end - begin):
                        out[at + place] = data[begin + place]
                at += end - begin
            elif code == CONST:
                begin = ops[pc, 2]
                end = ops[pc, 3]
                if fill:
                    for place in range(end - begin):
                        out[at + place] = data[begin + place]
                at += end - begin
            elif code == NULLABLE:
                if valid[slots[slot, VALID] + index] == 0:
                    at = _varint(out, at, ops[pc, 2], fill)
                    pc = ops[pc, 4]
                    continue
                value = ops[pc, 3]
                is_varint = True
            elif code == REQUIRED:
                if valid[slots[slot, VALID] + index] == 0:
                    return row * len(ops) + pc
            elif code == LIST:
                begin = numbers[slots[slot, BOUNDS] + index]
                end = numbers[slots[slot, BOUNDS] + index + 1]
                at = _varint(out, at, end - begin, fill)
                if begin == end:
                    pc = ops[pc, 2]
                    continue
                frames[depth, 0] = index
                frames[depth, 1] = end
                depth += 1
                index = begin
            elif code == NEXT:
                index += 1
                if index < frames[depth - 1, 1]:
                    pc = ops[pc, 2]
                    continue
                depth -= 1
                index = frames[depth, 0]
                at = _varint(out, at, 0, fill)
            if is_varint:
                at = _varint(out, at, value, fill)
            pc += 1
        if not fill:
            ends[row + 1] = ends[row] + at
    return -1


@kernel
def _varint(out: U8, at: int, value: int, fill: bool) -> int:
    """Write a zigzag varint; returns where it ends."""
    raw = np.uint64((value << 1) ^ (value >> 63))
    while raw > np.uint64(127):
        if fill:
            out[at] = np.uint8((raw & np.uint64(127)) | np.uint64(128))
        at += 1
        raw >>= np.uint64(7)
    if fill:
        out[at] = np.uint8(raw)
    return at + 1
