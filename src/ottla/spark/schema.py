"""Columns of the format, as in Spark's Kafka source, and their selection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.spark.errors import BadOption, BadSchema
from ottla.spark.share.options import DELIVERY_COUNT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.spark.options import SourceOptions

HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}
SHARE_TYPES: Final[dict[str, DataType]] = {**TYPES, DELIVERY_COUNT: IntegerType()}
"""With `shareGroup`."""
# Which types a column of the sink may have.
WRITABLE: Final[dict[str, Sequence[DataType]]] = {
    "key": (BinaryType(), StringType()),
    "value": (BinaryType(), StringType()),
    "headers": (HEADERS,),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
}


def source_schema(options: SourceOptions) -> StructType:
    """The schema of a query that gives none of its own."""
    types = _types(options)
    names = options.columns
    if names is None:
        names = tuple(name for name in types if name != "headers" or options.include_headers)
    unknown = [name for name in names if name not in types]
    if unknown:
        raise BadOption(f"columns: {', '.join(unknown)} are not of {', '.join(types)}")
    return StructType([StructField(name, types[name]) for name in names])


def wanted_columns(schema: StructType, options: SourceOptions) -> tuple[str, ...]:
    """The columns of a user's schema, which has to be a part of ours."""
    types = _types(options)
    for field in schema.fields:
        if field.name not in types or not _same(field.dataType, types[field.name]):
            columns = ", ".join(f"{name} {one.simpleString()}" for name, one in types.items())
            raise BadSchema(
                f"column {field.name} {field.dataType.simpleString()} cannot be read; a schema "
                f"is made of these, in any order: {columns}"
            )
    return tuple(schema.fieldNames())


def _types(options: SourceOptions) -> dict[str, DataType]:
    if options.typed is not None:
        from pyspark.sql.pandas.types import from_arrow_schema

        return {one.name: one.dataType for one in from_arrow_schema(options.typed.columns)}
    return TYPES if options.share is None else SHARE_TYPES


def check_writable(schema: StructType, *, has_topic: bool) -> None:
    """Raise unless the rows of this schema can be written."""
    for field in schema.fields:
        types = WRITABLE.get(field.name)
        if types is None:
            continue
        if not any(_same(field.dataType, one) for one in types):
            expected = " or ".join(one.simpleString() for one in types)
            raise BadSchema(
                f"column {field.name} has to be {expected}, not {field.dataType.simpleString()}"
            )
    if "value" not in schema.fieldNames():
        raise BadSchema("the frame has no column value; select one as value")
    if not has_topic and "topic" not in schema.fieldNames():
        raise BadSchema("no topic is given; set the option topic or add a column topic")


def _same(one: DataType, other: DataType) -> bool:
    """Whether types are equal, apart from nullability."""
    return one.simpleString() == other.simpleString()
