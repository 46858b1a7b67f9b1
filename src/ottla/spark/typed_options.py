"""Options that give a topic's values columns of their own: `valueFormat` and what belongs to it.

The columns are those of a topic's table: the value's, then the record's, which begin with `_`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from ottla.spark.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

NAMES: Final = ("valueFormat", "valueSchema", "keepValue", "invalid")
ERROR: Final = "_error"
"""With `invalid=null`: why the value has no columns."""

Format: TypeAlias = Literal["json", "avro"]
Invalid: TypeAlias = Literal["fail", "null", "drop"]


@dataclass(frozen=True, slots=True)
class TypedOptions:
    """How values become columns; `schema` is Spark's DDL for JSON, and Avro's own for Avro."""

    format: Format
    schema: str
    invalid: Invalid
    keep_value: bool = False

    @property
    def value_columns(self) -> pa.Schema:
        """The columns of the value."""
        return _columns(self.format, self.schema)

    @property
    def columns(self) -> pa.Schema:
        """All columns, in their order."""
        import pyarrow as pa

        from ottla.tables.converting import META, RAW

        kept = RAW if self.keep_value else ()
        more = [pa.field(ERROR, pa.string())] if self.invalid == "null" else []
        return pa.schema([*self.value_columns, *kept, *META, *more])


def parse_typed(options: Mapping[str, str]) -> TypedOptions | None:
    """The options by their names in lower case; None if values stay bytes."""
    given = {name: options[name.lower()].strip() for name in NAMES if name.lower() in options}
    if "valueFormat" not in given:
        if given:
            raise BadOption(f"{', '.join(given)}: give valueFormat, too, or leave it out")
        return None
    kind, invalid = given["valueFormat"].lower(), given.get("invalid", "fail").lower()
    if kind not in get_args(Format):
        raise BadOption(f"valueFormat is {' or '.join(get_args(Format))}, not {kind!r}")
    if invalid not in get_args(Invalid):
        raise BadOption(f"invalid is {', '.join(get_args(Invalid))}, not {invalid!r}")
    for other in ("shareGroup", "store", "pushdown"):
        if options.get(other.lower(), "false").strip().lower() != "false":
            raise BadOption(f"valueFormat cannot be used together with {other}")
    if not given.get("valueSchema"):
        raise BadOption(
            "valueSchema is missing: give columns like `shop string, amount double` for JSON, or "
            "an Avro schema"
        )
    keep = given.get("keepValue", "false").lower()
    if keep not in ("true", "false"):
        raise BadOption(f"keepValue is true or false, not {keep!r}")
    found = TypedOptions(kind, given["valueSchema"], invalid, keep == "true")  # type: ignore[arg-type]  # checked above
    names = found.value_columns.names  # raises for a schema that cannot be read
    if found.keep_value and "value" in names:
        raise BadOption("keepValue: the value has a column of the name value already")
    return found


@cache
def _columns(kind: Format, text: str) -> pa.Schema:
    from ottla.schemas.columns import columns_of
    from ottla.schemas.ddl import parse_ddl
    from ottla.schemas.model import Kind, Schema, SchemaError
    from ottla.tables.format import META_COLUMNS

    try:
        found = parse_ddl(text) if kind == "json" else columns_of(Schema(Kind.AVRO, text), {})
    except SchemaError as error:
        raise BadOption(f"valueSchema: {error}") from None
    taken = sorted({*META_COLUMNS, ERROR}.intersection(found.names))
    if taken:
        raise BadOption(f"valueSchema: {', '.join(taken)} are columns of every record; rename them")
    return found
