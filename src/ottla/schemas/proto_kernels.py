"""The kernels of Protobuf programs; `program_kernels` tells what a program and a slot are.

A program is a table of fields (FIELD_WIDTH numbers each) and one of messages (MESSAGE_WIDTH, then
lists of slots and fields). The walk reads a tag, finds the field of the current message, and puts
its value; a message field enters another message until its bytes end.

Later values overwrite earlier ones, as Protobuf wants. Where that is more than a number in place,
the record is RARE and `proto_rows` decodes it: a text or a message comes twice, a oneof has two
members, there is a group, an unknown enum number, or a map entry with other fields. A stamp tells
whether a field was met in the current message: it holds the number of that message, which is never
used twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.schemas.program_kernels import (
    DATA,
    ENDS,
    MALFORMED,
    OK,
    SLOT_WIDTH,
    put_bytes,
    set_bit,
    set_valid,
    slot_index,
    varint,
    zigzag,
)
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
    from ottla.wire.kernels.jit import I64, U8

RARE: Final = 100

FIELD_WIDTH: Final = 9
NUMBER, KIND, SLOT, LIST, COUNTER, INNER, STAMP, TABLE, SYMBOLS = range(FIELD_WIDTH)
MESSAGE_WIDTH: Final = 8
FIRST, FIELDS, PRESENT, PRESENTS, DEFAULTS, DEFAULT_COUNT, MUST, IS_ENTRY = range(MESSAGE_WIDTH)

# Kinds of fields, by how they are read.
INT32: Final = 1
INT64: Final = 2
UINT32: Final = 3
UINT64: Final = 4
SINT32: Final = 5
SINT64: Final = 6
BOOL: Final = 7
ENUM: Final = 8
FIXED32: Final = 9
SFIXED32: Final = 10
FLOAT: Final = 11
FIXED64: Final = 12
SFIXED64: Final = 13
DOUBLE: Final = 14
STRING: Final = 15
BYTES: Final = 16
MESSAGE: Final = 17
TIMESTAMP: Final = 18

FRAME_WIDTH: Final = 4  # limit, message, stamp, field
SEQUENCE: Final = 0  # the place of the last stamp in `frames`

MAX_SECONDS: Final = 9_223_372_036_000
"""Most seconds of a timestamp that has microseconds; beyond them it is out of range."""


@inlined
def _wire_of(kind: int) -> int:
    if kind <= ENUM:
        return 0
    if kind <= FLOAT:
        return 5
    return 1 if kind <= DOUBLE else 2


@kernel
def _skipped(position: int, limit: int, wire: int) -> int:
    """What follows a value that nobody wants; -1: malformed, -2: a group."""
    if wire == 0:
        return varint(position, limit)[1]
    if wire == 1:
        return position + 8 if limit - position >= 8 else -1
    if wire == 5:
        return position + 4 if limit - position >= 4 else -1
    if wire == 2:
        size, position = varint(position, limit)
        if position < 0 or size < 0 or size > limit - position:
            return -1
        return position + size
    return -2 if wire == 3 else -1


@inlined
def _word(position: int) -> int:
    return (
        byte_at(position)
        | byte_at(position + 1) << 8
        | byte_at(position + 2) << 16
        | byte_at(position + 3) << 24
    )


@inlined
def _number(kind: int, position: int, limit: int) -> tuple[int, int]:
    """The bits of a number, as they are stored, and what follows it (-1: malformed)."""
    if kind <= ENUM:
        value, position = varint(position, limit)
        if kind == UINT32:
            value &= 0xFFFFFFFF
        elif kind == SINT32:
            value = zigzag(value & 0xFFFFFFFF)
        elif kind == SINT64:
            value = zigzag(value)
        elif kind == BOOL:
            value = 1 if value != 0 else 0
        elif kind in (INT32, ENUM):
            value &= 0xFFFFFFFF
            value -= (value & 0x80000000) << 1
        return value, position
    if kind <= FLOAT:
        if limit - position < 4:
            return 0, -1
        return _word(position), position + 4
    if limit - position < 8:
        return 0, -1
    return load_i64(position, 0), position + 8


@inlined
def _put_number(slots: int, slot: int, counters: int, row: int, kind: int, value: int) -> None:
    index = slot_index(slots, slot, counters, row)
    data = load_i64(slots, slot * SLOT_WIDTH + DATA)
    if kind == BOOL:
        byte = data + (index >> 3)
        store_i8(byte, 0, byte_at(byte) & ~(1 << (index & 7)))
        if value:
            set_bit(data, index)
    elif kind in (UINT64, FIXED64):
        store_i64(data, 2 * index, value)
        store_i64(data, 2 * index + 1, 0)
    elif kind in (INT32, SINT32, SFIXED32, FLOAT):
        store_i32(data, index, value)
    else:
        store_i64(data, index, value)
    set_valid(slots, slot, index)


@kernel
def _symbol(tables: int, table: int, count: int, number: int) -> int:
    """The place of the symbol in the table of (number, start, length); -1: unknown."""
    for index in range(count):
        if load_i64(tables, table + 3 * index) == number:
            return table + 3 * index
    return -1


@kernel
def _micros(position: int, limit: int) -> tuple[int, int]:
    """(status, microseconds) of a Timestamp."""
    seconds = 0
    nanos = 0
    while position < limit:
        tag, position = varint(position, limit)
        if position < 0 or tag >> 3 == 0 or tag < 0 or tag > 0xFFFFFFFF:
            return MALFORMED, 0
        if tag == 8 or tag == 16:
            value, position = varint(position, limit)
            if position < 0:
                return MALFORMED, 0
            if tag == 8:
                seconds = value
            else:
                value &= 0xFFFFFFFF
                nanos = value - ((value & 0x80000000) << 1)
        else:
            position = _skipped(position, limit, tag & 7)
            if position == -2:
                return RARE, 0
            if position < 0:
                return MALFORMED, 0
    if seconds > MAX_SECONDS or seconds < -MAX_SECONDS:
        return RARE, 0
    return OK, seconds * 1_000_000 + nanos // 1_000


@inlined
def _begin(message: int, tables: int, slots: int, counters: int, row: int, fill: bool) -> None:
    """Fields that are there although no bytes are: their default is all zeros."""
    if fill:
        start = load_i64(tables, message + PRESENT)
        for index in range(start, start + load_i64(tables, message + PRESENTS)):
            slot = load_i64(tables, index)
            set_valid(slots, slot, slot_index(slots, slot, counters, row))


@inlined
def _end_list(slots: int, slot: int, counters: int, counter: int, row: int) -> None:
    index = slot_index(slots, slot, counters, row)
    ends = load_i64(slots, slot * SLOT_WIDTH + ENDS)
    store_i32(ends, index + 1, load_i64(counters, counter))


@inlined
def _proto_record(  # noqa: C901  # one branch for each shape of a field
    row: int,
    begin: int,
    end: int,
    fields: int,
    tables: int,
    pool: int,
    slots: int,
    counters: int,
    frames: int,
    stamps: int,
    fill: bool,
) -> int:
    """Run the program over one record; the status of the record."""
    position = begin
    limit = end
    message = 0
    depth = 0
    stamp = load_i64(frames, SEQUENCE) + 1
    store_i64(frames, SEQUENCE, stamp)
    stack = frames + 8
    hint = 0
    _begin(message, tables, slots, counters, row, fill)
    while True:
        if position == limit:
            start = load_i64(tables, message + DEFAULTS)
            for index in range(start, start + load_i64(tables, message + DEFAULT_COUNT)):
                one = fields + 8 * FIELD_WIDTH * load_i64(tables, index)
                if load_i64(stamps, load_i64(one, STAMP)) != stamp:
                    place = load_i64(one, TABLE)
                    if load_i64(tables, place) != 0:
                        return RARE
                    source = pool + load_i64(tables, place + 1)
                    size = load_i64(tables, place + 2)
                    put_bytes(slots, load_i64(one, SLOT), counters, row, source, size, fill)
            must = load_i64(tables, message + MUST)
            if must >= 0 and load_i64(stamps, must) != stamp:
                return RARE
            if depth == 0:
                return OK
            depth -= 1
            frame = stack + 8 * FRAME_WIDTH * depth
            limit = load_i64(frame, 0)
            message = load_i64(frame, 1)
            stamp = load_i64(frame, 2)
            hint = load_i64(frame, 3)
            one = fields + 8 * FIELD_WIDTH * (load_i64(tables, message + FIRST) + hint)
            counter = load_i64(one, COUNTER)
            if counter >= 0:
                store_i64(counters, counter, load_i64(counters, counter) + 1)
                if fill:
                    _end_list(slots, load_i64(one, LIST), counters, counter, row)
            continue
        tag, position = varint(position, limit)
        if position < 0 or tag >> 3 == 0 or tag < 0 or tag > 0xFFFFFFFF:
            return MALFORMED
        number = tag >> 3
        wire = tag & 7
        count = load_i64(tables, message + FIELDS)
        first = load_i64(tables, message + FIRST)
        found = -1
        for step in range(count):
            at = hint + step
            at = at - count if at >= count else at
            if load_i64(fields + 8 * FIELD_WIDTH * (first + at), NUMBER) == number:
                found = at
                break
        one = fields + 8 * FIELD_WIDTH * (first + max(found, 0))
        kind = load_i64(one, KIND)
        counter = load_i64(one, COUNTER)
        is_packed = counter >= 0 and kind <= DOUBLE and wire == 2
        if found < 0 or (wire != _wire_of(kind) and not is_packed):
            position = _skipped(position, limit, wire)
            if position == -2 or load_i64(tables, message + IS_ENTRY):
                return RARE
            if position < 0:
                return MALFORMED
            continue
        hint = found
        place = load_i64(one, STAMP)
        if place >= 0:
            if load_i64(stamps, place) == stamp:
                return RARE
            store_i64(stamps, place, stamp)
        slot = load_i64(one, SLOT)
        if kind <= DOUBLE:
            last = limit
            if is_packed:
                size, position = varint(position, limit)
                if position < 0 or size < 0 or size > limit - position:
                    return MALFORMED
                last = position + size
            while True:
                if is_packed and position == last:
                    break
                value, position = _number(kind, position, last)
                if position < 0:
                    return MALFORMED
                if kind == ENUM:
                    symbol = _symbol(tables, load_i64(one, TABLE), load_i64(one, SYMBOLS), value)
                    if symbol < 0:
                        return RARE
                    source = pool + load_i64(tables, symbol + 1)
                    put_bytes(
                        slots, slot, counters, row, source, load_i64(tables, symbol + 2), fill
                    )
                elif fill:
                    _put_number(slots, slot, counters, row, kind, value)
                if counter >= 0:
                    store_i64(counters, counter, load_i64(counters, counter) + 1)
                if not is_packed:
                    break
            if counter >= 0 and fill:
                _end_list(slots, load_i64(one, LIST), counters, counter, row)
            continue
        size, position = varint(position, limit)
        if position < 0 or size < 0 or size > limit - position:
            return MALFORMED
        if kind == MESSAGE:
            frame = stack + 8 * FRAME_WIDTH * depth
            store_i64(frame, 0, limit)
            store_i64(frame, 1, message)
            store_i64(frame, 2, stamp)
            store_i64(frame, 3, found)
            depth += 1
            limit = position + size
            message = load_i64(one, INNER)
            stamp = load_i64(frames, SEQUENCE) + 1
            store_i64(frames, SEQUENCE, stamp)
            hint = 0
            _begin(message, tables, slots, counters, row, fill)
            continue
        if kind == TIMESTAMP:
            status, value = _micros(position, position + size)
            if status != OK:
                return status
            if fill:
                _put_number(slots, slot, counters, row, INT64, value)
        else:
            if kind == STRING and not fill and not is_utf8(position, position + size):
                return MALFORMED
            put_bytes(slots, slot, counters, row, position, size, fill)
        position += size
        if counter >= 0:
            store_i64(counters, counter, load_i64(counters, counter) + 1)
            if fill:
                _end_list(slots, load_i64(one, LIST), counters, counter, row)


@kernel
def measure(
    begins: I64,
    ends: I64,
    statuses: U8,
    fields: int,
    tables: int,
    pool: int,
    slots: int,
    counters: int,
    backup: int,
    counter_bytes: int,
    frames: int,
    stamps: int,
) -> None:
    """Check all records, set their statuses, and count for the good ones."""
    for row in range(len(begins)):
        begin = begins[row]
        if begin < 0:
            continue
        copy_bytes(backup, counters, counter_bytes)
        status = _proto_record(
            row, begin, ends[row], fields, tables, pool, slots, counters, frames, stamps, False
        )
        statuses[row] = status
        if status != OK:
            copy_bytes(counters, backup, counter_bytes)


@kernel
def fill(
    begins: I64,
    ends: I64,
    statuses: U8,
    fields: int,
    tables: int,
    pool: int,
    slots: int,
    counters: int,
    frames: int,
    stamps: int,
) -> None:
    """Write the good records; `counters` are zero at the start."""
    for row in range(len(begins)):
        if begins[row] >= 0 and statuses[row] == OK:
            _proto_record(
                row,
                begins[row],
                ends[row],
                fields,
                tables,
                pool,
                slots,
                counters,
                frames,
                stamps,
                True,
            )
