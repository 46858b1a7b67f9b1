"""Compiled decode programs: operations over slots, and the Arrow arrays that come of them.

A `Writer` collects operations; `Layout`s are the wanted columns, each with a slot. Columns that
nobody wants have no layout: their bytes are skipped, and no memory is taken for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from ottla.schemas import names, program_kernels
from ottla.schemas.model import ChunkTooLarge, SchemaTooLarge
from ottla.schemas.reasons import Reason
from ottla.wire.kernels.jit import INT32_MAX
from ottla.wire.kernels.validate import address_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from ottla.schemas.spans import Spans
    from ottla.wire.kernels.jit import I64, U8

MAX_OPERATIONS: Final = 100_000
"""Named types may be used many times over; 2,000 columns need far fewer operations."""
MAX_OUTPUT: Final = 1024 * 1024 * 1024
"""Most bytes of the columns of one chunk. Records may be far smaller than their rows: an absent
struct of 2,000 columns is one byte."""

NO_SLOT: Final = -1

Number = TypeVar("Number", bound=np.integer)


class NotExpressible(Exception):
    """No program can be written for the schema: it must be decoded record by record."""


@dataclass(slots=True)
class Layout:
    """A wanted column: its slot, and those below it."""

    column: pa.Field
    slot: int
    domain: int
    counter: int
    below: list[Layout] = field(default_factory=list)

    def child(self, source: str) -> Layout | None:
        """The wanted column of a struct that the record calls `source`."""
        return find(self.below, source)


def find(layouts: Iterable[Layout], source: str) -> Layout | None:
    for each in layouts:
        if names.source_of(each.column) == source:
            return each
    return None


class Writer:
    """Collects a program."""

    def __init__(self, wanted: Iterable[pa.Field]) -> None:
        self._ops: list[tuple[int, ...]] = []
        self._jumps: list[int] = []
        self._pool = bytearray()
        self._slots: list[Layout] = []
        self._counters = 0
        self._deepest = 0
        self._depth = 0
        self.layouts = [self._layout(each, -1) for each in wanted]

    @property
    def here(self) -> int:
        return len(self._ops)

    def op(self, code: int, slot: int = NO_SLOT, *operands: int) -> int:
        """Add an operation; returns its place."""
        if len(self._ops) >= MAX_OPERATIONS:
            raise SchemaTooLarge(
                f"expected a schema of at most {MAX_OPERATIONS} decode steps, got more"
            )
        padded = (*operands, 0, 0, 0, 0)[: program_kernels.WIDTH - 2]
        self._ops.append((code, slot, *padded))
        return len(self._ops) - 1

    def rewind(self, at: int) -> None:
        """Drop the operations from `at` on."""
        del self._ops[at:]

    def patch(self, at: int, operand: int, value: int) -> None:
        """Set an operand of an earlier operation."""
        op = list(self._ops[at])
        op[2 + operand] = value
        self._ops[at] = tuple(op)

    def table(self, values: Iterable[int]) -> int:
        """Add numbers to the jump table; returns where they begin."""
        start = len(self._jumps)
        self._jumps.extend(values)
        return start

    def set_table(self, at: int, value: int) -> None:
        self._jumps[at] = value

    def constant(self, data: bytes) -> int:
        start = len(self._pool)
        self._pool += data
        return start

    def push(self, frames: int) -> None:
        self._depth += frames
        self._deepest = max(self._deepest, self._depth)

    def pop(self, frames: int) -> None:
        self._depth -= frames

    def finish(self) -> Program:
        """The program of the operations."""
        self.op(program_kernels.END)
        jumps = np.array([*self._jumps, 0], np.int64)
        return self.finished_as(np.array(self._ops, np.int64), jumps, program_kernels, 0)

    def finished_as(self, ops: I64, tables: I64, kernels: Any, stamps: int) -> Program:
        """The program of other kernels, with tables of their own."""
        return Program(
            self.layouts,
            self._slots,
            self._counters,
            ops,
            tables,
            np.frombuffer(bytes(self._pool) + b"\0", np.uint8),
            self._deepest,
            kernels,
            stamps,
        )

    def _layout(self, column: pa.Field, domain: int) -> Layout:
        kind = column.type
        layout = Layout(column, len(self._slots), domain, -1)
        self._slots.append(layout)
        inner = domain
        if pa.types.is_list(kind) or pa.types.is_map(kind) or _is_text(kind):
            inner = layout.counter = self._counters
            self._counters += 1
        layout.below = [self._layout(each, inner) for each in names.children(kind)]
        return layout


@dataclass(frozen=True, slots=True)
class Program:
    """Decodes a chunk of records of one schema."""

    layouts: list[Layout]
    slots: list[Layout]
    counters: int
    ops: I64
    jumps: I64
    pool: U8
    frames: int
    kernels: Any
    """The module with `measure` and `fill`."""
    stamps: int
    """Numbers that tell which fields were met; Avro needs none."""

    def run(self, records: Spans) -> tuple[list[pa.Array], U8]:
        """The arrays of the wanted columns, null where a record is bad or absent; the reasons."""
        rows = len(records.begins)
        reasons = np.zeros(rows, np.uint8)
        counters = np.zeros(self.counters + 1, np.int64)
        backup = np.zeros(self.counters + 1, np.int64)
        frames = np.zeros(self.frames + 2, np.int64)
        stamps = np.zeros(self.stamps, np.int64)
        more = [address_of(stamps)] if self.stamps else []
        table = self._table()
        fixed = [address_of(each) for each in (self.ops, self.jumps, self.pool, table, counters)]
        self.kernels.measure(
            records.begins,
            records.ends,
            reasons,
            *fixed,
            address_of(backup),
            counters.nbytes,
            address_of(frames),
            *more,
        )
        totals = counters.copy()
        if (size := self._output_bytes(rows, totals)) > MAX_OUTPUT or totals.max() > INT32_MAX:
            if rows > 1:
                raise ChunkTooLarge(
                    f"expected at most {MAX_OUTPUT} bytes of columns, got {size} for {rows} "
                    "records; decode fewer at a time"
                )
            reasons[:] = Reason.TOO_LARGE
            totals[:] = 0
        buffers = [_Buffers.allocate(each, rows, totals) for each in self.slots]
        for index, each in enumerate(buffers):
            each.enter(table, index * program_kernels.SLOT_WIDTH)
        counters[:] = 0
        self.kernels.fill(records.begins, records.ends, reasons, *fixed, address_of(frames), *more)
        arrays = [_array(each, buffers, rows, totals) for each in self.layouts]
        return arrays, reasons

    def _table(self) -> I64:
        table = np.zeros((len(self.slots) + 1) * program_kernels.SLOT_WIDTH, np.int64)
        for index, each in enumerate(self.slots):
            at = index * program_kernels.SLOT_WIDTH
            table[at + program_kernels.DOMAIN] = each.domain
            table[at + program_kernels.COUNTER] = each.counter
        return table

    def _output_bytes(self, rows: int, totals: I64) -> int:
        size = 0
        for each in self.slots:
            entries = rows if each.domain < 0 else int(totals[each.domain])
            size += entries * (_width(each.column.type) or 4)
            if _is_text(each.column.type):
                size += int(totals[each.counter])
        return size


@dataclass(slots=True)
class _Buffers:
    valid: U8
    data: U8 | None
    ends: npt.NDArray[np.int32] | None

    @classmethod
    def allocate(cls, layout: Layout, rows: int, totals: I64) -> _Buffers:
        entries = rows if layout.domain < 0 else int(totals[layout.domain])
        kind = layout.column.type
        valid = zeros(-(-entries // 8), np.uint8)
        if pa.types.is_boolean(kind):
            return cls(valid, zeros(-(-entries // 8), np.uint8), None)
        if width := _width(kind):
            return cls(valid, zeros(entries * width, np.uint8), None)
        if pa.types.is_struct(kind):
            return cls(valid, None, None)
        data = zeros(int(totals[layout.counter]), np.uint8) if _is_text(kind) else None
        return cls(valid, data, zeros(entries + 1, np.int32))

    def enter(self, table: I64, at: int) -> None:
        table[at + program_kernels.VALID] = address_of(self.valid)
        if self.data is not None:
            table[at + program_kernels.DATA] = address_of(self.data)
        if self.ends is not None:
            table[at + program_kernels.ENDS] = address_of(self.ends)


def zeros(count: int, dtype: type[Number]) -> npt.NDArray[Number]:
    """Memory of a column; large pieces come zeroed from the kernel, without being touched."""
    return np.zeros(count, dtype)


def _array(layout: Layout, buffers: list[_Buffers], rows: int, totals: I64) -> pa.Array:
    mine = buffers[layout.slot]
    kind = layout.column.type
    entries = rows if layout.domain < 0 else int(totals[layout.domain])
    parts: list[Any] = [pa.py_buffer(mine.valid)]
    if mine.ends is not None:
        # An absent text or list ends where the one before it ends.
        np.maximum.accumulate(mine.ends, out=mine.ends)
        parts.append(pa.py_buffer(mine.ends))
    if mine.data is not None:
        parts.append(pa.py_buffer(mine.data))
    below = [_array(each, buffers, rows, totals) for each in layout.below]
    if pa.types.is_map(kind):
        inner = pa.struct([kind.key_field, kind.item_field])
        below = [pa.Array.from_buffers(inner, len(below[0]), [None], children=below)]
    return pa.Array.from_buffers(kind, entries, parts, children=below or None)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _width(kind: pa.DataType) -> int:
    """Bytes of an entry; 0 for texts, bits and nested types."""
    is_fixed = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    return kind.bit_width // 8 if is_fixed and not pa.types.is_boolean(kind) else 0
