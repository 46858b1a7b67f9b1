"""JSON Schema, drafts 4, 6, 7, 2019-09 and 2020-12: validation, forms, and where `$ref` leads.

Rules:

- A schema without `$schema` is one of draft 7, as other registries have it.
- `$ref` leads into the schema itself or to a reference by its name (or `$id`). Nothing is fetched.
- Up to draft 7 the keywords beside a `$ref` do not count.
- Canonical form: compact, keys as given. Normalised form: keys sorted.
- Formats and regular expressions are not checked: dialects differ, and no pattern is run here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urljoin

from ottla.schemas.model import InvalidSchema, Kind, Parsed, dump_json, encode, load_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

DRAFTS = {
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "https://json-schema.org/draft/2020-12/schema": "Draft202012Validator",
}
DEFAULT = "http://json-schema.org/draft-07/schema"
LONE_REF = frozenset(uri for uri in DRAFTS if uri.startswith("http://json-schema.org/draft-0"))
"""Drafts in which nothing beside a `$ref` counts."""
VALUES = frozenset({"const", "enum", "default", "examples"})
"""Keywords that have values, not schemas: a `$ref` inside means nothing."""
MAPS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords whose keys are names, not keywords."""


def parse(text: str, references: Mapping[str, str]) -> Parsed:
    """Parse the schema; `references` are the documents that it may use, by name."""
    root = load_json(text)
    tree = {
        "root": root,
        "references": {
            name: load_json(other, f"reference {name!r}") for name, other in references.items()
        },
    }
    _ask_meta_schema(root)
    try:
        Documents(tree).check()
    except InvalidSchema:
        raise
    except ValueError as error:  # of urllib
        raise InvalidSchema(f"an $id or $ref is no URI: {error}") from None
    normalized = dump_json(root, sort_keys=True)
    return Parsed(Kind.JSON, dump_json(root), normalized, encode(dump_json(tree)))


def _ask_meta_schema(root: Any) -> None:
    from jsonschema import exceptions, validators

    validator = getattr(validators, DRAFTS[_draft(root)])
    try:
        validator.check_schema(root, format_checker=None)
    except exceptions.SchemaError as error:
        message = error.message if len(error.message) <= 300 else f"{error.message[:297]}..."
        raise InvalidSchema(message, _pointer(error.absolute_path)) from None


def _draft(root: Any) -> str:
    named = root.get("$schema", DEFAULT) if isinstance(root, dict) else DEFAULT
    uri = named.removesuffix("#") if isinstance(named, str) else ""
    if uri not in DRAFTS:
        raise InvalidSchema(
            f"unknown $schema {str(named)[:100]!r}; known are {', '.join(DRAFTS)}", "/$schema"
        )
    return uri


def _pointer(parts: Any) -> str:
    return "".join(f"/{escape(str(part))}" for part in parts) or "/"


def escape(part: str) -> str:
    """A key as part of a JSON pointer."""
    return part.replace("~", "~0").replace("/", "~1")


class Documents:
    """A schema and its references: where each `$ref` leads."""

    def __init__(self, tree: Any) -> None:
        self._found: dict[str, Any] = {}
        """By address: documents, schemas with an id, and anchors."""
        self._bases: dict[int, str] = {}
        """Address around each object, by identity; the tree keeps them alive."""
        draft = _draft(tree["root"])
        self.is_ref_alone = draft in LONE_REF
        self._id_key = "id" if "draft-04" in draft else "$id"
        self._root = tree["root"]
        self._references = tree["references"]
        base = self._add("", self._root)
        for name, document in self._references.items():
            self._add(name, document)
            self._found.setdefault(urljoin(base, name), document)

    def has(self, node: Any) -> bool:
        """Is it an object of these documents?"""
        return id(node) in self._bases

    def check(self) -> None:
        """Refuse a `$ref` that leads nowhere, or back to itself."""
        for document in (self._root, *self._references.values()):
            for node, _ in _walk(document, ""):
                self._check_ref(node)

    def _check_ref(self, node: Any) -> None:
        seen: set[int] = set()
        target = node
        while isinstance(target, dict) and isinstance(target.get("$ref"), str):
            if id(target) in seen:
                raise InvalidSchema(f"$ref {node['$ref'][:200]!r} leads back to itself")
            seen.add(id(target))
            where = target["$ref"]
            found, target = self.target(target)
            if not found:
                raise InvalidSchema(
                    f"$ref {where[:200]!r} leads nowhere; add a reference of that name, nothing"
                    " is fetched from the network"
                )

    def target(self, node: dict[str, Any]) -> tuple[bool, Any]:
        """Whether the `$ref` of an object leads somewhere, and where to."""
        address = urljoin(self._bases[id(node)], node["$ref"])
        whole, fragment = urldefrag(address)
        if address in self._found:
            return True, self._found[address]
        if whole not in self._found:
            return False, None
        if fragment and not fragment.startswith("/"):
            return False, None
        return _follow(self._found[whole], fragment)

    def _add(self, address: str, document: Any) -> str:
        """Index a document; its address is its id, or the one given."""
        self._found.setdefault(address, document)
        for node, around in _walk(document, address, self._index):
            self._bases[id(node)] = around
        own = self._id(document)
        return urljoin(address, own) if own else address

    def _index(self, node: dict[str, Any], around: str) -> str:
        """Note the addresses that the object has; returns the one of what is inside."""
        own = self._id(node)
        if own is not None and own.startswith("#"):  # an anchor, up to draft 7
            self._found.setdefault(urljoin(around, own), node)
        elif own is not None:
            around = urldefrag(urljoin(around, own))[0]
            self._found.setdefault(around, node)
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(node.get(key), str):
                self._found.setdefault(f"{around}#{node[key]}", node)
        return around

    def _id(self, node: Any) -> str | None:
        own = node.get(self._id_key) if isinstance(node, dict) else None
        return own if isinstance(own, str) else None


def _walk(
    document: Any, address: str, enter: Callable[[dict[str, Any], str], str] | None = None
) -> Iterator[tuple[dict[str, Any], str]]:
    """All objects of a document that may be schemas, with the address around each."""
    left = [(document, address, False)]
    while left:
        node, around, is_map = left.pop()
        if isinstance(node, dict):
            if enter and not is_map:
                around = enter(node, around)
            if not is_map:
                yield node, around
            left += [
                (child, around, not is_map and key in MAPS)
                for key, child in node.items()
                if is_map or key not in VALUES
            ]
        elif isinstance(node, list):
            left += [(child, around, False) for child in node]


def _follow(node: Any, pointer: str) -> tuple[bool, Any]:
    for part in pointer.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and int(key[:8]) < len(node):
            node = node[int(key)]
        else:
            return False, None
    return isinstance(node, dict | bool), node
