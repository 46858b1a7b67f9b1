"""Two kernels run a decode program over a chunk of records.

`measure` walks every record, checks each bound, marks bad records and counts what lists and texts
need. `fill` walks the good ones again and writes into Arrow's buffers. Both are one walk,
`_avro_record`, compiled twice, so they cannot disagree.

A program is a table of operations with WIDTH numbers each: a code, a slot, and four operands. A
slot is one buffer set of a column, with SLOT_WIDTH numbers: the counter of the list around it (-1:
the row), its own counter (bytes of texts, entries of lists), and the addresses of validity, data
and ends. A value that is not written stays null: buffers are zeroed, and ends are filled up later.

Rules as in `ottla.wire.kernels`: addresses, every length checked, no exceptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from llvmlite import ir  # type: ignore[import-untyped]  # it ships no types
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ottla.schemas.utf8_kernels import is_utf8
from ottla.wire.kernels.jit import (
    byte_at,
    copy_bytes,
    inlined,
    kernel,
    load_i64,
    store_i8,
    store_i32,
    store_i64,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.wire.kernels.jit import I64, U8

WIDTH: Final = 6
OP_BYTES: Final = 8 * WIDTH
SLOT_WIDTH: Final = 5
DOMAIN, COUNTER, VALID, DATA, ENDS = range(SLOT_WIDTH)

# Status of a record: values of `Reason`.
OK: Final = 0
MALFORMED: Final = 3
TRAILING: Final = 4
OUT_OF_RANGE: Final = 5
TOO_LARGE: Final = 7

# Operations.
END: Final = 0
LONG: Final = 1  # slot; least, most, factor, store
TEXT: Final = 2  # slot; is UTF-8
COPY: Final = 3  # slot; bytes (4 or 8)
FLOAT_TO_DOUBLE: Final = 4  # slot
BOOLEAN: Final = 5  # slot
FIXED: Final = 6  # slot; bytes
DECIMAL: Final = 7  # slot; bytes (-1: a length comes first), limit high, limit low
UUID: Final = 8  # slot
ENUM: Final = 9  # slot; table of (start, length), symbols
SWITCH: Final = 10  # -; table of operations, branches
JUMP: Final = 11  # -; operation
PRESENT: Final = 12  # slot
LIST: Final = 13  # -
NEXT: Final = 14  # slot; counter of entries, operation after the list, least bytes of an entry
LOOP: Final = 15  # -; operation of NEXT, counter of entries
FAIL: Final = 16  # -; reason
CONSTANT: Final = 17  # -; start, length
RETURN: Final = 18  # -
SKIP: Final = 19  # -; bytes
SKIP_VARINT: Final = 20
SKIP_TEXT: Final = 21

# How LONG stores a number.
AS_INT32: Final = 0
AS_INT64: Final = 1
AS_FLOAT: Final = 2
AS_DOUBLE: Final = 3

MAX_EMPTY: Final = 1_024
"""Most entries without bytes (nulls, empty records) in one record: their number is only claimed."""

MIN_INT64: Final = -0x8000000000000000


# Numba passes the arguments of code generators and has no types for them.
@intrinsic
def _float_bits(_typing: Any, number: Any) -> Any:
    """The bits of an integer as a float."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        single = builder.sitofp(arguments[0], ir.FloatType())
        return builder.zext(builder.bitcast(single, ir.IntType(32)), cgutils.intp_t)

    return types.int64(types.int64), generate


@intrinsic
def _double_bits(_typing: Any, number: Any) -> Any:
    """The bits of an integer as a double."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.sitofp(arguments[0], ir.DoubleType()), cgutils.intp_t)

    return types.int64(types.int64), generate


@intrinsic
def _widened_bits(_typing: Any, address: Any) -> Any:
    """The bits, as a double, of the float at `address`."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        single = builder.inttoptr(arguments[0], ir.FloatType().as_pointer())
        wide = builder.fpext(builder.load(single, align=1), ir.DoubleType())
        return builder.bitcast(wide, cgutils.intp_t)

    return types.int64(types.int64), generate


float_bits = cast("Callable[[int], int]", _float_bits)
double_bits = cast("Callable[[int], int]", _double_bits)
widened_bits = cast("Callable[[int], int]", _widened_bits)


@kernel
def _long_varint(position: int, end: int) -> tuple[int, int]:
    value = 0
    shift = 0
    while position < end and shift < 70:
        byte = byte_at(position)
        if shift == 63 and byte > 1:
            return 0, -1
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
    return 0, -1


@inlined
def varint(position: int, end: int) -> tuple[int, int]:
    """The 64 bits of the varint at `position`, and what follows it (-1: bad)."""
    if position < end:
        low = byte_at(position)
        if low < 0x80:
            return low, position + 1
    return _long_varint(position, end)


@inlined
def zigzag(value: int) -> int:
    return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1)


@inlined
def slot_index(slots: int, slot: int, counters: int, row: int) -> int:
    """Where the current entry of `slot` is."""
    domain = load_i64(slots, slot * SLOT_WIDTH + DOMAIN)
    return row if domain < 0 else load_i64(counters, domain)


@inlined
def set_bit(bitmap: int, index: int) -> None:
    byte = bitmap + (index >> 3)
    store_i8(byte, 0, byte_at(byte) | 1 << (index & 7))


@inlined
def set_valid(slots: int, slot: int, index: int) -> None:
    set_bit(load_i64(slots, slot * SLOT_WIDTH + VALID), index)


@inlined
def put_bytes(
    slots: int, slot: int, counters: int, row: int, source: int, size: int, fill: bool
) -> None:
    """Append bytes to a column of texts, or only count them."""
    counter = load_i64(slots, slot * SLOT_WIDTH + COUNTER)
    used = load_i64(counters, counter)
    store_i64(counters, counter, used + size)
    if fill:
        index = slot_index(slots, slot, counters, row)
        copy_bytes(load_i64(slots, slot * SLOT_WIDTH + DATA) + used, source, size)
        store_i32(load_i64(slots, slot * SLOT_WIDTH + ENDS), index + 1, used + size)
        set_valid(slots, slot, index)


@inlined
def put_long(slots: int, slot: int, counters: int, row: int, value: int, store: int) -> None:
    index = slot_index(slots, slot, counters, row)
    data = load_i64(slots, slot * SLOT_WIDTH + DATA)
    if store == AS_INT64:
        store_i64(data, index, value)
    elif store == AS_INT32:
        store_i32(data, index, value)
    elif store == AS_DOUBLE:
        store_i64(data, index, double_bits(value))
    else:
        store_i32(data, index, float_bits(value))
    set_valid(slots, slot, index)


@inlined
def put_copy(slots: int, slot: int, counters: int, row: int, source: int, size: int) -> None:
    """Four or eight bytes as they are."""
    index = slot_index(slots, slot, counters, row)
    data = load_i64(slots, slot * SLOT_WIDTH + DATA)
    if size == 8:
        store_i64(data, index, load_i64(source, 0))
    else:
        word = (
            byte_at(source)
            | byte_at(source + 1) << 8
            | byte_at(source + 2) << 16
            | byte_at(source + 3) << 24
        )
        store_i32(data, index, word)
    set_valid(slots, slot, index)


@kernel
def _decimal(begin: int, size: int, limit_high: int, limit_low: int) -> tuple[bool, int, int]:
    """Big-endian two's complement to 128 bits: (is within the limits, high, low)."""
    negative = size > 0 and byte_at(begin) >= 0x80
    sign = -1 if negative else 0
    while size > 16:
        if byte_at(begin) != (sign & 0xFF):
            return False, 0, 0
        begin += 1
        size -= 1
    high = sign
    low = sign
    for at in range(begin, begin + size):
        high = (high << 8) | ((low >> 56) & 0xFF)
        low = (low << 8) | byte_at(at)
    if (high < 0) != negative:
        return False, 0, 0
    most_high = high
    most_low = low
    if negative:
        most_low = -low
        most_high = ~high + (1 if low == 0 else 0)
    if most_high < 0 or most_high > limit_high:
        return False, 0, 0
    if most_high == limit_high and (most_low ^ MIN_INT64) >= (limit_low ^ MIN_INT64):
        return False, 0, 0
    return True, high, low


@kernel
def _uuid_text(source: int, target: int) -> None:
    """16 bytes as 36 characters."""
    at = target
    for index in range(16):
        if index == 4 or index == 6 or index == 8 or index == 10:
            store_i8(at, 0, 0x2D)
            at += 1
        byte = byte_at(source + index)
        for digit in (byte >> 4, byte & 15):
            store_i8(at, 0, digit + (0x30 if digit < 10 else 0x57))
            at += 1


@inlined
def _avro_record(  # noqa: C901  # one branch for each operation
    row: int,
    begin: int,
    end: int,
    ops: int,
    jumps: int,
    pool: int,
    slots: int,
    counters: int,
    frames: int,
    fill: bool,
) -> int:
    """Run the program over one record; the status of the record."""
    position = begin
    limit = end
    pc = 0
    depth = 0
    empty = 0
    while True:
        op = ops + pc * OP_BYTES
        code = load_i64(op, 0)
        slot = load_i64(op, 1)
        pc += 1
        if code == LONG:
            raw, position = varint(position, limit)
            if position < 0:
                return MALFORMED
            value = zigzag(raw)
            if value < load_i64(op, 2) or value > load_i64(op, 3):
                return OUT_OF_RANGE
            if fill:
                put_long(slots, slot, counters, row, value * load_i64(op, 4), load_i64(op, 5))
        elif code == TEXT:
            raw, position = varint(position, limit)
            size = zigzag(raw)
            if position < 0 or size < 0 or size > limit - position:
                return MALFORMED
            if not fill and load_i64(op, 2) and not is_utf8(position, position + size):
                return MALFORMED
            put_bytes(slots, slot, counters, row, position, size, fill)
            position += size
        elif code == SWITCH:
            raw, position = varint(position, limit)
            value = zigzag(raw)
            if position < 0 or value < 0 or value >= load_i64(op, 3):
                return MALFORMED
            pc = load_i64(jumps, load_i64(op, 2) + value)
        elif code == JUMP:
            pc = load_i64(op, 2)
        elif code == COPY:
            size = load_i64(op, 2)
            if size > limit - position:
                return MALFORMED
            if fill:
                put_copy(slots, slot, counters, row, position, size)
            position += size
        elif code == PRESENT:
            if fill:
                set_valid(slots, slot, slot_index(slots, slot, counters, row))
        elif code == END:
            return OK if position == limit else TRAILING
        elif code == SKIP:
            if load_i64(op, 2) > limit - position:
                return MALFORMED
            position += load_i64(op, 2)
        elif code == SKIP_VARINT:
            raw, position = varint(position, limit)
            if position < 0:
                return MALFORMED
        elif code == SKIP_TEXT:
            raw, position = varint(position, limit)
            size = zigzag(raw)
            if position < 0 or size < 0 or size > limit - position:
                return MALFORMED
            position += size
        elif code == NEXT:
            remaining = load_i64(frames, depth - 1)
            if remaining == 0:
                raw, position = varint(position, limit)
                if position < 0:
                    return MALFORMED
                remaining = zigzag(raw)
                if remaining == 0:
                    depth -= 1
                    if fill and slot >= 0:
                        index = slot_index(slots, slot, counters, row)
                        ends = load_i64(slots, slot * SLOT_WIDTH + ENDS)
                        store_i32(ends, index + 1, load_i64(counters, load_i64(op, 2)))
                        set_valid(slots, slot, index)
                    pc = load_i64(op, 3)
                    continue
                if remaining < 0:
                    raw, position = varint(position, limit)
                    size = zigzag(raw)
                    if position < 0 or remaining == MIN_INT64:
                        return MALFORMED
                    if size < 0 or size > limit - position:
                        return MALFORMED
                    if load_i64(op, 2) < 0:  # nobody wants the entries
                        position += size
                        pc -= 1
                        continue
                    remaining = -remaining
                if load_i64(op, 4) == 0:
                    if remaining > MAX_EMPTY - empty:
                        return TOO_LARGE
                    empty += remaining
                elif remaining > (limit - position) // load_i64(op, 4):
                    return MALFORMED
            store_i64(frames, depth - 1, remaining - 1)
        elif code == LOOP:
            counter = load_i64(op, 3)
            if counter >= 0:
                store_i64(counters, counter, load_i64(counters, counter) + 1)
            pc = load_i64(op, 2)
        elif code == LIST:
            store_i64(frames, depth, 0)
            depth += 1
        elif code == ENUM:
            raw, position = varint(position, limit)
            value = zigzag(raw)
            if position < 0 or value < 0 or value >= load_i64(op, 3):
                return MALFORMED
            start = load_i64(jumps, load_i64(op, 2) + 2 * value)
            if start < 0:
                return MALFORMED
            size = load_i64(jumps, load_i64(op, 2) + 2 * value + 1)
            put_bytes(slots, slot, counters, row, pool + start, size, fill)
        elif code == BOOLEAN:
            if position >= limit or byte_at(position) > 1:
                return MALFORMED
            if fill:
                index = slot_index(slots, slot, counters, row)
                if byte_at(position):
                    set_bit(load_i64(slots, slot * SLOT_WIDTH + DATA), index)
                set_valid(slots, slot, index)
            position += 1
        elif code == FIXED:
            size = load_i64(op, 2)
            if size > limit - position:
                return MALFORMED
            put_bytes(slots, slot, counters, row, position, size, fill)
            position += size
        elif code == FLOAT_TO_DOUBLE:
            if limit - position < 4:
                return MALFORMED
            if fill:
                index = slot_index(slots, slot, counters, row)
                data = load_i64(slots, slot * SLOT_WIDTH + DATA)
                store_i64(data, index, widened_bits(position))
                set_valid(slots, slot, index)
            position += 4
        elif code == DECIMAL:
            size = load_i64(op, 2)
            if size < 0:
                raw, position = varint(position, limit)
                size = zigzag(raw)
                if position < 0 or size < 0:
                    return MALFORMED
            if size > limit - position:
                return MALFORMED
            fits, high, low = _decimal(position, size, load_i64(op, 3), load_i64(op, 4))
            if not fits:
                return OUT_OF_RANGE
            if fill:
                index = slot_index(slots, slot, counters, row)
                data = load_i64(slots, slot * SLOT_WIDTH + DATA)
                store_i64(data, 2 * index, low)
                store_i64(data, 2 * index + 1, high)
                set_valid(slots, slot, index)
            position += size
        elif code == UUID:
            if limit - position < 16:
                return MALFORMED
            counter = load_i64(slots, slot * SLOT_WIDTH + COUNTER)
            used = load_i64(counters, counter)
            store_i64(counters, counter, used + 36)
            if fill:
                index = slot_index(slots, slot, counters, row)
                _uuid_text(position, load_i64(slots, slot * SLOT_WIDTH + DATA) + used)
                store_i32(load_i64(slots, slot * SLOT_WIDTH + ENDS), index + 1, used + 36)
                set_valid(slots, slot, index)
            position += 16
        elif code == CONSTANT:
            store_i64(frames, depth, position)
            store_i64(frames, depth + 1, limit)
            depth += 2
            position = pool + load_i64(op, 2)
            limit = position + load_i64(op, 3)
        elif code == RETURN:
            depth -= 2
            position = load_i64(frames, depth)
            limit = load_i64(frames, depth + 1)
        else:  # FAIL
            return load_i64(op, 2)


@kernel
def measure(
    begins: I64,
    ends: I64,
    statuses: U8,
    ops: int,
    jumps: int,
    pool: int,
    slots: int,
    counters: int,
    backup: int,
    counter_bytes: int,
    frames: int,
) -> None:
    """Check all records, set their statuses, and count for the good ones.

    Rows with a negative begin keep their status.
    """
    for row in range(len(begins)):
        begin = begins[row]
        if begin < 0:
            continue
        copy_bytes(backup, counters, counter_bytes)
        status = _avro_record(
            row, begin, ends[row], ops, jumps, pool, slots, counters, frames, False
        )
        statuses[row] = status
        if status != OK:
            copy_bytes(counters, backup, counter_bytes)


@kernel
def fill(
    begins: I64,
    ends: I64,
    statuses: U8,
    ops: int,
    jumps: int,
    pool: int,
    slots: int,
    counters: int,
    frames: int,
) -> None:
    """Write the good records; `counters` are zero at the start."""
    for row in range(len(begins)):
        if begins[row] >= 0 and statuses[row] == OK:
            _avro_record(
                row, begins[row], ends[row], ops, jumps, pool, slots, counters, frames, True
            )
