"""The values of one topic as columns that follow the schemas of its values.

- `registry`: every value names its schema. A schema that has not been met before may add columns
  and widen them (`evolution`); one that does not fit, or that has too many or too deep columns,
  leaves the columns as they are, and its values are bad with SCHEMA_CONFLICT. Schemas that have too
  many columns only together raise SchemaTooLarge: no field may vanish.
- `registry-latest`: values are resolved to `schema`, the reader's, whose columns these are.
- `json`, `avro`, `protobuf`: the columns stay what they are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ottla.schemas.columns import columns_of
from ottla.schemas.conform import SchemaConflict
from ottla.schemas.decode import MAX_PROGRAMS, decode
from ottla.schemas.evolution import Conflict, evolve, evolved
from ottla.schemas.model import Schema, SchemaTooLarge
from ottla.schemas.proto_tree import UnknownMessage

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Literal

    import pyarrow as pa

    from ottla.schemas.decode import Decoded, Named, Resolver


class Values:
    """Decodes values. `columns` are those of the values so far."""

    def __init__(
        self,
        format: str,  # noqa: A002  # the option's name
        columns: pa.Schema,
        *,
        resolver: Resolver | None = None,
        schema: Schema | None = None,
        message: str | None = None,
        on_conflict: Literal["bad", "new-column", "raise"] = "bad",
        reserved: Collection[str] = (),
        is_key: bool = False,
    ) -> None:
        self.columns = columns
        self._format = format
        self._resolver = resolver
        self._schema = schema
        self._message = message
        self._on_conflict = on_conflict
        self._reserved = reserved
        self._is_key = is_key
        self._met: set[Named] = set()

    def decode(
        self, values: pa.Array, headers: pa.Array | None, wanted: Collection[str] | None = None
    ) -> Decoded:
        """A row for each value, with the columns `wanted`, or all; raises SchemaConflict if that
        was asked for."""

        def follow(named: Sequence[Named]) -> pa.Schema:
            self._follow(named)
            return self._chosen(wanted)

        return decode(
            values,
            headers,
            self._resolver,
            self._chosen(wanted),
            format=self._format,
            schema=self._schema,
            message=self._message,
            is_key=self._is_key,
            follow=follow if self._format == "registry" else None,
        )

    def _chosen(self, wanted: Collection[str] | None) -> pa.Schema:
        import pyarrow as pa

        if wanted is None:
            return self.columns
        return pa.schema([each for each in self.columns if each.name in wanted])

    def _follow(self, named: Sequence[Named]) -> None:
        for one in named:
            if one in self._met:
                continue
            try:
                natural = _columns_of(one)
            except UnknownMessage:
                pass  # its values are bad
            except SchemaTooLarge:
                if self._on_conflict == "raise":
                    raise
            else:
                self.take(natural)
            self._met.add(one)

    def take(self, natural: pa.Schema) -> None:
        """Let the columns follow those of a schema."""
        is_new = self._on_conflict == "new-column"
        changes = evolve(self.columns, natural, new_column=is_new, reserved=self._reserved)
        if isinstance(changes, Conflict):
            if self._on_conflict == "raise":
                raise SchemaConflict(".".join(changes.path), changes.found, changes.wanted)
            return
        if changes:
            self.columns = evolved(self.columns, changes, keep_names=True)


@lru_cache(MAX_PROGRAMS)
def _columns_of(one: Named) -> pa.Schema:
    return columns_of(Schema(one.kind, one.text), dict(one.references), one.message)
