"""Arrow types and Iceberg types: the same table, by name and by id.

Columns of tables are those of `spec` 5.1, all of them optional. Arrow columns that come from a
table carry the Iceberg ids of their fields, as Parquet writers want them.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from ottla.schemas.names import DOC
from ottla.tables.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Iterator

FIELD_ID: Final = b"PARQUET:field_id"

_SIMPLE: Final[tuple[tuple[pa.DataType, PrimitiveType], ...]] = (
    (pa.bool_(), BooleanType()),
    (pa.int32(), IntegerType()),
    (pa.int64(), LongType()),
    (pa.float32(), FloatType()),
    (pa.float64(), DoubleType()),
    (pa.string(), StringType()),
    (pa.binary(), BinaryType()),
    (pa.date32(), DateType()),
    (pa.time64("us"), TimeType()),
    (pa.timestamp("us"), TimestampType()),
    (pa.timestamp("us", tz="UTC"), TimestamptzType()),
)


def iceberg_schema(columns: pa.Schema) -> Schema:
    """A new table's schema; ids are counted from 1, outer fields before inner ones."""
    ids = count(1)
    return Schema(*_fields(list(columns), ids))


def arrow_columns(schema: Schema) -> pa.Schema:
    """The columns of a table, with their ids."""
    return pa.schema([_arrow_field(one) for one in schema.fields])


def iceberg_type(kind: pa.DataType, ids: Iterator[int]) -> IcebergType:
    """The Iceberg type of an Arrow type, inner fields with the next ids."""
    for arrow, iceberg in _SIMPLE:
        if arrow == kind:
            return iceberg
    if pa.types.is_decimal128(kind):
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_struct(kind):
        return StructType(*_fields([kind.field(at) for at in range(kind.num_fields)], ids))
    if pa.types.is_list(kind):
        element = next(ids)
        return ListType(element, iceberg_type(kind.value_type, ids), element_required=False)
    if pa.types.is_map(kind):
        key, value = next(ids), next(ids)
        return MapType(
            key,
            iceberg_type(kind.key_type, ids),
            value,
            iceberg_type(kind.item_type, ids),
            value_required=False,
        )
    raise TableError(f"a table cannot have a column of type {kind}")


def _fields(fields: list[pa.Field], ids: Iterator[int]) -> list[NestedField]:
    numbered = [(next(ids), one) for one in fields]
    return [
        NestedField(number, one.name, iceberg_type(one.type, ids), required=False, doc=_doc(one))
        for number, one in numbered
    ]


def _doc(field: pa.Field) -> str | None:
    found = (field.metadata or {}).get(DOC)
    return None if found is None else found.decode()


def _arrow_field(field: NestedField) -> pa.Field:
    made = _numbered(field.name, field.field_type, field.field_id, nullable=field.optional)
    if field.doc is None:
        return made
    return made.with_metadata({**made.metadata, DOC: field.doc.encode()})


def _numbered(name: str, kind: IcebergType, number: int, *, nullable: bool) -> pa.Field:
    return pa.field(
        name, _arrow_type(kind), nullable=nullable, metadata={FIELD_ID: str(number).encode()}
    )


def _arrow_type(kind: IcebergType) -> pa.DataType:
    for arrow, iceberg in _SIMPLE:
        if iceberg == kind:
            return arrow
    match kind:
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case FixedType():
            return pa.binary(len(kind))
        case UUIDType():
            return pa.binary(16)
        case StructType():
            return pa.struct([_arrow_field(one) for one in kind.fields])
        case ListType():
            return pa.list_(
                _numbered(
                    "element",
                    kind.element_type,
                    kind.element_id,
                    nullable=not kind.element_required,
                )
            )
        case MapType():
            return pa.map_(
                _numbered("key", kind.key_type, kind.key_id, nullable=False),
                _numbered(
                    "value", kind.value_type, kind.value_id, nullable=not kind.value_required
                ),
            )
    raise TableError(f"columns of type {kind} cannot be read here")
