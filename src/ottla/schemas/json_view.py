"""One JSON Schema as `json_diff` sees it: keywords by what they say, whatever the draft.

- A schema is a conjunction: its own keywords, `allOf` and the target of `$ref` (parts), `anyOf` and
  `oneOf` (sums), `not`.
- `flat` merges the parts into one set of keywords. Where two parts say something about the same
  thing, one of them is left out, so the result allows at least what the schema allows. That is
  right for a writer: what reads more than the writer writes reads what it writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.schemas.model import dump_json

ALL_TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
PARTS = frozenset({"$ref", "allOf", "anyOf", "oneOf", "not"})
COMBINING = PARTS | {"if", "then", "else", "dependentSchemas", "dependencies"}
ANNOTATIONS = frozenset(
    {
        "$schema", "$id", "id", "$anchor", "$comment", "$defs", "definitions", "$vocabulary",
        "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
        "format", "contentEncoding", "contentMediaType", "contentSchema",
    }
)  # fmt: skip
"""They allow and forbid nothing. Neither does `format` unless a validator is told to look at it."""
LOWER = frozenset(
    {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"}
)
UPPER = frozenset(
    {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"}
)


@dataclass(slots=True)
class View:
    """A schema in parts; nodes inside are those of the document."""

    own: dict[str, Any] = field(default_factory=dict)
    """Keywords that say something, without those that combine schemas."""
    parts: list[Any] = field(default_factory=list)
    """`allOf`, and where `$ref` leads."""
    sums: list[tuple[str, list[Any]]] = field(default_factory=list)
    """`anyOf` and `oneOf` with their branches."""
    excluded: list[Any] = field(default_factory=list)
    """`not`"""
    is_nothing: bool = False
    """The schema `false`."""

    @property
    def is_anything(self) -> bool:
        """Nothing is forbidden."""
        return not (self.own or self.parts or self.sums or self.excluded or self.is_nothing)


def view_of(node: Any, target: Any = None) -> View:
    """The view of a schema; `target` is where its `$ref` leads, None if it has none."""
    if node is False:
        return View(is_nothing=True)
    if not isinstance(node, dict):
        return View()
    view = View(own={k: v for k, v in node.items() if k not in PARTS and k not in ANNOTATIONS})
    view.parts = [*node.get("allOf", ())]
    if target is not None:
        view.parts.append(target)
    view.sums = [(key, node[key]) for key in ("anyOf", "oneOf") if key in node]
    if "not" in node:
        if node["not"] in (True, {}):
            return View(is_nothing=True)
        view.excluded = [node["not"]]
    _settle(view.own, combines=not COMBINING.isdisjoint(node))
    return view


def _settle(own: dict[str, Any], *, combines: bool) -> None:
    """Bring keywords of all drafts into one form."""
    for exclusive, bound in (("exclusiveMaximum", "maximum"), ("exclusiveMinimum", "minimum")):
        is_old = isinstance(own.get(exclusive), bool)  # draft 4
        if is_old and own.pop(exclusive) and bound in own:
            own[exclusive] = own.pop(bound)
    if "const" in own:
        own["enum"] = [own.pop("const")]
    if not combines:  # then these say the same
        for unevaluated, additional in (
            ("unevaluatedProperties", "additionalProperties"),
            ("unevaluatedItems", "items"),
        ):
            if unevaluated in own and additional not in own:
                own[additional] = own.pop(unevaluated)
    items = own.get("items")
    if isinstance(items, list):  # up to 2019-09
        own["prefixItems"] = items
        own.pop("items")
        if "additionalItems" in own:
            own["items"] = own["additionalItems"]
    own.pop("additionalItems", None)
    for trigger, needs in (own.pop("dependencies", None) or {}).items():
        key = "dependentRequired" if isinstance(needs, list) else "dependentSchemas"
        own[key] = {**own.get(key, {}), trigger: needs}


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Keywords that allow at least what both together allow."""
    both = {**second, **first}
    for key in first.keys() & second.keys():
        one, other = first[key], second[key]
        if key == "type":
            both[key] = sorted(_expanded(one) & _expanded(other))
        elif key in ("properties", "patternProperties", "dependentRequired", "dependentSchemas"):
            both[key] = {**other, **one}
        elif key == "required":
            both[key] = [*dict.fromkeys((*one, *other))]
        elif key in LOWER:
            both[key] = max(one, other)
        elif key in UPPER:
            both[key] = min(one, other)
    return both


def _expanded(types: str | list[str]) -> set[str]:
    """Names of types; `number` has `integer` with it."""
    names = {types} if isinstance(types, str) else set(types)
    return names | {"integer"} if "number" in names else names


def types_of(own: dict[str, Any]) -> frozenset[str]:
    """Types that a schema with these keywords allows; `number` has `integer` with it."""
    types = frozenset(_expanded(own["type"])) if "type" in own else ALL_TYPES
    if "enum" in own:
        types &= frozenset().union(*(_types_of_value(value) for value in own["enum"]))
    return types


def _types_of_value(value: Any) -> set[str]:
    if value is None:
        return {"null"}
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int | float):
        return {"integer"} if value == int(value) else {"number"}
    return {
        "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"
    }


def key_of(value: Any) -> str:
    """Equal for equal JSON values: 1 is 1.0, and not true."""
    return dump_json(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value == int(value):
        return int(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value


def schemas_of(own: dict[str, Any], name: str) -> list[Any] | None:
    """All schemas that a property of this name must fit; None if a pattern cannot be decided."""
    found = [own["properties"][name]] if name in own.get("properties", {}) else []
    for pattern, schema in own.get("patternProperties", {}).items():
        matches = _matches(pattern, name)
        if matches is None:
            return None
        if matches:
            found.append(schema)
    return found or [own.get("additionalProperties", True)]


def _matches(pattern: str, name: str) -> bool | None:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options).search(name) is not None
    except re2.error:  # a pattern that only backtracking can decide
        return None
