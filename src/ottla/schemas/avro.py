"""Avro schemas: validation, canonical and normalised form, references inlined.

Rules, which are those of Java's parser where the Avro specification leaves a choice:

- A name without a dot belongs to the namespace around it; if nothing has that full name, the name
  without a namespace is meant.
- A reference is a document whose named types the schema may use. The normalised form has their
  definitions where they are first used; the canonical form has their names only.
- A default value must fit the field's type; that of a union must fit one of its branches.
- Canonical: attributes that Avro knows come first, in a fixed order, others as given; a primitive
  without other attributes is its name. Normalised: full names, other attributes sorted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ottla.schemas.model import (
    MAX_DEPTH,
    InvalidSchema,
    Kind,
    Parsed,
    SchemaTooLarge,
    dump_json,
    encode,
    load_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})
NAME = re.compile(r"[^\W\d]\w*")
"""Letters of any alphabet, as Java has it."""
ORDERS = frozenset({"ascending", "descending", "ignore"})
NO_NUMBERS = frozenset({"NaN", "Infinity", "-Infinity", "INF", "-INF"})
"""Defaults of float and double that JSON has no number for."""
ORDER = (
    "type", "name", "namespace", "doc", "fields", "symbols", "items", "values", "size", "default",
    "order", "aliases",
)  # fmt: skip
FIELD_ORDER = ("name", "type", "doc", "default", "order", "aliases")
INT = range(-(2**31), 2**31)
LONG = range(-(2**63), 2**63)


def parse(text: str, references: Mapping[str, str]) -> Parsed:
    """Parse the schema; `references` are the documents that it may use, by name."""
    walk = _Walk(references)
    short, full = walk.schema(load_json(text), "", "")
    _ask_fastavro(full, walk.without_namespace)
    normalized = dump_json(full)
    return Parsed(Kind.AVRO, dump_json(short), normalized, encode(normalized))


def definitions(tree: Any) -> dict[str, Any]:
    """Named types of a normalised tree, by full name."""
    return {node["name"]: node for node, _ in _named(tree, "")}


def _ask_fastavro(tree: Any, without_namespace: set[str]) -> None:
    """What the library that decodes refuses is refused here, and not at the first record."""
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    known: dict[str, Any] = {name: {} for name in without_namespace}
    try:
        # Java takes 1 for a double; `_Walk` has looked at the defaults.
        parse_schema(tree, known, _write_hint=False, _ignore_default_error=True)
    except UnknownType as error:
        raise InvalidSchema(f"unknown type {error.name!r}") from None
    except SchemaParseException as error:
        raise InvalidSchema(str(error)) from None


class _Pair(NamedTuple):
    """One schema in its two forms."""

    short: Any
    full: Any


class _Walk:
    """One walk over a schema and those of its references that it uses."""

    def __init__(self, references: Mapping[str, str]) -> None:
        self._defined: dict[str, Any] = {}
        """Full name to full definition; that of a type whose walk is under way is not whole."""
        self._referred: dict[str, tuple[Any, str]] = {}
        """Full name to definition and namespace around it, of all documents that are referred to"""
        self._around: list[str] = []
        """Namespaces of the records around this place, as the normalised form has them."""
        self._depth = 0
        self._in_reference = 0
        self.without_namespace: set[str] = set()
        """Full names under which others would look for a type that has no namespace."""
        for name, text in references.items():
            for node, namespace in _named(load_json(text, f"reference {name!r}"), ""):
                self._referred.setdefault(_full_name(node, namespace), (node, namespace))

    def schema(self, node: Any, namespace: str, path: str) -> _Pair:
        if isinstance(node, str):
            return self._name(node, namespace, path)
        if isinstance(node, list):
            return self._union(node, namespace, path)
        if not isinstance(node, dict):
            _refuse(f"a schema is a name, an object or a list, not {_shown(node)}", path)
        kind = node.get("type")
        if not isinstance(kind, str):
            _refuse(f"'type' must be the name of a type, not {_shown(kind)}", path)
        if kind in PRIMITIVES:
            return _primitive(kind, node)
        if kind in NAMED:
            return self._definition(node, kind, namespace, path)
        if kind in {"array", "map"}:
            return self._collection(node, kind, namespace, path)
        return self._name(kind, namespace, path)

    def _name(self, name: str, namespace: str, path: str) -> _Pair:
        if name in PRIMITIVES:
            return _Pair(name, name)
        full = f"{namespace}.{name}" if namespace and "." not in name else name
        if full not in self._defined and full not in self._referred:
            if full == name or (name not in self._defined and name not in self._referred):
                _refuse(f"unknown type {name!r}; define it, or add a reference to it", path)
            self.without_namespace.add(full)
            full = name
        if full in self._defined:
            return _Pair(name, full)
        return _Pair(name, self._inlined(full))

    def _inlined(self, full: str) -> Any:
        node, namespace = self._referred[full]
        self._in_reference += 1
        self._depth += 1  # a chain of references is as deep as one schema may be
        if self._depth > MAX_DEPTH:
            raise SchemaTooLarge(f"references are nested more than {MAX_DEPTH} levels deep")
        inlined = self.schema(node, namespace, f"reference {full}").full
        self._depth -= 1
        self._in_reference -= 1
        return inlined

    def _union(self, branches: list[Any], namespace: str, path: str) -> _Pair:
        pairs = []
        seen: set[str] = set()
        for index, branch in enumerate(branches):
            here = f"{path}/{index}"
            if isinstance(branch, list):
                _refuse("a union cannot contain a union", here)
            pair = self.schema(branch, namespace, here)
            kind = _branch_key(pair.full)
            if kind in seen:
                _refuse(f"the union has {kind!r} twice", here)
            seen.add(kind)
            pairs.append(pair)
        return _Pair([pair.short for pair in pairs], [pair.full for pair in pairs])

    def _collection(self, node: dict[str, Any], kind: str, namespace: str, path: str) -> _Pair:
        key = "items" if kind == "array" else "values"
        if key not in node:
            _refuse(f"{'an array' if kind == 'array' else 'a map'} needs {key!r}", path)
        inner = self.schema(node[key], namespace, f"{path}/{key}")
        return _ordered(node, ORDER, {key: inner.short}, {key: inner.full})

    def _definition(self, node: dict[str, Any], kind: str, namespace: str, path: str) -> _Pair:
        _check_names(node, path)
        full_name = _full_name(node, namespace)
        if full_name in PRIMITIVES:
            _refuse(f"a type cannot be named after the primitive {full_name!r}", path)
        if full_name in self._defined:
            if self._in_reference:  # a type inside a document that another one has used already
                return _Pair(full_name, full_name)
            _refuse(f"{full_name!r} is defined twice", path)
        if not self._in_reference and full_name in self._referred:
            _refuse(f"{full_name!r} is defined here and by a reference", path)
        inside = full_name.rpartition(".")[0]
        self._defined[full_name] = whole = {"type": kind}
        short: dict[str, Any] = {}
        full: dict[str, Any] = {"name": full_name}
        if "aliases" in node:
            if not all(_is_name(alias) for alias in node["aliases"]):
                _refuse(f"'aliases' must be names, not {_shown(node['aliases'])}", path)
            full["aliases"] = [_qualified(alias, inside) for alias in node["aliases"]]
        if self._around and self._around[-1] and not inside:
            full["namespace"] = ""  # else readers would put it into the namespace around it
        if kind in {"record", "error"}:
            self._around.append(inside)
            pairs = self._fields(node.get("fields"), inside, path, whole)
            self._around.pop()
            short["fields"] = [pair.short for pair in pairs]
            full["fields"] = [pair.full for pair in pairs]
        elif kind == "enum":
            _check_symbols(node, path)
        elif not _is_int(node.get("size"), INT) or node["size"] < 0:
            _refuse(
                f"'size' of a fixed must be a whole number, not {_shown(node.get('size'))}", path
            )
        pair = _ordered(node, ORDER, short, full, drop="namespace")
        whole.update(pair.full)
        return pair

    def _fields(
        self, fields: Any, namespace: str, path: str, record: dict[str, Any]
    ) -> list[_Pair]:
        if not isinstance(fields, list):
            _refuse("a record needs a list of 'fields'", path)
        seen: set[str] = set()
        pairs: list[_Pair] = []
        record["fields"] = done = []
        for index, field in enumerate(fields):
            here = f"{path}/fields/{index}"
            if not isinstance(field, dict) or "type" not in field:
                _refuse("a field needs 'name' and 'type'", here)
            _check_names(field, here, "a field")
            if "." in field["name"]:
                _refuse(f"{field['name']!r} is no name of a field", here)
            if field["name"] in seen:
                _refuse(f"the record has the field {field['name']!r} twice", here)
            seen.add(field["name"])
            pairs.append(self._field(field, namespace, here))
            done.append(pairs[-1].full)
        return pairs

    def _field(self, field: dict[str, Any], namespace: str, path: str) -> _Pair:
        inner = self.schema(field["type"], namespace, f"{path}/type")
        if "default" in field:
            default = field["default"]
            if not self._fits(default, inner.full):
                _refuse(
                    f"the default {_shown(default)} of field {field['name']!r} does not fit its"
                    " type",
                    path,
                )
        if str(field.get("order", "ascending")).lower() not in ORDERS:
            _refuse(f"'order' must be one of {', '.join(sorted(ORDERS))}", path)
        return _ordered(field, FIELD_ORDER, {"type": inner.short}, {"type": inner.full})

    def _fits(self, value: Any, schema: Any) -> bool:
        if isinstance(schema, list):
            return any(self._fits(value, branch) for branch in schema)
        if isinstance(schema, str) and schema not in PRIMITIVES:
            schema = self._defined[schema]
        kind = _type_of(schema)
        if kind in {"record", "error"}:
            return isinstance(value, dict) and all(
                self._fits(value[field["name"]], field["type"])
                if field["name"] in value
                else "default" in field
                for field in schema["fields"]
            )
        if kind == "array":
            return isinstance(value, list) and all(
                self._fits(item, schema["items"]) for item in value
            )
        if kind == "map":
            return isinstance(value, dict) and all(
                self._fits(item, schema["values"]) for item in value.values()
            )
        return SCALARS[kind](value)


def _is_int(value: Any, span: range) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in span


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value in NO_NUMBERS
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


SCALARS: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": lambda value: _is_int(value, INT),
    "long": lambda value: _is_int(value, LONG),
    "float": _is_number,
    "double": _is_number,
    "bytes": _is_text,
    "string": _is_text,
    "enum": _is_text,
    "fixed": _is_text,
}


def _named(node: Any, namespace: str) -> Iterator[tuple[Any, str]]:
    """All definitions of named types in a document, each with the namespace around it."""
    if isinstance(node, list):
        for branch in node:
            yield from _named(branch, namespace)
    if not isinstance(node, dict):
        return
    if node.get("type") in NAMED and isinstance(node.get("name"), str):
        yield node, namespace
        namespace = _full_name(node, namespace).rpartition(".")[0]
    fields = node.get("fields")
    for field in fields if isinstance(fields, list) else ():
        if isinstance(field, dict):
            yield from _named(field.get("type"), namespace)
    for key in ("items", "values"):
        yield from _named(node.get(key), namespace)


def _full_name(node: dict[str, Any], namespace: str) -> str:
    own = node.get("namespace")
    return _qualified(node["name"], own if isinstance(own, str) else namespace)


def _qualified(name: str, namespace: str) -> str:
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _is_name(name: str) -> bool:
    """A name, with a namespace or without."""
    return all(map(NAME.fullmatch, name.split(".")))


def _check_names(node: dict[str, Any], path: str, what: str = "a named type") -> None:
    name = node.get("name")
    if not isinstance(name, str) or not _is_name(name):
        _refuse(f"the 'name' of {what} must be letters, digits and _, not {_shown(name)}", path)
    namespace = node.get("namespace")
    if namespace is not None and (
        not isinstance(namespace, str) or (namespace and not _is_name(namespace))
    ):
        _refuse(f"{_shown(namespace)} is no namespace", path)
    aliases = node.get("aliases", [])
    if not isinstance(aliases, list) or not all(map(_is_text, aliases)):
        _refuse(f"'aliases' must be a list of names, not {_shown(aliases)}", path)


def _check_symbols(node: dict[str, Any], path: str) -> None:
    symbols = node.get("symbols")
    if not isinstance(symbols, list) or not all(
        isinstance(symbol, str) and NAME.fullmatch(symbol) for symbol in symbols
    ):
        _refuse("an enum needs a list of 'symbols' of letters, digits and _", path)
    if len(set(symbols)) < len(symbols):
        _refuse("the enum has a symbol twice", path)
    if "default" in node and node["default"] not in symbols:
        _refuse(f"the default {_shown(node['default'])} is none of the enum's symbols", path)


def _primitive(kind: str, node: dict[str, Any]) -> _Pair:
    if len(node) == 1:
        return _Pair(kind, kind)
    return _ordered(node, ORDER, {}, {})


def _ordered(
    node: dict[str, Any],
    order: tuple[str, ...],
    short: dict[str, Any],
    full: dict[str, Any],
    drop: str = "",
) -> _Pair:
    """The node with `short` and with `full` in place of what it has."""
    others = [key for key in node if key not in order]
    known = [key for key in order if key in node]
    of_full = [key for key in order if key in full or (key in node and key != drop)]
    return _Pair(
        {key: short.get(key, node[key]) for key in (*known, *others)},
        {key: full[key] if key in full else node[key] for key in (*of_full, *sorted(others))},
    )


def _branch_key(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    return str(schema["name"]) if schema["type"] in NAMED else str(schema["type"])


def _type_of(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    return schema if isinstance(schema, str) else str(schema["type"])


def _shown(value: Any) -> str:
    """The value as JSON, cut short."""
    text = dump_json(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse(message: str, path: str) -> NoReturn:
    raise InvalidSchema(message, path or "/")
