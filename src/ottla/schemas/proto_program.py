"""Protobuf to a decode program.

What a program cannot express (groups, required fields, columns of JSON text) is decoded record by
record (`proto_rows`). So are single records of a RARE shape (`proto_kernels`), and those that a
program refuses: protobuf's own parser has the last word on what is malformed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from ottla.schemas import proto_kernels as k
from ottla.schemas.names import is_json_text
from ottla.schemas.programs import Layout, NotExpressible, Program, Writer, find
from ottla.schemas.proto_columns import TIMESTAMP, WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.schemas.proto_rows import ProtoRows
    from ottla.schemas.proto_tree import Field, Message
    from ottla.schemas.spans import Spans
    from ottla.wire.kernels.jit import U8

_KINDS: Final = {
    "int32": k.INT32,
    "int64": k.INT64,
    "uint32": k.UINT32,
    "uint64": k.UINT64,
    "sint32": k.SINT32,
    "sint64": k.SINT64,
    "bool": k.BOOL,
    "enum": k.ENUM,
    "fixed32": k.FIXED32,
    "sfixed32": k.SFIXED32,
    "float": k.FLOAT,
    "fixed64": k.FIXED64,
    "sfixed64": k.SFIXED64,
    "double": k.DOUBLE,
    "string": k.STRING,
    "bytes": k.BYTES,
}


class ProtoProgram:
    """A program, and the slow way for records that it leaves out."""

    def __init__(self, program: Program, rows: ProtoRows) -> None:
        self._program = program
        self._rows = rows

    def run(self, records: Spans) -> tuple[list[pa.Array], U8]:
        arrays, reasons = self._program.run(records)
        rare = np.flatnonzero(reasons)
        if not len(rare):
            return arrays, reasons
        others, found = self._rows.run(records.take(rare))
        reasons[rare] = found
        place = np.arange(len(reasons))
        place[rare] = np.arange(len(reasons), len(reasons) + len(rare))
        taken = pa.array(place)
        made = [
            pa.concat_arrays([mine, other]).take(taken)
            for mine, other in zip(arrays, others, strict=True)
        ]
        return made, reasons


def compile_proto(message: Message, wanted: Sequence[pa.Field]) -> Program:
    """The program for records of `message`. Raises NotExpressible."""
    return _Compiler(wanted).program(message)


class _Compiler:
    def __init__(self, wanted: Sequence[pa.Field]) -> None:
        self._writer = Writer(wanted)
        self._fields: list[list[int]] = []
        self._tables: list[int] = []
        self._stamps = 0

    def program(self, message: Message) -> Program:
        self._message(message, self._writer.layouts, [])
        return self._writer.finished_as(
            np.array([*self._fields, [0] * k.FIELD_WIDTH], np.int64),
            np.array([*self._tables, 0], np.int64),
            k,
            self._stamps + 1,
        )

    def _message(self, message: Message, layouts: Sequence[Layout], present: list[int]) -> int:
        """Add a message whose fields go to `layouts`; `present` are slots that it makes valid."""
        place = len(self._tables)
        self._tables += [0] * k.MESSAGE_WIDTH
        pairs = [(each, find(layouts, each.name)) for each in message.fields]
        if any(each.is_required for each in message.fields):
            raise NotExpressible
        taken = [(each, layout) for each, layout in pairs if layout is not None]
        first = len(self._fields)
        self._fields += [[0] * k.FIELD_WIDTH for _ in taken]
        oneofs: dict[int, int] = {}
        defaults: list[int] = []
        must = -1
        for index, (one, layout) in enumerate(taken, first):
            self._fields[index] = self._field(one, layout, oneofs)
            is_implicit = message.is_map_entry or not one.is_present
            if one.is_repeated:
                present.append(layout.slot)
            elif is_implicit and one.message is not None:
                must = self._fields[index][k.STAMP]
            elif is_implicit and one.kind == "enum":
                defaults.append(index)
            elif is_implicit:
                present.append(layout.slot)
        self._tables[place : place + k.MESSAGE_WIDTH] = [
            first,
            len(taken),
            len(self._tables),
            len(present),
            len(self._tables) + len(present),
            len(defaults),
            must,
            int(message.is_map_entry),
        ]
        self._tables += [*present, *defaults]
        return place

    def _field(self, one: Field, layout: Layout, oneofs: dict[int, int]) -> list[int]:
        target, counter, outer = layout, -1, -1
        if one.is_repeated:
            counter, outer = layout.counter, layout.slot
        is_map = one.is_repeated and one.message is not None and one.message.is_map_entry
        if one.is_repeated and not is_map:
            target = layout.below[0]
        if one.kind == "group" or is_json_text(target.column):
            raise NotExpressible
        row = [one.number, 0, target.slot, outer, counter, -1, -1, 0, 0]
        is_plain = one.message is None and one.kind not in ("enum", "string", "bytes")
        if one.oneof >= 0:
            row[k.STAMP] = oneofs.setdefault(one.oneof, self._stamp())
        elif not one.is_repeated and not is_plain:
            row[k.STAMP] = self._stamp()
        if one.message is None:
            row[k.KIND] = _KINDS[one.kind]
            if one.kind == "enum":
                row[k.TABLE], row[k.SYMBOLS] = self._symbols(one)
        elif one.message.name == TIMESTAMP:
            row[k.KIND] = k.TIMESTAMP
        else:
            row[k.KIND] = k.MESSAGE
            self._writer.push(k.FRAME_WIDTH)
            row[k.INNER] = self._inner(one.message, target, is_map)
            self._writer.pop(k.FRAME_WIDTH)
        return row

    def _inner(self, message: Message, target: Layout, is_map: bool) -> int:
        if message.name in WRAPPERS:
            value = message.fields[0]
            alone = Layout(
                target.column.with_name(value.name).remove_metadata(),
                target.slot,
                target.domain,
                target.counter,
            )
            return self._message(message, [alone], [])
        return self._message(message, target.below, [] if is_map else [target.slot])

    def _symbols(self, one: Field) -> tuple[int, int]:
        place = len(self._tables)
        for number, name in sorted(one.symbols, key=lambda each: each[0] != 0):
            data = name.encode()
            self._tables += [number, self._writer.constant(data), len(data)]
        return place, len(one.symbols)

    def _stamp(self) -> int:
        self._stamps += 1
        return self._stamps - 1
