"""JSON values to columns: `pyarrow.json` for whole blocks, Python for what it cannot take.

0. If columns are neither nested nor decimals, `json_flat` takes the values that are plain objects.
   The steps below are for the others, and for all values if many of them are.
1. `json_kernels.frame` lets through values that are one object each, a line each.
2. `pyarrow.json` reads the lines with an explicit schema. It refuses a block for one bad value, so
   a refused block is split, and a small one is read value by value in Python, which finds the bad
   ones. If more than one value in BAD_SHARE is bad, the rest of the chunk is read in Python at
   once: poison costs a few times the normal price, whatever its share.
3. Times, dates and binaries are read as text, floats as doubles and decimals with all digits;
   `_Finish` converts them column by column and marks the rows where they do not fit.

Python accepts what `pyarrow.json` accepts, with the same values. So the row of a value does not
depend on its neighbours. Maps and columns of JSON text, which `pyarrow.json` does not have, are
always read in Python.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ottla.schemas import json_kernels, names
from ottla.schemas.json_flat import flat_reader
from ottla.schemas.reasons import Reason
from ottla.wire.arrow import memory
from ottla.wire.kernels.validate import address_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.schemas.spans import Spans
    from ottla.wire.kernels.jit import I64, U8

SMALL_BLOCK: Final = 64
"""Blocks of at most so many values are not split: a call of `pyarrow.json` costs as much as 50."""
PARTS: Final = 8
"""A refused block is split into so many: halves would be read twice as often until the bad values
are found, and with more parts most of them would be too small."""
BAD_SHARE: Final = 64
"""More than one bad value in so many: splitting costs more than reading all in Python."""
OTHER_SHARE: Final = 4
"""More than one value in so many is no plain object: all of them are read by the parser at once."""
MOST_DIGITS: Final = 38

_STATUS: Final = np.array(
    [Reason.OK, Reason.MALFORMED, Reason.TRAILING_BYTES, Reason.TOO_LARGE], np.uint8
)
_INTEGER: Final = re.compile(r"-?[0-9]+")
_FLOAT_MAX: Final = float(np.finfo(np.float32).max)

Convert: TypeAlias = Callable[[Any], Any]
NameOf: TypeAlias = Callable[[pa.Field], str]


class JsonColumns:
    """Reads values into `columns`, whose names and types say what is taken of each object.

    With `any_text` a column of texts takes every value, others than texts as JSON, as Spark's
    `from_json` does; without it such values are malformed.
    """

    def __init__(self, columns: pa.Schema, *, any_text: bool = False) -> None:
        self.columns = columns
        self._is_plain = all(_is_plain(each) for each in columns) and _are_distinct(columns)
        # Two columns may have one source; then only the columns' own names differ.
        name_of = names.source_of if self._is_plain else _own_name
        self._read_schema = pa.schema([_read_field(each, name_of) for each in columns])
        self._convert = _object_converter(list(columns), name_of, _any_text if any_text else _text)
        self._flat = flat_reader(list(self._read_schema)) if self._is_plain else None

    def read(self, values: Spans) -> tuple[pa.RecordBatch, U8]:
        """A row for each value, null where it is bad or absent; and the reasons."""
        found = None if self._flat is None else self._flat.read(values)
        if found is None:
            return self._parsed(values)
        arrays, others = found
        rows = len(values.begins)
        if len(others) > rows // OTHER_SHARE:
            return self._parsed(values)
        reasons = np.zeros(rows, np.uint8)
        batch = self._finished(arrays, reasons)
        if not len(others):
            return batch, reasons
        rest, why = self._parsed(values.take(others))
        reasons[others] = why
        place = np.arange(rows)
        place[others] = np.arange(rows, rows + len(others))
        both = pa.Table.from_batches([batch, rest]).take(pa.array(place)).combine_chunks()
        return both.to_batches()[0], reasons

    def _finished(self, arrays: Sequence[pa.Array], reasons: U8) -> pa.RecordBatch:
        """The columns of what was read, without the rows that turn out to be bad."""
        finish = _Finish(reasons)
        done = [
            finish.column(array, column, None)
            for array, column in zip(arrays, self.columns, strict=True)
        ]
        return _without(pa.RecordBatch.from_arrays(done, schema=self.columns), reasons)

    def _parsed(self, values: Spans) -> tuple[pa.RecordBatch, U8]:
        rows = len(values.begins)
        reasons = np.zeros(rows, np.uint8)
        room = int(np.where(values.begins < 0, 0, values.ends - values.begins).sum()) + 3 * rows
        text = memory.allocate(max(room, 1), np.uint8)
        lines = memory.allocate(rows + 1, np.int64)
        used = json_kernels.frame(values.begins, values.ends, reasons, address_of(text), lines)
        reasons = _STATUS[reasons]
        absent = (values.begins < 0) | (reasons != Reason.OK)
        if not self.columns.names:
            return pa.RecordBatch.from_struct_array(pa.nulls(rows, pa.struct([]))), reasons
        lines_of = _Lines(text, lines, absent)
        found = _Isolation(lines_of, self._read_schema, self._is_plain, self._convert, reasons)
        table = pa.concat_tables(found.read(0, rows)) if used else self._read_schema.empty_table()
        arrays = [each.combine_chunks() for each in table.columns]
        return self._finished(arrays, reasons), reasons


class _Lines(NamedTuple):
    text: U8
    bounds: I64
    absent: Any

    def block(self, first: int, last: int) -> pa.Buffer:
        return pa.py_buffer(self.text[self.bounds[first] : self.bounds[last]])

    def value(self, row: int) -> bytes:
        return self.text[self.bounds[row] : self.bounds[row + 1]].tobytes()


class _Isolation:
    """Reads blocks of lines, and finds the bad values of a block that is refused."""

    def __init__(
        self,
        lines: _Lines,
        schema: pa.Schema,
        is_plain: bool,
        convert: Convert,
        reasons: U8,
    ) -> None:
        self._lines = lines
        self._schema = schema
        self._is_plain = is_plain
        self._convert = convert
        self._reasons = reasons
        self._bad = 0
        self._allowed = len(reasons) // BAD_SHARE

    def read(self, first: int, last: int) -> list[pa.Table]:
        if self._is_plain and self._bad <= self._allowed:
            try:
                return [self._block(first, last)]
            except pa.ArrowInvalid:
                if last - first > SMALL_BLOCK:
                    step = max(-(-(last - first) // PARTS), SMALL_BLOCK)
                    starts = range(first, last, step)
                    return [part for at in starts for part in self.read(at, min(at + step, last))]
        return [self._one_by_one(first, last)]

    def _block(self, first: int, last: int) -> pa.Table:
        block = self._lines.block(first, last)
        table = pj.read_json(
            pa.BufferReader(block),
            read_options=pj.ReadOptions(use_threads=False, block_size=block.size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=self._schema,
                newlines_in_values=False,
                unexpected_field_behavior="ignore",
            ),
        )
        if table.num_rows != last - first:  # `frame` makes it impossible
            raise AssertionError(f"expected {last - first} rows, got {table.num_rows}")
        return table

    def _one_by_one(self, first: int, last: int) -> pa.Table:
        rows: list[dict[str, Any] | None] = []
        for row in range(first, last):
            rows.append(None)
            if self._lines.absent[row]:
                continue
            try:
                rows[-1] = self._convert(_parsed(self._lines.value(row)))
            except _Bad as error:
                self._reasons[row] = error.reason
                self._bad += 1
        array = pa.array(rows, pa.struct(list(self._schema)))
        return pa.Table.from_arrays(array.flatten(), schema=self._schema)


class _Bad(Exception):
    def __init__(self, reason: Reason) -> None:
        self.reason = reason


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


class _Object(list[tuple[str, Any]]):
    """Pairs of an object, with duplicates."""

    __slots__ = ()


def _no_constant(_name: str) -> None:
    raise _Bad(Reason.MALFORMED)


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_Object,
    parse_int=_Number,
    parse_float=_Number,
    parse_constant=_no_constant,
)


def _parsed(line: bytes) -> Any:
    try:
        return _DECODER.decode(line.decode())
    except (ValueError, RecursionError):
        raise _Bad(Reason.MALFORMED) from None


# -- Python's way from JSON to the read schema ---------------------------------------------------


def _own_name(column: pa.Field) -> str:
    name: str = column.name
    return name


def _object_converter(columns: list[pa.Field], name_of: NameOf, text: Convert) -> Convert:
    converters: dict[str, list[tuple[str, Convert]]] = {}
    for each in columns:
        pair = name_of(each), _converter(each, name_of, text)
        converters.setdefault(names.source_of(each), []).append(pair)

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, _Object):
            raise _Bad(Reason.MALFORMED)
        found: dict[str, Any] = {}
        for key, one in value:
            for name, inner in converters.get(key, ()):
                if name in found:
                    raise _Bad(Reason.MALFORMED)
                found[name] = None if one is None else inner(one)
        return found

    return convert


def _converter(
    column: pa.Field, name_of: NameOf, text: Convert
) -> Convert:  # one line for each type
    kind = column.type
    if names.is_json_text(column):
        return _json_text
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_int32(kind):
        return lambda value: _integer(value, 31)
    if pa.types.is_int64(kind):
        return lambda value: _integer(value, 63)
    if pa.types.is_float32(kind):
        return lambda value: _floating(value, _FLOAT_MAX)
    if pa.types.is_float64(kind):
        return lambda value: _floating(value, math.inf)
    if pa.types.is_decimal(kind):
        return lambda value: _decimal(value, kind.scale)
    if pa.types.is_struct(kind):
        return _object_converter(list(kind), name_of, text)
    if pa.types.is_map(kind):
        return _map_converter(kind, name_of, text)
    if pa.types.is_list(kind):
        return _list_converter(kind, name_of, text)
    return text if pa.types.is_string(kind) else _text


def _list_converter(kind: pa.ListType, name_of: NameOf, text: Convert) -> Convert:
    inner = _converter(kind.value_field, name_of, text)

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list) or isinstance(value, _Object):
            raise _Bad(Reason.MALFORMED)
        return [None if each is None else inner(each) for each in value]

    return convert


def _map_converter(kind: pa.MapType, name_of: NameOf, text: Convert) -> Convert:
    inner = _converter(kind.item_field, name_of, text)

    def convert(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, _Object):
            raise _Bad(Reason.MALFORMED)
        found: dict[str, Any] = {}
        for key, each in value:
            if key in found:
                raise _Bad(Reason.MALFORMED)
            found[_text(key)] = None if each is None else inner(each)
        return list(found.items())

    return convert


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Bad(Reason.MALFORMED)
    return value


def _number(value: Any) -> _Number:
    if not isinstance(value, _Number):
        raise _Bad(Reason.MALFORMED)
    return value


def _integer(value: Any, bits: int) -> int:
    text = _number(value)
    # 20 characters hold every number of 64 bits.
    if len(text) > 20 or not _INTEGER.fullmatch(text):
        raise _Bad(Reason.OUT_OF_RANGE)
    number = int(text)
    if not -(1 << bits) <= number < 1 << bits:
        raise _Bad(Reason.OUT_OF_RANGE)
    return number


def _floating(value: Any, most: float) -> float:
    number = float(_number(value))
    if math.isinf(number) or abs(number) > most:
        raise _Bad(Reason.OUT_OF_RANGE)
    return number


def _decimal(value: Any, scale: int) -> Decimal:
    if not isinstance(value, str):
        raise _Bad(Reason.MALFORMED)
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise _Bad(Reason.MALFORMED) from None
    if not number.is_finite():
        raise _Bad(Reason.MALFORMED)
    if number and not -MOST_DIGITS <= number.adjusted() + scale < MOST_DIGITS:
        raise _Bad(Reason.OUT_OF_RANGE)
    # As an integer, so that no context rounds it.
    sign, digits, exponent = number.as_tuple()
    shift = int(exponent) + scale
    unscaled = int("".join(map(str, digits)))
    if shift < 0:
        unscaled, rest = divmod(unscaled, 10**-shift)
        if rest:
            raise _Bad(Reason.OUT_OF_RANGE)
    else:
        unscaled *= 10**shift
    if unscaled >= 10**MOST_DIGITS:
        raise _Bad(Reason.OUT_OF_RANGE)
    return Decimal((sign, tuple(map(int, str(unscaled))), -scale))


def _text(value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, _Number):
        raise _Bad(Reason.MALFORMED)
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a pair of surrogates
        raise _Bad(Reason.MALFORMED) from None
    return value


def _any_text(value: Any) -> str:
    """A text as it is, every other value as JSON."""
    is_text = isinstance(value, str) and not isinstance(value, _Number)
    return _text(value) if is_text else _json_text(value)


def _json_text(value: Any) -> str:
    """Compact JSON; numbers as they were written."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, _Object):
        pairs = (f"{_json_text(key)}:{_json_text(each)}" for key, each in value)
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_json_text, value))}]"
    if isinstance(value, str):
        return json.dumps(_text(value), ensure_ascii=False)
    return json.dumps(value)


# -- from the read schema to the columns ---------------------------------------------------------


def _read_field(column: pa.Field, name_of: NameOf) -> pa.Field:
    """What `pyarrow.json` is asked for in place of `column`."""
    return pa.field(name_of(column), _read_type(column.type, name_of))


def _read_type(kind: pa.DataType, name_of: NameOf) -> pa.DataType:
    if pa.types.is_decimal(kind):
        return pa.decimal128(MOST_DIGITS, kind.scale)
    if pa.types.is_temporal(kind) or pa.types.is_binary(kind):
        return pa.string()
    if pa.types.is_float32(kind):
        return pa.float64()
    if pa.types.is_struct(kind):
        return pa.struct([_read_field(each, name_of) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, pa.field("value", _read_type(kind.item_type, name_of)))
    if pa.types.is_list(kind):
        return pa.list_(pa.field(names.ELEMENT, _read_type(kind.value_type, name_of)))
    return kind


def _is_plain(column: pa.Field) -> bool:
    """Whether `pyarrow.json` can read the column."""
    if names.is_json_text(column) or pa.types.is_map(column.type):
        return False
    below = names.children(column.type)
    if pa.types.is_struct(column.type) and not _are_distinct(below):
        return False
    return all(map(_is_plain, below))


def _are_distinct(columns: pa.Schema | list[pa.Field]) -> bool:
    sources = [names.source_of(each) for each in columns]
    return len(set(sources)) == len(sources)


class _Finish:
    """Converts what was read to the columns' types, and marks the rows where that fails."""

    def __init__(self, reasons: U8) -> None:
        self._reasons = reasons

    def column(self, array: pa.Array, column: pa.Field, rows: I64 | None) -> pa.Array:
        """`array` as `column`'s type; entry i belongs to row rows[i], or i if that is None."""
        kind = column.type
        if pa.types.is_struct(kind):
            below = [self.column(array.field(index), each, rows) for index, each in enumerate(kind)]
            return _rebuilt(array, kind, below)
        if pa.types.is_list(kind):
            return self._nested(array, kind, [array.values], [kind.value_field], rows)
        if pa.types.is_map(kind):
            parts = [array.keys, array.items]
            return self._nested(array, kind, parts, [kind.key_field, kind.item_field], rows)
        if array.type == kind:
            return array
        if pa.types.is_decimal(kind):
            return self._decimals(array, kind, rows)
        if pa.types.is_float32(kind):
            return self._floats(array, rows)
        if pa.types.is_binary(kind):
            return self._binaries(array, rows)
        return self._times(array, kind, rows)

    def _nested(
        self,
        array: pa.Array,
        kind: pa.DataType,
        parts: list[pa.Array],
        fields: list[pa.Field],
        rows: I64 | None,
    ) -> pa.Array:
        offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)
        owners = np.arange(len(array)) if rows is None else rows
        # Entries outside of any list (below a null one, or sliced off) belong to nobody: row -1.
        of_entry = np.full(len(parts[0]), -1, np.int64)
        of_entry[offsets[0] : offsets[-1]] = np.repeat(owners, np.diff(offsets))
        done = [self.column(part, each, of_entry) for part, each in zip(parts, fields, strict=True)]
        if pa.types.is_map(kind):
            done = [pa.StructArray.from_arrays(done, fields=fields)]
        return _rebuilt(array, kind, done)

    def _mark(self, bad: Any, reason: Reason, rows: I64 | None) -> None:
        entries = np.flatnonzero(bad)
        owners = entries if rows is None else rows[entries]
        owners = owners[owners >= 0]
        self._reasons[owners[self._reasons[owners] == Reason.OK]] = reason

    def _times(self, array: pa.Array, kind: pa.DataType, rows: I64 | None) -> pa.Array:
        valid = np.asarray(array.is_valid()).astype(np.uint8)
        times = np.zeros(len(array), np.int64)
        bad = np.zeros(len(array), np.uint8)
        _mask, offsets, data = array.buffers()
        is_date = pa.types.is_date(kind)
        if len(array) and json_kernels.parse_times(
            np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset),
            0 if data is None else data.address,
            valid,
            is_date,
            not is_date and kind.tz is not None,
            address_of(times),
            bad,
        ):
            self._mark(bad, Reason.MALFORMED, rows)
        mask = (valid == 0) | (bad != 0)
        numbers = pa.array(times.astype(np.int32) if is_date else times, mask=mask)
        return numbers.view(kind)

    def _floats(self, array: pa.Array, rows: I64 | None) -> pa.Array:
        bad = np.asarray(pc.greater(pc.abs(array), _FLOAT_MAX).fill_null(False))
        self._mark(bad, Reason.OUT_OF_RANGE, rows)
        return array.cast(pa.float32(), safe=False)

    def _decimals(self, array: pa.Array, kind: pa.DataType, rows: I64 | None) -> pa.Array:
        digits = kind.precision
        if digits < MOST_DIGITS:
            # The least number with too many digits, at the column's scale.
            limit = pa.scalar(Decimal((0, (1,) + (0,) * digits, -kind.scale)), array.type)
            beyond = pc.greater_equal(pc.abs(array), limit)
            bad = np.asarray(beyond.fill_null(False))
            if bad.any():
                self._mark(bad, Reason.OUT_OF_RANGE, rows)
                array = pc.if_else(pa.array(bad), pa.scalar(None, array.type), array)
        return array.cast(kind)

    def _binaries(self, array: pa.Array, rows: I64 | None) -> pa.Array:
        """Base64, as Spark's `from_json` and `to_json` have it."""
        found: list[bytes | None] = []
        bad = np.zeros(len(array), np.uint8)
        for entry, text in enumerate(array.to_pylist()):
            found.append(None)
            if text is not None:
                try:
                    found[-1] = base64.b64decode(text, validate=True)
                except (binascii.Error, ValueError):
                    bad[entry] = 1
        self._mark(bad, Reason.MALFORMED, rows)
        return pa.array(found, pa.binary())


def _rebuilt(array: pa.Array, kind: pa.DataType, below: list[pa.Array]) -> pa.Array:
    """`array` with other children."""
    if pa.types.is_struct(kind):  # its children are sliced as it is
        return pa.StructArray.from_arrays(below, fields=list(kind), mask=array.is_null())
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(kind, len(array), buffers, offset=array.offset, children=below)


def _without(batch: pa.RecordBatch, reasons: U8) -> pa.RecordBatch:
    """`batch` with null in all columns of bad rows."""
    bad = reasons != Reason.OK
    return batch.take(pa.array(np.arange(len(bad)), mask=bad)) if bad.any() else batch
