"""Avro to a decode program, writer and reader schema resolved.

The program follows the writer's schema, whose bytes it reads. What the reader's schema adds is
decided here, once: promotions, aliases, other orders, absent fields (their default is a constant
that the program reads as if it were in the record), branches. A field that the reader has without
default and the writer has not is null. A branch that cannot be resolved makes only the records bad
that have it.

Times: a writer's logical type says the unit; if it has none, the reader's does.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ottla.schemas import program_kernels as k
from ottla.schemas.avro_columns import ONLY, branch_names
from ottla.schemas.avro_tree import (
    ABSENT,
    MAX_DECIMAL_DIGITS,
    NULL,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Node,
    Primitive,
    Record,
    Union,
    is_nullable,
)
from ottla.schemas.model import InvalidSchema
from ottla.schemas.names import is_json_text
from ottla.schemas.programs import Layout, NotExpressible, Program, Writer, find

if TYPE_CHECKING:
    from collections.abc import Sequence

_INT32: Final = (-(2**31), 2**31 - 1)
_INT64: Final = (-(2**63), 2**63 - 1)
_PROMOTIONS: Final = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}
_MILLIS: Final = ("timestamp-millis", "local-timestamp-millis")
_NANOS: Final = ("timestamp-nanos", "local-timestamp-nanos")


class Unresolvable(Exception):
    """The writer's type cannot be read as the reader's."""


def compile_avro(writer: Node, reader: Node | None, wanted: Sequence[pa.Field]) -> Program:
    """The program for records of `writer`; `wanted` are columns of the reader's schema.

    Raises Unresolvable, and NotExpressible for recursive types.
    """
    return _Compiler(wanted).program(writer, writer if reader is None else reader)


class _Compiler:
    def __init__(self, wanted: Sequence[pa.Field]) -> None:
        self._writer = Writer(wanted)
        self._above: list[Record] = []

    def program(self, writer: Node, reader: Node) -> Program:
        layouts = self._writer.layouts
        if isinstance(writer, Record) and isinstance(reader, Record):
            self._fields(writer, reader, layouts)
        else:
            self._value(writer, reader, find(layouts, ONLY))
        return self._writer.finish()

    # -- resolution -----------------------------------------------------------------------------

    def _value(self, writer: Node, reader: Node, layout: Layout | None) -> None:
        """Read a value of `writer`, as `reader`, into `layout`."""
        if layout is None:
            self._skip(writer)
        elif is_json_text(layout.column):
            raise NotExpressible
        elif isinstance(writer, Union):
            self._switch(
                writer,
                lambda index, branch: (
                    self._selected(branch, writer, index, layout)
                    if reader is writer
                    else self._value(branch, reader, layout)
                ),
            )
        elif isinstance(reader, Union):
            self._selected(writer, reader, _branch(writer, reader), layout)
        else:
            self._plain(writer, reader, layout)

    def _switch(self, union: Union, emit: Any) -> None:
        out = self._writer
        table = out.table([0] * len(union.branches))
        out.op(k.SWITCH, -1, table, len(union.branches))
        exits = []
        for index, branch in enumerate(union.branches):
            start, depth = out.here, len(self._above)
            out.set_table(table + index, start)
            try:
                emit(index, branch)
            except Unresolvable:
                out.rewind(start)
                del self._above[depth:]
                out.op(k.FAIL, -1, k.MALFORMED)
                continue
            exits.append(out.op(k.JUMP))
        for at in exits:
            out.patch(at, 0, out.here)

    def _selected(self, writer: Node, reader: Union, index: int, layout: Layout) -> None:
        """Read `writer` as the branch `index` of `reader`."""
        branch = reader.branches[index]
        if branch == NULL:
            if writer != NULL:
                raise Unresolvable
            return
        if is_nullable(reader)[1] is branch:
            self._plain(writer, branch, layout)
            return
        self._writer.op(k.PRESENT, layout.slot)
        self._value(writer, branch, layout.child(branch_names(reader)[index]))

    def _plain(self, writer: Node, reader: Node, layout: Layout) -> None:
        """Neither is a union."""
        if is_json_text(layout.column):
            raise NotExpressible
        if isinstance(writer, Record) and isinstance(reader, Record):
            self._writer.op(k.PRESENT, layout.slot)
            self._fields(writer, reader, layout.below)
        elif isinstance(writer, Array) and isinstance(reader, Array):
            self._list(
                layout,
                _least_size(writer.items),
                lambda: self._value(writer.items, reader.items, layout.below[0]),
            )
        elif isinstance(writer, Map) and isinstance(reader, Map):
            self._list(
                layout,
                1 + _least_size(writer.values),
                lambda: self._entry(writer, reader, layout),
            )
        elif isinstance(writer, Enum) and isinstance(reader, Enum):
            self._enum(writer, reader, layout)
        elif isinstance(writer, Primitive | Fixed) and isinstance(reader, Primitive | Fixed):
            self._scalar(writer, reader, layout)
        else:
            raise Unresolvable

    def _entry(self, writer: Map, reader: Map, layout: Layout) -> None:
        self._writer.op(k.TEXT, layout.below[0].slot, 1)
        self._value(writer.values, reader.values, layout.below[1])

    def _fields(self, writer: Record, reader: Record, layouts: Sequence[Layout]) -> None:
        if any(writer is each for each in self._above):
            raise NotExpressible
        self._above.append(writer)
        targets = _targets(writer, reader)
        for one, target in zip(writer.fields, targets, strict=True):
            layout = None if target is None else find(layouts, target.name)
            self._value(one.node, one.node if target is None else target.node, layout)
        taken = {target.name for target in targets if target is not None}
        for absent in reader.fields:
            layout = find(layouts, absent.name)
            is_given = absent.name in taken or absent.default in (ABSENT, None)
            if layout is not None and not is_given:
                self._default(absent, layout)
        self._above.pop()

    def _default(self, one: Field, layout: Layout) -> None:
        data = encoded(one.node, one.default)
        out = self._writer
        out.op(k.CONSTANT, -1, out.constant(data), len(data))
        out.push(2)
        self._value(one.node, one.node, layout)
        out.pop(2)
        out.op(k.RETURN)

    def _list(self, layout: Layout | None, least: int, emit: Any) -> None:
        out = self._writer
        counter = -1 if layout is None else layout.counter
        out.op(k.LIST)
        out.push(1)
        start = out.op(k.NEXT, -1 if layout is None else layout.slot, counter, 0, least)
        emit()
        out.op(k.LOOP, -1, start, counter)
        out.pop(1)
        out.patch(start, 1, out.here)

    # -- scalars --------------------------------------------------------------------------------

    def _enum(self, writer: Enum, reader: Enum, layout: Layout) -> None:
        out = self._writer
        entries = []
        for symbol in writer.symbols:
            taken = symbol if symbol in reader.symbols else reader.default
            data = b"" if taken is None else taken.encode()
            entries += [-1 if taken is None else out.constant(data), len(data)]
        out.op(k.ENUM, layout.slot, out.table(entries), len(writer.symbols))

    def _scalar(self, writer: Primitive | Fixed, reader: Primitive | Fixed, layout: Layout) -> None:
        if not _matches(writer, reader):
            raise Unresolvable
        if isinstance(writer, Fixed):
            self._fixed(writer, layout)
        elif writer.kind in ("int", "long"):
            self._number(writer, reader, layout)
        elif writer.kind in ("bytes", "string"):
            self._text(writer, reader, layout)
        elif writer.kind == "boolean":
            self._writer.op(k.BOOLEAN, layout.slot)
        elif writer.kind == "float" and pa.types.is_float64(layout.column.type):
            self._writer.op(k.FLOAT_TO_DOUBLE, layout.slot)
        elif writer.kind in ("float", "double"):
            self._writer.op(k.COPY, layout.slot, 4 if writer.kind == "float" else 8)

    def _fixed(self, writer: Fixed, layout: Layout) -> None:
        kind = layout.column.type
        if pa.types.is_decimal(kind):
            if writer.logical == "decimal" and writer.scale != kind.scale:
                raise Unresolvable
            self._writer.op(k.DECIMAL, layout.slot, writer.size, *_limit(kind.precision))
        elif pa.types.is_string(kind):
            self._writer.op(k.UUID, layout.slot)
        else:
            self._writer.op(k.FIXED, layout.slot, writer.size)

    def _text(self, writer: Primitive, reader: Primitive | Fixed, layout: Layout) -> None:
        kind = layout.column.type
        if pa.types.is_decimal(kind):
            both = writer.logical == reader.logical == "decimal"
            if writer.kind != "bytes" or (both and writer.scale != kind.scale):
                raise Unresolvable
            self._writer.op(k.DECIMAL, layout.slot, -1, *_limit(kind.precision))
        else:
            self._writer.op(k.TEXT, layout.slot, int(pa.types.is_string(kind)))

    def _number(self, writer: Primitive, reader: Primitive | Fixed, layout: Layout) -> None:
        kind = layout.column.type
        least, most = _INT32 if writer.kind == "int" else _INT64
        factor = 1
        store = k.AS_INT64
        if pa.types.is_timestamp(kind):
            unit = writer.logical or reader.logical
            if unit in _NANOS:
                raise Unresolvable
            if unit in _MILLIS:
                factor = 1_000
                least, most = max(least, -(_INT64[1] // factor)), min(most, _INT64[1] // factor)
        elif pa.types.is_int32(kind) or pa.types.is_date32(kind):
            store = k.AS_INT32
        elif pa.types.is_float32(kind):
            store = k.AS_FLOAT
        elif pa.types.is_float64(kind):
            store = k.AS_DOUBLE
        self._writer.op(k.LONG, layout.slot, least, most, factor, store)

    # -- skipping -------------------------------------------------------------------------------

    def _skip(self, node: Node) -> None:
        out = self._writer
        if isinstance(node, Record):
            if any(node is each for each in self._above):
                raise NotExpressible
            self._above.append(node)
            for one in node.fields:
                self._skip(one.node)
            self._above.pop()
        elif isinstance(node, Union):
            self._switch(node, lambda _index, branch: self._skip(branch))
        elif isinstance(node, Array):
            self._list(None, _least_size(node.items), lambda: self._skip(node.items))
        elif isinstance(node, Map):
            self._list(None, 1 + _least_size(node.values), lambda: self._skip_entry(node))
        elif isinstance(node, Fixed):
            out.op(k.SKIP, -1, node.size)
        elif isinstance(node, Enum) or node.kind in ("int", "long"):
            out.op(k.SKIP_VARINT)
        elif node.kind in ("bytes", "string"):
            out.op(k.SKIP_TEXT)
        elif node.kind != "null":
            out.op(k.SKIP, -1, {"boolean": 1, "float": 4, "double": 8}[node.kind])

    def _skip_entry(self, node: Map) -> None:
        self._writer.op(k.SKIP_TEXT)
        self._skip(node.values)


def _targets(writer: Record, reader: Record) -> list[Field | None]:
    """The reader's field for each of the writer's: by name, else by the reader's aliases."""
    by_name = {each.name: each for each in reader.fields}
    written = {each.name for each in writer.fields}
    by_alias = {
        alias: each for each in reader.fields if each.name not in written for alias in each.aliases
    }
    return [by_name.get(each.name) or by_alias.get(each.name) for each in writer.fields]


def _branch(writer: Node, reader: Union) -> int:
    """The reader's branch for a value: one of the same type, else the first that it fits."""
    fitting = [index for index, each in enumerate(reader.branches) if _matches(writer, each)]
    for index in fitting:
        branch = reader.branches[index]
        if not isinstance(writer, Primitive) or getattr(branch, "kind", "") == writer.kind:
            return index
    if not fitting:
        raise Unresolvable
    return fitting[0]


def _matches(writer: Node, reader: Node) -> bool:
    """Whether a value of `writer` may be read as `reader`, as far as types and names say."""
    if isinstance(reader, Union):
        return any(_matches(writer, each) for each in reader.branches)
    if isinstance(writer, Union):
        return True
    if isinstance(writer, Primitive) and isinstance(reader, Primitive):
        return writer.kind == reader.kind or (writer.kind, reader.kind) in _PROMOTIONS
    if isinstance(writer, Array) and isinstance(reader, Array):
        return _matches(writer.items, reader.items)
    if isinstance(writer, Map) and isinstance(reader, Map):
        return _matches(writer.values, reader.values)
    if isinstance(writer, Fixed) and isinstance(reader, Fixed):
        return writer.size == reader.size and _is_named_alike(writer, reader)
    if isinstance(writer, Record) and isinstance(reader, Record):
        return _is_named_alike(writer, reader)
    if isinstance(writer, Enum) and isinstance(reader, Enum):
        return _is_named_alike(writer, reader)
    return False


def _is_named_alike(writer: Record | Fixed | Enum, reader: Record | Fixed | Enum) -> bool:
    short = writer.name.rpartition(".")[2]
    others = {reader.name, *reader.aliases}
    return short in {each.rpartition(".")[2] for each in others}


def _least_size(node: Node) -> int:
    """The fewest bytes of a value."""
    if isinstance(node, Record):
        return sum(_least_size(each.node) for each in node.fields)
    if isinstance(node, Fixed):
        return node.size
    if isinstance(node, Primitive):
        return {"null": 0, "float": 4, "double": 8}.get(node.kind, 1)
    return 1


def _limit(precision: int) -> tuple[int, int]:
    """10 to the power of `precision` in two halves; the lower one as a signed number."""
    assert precision <= MAX_DECIMAL_DIGITS
    high, low = divmod(10**precision, 1 << 64)
    return high, low - (1 << 64) if low >= 1 << 63 else low


def encoded(node: Node, value: Any) -> bytes:
    """A default value of a schema (JSON) in Avro's encoding."""
    if isinstance(node, Union):
        for index, branch in enumerate(node.branches):
            try:
                return _long(index) + encoded(branch, value)
            except (InvalidSchema, TypeError, ValueError, KeyError, struct.error):
                continue
        raise InvalidSchema(f"expected a default that fits a branch, got {value!r}")
    if isinstance(node, Record):
        return b"".join(_encoded_field(each, value) for each in node.fields)
    if isinstance(node, Array):
        body = b"".join(encoded(node.items, each) for each in _a(list, value))
        return (_long(len(value)) + body if value else b"") + b"\0"
    if isinstance(node, Map):
        pairs = _a(dict, value).items()
        body = b"".join(_bytes(key.encode()) + encoded(node.values, each) for key, each in pairs)
        return (_long(len(value)) + body if value else b"") + b"\0"
    if isinstance(node, Enum):
        return _long(node.symbols.index(value))
    if isinstance(node, Fixed):
        data: bytes = _a(str, value).encode("latin-1")
        if len(data) != node.size:
            raise InvalidSchema(f"expected a default of {node.size} bytes, got {len(data)}")
        return data
    return _encoded_primitive(node, value)


def _encoded_field(one: Field, value: Any) -> bytes:
    given = _a(dict, value).get(one.name, one.default)
    if given is ABSENT:
        raise InvalidSchema(f"expected a default with the field {one.name!r}, got none")
    return encoded(one.node, given)


def _encoded_primitive(node: Primitive, value: Any) -> bytes:
    if node.kind == "null":
        if value is not None:
            raise InvalidSchema(f"expected null as default, got {value!r}")
        return b""
    if node.kind == "boolean":
        return b"\1" if _a(bool, value) else b"\0"
    if node.kind in ("int", "long"):
        if isinstance(value, bool):
            raise InvalidSchema(f"expected a number as default, got {value!r}")
        return _long(_a(int, value))
    if node.kind in ("float", "double"):
        if isinstance(value, bool):
            raise InvalidSchema(f"expected a number as default, got {value!r}")
        return struct.pack("<f" if node.kind == "float" else "<d", value)
    text: str = _a(str, value)
    return _bytes(text.encode("latin-1" if node.kind == "bytes" else "utf-8"))


def _a(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise InvalidSchema(f"expected a default of type {kind.__name__}, got {value!r}")
    return value


def _bytes(data: bytes) -> bytes:
    return _long(len(data)) + data


def _long(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
