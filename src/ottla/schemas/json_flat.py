"""Columns of JSON objects of plain values, by a kernel; the rest is left to `json_columns`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ottla.schemas.json_flat_kernels import (
    ABSENT,
    BOOLEAN,
    DOUBLE,
    INT,
    LONG,
    TEXT,
    parse_flat,
)
from ottla.wire.arrow import memory
from ottla.wire.kernels.jit import INT32_MAX, gather
from ottla.wire.kernels.validate import address_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.schemas.spans import Spans
    from ottla.wire.kernels.jit import I64, U8

MAX_COLUMNS: Final = 64
"""A name is compared with those of all columns if it is none of them; and each column has 20 bytes
a row while a chunk is read."""

_KINDS: Final = (
    (pa.string(), TEXT),
    (pa.int32(), INT),
    (pa.int64(), LONG),
    (pa.float64(), DOUBLE),
    (pa.bool_(), BOOLEAN),
)


def flat_reader(columns: Sequence[pa.Field]) -> FlatReader | None:
    """A reader of these columns, whose names are those of fields; None if it cannot be."""
    kinds = [next((code for kind, code in _KINDS if kind == one.type), None) for one in columns]
    found = [code for code in kinds if code is not None]
    if not columns or len(found) < len(kinds) or len(kinds) > MAX_COLUMNS:
        return None
    return FlatReader(columns, found)


class FlatReader:
    def __init__(self, columns: Sequence[pa.Field], kinds: Sequence[int]) -> None:
        self._columns = columns
        self._kinds = np.array(kinds, np.uint8)
        names = [one.name.encode() for one in columns]
        self._names = np.frombuffer(b"".join(names) or b"\0", np.uint8)
        self._name_ends = np.cumsum([0, *map(len, names)]).astype(np.int32)

    def read(self, records: Spans) -> tuple[list[pa.Array], I64] | None:
        """Columns with a row for each record, and the records that are not plain, whose rows are
        null. None if a column would be too large."""
        rows = len(records.begins)
        count = len(self._kinds)
        values = memory.allocate(max(count * rows, 1), np.int64)
        sizes = np.full(count * rows, ABSENT, np.int32)
        others: U8 = np.zeros(rows, np.uint8)
        parse_flat(
            records.begins,
            records.ends,
            address_of(self._names),
            self._name_ends,
            self._kinds,
            values,
            values.view(np.float64),
            sizes,
            others,
        )
        found = []
        for column, kind in enumerate(self._kinds.tolist()):
            mine = slice(column * rows, column * rows + rows)
            array = _array(self._columns[column].type, kind, values[mine], sizes[mine])
            if array is None:
                return None
            found.append(array)
        return found, np.flatnonzero(others)


def _array(type_: pa.DataType, kind: int, values: I64, sizes: Any) -> pa.Array | None:
    rows = len(values)
    is_null = sizes < 0
    mask = None
    if is_null.any():
        mask = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    if kind == TEXT:
        lengths = np.where(is_null, 0, sizes) if mask is not None else sizes
        ends = np.zeros(rows + 1, np.int64)
        np.cumsum(lengths, out=ends[1:])
        if ends[-1] > INT32_MAX:
            return None
        offsets = ends.astype(np.int32)
        data = memory.allocate(max(int(ends[-1]), 1), np.uint8)
        gather(values, offsets, rows, address_of(data))
        return pa.Array.from_buffers(type_, rows, [mask, pa.py_buffer(offsets), pa.py_buffer(data)])
    if kind == BOOLEAN:
        numbers: Any = np.packbits(values != 0, bitorder="little")
    elif kind == INT:
        numbers = values.astype(np.int32)
    else:
        numbers = values
    return pa.Array.from_buffers(type_, rows, [mask, pa.py_buffer(numbers)])
