"""A column of values as addresses, which is what kernels read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

    from ottla.wire.kernels.jit import I64

NO_VALUE: Final = -1
"""The begin of a row without a value, or one that is bad already: kernels leave it alone."""


class Spans(NamedTuple):
    """Row i is the bytes from address begins[i] to ends[i]; `owner` keeps them alive."""

    begins: I64
    ends: I64
    owner: object

    def take(self, rows: I64) -> Spans:
        return Spans(self.begins[rows], self.ends[rows], self.owner)

    def without(self, bad: npt.NDArray[np.bool_]) -> Spans:
        return Spans(np.where(bad, NO_VALUE, self.begins), self.ends, self.owner)

    def value(self, row: int) -> bytes:
        """The bytes of one row."""
        begin, end = int(self.begins[row]), int(self.ends[row])
        return (
            pa.foreign_buffer(begin, end - begin, self.owner).to_pybytes() if end > begin else b""
        )


def spans_of(values: pa.Array) -> Spans:
    """The spans of a binary or text array; NO_VALUE for nulls."""
    is_large = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
    if not (is_large or pa.types.is_binary(values.type) or pa.types.is_string(values.type)):
        raise TypeError(f"expected a column of bytes, got {values.type}")
    _valid, offsets, data = values.buffers()
    rows = len(values)
    kind = np.int64 if is_large else np.int32
    if rows == 0 or offsets is None:
        empty = np.zeros(rows, np.int64)
        return Spans(empty, empty, values)
    bounds = np.frombuffer(offsets, kind, rows + 1, values.offset * np.dtype(kind).itemsize)
    address = 0 if data is None else data.address
    begins = bounds[:-1].astype(np.int64) + address
    ends = bounds[1:].astype(np.int64) + address
    if values.null_count:
        begins[np.asarray(values.is_null())] = NO_VALUE
    return Spans(begins, ends, values)
