"""Can a reader's Avro schema read what a writer's schema has written?

The verdict is that of Java's `SchemaCompatibility`; tests compare both. Rules worth knowing:

- Types are equal, or the reader's is one that the writer's is promoted to.
- Named types match by name without namespace, or by an alias of the reader's with the full name.
- A field of the reader that the writer lacks needs a default. One that, by its name and aliases,
  could be several fields of the writer's is refused.
- The reader's enum has all symbols of the writer's, or a default.
- Each branch of a writer's union is readable; a reader's union has a branch that reads the type.
- Logical types are not looked at.
- A pair of types that is met again while it is compared counts as compatible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.schemas.avro import PRIMITIVES, definitions

if TYPE_CHECKING:
    from collections.abc import Iterable

PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}
"""Reader's type to writer's types that it reads beside its own."""

Found = list[tuple[str, str, str]]
"""Kind, path and message of each difference."""


def differences(reader: Any, writer: Any) -> Found:
    """All reasons why the reader cannot read; both are normalised trees."""
    return list(dict.fromkeys(_Comparison(reader, writer).compare(reader, writer, "")))


class _Comparison:
    def __init__(self, reader: Any, writer: Any) -> None:
        self._readers = definitions(reader)
        self._writers = definitions(writer)
        self._known: dict[tuple[int, int], Found] = {}

    def compare(self, reader: Any, writer: Any, path: str) -> Found:
        reader = self._readers.get(reader, reader) if isinstance(reader, str) else reader
        writer = self._writers.get(writer, writer) if isinstance(writer, str) else writer
        pair = id(reader), id(writer)
        if pair in self._known:
            return self._known[pair][:1]  # all of them would double with each level of a schema
        self._known[pair] = []
        self._known[pair] = found = self._compared(reader, writer, path)
        return found

    def _compared(self, reader: Any, writer: Any, path: str) -> Found:
        kind, written = _type(reader), _type(writer)
        if written == "union":
            return self._each_branch(reader, writer, path)
        if kind == "union":
            return self._some_branch(reader, writer, path)
        if kind != written:
            if written in PROMOTIONS.get(kind, ()):
                return []
            return [("TYPE_MISMATCH", path, f"{_named(reader)} cannot read {_named(writer)}")]
        if kind in PRIMITIVES:
            return []
        if kind == "array":
            return self.compare(reader["items"], writer["items"], f"{path}/items")
        if kind == "map":
            return self.compare(reader["values"], writer["values"], f"{path}/values")
        found = _names(reader, writer, path)
        if kind == "fixed":
            return found + _sizes(reader, writer, path)
        if kind == "enum":
            return found + _symbols(reader, writer, path)
        return found + self._fields(reader, writer, path)

    def _each_branch(self, reader: Any, writer: list[Any], path: str) -> Found:
        found: Found = []
        for index, branch in enumerate(writer):
            missing = self.compare(reader, branch, path)
            if missing and _type(reader) == "union":
                message = f"the reader's union has no branch that reads {_named(branch)}"
                found.append(("MISSING_UNION_BRANCH", f"{path}/{index}", message))
            else:
                found += missing
        return found

    def _some_branch(self, reader: list[Any], writer: Any, path: str) -> Found:
        if any(not self.compare(branch, writer, path) for branch in reader):
            return []
        message = f"the reader's union has no branch that reads {_named(writer)}"
        return [("MISSING_UNION_BRANCH", path, message)]

    def _fields(self, reader: Any, writer: Any, path: str) -> Found:
        found: Found = []
        written = {field["name"]: field for field in writer["fields"]}
        for index, field in enumerate(reader["fields"]):
            here = f"{path}/fields/{index}"
            names = dict.fromkeys((field["name"], *field.get("aliases", ())))
            sources = [written[name] for name in names if name in written]
            if len(sources) > 1:
                message = f"field {field['name']!r} and its aliases are several of the writer's"
                found.append(("AMBIGUOUS_FIELD", here, message))
            elif sources:
                found += self.compare(field["type"], sources[0]["type"], f"{here}/type")
            elif "default" not in field:
                message = f"field {field['name']!r} has no default and is missing in the writer"
                found.append(("READER_FIELD_MISSING_DEFAULT_VALUE", here, message))
        return found


def _type(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    kind = schema if isinstance(schema, str) else str(schema["type"])
    return "record" if kind == "error" else kind


def _named(schema: Any) -> str:
    if isinstance(schema, dict) and "name" in schema:
        return f"{schema['type']} {schema['name']!r}"
    return f"type {_type(schema)!r}"


def _names(reader: Any, writer: Any, path: str) -> Found:
    if _simple(reader["name"]) == _simple(writer["name"]):
        return []
    if writer["name"] in reader.get("aliases", ()):
        return []
    message = f"{_named(reader)} is {writer['name']!r} in the writer; add that as an alias"
    return [("NAME_MISMATCH", f"{path}/name", message)]


def _sizes(reader: Any, writer: Any, path: str) -> Found:
    if reader["size"] == writer["size"]:
        return []
    message = f"{_named(reader)} has size {reader['size']}, the writer's {writer['size']}"
    return [("FIXED_SIZE_MISMATCH", f"{path}/size", message)]


def _symbols(reader: Any, writer: Any, path: str) -> Found:
    missing = [one for one in writer["symbols"] if one not in set(reader["symbols"])]
    if not missing or reader.get("default"):
        return []
    message = f"{_named(reader)} lacks the symbols {_listed(missing)} and has no default"
    return [("MISSING_ENUM_SYMBOLS", f"{path}/symbols", message)]


def _simple(name: str) -> str:
    return name.rpartition(".")[2]


def _listed(names: Iterable[str], most: int = 10) -> str:
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
