"""Options that give a topic's values columns of their own: `valueFormat` and what belongs to it.

The columns are those of a topic's table: the value's, then the record's, which begin with `_`.

A schema of a registry is looked up when the options are parsed, on the driver; tasks get its text.
So a query has the columns of one schema, whatever is registered while it runs.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from ottla.schemas.model import FRAMED, Kind, Schema, SchemaError
from ottla.spark.errors import BadOption
from ottla.spark.typed_registry import PASSWORD, USER, RegistryOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from ottla.schemas.cache import SchemaCache
    from ottla.spark.client_settings import ClientSettings
    from ottla.tables.reading import Pinned

_OF_SCHEMA: Final = ("valueSchema", "valueSchemaId", "valueSubject")
_OF_REGISTRY: Final = ("schemaRegistryUrl", USER, PASSWORD, f"{PASSWORD}.file", f"{PASSWORD}.env")
NAMES: Final = (
    *("valueFormat", *_OF_SCHEMA, "valueMessage", "valueTable", "keepValue", "invalid"),
    *("keyFormat", "schemaEvolution"),
    *_OF_REGISTRY,
)
ERROR: Final = "_error"
"""With `invalid=null`: why the value has no columns."""

Format: TypeAlias = Literal["json", "avro", "protobuf", "registry", "registry-latest", "table"]
"""`table` is what `ottla.spark.table` reads the log with: rows as its worker makes them."""
Invalid: TypeAlias = Literal["fail", "null", "drop"]
KeyFormat: TypeAlias = Literal["binary", "utf8", "registry"]
Evolution: TypeAlias = Literal["ignore", "restart"]
"""Whether a query goes on with its columns when the schema changes, or ends to be started again."""
_GIVEN: Final = get_args(Format)[:-1]


@dataclass(frozen=True, slots=True)
class TypedOptions:
    """How values become columns; `text` is Spark's DDL for JSON, else that of the schema."""

    format: Format
    text: str
    invalid: Invalid
    keep_value: bool = False
    kind: Kind | None = None
    references: tuple[tuple[str, str], ...] = ()
    message: str | None = None
    registry: RegistryOptions | None = field(default=None)
    key_format: KeyFormat = "binary"
    key: Schema | None = None
    """The schema of keys, with `registry`."""
    key_references: tuple[tuple[str, str], ...] = ()
    followed: str | None = None
    """The subject whose newer schemas end the query, with `schemaEvolution=restart`."""

    @property
    def schema(self) -> Schema | None:
        """The schema of values; None for JSON."""
        return None if self.kind is None else Schema(self.kind, self.text)

    @property
    def value_columns(self) -> pa.Schema:
        """The columns of the value."""
        return _columns(self.format, self.text, self.kind, self.references, self.message)

    @property
    def columns(self) -> pa.Schema:
        """All columns, in their order."""
        import pyarrow as pa

        from ottla.tables.rows import RAW, meta_columns

        if self.format == "table":
            return table_of(self.text)[1]
        kept = RAW if self.keep_value else ()
        more = [pa.field(ERROR, pa.string())] if self.invalid == "null" else []
        meta = meta_columns(self.key_format)
        if self.key is not None:
            from ottla.tables.converting import key_type

            kind = key_type(self.key_columns)
            meta = [one if one.name != "_key" else one.with_type(kind) for one in meta]
        return pa.schema([*self.value_columns, *kept, *meta, *more])

    @property
    def key_columns(self) -> pa.Schema:
        """The columns of keys that have a schema."""
        from ottla.schemas.columns import columns_of

        assert self.key is not None
        return columns_of(self.key, dict(self.key_references))

    def columns_of_values(self, schema: Schema, references: Mapping[str, str]) -> pa.Schema:
        """The value's columns if this were their schema."""
        told = tuple(sorted(references.items()))
        return _columns(self.format, schema.text, schema.kind, told, self.message)


def parse_typed(
    options: Mapping[str, str], client: ClientSettings, topics: Sequence[str] | None
) -> TypedOptions | None:
    """The options by their names in lower case; None if values stay bytes."""
    given = {name: options[name.lower()].strip() for name in NAMES if name.lower() in options}
    if "valueFormat" not in given:
        if given:
            raise BadOption(f"{', '.join(given)}: give valueFormat, too, or leave it out")
        return None
    kind, invalid = given["valueFormat"].lower(), given.get("invalid", "fail").lower()
    if kind not in get_args(Format):
        raise BadOption(f"valueFormat is {' or '.join(_GIVEN)}, not {kind!r}")
    if invalid not in get_args(Invalid):
        raise BadOption(f"invalid is {', '.join(get_args(Invalid))}, not {invalid!r}")
    for other in ("shareGroup", "store", "pushdown"):
        if options.get(other.lower(), "false").strip().lower() != "false":
            raise BadOption(f"valueFormat cannot be used together with {other}")
    keep = given.get("keepValue", "false").lower()
    if keep not in ("true", "false"):
        raise BadOption(f"keepValue is true or false, not {keep!r}")
    found = _found(kind, given, invalid, keep == "true", client, topics)
    found = _followed(_with_keys(found, given, client, topics), given, topics)
    names = found.value_columns.names  # raises for a schema that cannot be read
    if found.keep_value and "value" in names:
        raise BadOption("keepValue: the value has a column of the name value already")
    return found


def _found(
    kind: Any,
    given: Mapping[str, str],
    invalid: Any,
    keep: bool,
    client: ClientSettings,
    topics: Sequence[str] | None,
) -> TypedOptions:
    registry = RegistryOptions.of(given)
    if kind == "table":
        return TypedOptions(kind, given["valueTable"], "drop", registry=registry)
    text = given.get("valueSchema", "")
    message = given.get("valueMessage") or None
    if kind == "json" or (kind not in FRAMED and text):
        if not text:
            raise BadOption(
                "valueSchema is missing: give columns like `shop string, amount double` for JSON"
            )
        of = None if kind == "json" else Kind(kind.upper())
        return TypedOptions(kind, text, invalid, keep, of, message=message)
    if text:
        raise BadOption(f"valueSchema: with {kind} schemas come from the registry; leave it out")
    subject = given.get("valueSubject", "")
    number = given.get("valueSchemaId", "")
    if kind not in FRAMED and not (subject or number):
        raise BadOption(
            f"valueSchema is missing: give the schema of the {kind} values, or valueSubject or "
            "valueSchemaId of a registry"
        )
    if not subject and not number:
        subject = f"{_only(topics)}-value"
    registry = registry.found(client)
    schemas = registry.schemas(client)
    try:
        schema, references = _registered(schemas, subject, number)
    except SchemaError as error:
        raise BadOption(f"{'valueSchemaId' if number else 'valueSubject'}: {error}") from None
    finally:
        schemas.close()
    return TypedOptions(
        kind, schema.text, invalid, keep, schema.kind, references, message, registry
    )


def _with_keys(
    found: TypedOptions,
    given: Mapping[str, str],
    client: ClientSettings,
    topics: Sequence[str] | None,
) -> TypedOptions:
    """With the format of keys."""
    kind: Any = given.get("keyFormat", "binary").lower()
    if kind not in get_args(KeyFormat):
        raise BadOption(f"keyFormat is {', '.join(get_args(KeyFormat))}, not {kind!r}")
    if found.format == "table":
        if kind != "binary":
            raise BadOption("keyFormat: with valueFormat=table keys are as the table has them")
        return found
    if kind != "registry":
        return replace(found, key_format=kind)
    if topics is None or len(topics) != 1:
        raise BadOption("keyFormat=registry is for one topic: several are read")
    subject = f"{topics[0]}-key"
    registry = (found.registry or RegistryOptions.of(given)).found(client)
    with closing(registry.schemas(client)) as schemas:
        try:
            schema, references = _registered(schemas, subject, "")
        except SchemaError as error:
            raise BadOption(f"keyFormat: {error}") from None
    return replace(found, registry=registry, key_format=kind, key=schema, key_references=references)


def _followed(
    found: TypedOptions, given: Mapping[str, str], topics: Sequence[str] | None
) -> TypedOptions:
    """With what to do when the schema changes."""
    evolution = given.get("schemaEvolution", "ignore").lower()
    if evolution not in get_args(Evolution):
        raise BadOption(f"schemaEvolution is {' or '.join(get_args(Evolution))}, not {evolution!r}")
    if evolution == "ignore":
        return found
    if found.format not in FRAMED:
        raise BadOption(
            f"schemaEvolution=restart is for {' and '.join(FRAMED)}: other values do not name "
            "their schema"
        )
    return replace(found, followed=given.get("valueSubject") or f"{_only(topics)}-value")


def _only(topics: Sequence[str] | None) -> str:
    if topics is None or len(topics) != 1:
        raise BadOption("valueSubject is missing: several topics are read, and have one schema")
    return topics[0]


def _registered(
    schemas: SchemaCache, subject: str, number: str
) -> tuple[Schema, tuple[tuple[str, str], ...]]:
    if number:
        if not number.isdecimal():
            raise BadOption(f"valueSchemaId is a whole number, not {number!r}")
        found, what = schemas.by_id(int(number)), f"the registry has no schema {number}"
    else:
        found, what = schemas.latest(subject), f"the registry has no subject {subject}"
    if found is None:
        raise SchemaError(what)
    references = schemas.references(found) if found.references else {}
    return found, tuple(sorted(references.items()))


def table_option(pinned: Pinned) -> str:
    """What `valueTable` says of a table: how its worker makes rows, and its columns."""
    conversion = "{}" if pinned.settings is None else pinned.settings.conversion
    columns = b64encode(pinned.columns.serialize().to_pybytes()).decode()
    return json.dumps([pinned.view.topic, conversion, columns])


@cache
def table_of(text: str) -> tuple[tuple[str, str], pa.Schema]:
    """Topic and conversion of such a text, and the columns."""
    import pyarrow as pa

    topic, conversion, columns = json.loads(text)
    return (topic, conversion), pa.ipc.read_schema(pa.py_buffer(b64decode(columns)))


@cache
def _columns(
    format_: Format,
    text: str,
    kind: Kind | None,
    references: tuple[tuple[str, str], ...],
    message: str | None,
) -> pa.Schema:
    from ottla.schemas.columns import columns_of
    from ottla.schemas.evolution import apart
    from ottla.tables.format import META_COLUMNS

    if format_ == "table":
        return table_of(text)[1]
    try:
        if kind is None:
            found = columns_of(text)
        else:
            named = message if kind is Kind.PROTOBUF else None
            found = columns_of(Schema(kind, text), dict(references), named)
    except SchemaError as error:
        raise BadOption(f"valueSchema: {error}") from None
    return apart(found, {*META_COLUMNS, ERROR})
