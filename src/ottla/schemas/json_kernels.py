"""Loops over JSON values: one object to a line, and texts to times.

`pyarrow.json` counts lines, not values, so `frame` lets only values through that are one object
each. It checks what `pyarrow.json` does not: that the bytes are UTF-8, that nothing follows the
object, and that there is no NaN. Whether the inside is JSON is left to the parser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ottla.schemas.utf8_kernels import utf8_end
from ottla.wire.kernels.jit import (
    byte_at,
    copy_bytes,
    inlined,
    kernel,
    load_i64,
    store_i8,
    store_i64,
)

if TYPE_CHECKING:
    from ottla.wire.kernels.jit import I32, I64, U8

OK: Final = 0
MALFORMED: Final = 1
TRAILING: Final = 2
TOO_DEEP: Final = 3

MAX_DEPTH: Final = 200
"""Deepest nesting of a JSON value: columns are at most 16 deep, and Python's parser recurses."""

_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_SPACE: Final = 0x20
_NEWLINE: Final = 0x0A
_RETURN: Final = 0x0D
_TAB: Final = 0x09
_OPEN: Final = 0x7B
_CLOSE: Final = 0x7D
_OPEN_LIST: Final = 0x5B
_CLOSE_LIST: Final = 0x5D
_CAPITAL_I: Final = 0x49
_CAPITAL_N: Final = 0x4E

_ONES: Final = np.uint64(0x0101010101010101)
_HIGHS: Final = np.uint64(0x8080808080808080)
_QUOTES: Final = np.uint64(0x2222222222222222)
_BACKSLASHES: Final = np.uint64(0x5C5C5C5C5C5C5C5C)
_SPACES: Final = np.uint64(0x2020202020202020)


@inlined
def _is_white(byte: int) -> bool:
    return byte in (_SPACE, _NEWLINE, _RETURN, _TAB)


@inlined
def plain_end(position: int, end: int) -> int:
    """Skip words of eight characters that need no look inside a text."""
    while position + 8 <= end:
        word = np.uint64(load_i64(position, 0))
        quotes = word ^ _QUOTES
        slashes = word ^ _BACKSLASHES
        special = (
            ((quotes - _ONES) & ~quotes)
            | ((slashes - _ONES) & ~slashes)
            | ((word - _SPACES) & ~word)
            | word
        ) & _HIGHS
        if special != np.uint64(0):
            break
        position += 8
    return position


@inlined
def _text_end(position: int, end: int) -> int:
    """What follows the text whose first character is at `position`; -1: not a text."""
    while True:
        position = plain_end(position, end)
        if position >= end:
            return -1
        byte = byte_at(position)
        if byte == _QUOTE:
            return position + 1
        if byte < _SPACE:
            return -1
        if byte == _BACKSLASH:
            if position + 1 >= end or byte_at(position + 1) < _SPACE:
                return -1
            # A character above ASCII after a backslash is met by the next turn, or by the parser.
            position += 2 if byte_at(position + 1) < 0x80 else 1
        elif byte >= 0x80:
            position = utf8_end(position, end)
            if position < 0:
                return -1
        else:
            position += 1


@kernel
def _object_end(  # noqa: C901  # one branch for each kind of character
    position: int, end: int
) -> tuple[int, int, bool]:
    """(status, what follows the object at `position`, whether a line ends in it)."""
    has_line_end = False
    while position < end and _is_white(byte_at(position)):
        has_line_end = has_line_end or byte_at(position) < _SPACE
        position += 1
    if position >= end or byte_at(position) != _OPEN:
        return MALFORMED, position, has_line_end
    depth = 0
    while position < end:
        byte = byte_at(position)
        position += 1
        if byte == _QUOTE:
            position = _text_end(position, end)
            if position < 0:
                return MALFORMED, 0, has_line_end
        elif byte in (_OPEN, _OPEN_LIST):
            depth += 1
            if depth > MAX_DEPTH:
                return TOO_DEEP, position, has_line_end
        elif byte in (_CLOSE, _CLOSE_LIST):
            depth -= 1
            if depth == 0:
                return OK, position, has_line_end
        elif byte in (_CAPITAL_I, _CAPITAL_N) or byte >= 0x80:
            return MALFORMED, position, has_line_end
        elif byte < _SPACE:
            if not _is_white(byte):
                return MALFORMED, position, has_line_end
            has_line_end = True
    return MALFORMED, position, has_line_end


@kernel
def _one_object(begin: int, end: int) -> tuple[int, bool]:
    """(status, whether a line ends in the value)."""
    status, position, has_line_end = _object_end(begin, end)
    if status != OK:
        return status, has_line_end
    while position < end and _is_white(byte_at(position)):
        has_line_end = has_line_end or byte_at(position) < _SPACE
        position += 1
    return (OK if position == end else TRAILING), has_line_end


@kernel
def frame(begins: I64, ends: I64, statuses: U8, target: int, lines: I64) -> int:
    """Copy each value that is one object to `target` as a line; the others become `{}`.

    Line i begins at lines[i] and ends before lines[i + 1]. `target` has room for all values and
    three bytes more for each. Rows with a negative begin are `{}` and keep their status. Returns
    the bytes written.
    """
    used = 0
    for row in range(len(begins)):
        lines[row] = used
        begin = begins[row]
        status = MALFORMED
        has_line_end = False
        if begin >= 0:
            status, has_line_end = _one_object(begin, ends[row])
            statuses[row] = status
        if status == OK:
            size = ends[row] - begin
            copy_bytes(target + used, begin, size)
            if has_line_end:
                for at in range(target + used, target + used + size):
                    if byte_at(at) < _SPACE:  # outside of texts, else the value is malformed
                        store_i8(at, 0, _SPACE)
            used += size
        else:
            store_i8(target, used, _OPEN)
            store_i8(target, used + 1, _CLOSE)
            used += 2
        store_i8(target, used, _NEWLINE)
        used += 1
    lines[len(begins)] = used
    return used


@inlined
def _digits(position: int, count: int) -> int:
    """The number of `count` digits at `position`; -1: other characters."""
    value = 0
    for at in range(position, position + count):
        digit = byte_at(at) - 0x30
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return value


@inlined
def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar; years 0 to 9999."""
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month + (9 if month <= 2 else -3)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@inlined
def _month_days(year: int, month: int) -> int:
    if month == 2:
        is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return 29 if is_leap else 28
    return 30 if month in (4, 6, 9, 11) else 31


@inlined
def _date(position: int, end: int) -> tuple[bool, int]:
    """`YYYY-MM-DD` at `position`."""
    if end - position < 10:
        return False, 0
    year = _digits(position, 4)
    month = _digits(position + 5, 2)
    day = _digits(position + 8, 2)
    dashes = byte_at(position + 4) == 0x2D and byte_at(position + 7) == 0x2D
    if not dashes or year < 0 or month < 1 or month > 12 or day < 1:
        return False, 0
    if day > _month_days(year, month):
        return False, 0
    return True, _days(year, month, day)


@inlined
def _zone(position: int, end: int) -> tuple[bool, int]:
    """Seconds east of UTC: nothing and `Z` are UTC, else `+HH:MM`, `+HHMM` or `+HH`."""
    size = end - position
    if size == 0 or (size == 1 and byte_at(position) in (0x5A, 0x7A)):
        return True, 0
    if size not in (3, 5, 6):
        return False, 0
    sign = byte_at(position)
    if sign not in (0x2B, 0x2D) or (size == 6 and byte_at(position + 3) != 0x3A):
        return False, 0
    hours = _digits(position + 1, 2)
    minutes = 0 if size == 3 else _digits(end - 2, 2)
    if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
        return False, 0
    seconds = hours * 3600 + minutes * 60
    return True, (-seconds if sign == 0x2D else seconds)


@inlined
def _clock(position: int, end: int) -> tuple[bool, int, int]:
    """`HH:MM`, `HH:MM:SS` or `HH:MM:SS.ffffff`: (is one, microseconds, what follows)."""
    if end - position < 5 or byte_at(position + 2) != 0x3A:
        return False, 0, position
    hour = _digits(position, 2)
    minute = _digits(position + 3, 2)
    second = 0
    micros = 0
    position += 5
    if position < end and byte_at(position) == 0x3A:
        if end - position < 3:
            return False, 0, position
        second = _digits(position + 1, 2)
        position += 3
        if position < end and byte_at(position) == 0x2E:
            position += 1
            start = position
            while position < end and 0x30 <= byte_at(position) <= 0x39:
                if position - start < 6:
                    micros = micros * 10 + byte_at(position) - 0x30
                position += 1
            digits = position - start
            if digits == 0 or digits > 9:
                return False, 0, position
            while digits < 6:
                micros *= 10
                digits += 1
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return False, 0, position
    return True, ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros, position


@inlined
def _moment(position: int, end: int, has_zone: bool) -> tuple[bool, int]:
    """A date, and a time of day after `T` or a space; microseconds since 1970."""
    is_date, days = _date(position, end)
    if not is_date:
        return False, 0
    micros = days * 86_400_000_000
    position += 10
    if position == end:
        return True, micros
    if byte_at(position) not in (0x54, 0x74, _SPACE):
        return False, 0
    is_clock, of_day, position = _clock(position + 1, end)
    if not is_clock:
        return False, 0
    if not has_zone:
        return position == end, micros + of_day
    is_zone, east = _zone(position, end)
    return is_zone, micros + of_day - east * 1_000_000


@kernel
def parse_times(
    offsets: I32, data: int, valid: U8, is_date: bool, has_zone: bool, times: int, bad: U8
) -> int:
    """Texts to days or microseconds at the int64 array `times`; bad[i] is set for other texts.

    Entries with valid[i] = 0 are left alone. Returns how many are bad.
    """
    count = 0
    for row in range(len(valid)):
        if not valid[row]:
            continue
        begin = data + offsets[row]
        end = data + offsets[row + 1]
        if is_date:
            fits, value = _date(begin, end)
            fits = fits and end - begin == 10
        else:
            fits, value = _moment(begin, end, has_zone)
        if fits:
            store_i64(times, row, value)
        else:
            bad[row] = 1
            count += 1
    return count
