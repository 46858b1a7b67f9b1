"""A loop over JSON objects of plain values: one pass, without a copy of the text.

It takes what most records are: an object whose values are texts without escapes, whole numbers and
fractions of few digits, true, false and null. Every other value is left to the parser
(`json_columns`), which decides whether it is JSON at all; so nothing is refused here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ottla.schemas.json_kernels import plain_end
from ottla.schemas.utf8_kernels import utf8_end
from ottla.wire.kernels.jit import byte_at, inlined, kernel

if TYPE_CHECKING:
    import numpy.typing as npt

    from ottla.wire.kernels.jit import I32, I64, U8

    F64 = npt.NDArray[np.float64]

TEXT: Final = 1
INT: Final = 2
LONG: Final = 3
DOUBLE: Final = 4
BOOLEAN: Final = 5
_ANY: Final = 0
"""Of a field that nobody wants."""

ABSENT: Final = -1
NULL: Final = -2
"""Sizes of values that are null: without a field, and with one."""

_LONG_DIGITS: Final = 18
"""Numbers of so many digits fit 64 bits."""
_DOUBLE_DIGITS: Final = 15
"""Numbers of so many digits are doubles exactly, and so is 10 to the power of their fractions: a
division gives the nearest double."""
_INT_MAX: Final = 2**31 - 1

_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_SPACE: Final = 0x20
_COMMA: Final = 0x2C
_MINUS: Final = 0x2D
_POINT: Final = 0x2E
_ZERO: Final = 0x30
_COLON: Final = 0x3A
_OPEN: Final = 0x7B
_CLOSE: Final = 0x7D
_TRUE: Final = 0x74727565
_FALS: Final = 0x66616C73
_NULL: Final = 0x6E756C6C
_E: Final = 0x65
_POWERS: Final = np.array([10.0**power for power in range(_DOUBLE_DIGITS + 1)])


@inlined
def _white_end(position: int, end: int) -> int:
    while position < end and byte_at(position) in (_SPACE, 0x0A, 0x0D, 0x09):
        position += 1
    return position


@inlined
def _quote_at(position: int, end: int) -> int:
    """Where the text that begins at `position` ends, if it has no escapes; else -1."""
    while True:
        position = plain_end(position, end)
        if position >= end:
            return -1
        byte = byte_at(position)
        if byte == _QUOTE:
            return position
        if byte < _SPACE or byte == _BACKSLASH:
            return -1
        if byte >= 0x80:
            position = utf8_end(position, end)
            if position < 0:
                return -1
        else:
            position += 1


@inlined
def _is_same(one: int, other: int, size: int) -> bool:
    for at in range(size):  # noqa: SIM110  # kernels have no generators
        if byte_at(one + at) != byte_at(other + at):
            return False
    return True


@inlined
def _word(position: int, end: int) -> int:
    """Four characters as a number."""
    if end - position < 4:
        return 0
    return (
        byte_at(position) << 24
        | byte_at(position + 1) << 16
        | byte_at(position + 2) << 8
        | byte_at(position + 3)
    )


@inlined
def _number(position: int, end: int) -> tuple[int, int, int, int]:
    """(what follows, digits, those after the point, their number); digits are 0 for what is not
    plain."""
    begin = position
    value = 0
    while position < end and 0 <= byte_at(position) - _ZERO <= 9:
        if position - begin < _LONG_DIGITS:
            value = value * 10 + byte_at(position) - _ZERO
        position += 1
    digits = position - begin
    if digits == 0 or (digits > 1 and byte_at(begin) == _ZERO) or digits > _LONG_DIGITS:
        return position, 0, 0, 0
    if position >= end or byte_at(position) != _POINT:
        return position, digits, 0, value
    position += 1
    begin = position
    while position < end and 0 <= byte_at(position) - _ZERO <= 9:
        if digits + position - begin < _LONG_DIGITS:
            value = value * 10 + byte_at(position) - _ZERO
        position += 1
    after = position - begin
    digits += after
    if after == 0 or digits > _DOUBLE_DIGITS:
        return position, 0, 0, 0
    return position, digits, after, value


@kernel
def parse_flat(  # noqa: C901  # one branch for each kind of value
    begins: I64,
    ends: I64,
    names: int,
    name_ends: I32,
    kinds: U8,
    values: I64,
    floats: F64,
    sizes: I32,
    others: U8,
) -> int:
    """Take apart the objects of plain values. Returns how many are none; others[row] is set then.

    Value `column` of a row is at `column * rows + row`: its size in `sizes`, ABSENT or NULL if
    there is none, and in `values` the address of a text, a number, or 0 and 1; doubles are in
    `floats`. The name of a column is from name_ends[column] to name_ends[column + 1] at `names`.
    Rows with a negative begin are left alone.
    """
    rows = len(begins)
    columns = len(kinds)
    count = 0
    for row in range(rows):
        position = begins[row]
        if position < 0:
            continue
        end = ends[row]
        is_plain = False
        expected = 0
        position = _white_end(position, end)
        if position < end and byte_at(position) == _OPEN:
            position = _white_end(position + 1, end)
            if position < end and byte_at(position) == _CLOSE:
                is_plain = True
                position += 1
            while not is_plain and position < end and byte_at(position) == _QUOTE:
                key = position + 1
                position = _quote_at(key, end)
                if position < 0:
                    break
                size = position - key
                place = -1
                for turn in range(columns):
                    at = expected + turn
                    if at >= columns:
                        at -= columns
                    first = name_ends[at]
                    if name_ends[at + 1] - first == size and _is_same(names + first, key, size):
                        place = at
                        break
                kind = _ANY
                cell = 0
                if place >= 0:
                    expected = place + 1
                    kind = kinds[place]
                    cell = place * rows + row
                    if sizes[cell] != ABSENT:
                        break
                position = _white_end(position + 1, end)
                if position >= end or byte_at(position) != _COLON:
                    break
                position = _white_end(position + 1, end)
                if position >= end:
                    break
                byte = byte_at(position)
                if byte == _QUOTE:
                    text = position + 1
                    position = _quote_at(text, end)
                    if position < 0 or kind not in (TEXT, _ANY):
                        break
                    if place >= 0:
                        values[cell] = text
                        sizes[cell] = position - text
                    position += 1
                elif byte == _MINUS or 0 <= byte - _ZERO <= 9:
                    is_negative = byte == _MINUS
                    position, digits, after, value = _number(position + is_negative, end)
                    if digits == 0 or kind in (TEXT, BOOLEAN):
                        break
                    if kind == DOUBLE:
                        if digits > _DOUBLE_DIGITS:
                            break
                        number = value / _POWERS[after]
                        floats[cell] = -number if is_negative else number
                        sizes[cell] = 0
                    elif place >= 0:
                        if after or (kind == INT and value > _INT_MAX):
                            break
                        values[cell] = -value if is_negative else value
                        sizes[cell] = 0
                else:
                    word = _word(position, end)
                    position += 4
                    if word == _NULL:
                        if place >= 0:
                            sizes[cell] = NULL
                    elif kind not in (BOOLEAN, _ANY):
                        break
                    elif word == _FALS and position < end and byte_at(position) == _E:
                        position += 1
                        if place >= 0:
                            values[cell] = 0
                            sizes[cell] = 0
                    elif word == _TRUE:
                        if place >= 0:
                            values[cell] = 1
                            sizes[cell] = 0
                    else:
                        break
                position = _white_end(position, end)
                if position >= end:
                    break
                byte = byte_at(position)
                position += 1
                if byte == _CLOSE:
                    is_plain = True
                elif byte == _COMMA:
                    position = _white_end(position, end)
                else:
                    break
        if is_plain and _white_end(position, end) == end:
            continue
        others[row] = 1
        count += 1
        for column in range(columns):
            sizes[column * rows + row] = ABSENT
    return count
