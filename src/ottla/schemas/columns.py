"""Columns of a schema, by the table of types in the specification of tables (5.1).

| Avro | JSON Schema | Protobuf | Arrow |
|---|---|---|---|
| boolean | boolean | bool | bool |
| int | | int32, sint32, sfixed32 | int32 |
| long | integer | int64, sint64, sfixed64, uint32, fixed32 | int64 |
| | | uint64, fixed64 | decimal(20, 0) |
| float; double | ; number | float; double | float; double |
| string, enum, uuid | string, enum | string, enum | string |
| bytes, fixed, duration | | bytes | binary |
| decimal of at most 38 digits | | | decimal128 |
| date | `format: date` | | date32 |
| timestamp-millis, -micros | `format: date-time` | Timestamp | timestamp[us, UTC] |
| local-timestamp-millis, -micros | | | timestamp[us] |
| timestamp-nanos, time-* | | | int64, the unit in the column's doc |
| record | object with properties | message, Duration | struct |
| array; map | array; object with additionalProperties alone | repeated; map | list; map |
| [null, T] | T or null | optional, wrappers, members of a oneof | T |
| other unions | | | struct of the branches |
| | other `oneOf`, `anyOf`, no type | Struct, Value, Any | string with JSON text |

All columns may be null. A recursive type is JSON text from its second occurrence on. Limits and
equal names: `limits`. What a column knows of its names: `names`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.schemas.ddl import parse_ddl
from ottla.schemas.limits import finished
from ottla.schemas.model import Kind, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa


def columns_of(
    schema: Schema | str,
    resolved: Mapping[str, str] | None = None,
    message: str | Sequence[int] | None = None,
) -> pa.Schema:
    """The columns of a schema, or of Spark's DDL for JSON values.

    `resolved` are the texts of the schema's references by name; `message` is the name or the
    indexes of a Protobuf message, else the first one is meant. Raises InvalidSchema and
    SchemaTooLarge.
    """
    if isinstance(schema, str):
        return parse_ddl(schema)
    from ottla.schemas.parsing import parse

    tree = parse(schema, resolved or {}).tree
    if schema.kind is Kind.AVRO:
        from ottla.schemas.avro_columns import fields_of
        from ottla.schemas.avro_tree import tree_of

        return finished(fields_of(tree_of(tree)))
    if schema.kind is Kind.JSON:
        from ottla.schemas.json_schema_columns import json_fields

        return finished(json_fields(tree["root"], tree["references"]))
    from ottla.schemas.proto_columns import proto_fields
    from ottla.schemas.proto_tree import message_of

    return finished(proto_fields(message_of(tree, message)))
