"""Arrow rows to values of Avro or JSON that name their schema: `decode` in reverse.

- Avro: a program is compiled for the schema, and a kernel runs it over all rows. Columns are cast
  to those that `columns_of` gives for the schema. A column that is missing has the field's default
  or null; one that the schema does not have is an error.
- JSON Schema: each row is an object, made one by one; fields that are null are left out.
- Protobuf is not written here.

Unions of more than null and one type, and recursive types, are refused: rows do not say the branch.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.schemas import encode_kernels as k
from ottla.schemas.avro_columns import ONLY, scalar_type
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
    tree_of,
)
from ottla.schemas.framing import ID
from ottla.schemas.model import Kind, Schema, SchemaError
from ottla.schemas.names import source_of
from ottla.schemas.parsing import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Numbers: TypeAlias = npt.NDArray[Any]

MAX_VALUES: Final = 2**31 - 1
"""Bytes of the values of one call: offsets of Arrow's binary columns are of 32 bits."""
_MILLIS: Final = ("timestamp-millis", "local-timestamp-millis")


class CannotEncode(SchemaError):
    """Rows do not fit the schema; the sentence names the column."""


def encode(
    rows: pa.RecordBatch,
    schema: Schema,
    *,
    id: int | None = None,  # noqa: A002  # the registry's name for it
    resolved: Mapping[str, str] | None = None,
) -> pa.Array:
    """A value for each row, framed with the schema's id if one is given."""
    prefix = b"" if id is None else bytes([ID]) + id.to_bytes(4, "big")
    if schema.kind is Kind.JSON:
        return _json(rows, prefix)
    if schema.kind is not Kind.AVRO:
        raise CannotEncode(f"{schema.kind} is not written here; Avro and JSON are")
    tree: Any = parse(schema, resolved or {}).tree
    return _Encoder(rows, prefix).run(tree_of(tree))


def _json(rows: pa.RecordBatch, prefix: bytes) -> pa.Array:
    values = (
        prefix + json.dumps(_present(row), default=_text, separators=(",", ":")).encode()
        for row in rows.to_pylist()
    )
    return pa.array(values, pa.binary())


def _present(value: Any) -> Any:
    """Without the fields that are null."""
    if isinstance(value, dict):
        return {name: _present(one) for name, one in value.items() if one is not None}
    return [_present(one) for one in value] if isinstance(value, list) else value


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        raise CannotEncode("JSON has no bytes: make the column text")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


@dataclass(slots=True)
class _Encoder:
    """Collects the program of a schema and the arenas of the rows' columns."""

    rows: pa.RecordBatch
    prefix: bytes
    ops: list[tuple[int, ...]] = field(default_factory=list)
    where: dict[int, str] = field(default_factory=dict)
    slots: list[tuple[int, ...]] = field(default_factory=list)
    numbers: list[Numbers] = field(default_factory=list)
    valid: list[Numbers] = field(default_factory=list)
    data: list[Numbers] = field(default_factory=list)
    sizes: list[int] = field(default_factory=lambda: [0, 0, 0])
    above: list[Record] = field(default_factory=list)

    def run(self, node: Node) -> pa.Array:
        if self.prefix:
            self._const(self.prefix)
        if isinstance(node, Record):
            pairs = zip(self.rows.schema, self.rows.columns, strict=True)
            self._record(node, {source_of(one): column for one, column in pairs}, "")
        else:
            given = self.rows.column(0) if self.rows.num_columns == 1 else None
            if given is None:
                raise CannotEncode(f"expected one column, {ONLY}, for a schema that is no record")
            self._value(node, given, ONLY)
        self._op(k.END)
        return self._encoded()

    def _encoded(self) -> pa.Array:
        count = self.rows.num_rows
        ops = np.array([(*one, 0, 0, 0, 0)[: k.WIDTH] for one in self.ops], np.int64)
        slots = np.array(self.slots or [(0, 0, 0)], np.int64)
        numbers = _joined(self.numbers, np.int64)
        valid = _joined(self.valid, np.uint8)
        data = _joined(self.data, np.uint8)
        ends = np.zeros(count + 1, np.int64)
        nothing = np.zeros(0, np.uint8)
        bad = k.run(ops, slots, numbers, valid, data, count, ends, nothing, False)
        if bad >= 0:
            row, op = divmod(bad, len(self.ops))
            raise CannotEncode(
                f"{self.where[op]} of row {row} is null, which the schema does not allow"
            )
        if ends[-1] > MAX_VALUES:
            raise CannotEncode("the values have more than 2 GiB: encode fewer rows at once")
        out = np.zeros(int(ends[-1]), np.uint8)
        k.run(ops, slots, numbers, valid, data, count, ends, out, True)
        offsets = pa.py_buffer(ends.astype(np.int32))
        return pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(out)])

    # -- the program ------------------------------------------------------------------------------

    def _record(self, record: Record, columns: Mapping[str, pa.Array], path: str) -> None:
        if any(one is record for one in self.above):
            raise CannotEncode(f"{path or record.name} is recursive")
        unknown = sorted(set(columns) - {one.name for one in record.fields})
        if unknown:
            raise CannotEncode(f"the schema has no field {path}{unknown[0]}")
        self.above.append(record)
        for one in record.fields:
            at = path + one.name
            if one.name in columns:
                self._value(one.node, columns[one.name], at)
            else:
                self._missing(one, at)
        self.above.pop()

    def _missing(self, one: Field, path: str) -> None:
        """The default of a field that the rows do not have; null, if it may be."""
        from fastavro import schemaless_writer

        if one.default is ABSENT:
            if not (isinstance(one.node, Union) and NULL in one.node.branches):
                raise CannotEncode(f"there is no column {path}, and the field has no default")
            self._const(_zigzag(one.node.branches.index(NULL)))
            return
        # The first branch of a union is that of its default.
        head, node = b"", one.node
        if isinstance(node, Union):
            head, node = _zigzag(0), node.branches[0]
        if node == NULL:
            self._const(head)
        elif isinstance(node, Primitive) and not node.logical:
            buffer = io.BytesIO()
            given = one.default
            if node.kind == "bytes" and isinstance(given, str):
                given = given.encode("latin-1")
            schemaless_writer(buffer, node.kind, given)
            self._const(head + buffer.getvalue())
        elif isinstance(node, Array | Map) and not one.default:
            self._const(head + _zigzag(0))
        elif isinstance(node, Enum):
            self._const(head + _zigzag(node.symbols.index(one.default)))
        else:
            raise CannotEncode(f"there is no column {path}: give it, or a null default")

    def _value(self, node: Node, column: pa.Array, path: str) -> None:
        nullable, inner = is_nullable(node)
        if inner == NULL:
            return
        if isinstance(inner, Union):
            raise CannotEncode(f"{path} is a union of several types, which rows cannot say")
        if nullable:
            assert isinstance(node, Union)
            null, value = node.branches.index(NULL), node.branches.index(inner)
            at = self._op(k.NULLABLE, self._slot(column, with_valid=True), null, value)
            self._plain(inner, column, path)
            code, slot, *_ = self.ops[at]
            self.ops[at] = (code, slot, null, value, len(self.ops))
        else:
            if column.null_count:
                self.where[self._op(k.REQUIRED, self._slot(column, with_valid=True))] = path
            self._plain(inner, column, path)

    def _plain(self, node: Node, column: pa.Array, path: str) -> None:
        if isinstance(node, Record):
            if not pa.types.is_struct(column.type):
                raise CannotEncode(f"{path} is {column.type}, and the schema wants a record")
            kind = column.type
            inner = {source_of(kind.field(at)): column.field(at) for at in range(kind.num_fields)}
            self._record(node, inner, f"{path}.")
        elif isinstance(node, Array | Map):
            self._list(node, column, path)
        elif isinstance(node, Primitive | Fixed | Enum):
            try:
                self._scalar(node, column)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError) as error:
                wanted = node.kind if isinstance(node, Primitive) else node.name
                raise CannotEncode(
                    f"{path} is {column.type}, and does not fit {wanted}: {str(error)[:200]}"
                ) from None
        else:
            raise CannotEncode(f"{path} is a union in a union")

    def _list(self, node: Array | Map, column: pa.Array, path: str) -> None:
        is_map = isinstance(node, Map)
        fits = pa.types.is_map(column.type) if is_map else pa.types.is_list(column.type)
        if not fits:
            wanted = "a map" if is_map else "an array"
            raise CannotEncode(f"{path} is {column.type}, and the schema wants {wanted}")
        begin = self._op(k.LIST, self._slot(column, bounds=np.asarray(column.offsets)))
        body = len(self.ops)
        if isinstance(node, Map):
            self._value(Primitive("string"), column.keys, f"{path}.key")
            self._value(node.values, column.items, f"{path}.value")
        else:
            self._value(node.items, column.values, f"{path}.element")
        self._op(k.NEXT, 0, body)
        code, slot, *_ = self.ops[begin]
        self.ops[begin] = (code, slot, len(self.ops))

    def _scalar(self, node: Primitive | Fixed | Enum, column: pa.Array) -> None:
        if isinstance(node, Enum):
            found = pc.index_in(column.cast(pa.string()), pa.array(node.symbols))
            if found.null_count > column.null_count:
                raise pa.ArrowInvalid(f"a value is none of {', '.join(node.symbols)}")
            self._op(k.LONG, self._slot(column, numbers=_whole(found)))
            return
        if node.logical == "decimal" and node.precision <= MAX_DECIMAL_DIGITS:
            self._decimal(node, column)
            return
        cast = column.cast(scalar_type(node))
        if isinstance(node, Fixed):
            self._fixed(node, cast)
        elif node.kind in ("int", "long"):
            whole = cast
            if pa.types.is_date32(cast.type):
                whole = cast.cast(pa.int32())
            elif pa.types.is_timestamp(cast.type):
                whole = cast.cast(pa.int64())
            found = _whole(whole)
            if node.logical in _MILLIS:
                found = found // 1000
            if node.kind == "int" and len(found) and np.abs(found).max() > 2**31 - 1:
                whole.cast(pa.int32())  # raises, naming the value
            self._op(k.LONG, self._slot(column, numbers=found))
        elif node.kind == "boolean":
            self._op(k.BITS, self._slot(column, numbers=_whole(cast.cast(pa.int8()))), 1)
        elif node.kind in ("float", "double"):
            wide = np.int32 if node.kind == "float" else np.int64
            bits = np.ascontiguousarray(_filled(cast)).view(wide).astype(np.int64)
            self._op(k.BITS, self._slot(column, numbers=bits), 4 if wide is np.int32 else 8)
        else:
            self._text(cast, k.TEXT)

    def _fixed(self, node: Fixed, column: pa.Array) -> None:
        if node.logical == "uuid":
            from uuid import UUID

            given = [None if one is None else UUID(one).bytes for one in column.to_pylist()]
            column = pa.array(given, pa.binary())
        sizes = pc.unique(pc.binary_length(column.drop_null())).to_pylist()
        if any(size != node.size for size in sizes):
            raise pa.ArrowInvalid(f"expected {node.size} bytes, got {sizes}")
        self._text(column, k.FIXED)

    def _decimal(self, node: Primitive | Fixed, column: pa.Array) -> None:
        """Two's complement, the highest byte first; those of bytes have 16 of them."""
        cast = column.cast(pa.decimal128(node.precision, node.scale))
        buffer = cast.buffers()[1]
        raw = np.frombuffer(buffer, np.uint8).reshape(-1, 16)[cast.offset : cast.offset + len(cast)]
        turned = raw[:, ::-1]
        size = node.size if isinstance(node, Fixed) else 16
        if size >= 16:
            sign = np.where(turned[:, :1] >= 128, 255, 0).astype(np.uint8)
            turned = np.concatenate([np.repeat(sign, size - 16, axis=1), turned], axis=1)
        else:
            turned = turned[:, 16 - size :]
        bounds = np.arange(len(cast) + 1, dtype=np.int64) * size
        slot = self._slot(column, bounds=bounds + self.sizes[2])
        self._bytes(np.ascontiguousarray(turned).reshape(-1))
        self._op(k.FIXED if isinstance(node, Fixed) else k.TEXT, slot)

    def _text(self, column: pa.Array, code: int) -> None:
        is_text = pa.types.is_string(column.type)
        wide = column.cast(pa.large_string() if is_text else pa.large_binary())
        _valid, offsets, data = wide.buffers()
        bounds = np.zeros(1, np.int64)
        if offsets is not None and len(wide):
            bounds = np.frombuffer(offsets, np.int64, len(wide) + 1, wide.offset * 8)
        first, last = int(bounds[0]), int(bounds[-1])
        slot = self._slot(column, bounds=bounds - first + self.sizes[2])
        found = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[first:last]
        self._bytes(found)
        self._op(code, slot)

    # -- arenas -----------------------------------------------------------------------------------

    def _op(self, *numbers: int) -> int:
        self.ops.append(numbers)
        return len(self.ops) - 1

    def _const(self, given: bytes) -> None:
        begin = self.sizes[2]
        self._bytes(np.frombuffer(given, np.uint8))
        self._op(k.CONST, 0, begin, self.sizes[2])

    def _bytes(self, given: Numbers) -> None:
        self.data.append(given)
        self.sizes[2] += len(given)

    def _slot(
        self,
        column: pa.Array,
        *,
        with_valid: bool = False,
        numbers: Numbers | None = None,
        bounds: Numbers | None = None,
    ) -> int:
        """A slot for what is given of a column."""
        place = [0, 0, 0]
        if with_valid:
            place[k.VALID] = self.sizes[0]
            self.valid.append(np.asarray(column.is_valid()).astype(np.uint8))
            self.sizes[0] += len(column)
        for at, given in ((k.NUMBERS, numbers), (k.BOUNDS, bounds)):
            if given is not None:
                place[at] = self.sizes[1]
                self.numbers.append(given.astype(np.int64))
                self.sizes[1] += len(given)
        self.slots.append(tuple(place))
        return len(self.slots) - 1


def _whole(column: pa.Array) -> Numbers:
    return _filled(column.cast(pa.int64()))


def _filled(column: pa.Array) -> Numbers:
    filled = column.fill_null(0) if column.null_count else column
    found: Numbers = filled.to_numpy(zero_copy_only=False)
    return found


def _joined(parts: list[Numbers], kind: type) -> Numbers:
    return np.concatenate(parts).astype(kind, copy=False) if parts else np.zeros(1, kind)


def _zigzag(value: int) -> bytes:
    """A number from 0 on as Avro writes it."""
    raw, found = 2 * value, bytearray()
    while raw > 127:
        found.append(raw & 127 | 128)
        raw >>= 7
    return bytes([*found, raw])


def derived(columns: pa.Schema, name: str) -> Schema:
    """An Avro schema for these columns; every field may be null, and is so by default."""
    return Schema(Kind.AVRO, json.dumps(_record_of(list(columns), name)))


def _record_of(fields: list[pa.Field], name: str) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": one.name, "type": ["null", _type_of(one.type, f"{name}_{one.name}")]}
            | {"default": None}
            for one in fields
        ],
    }


_TYPES: Final[tuple[tuple[pa.DataType, Any], ...]] = (
    (pa.bool_(), "boolean"),
    (pa.int8(), "int"),
    (pa.int16(), "int"),
    (pa.int32(), "int"),
    (pa.int64(), "long"),
    (pa.float32(), "float"),
    (pa.float64(), "double"),
    (pa.string(), "string"),
    (pa.binary(), "bytes"),
    (pa.date32(), {"type": "int", "logicalType": "date"}),
)


def _type_of(kind: pa.DataType, name: str) -> Any:
    for one, avro in _TYPES:
        if one == kind:
            return avro
    if pa.types.is_timestamp(kind):
        local = "" if kind.tz is not None else "local-"
        return {"type": "long", "logicalType": f"{local}timestamp-micros"}
    if pa.types.is_decimal128(kind):
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if pa.types.is_struct(kind):
        return _record_of([kind.field(at) for at in range(kind.num_fields)], name)
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _type_of(kind.value_type, name)]}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "map", "values": ["null", _type_of(kind.item_type, name)]}
    raise CannotEncode(f"Avro has no type for {kind}")
