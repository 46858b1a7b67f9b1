"""Changes of single keywords of JSON Schema, from a writer's schema to a reader's.

Each function takes the keywords of both, as `json_view` has settled them, and gives named changes.
What needs schemas inside to be compared is in `json_diff`.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.schemas.json_schema import escape
from ottla.schemas.json_view import key_of, schemas_of, types_of

if TYPE_CHECKING:
    from collections.abc import Iterable


class Change(NamedTuple):
    """One change from the writer's schema to the reader's."""

    kind: str
    path: str
    message: str
    is_compatible: bool


Changes = list[Change]


def good(kind: str, path: str, message: str) -> Change:
    return Change(kind, path, message, True)


def bad(kind: str, path: str, message: str) -> Change:
    return Change(kind, path, message, False)


def is_fine(found: Iterable[Change]) -> bool:
    return all(change.is_compatible for change in found)


def _model(schema: Any) -> str:
    """What a content model is called, by the schema of what it does not name."""
    if schema is True or schema == {}:
        return "OPEN_CONTENT_MODEL"
    return "CLOSED_CONTENT_MODEL" if schema is False else "PARTIALLY_OPEN_CONTENT_MODEL"


def added(
    name: str, inner: Changes, source: Any, wanted: list[Any], is_required: bool, path: str
) -> Changes:
    """A property that the writer does not name; `source` is what it allows under that name."""
    model = _model(source)
    if model == "OPEN_CONTENT_MODEL":
        if is_fine(inner):
            kind = "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL"
            return [good(kind, path, f"property {name!r} was added and accepts anything")]
        message = f"property {name!r} was added, and old data may have anything under that name"
        return [bad("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", path, message)]
    if model == "PARTIALLY_OPEN_CONTENT_MODEL":
        if is_fine(inner):
            kind = "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            return [good(kind, path, f"property {name!r} was added")]
        message = f"property {name!r} was added, and old data may have other values there"
        kind = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        return [*inner, bad(kind, path, message)]
    if not is_required:
        kind = "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"
        return [good(kind, path, f"property {name!r} was added")]
    if _has_default(wanted):
        kind = "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL"
        return [good(kind, path, f"property {name!r} was added with a default")]
    kind = "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"
    return [bad(kind, path, f"property {name!r} was added, is required and has no default")]


def removed(name: str, inner: Changes, source: Any, wanted: list[Any], path: str) -> Changes:
    """A property that the reader does not name any more."""
    model = _model(wanted[0])
    message = f"property {name!r} was removed"
    if source is False:
        return [good("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", path, message)]
    if model == "OPEN_CONTENT_MODEL":
        return [good("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", path, message)]
    if model == "CLOSED_CONTENT_MODEL":
        message += ", and no other properties are accepted"
        return [bad("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", path, message)]
    if is_fine(inner):
        kind = "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        return [good(kind, path, message)]
    kind = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
    return [*inner, bad(kind, path, f"{message}, and its values do not fit the others' schema")]


def item(word: str, inner: Changes, model: Any, path: str) -> Changes:
    """A place of an array that only one of the two names."""
    kind = _model(model)
    verb = "added" if word == "ADDED_TO" else "removed"
    message = f"the schema of this item was {verb}"
    if kind == "PARTIALLY_OPEN_CONTENT_MODEL":
        covered = "IS_COVERED_BY" if is_fine(inner) else "NOT_COVERED_BY"
        change = Change(f"ITEM_{verb.upper()}_{covered}_{kind}", path, message, is_fine(inner))
        return [*inner, change]
    return [Change(f"ITEM_{word}_{kind}", path, message, is_fine(inner))]


def needed(own: dict[str, Any]) -> set[str]:
    return set(own.get("required", ()))


def _has_default(schemas: list[Any]) -> bool:
    return any(isinstance(schema, dict) and "default" in schema for schema in schemas)


def required(reader: dict[str, Any], writer: dict[str, Any], path: str) -> Changes:
    found: Changes = []
    ours, theirs = needed(reader), needed(writer)
    here = f"{path}/required"
    for name in sorted(ours - theirs):
        is_new = name in reader.get("properties", {}) and name not in writer.get("properties", {})
        if is_new and schemas_of(writer, name) == [False]:
            continue  # `_added` says it
        if _has_default([reader.get("properties", {}).get(name)]):
            message = f"property {name!r} is required now and has a default"
            found.append(good("REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED", here, message))
        else:
            message = f"property {name!r} is required now and has no default"
            found.append(bad("REQUIRED_ATTRIBUTE_ADDED", here, message))
    return found + [
        good("REQUIRED_ATTRIBUTE_REMOVED", here, f"property {name!r} is not required any more")
        for name in sorted(theirs - ours)
    ]


def dependent(reader: dict[str, Any], writer: dict[str, Any], path: str) -> Changes:
    found: Changes = []
    given = writer.get("dependentRequired", {})
    for name, needs in reader.get("dependentRequired", {}).items():
        here = f"{path}/dependentRequired/{escape(name)}"
        if missing := sorted({*needs} - {*given.get(name, ())} - needed(writer)):
            kind = "DEPENDENCY_ARRAY_EXTENDED" if name in given else "DEPENDENCY_ARRAY_ADDED"
            message = f"an object with {name!r} needs {', '.join(missing)} now"
            found.append(bad(kind, here, message))
    for name, needs in given.items():
        if {*needs} - {*reader.get("dependentRequired", {}).get(name, ())}:
            here = f"{path}/dependentRequired/{escape(name)}"
            message = f"an object with {name!r} needs less"
            found.append(good("DEPENDENCY_ARRAY_NARROWED", here, message))
    return found


def types(
    reader: dict[str, Any], writer: dict[str, Any], path: str
) -> tuple[Changes, frozenset[str]]:
    """Changes of `type`, and the types that both have."""
    ours = types_of({key: reader[key] for key in ("type",) if key in reader})
    theirs = types_of(writer)
    common = ours & theirs
    here = f"{path}/type"
    if missing := sorted(theirs - ours):
        kind = "TYPE_NARROWED" if common else "TYPE_CHANGED"
        return [bad(kind, here, f"{', '.join(missing)} is not accepted any more")], common
    if "type" in reader and (more := sorted(ours - theirs)) and "enum" not in writer:
        return [good("TYPE_EXTENDED", here, f"{', '.join(more)} is accepted, too")], common
    return [], common


def values(reader: dict[str, Any], writer: dict[str, Any], path: str) -> Changes:
    """`enum`, and `const`, which is an enum of one."""
    here = f"{path}/enum"
    ours, theirs = reader.get("enum"), _finite(writer)
    if ours is None:
        if "enum" in writer:
            return [good("ENUM_ARRAY_REMOVED", here, "other values are accepted, too")]
        return []
    if theirs is None:
        return [bad("ENUM_ARRAY_ADDED", here, "only the listed values are accepted now")]
    accepted = {key_of(value) for value in ours}
    written = {key_of(value) for value in theirs}
    if missing := sorted(written - accepted):
        kind = "ENUM_ARRAY_NARROWED" if written & accepted else "ENUM_ARRAY_CHANGED"
        more = ", ..." if len(missing) > 3 else ""
        shown = ", ".join(one[:60] for one in missing[:3]) + more
        return [bad(kind, here, f"not accepted any more: {shown}")]
    if accepted - written:
        return [good("ENUM_ARRAY_EXTENDED", here, "more values are accepted")]
    return []


def _finite(own: dict[str, Any]) -> list[Any] | None:
    """All values that fit, if they can be listed."""
    if "enum" in own:
        return list(own["enum"])
    types = types_of(own)
    if not types <= {"null", "boolean"}:
        return None
    return [*([None] if "null" in types else []), *([True, False] if "boolean" in types else [])]


def bounds(
    reader: dict[str, Any], writer: dict[str, Any], path: str, most: str, least: str
) -> Changes:
    """Two bounds of a size."""
    return [
        *_bound(most, reader.get(most), writer.get(most), path),
        *_bound(least, _negative(reader.get(least)), _negative(writer.get(least)), path),
    ]


def _negative(least: float | None) -> float | None:
    """A lower bound as an upper one; zero bounds no size."""
    return -least if least else None


def _bound(keyword: str, ours: Any, theirs: Any, path: str) -> Changes:
    """An upper bound, or a lower one with the other sign."""
    name, here = _snake(keyword), f"{path}/{keyword}"
    is_least = "MIN" in name
    if ours == theirs:
        return []
    if ours is None:
        return [good(f"{name}_REMOVED", here, f"{keyword!r} was removed")]
    if theirs is None:
        return [bad(f"{name}_ADDED", here, f"{keyword!r} was added")]
    if ours > theirs:
        return [good(f"{name}_{'DE' if is_least else 'IN'}CREASED", here, f"{keyword!r} is wider")]
    kind = f"{name}_{'IN' if is_least else 'DE'}CREASED"
    return [bad(kind, here, f"{keyword!r} is narrower")]


def number_range(reader: dict[str, Any], writer: dict[str, Any], path: str) -> Changes:
    found: Changes = []
    for inclusive, exclusive, sign in (
        ("maximum", "exclusiveMaximum", 1),
        ("minimum", "exclusiveMinimum", -1),
    ):
        ours = _limit(reader, inclusive, exclusive, sign)
        theirs = _limit(writer, inclusive, exclusive, sign)
        keyword = exclusive if ours and not ours[1] else inclusive
        found += _bound(keyword, ours, theirs, path)
    return found


def _limit(own: dict[str, Any], inclusive: str, exclusive: str, sign: int) -> Any:
    """The tighter of both bounds and whether it is itself inside; larger ones allow more."""
    bounds = [
        (sign * own[keyword], keyword == inclusive)
        for keyword in (inclusive, exclusive)
        if keyword in own
    ]
    return min(bounds, default=None)


def multiple(reader: dict[str, Any], writer: dict[str, Any], path: str) -> Changes:
    ours, theirs = reader.get("multipleOf"), writer.get("multipleOf")
    here = f"{path}/multipleOf"
    if ours == theirs:
        return []
    if ours is None:
        return [good("MULTIPLE_OF_REMOVED", here, "'multipleOf' was removed")]
    if theirs is None:
        return [bad("MULTIPLE_OF_ADDED", here, "'multipleOf' was added")]
    if Fraction(str(theirs)) % Fraction(str(ours)) == 0:
        return [good("MULTIPLE_OF_REDUCED", here, "'multipleOf' accepts more")]
    return [bad("MULTIPLE_OF_CHANGED", here, "'multipleOf' accepts other numbers")]


def pattern(reader: dict[str, Any], writer: dict[str, Any], path: str) -> Changes:
    ours, theirs = reader.get("pattern"), writer.get("pattern")
    here = f"{path}/pattern"
    if ours == theirs:
        return []
    if ours is None:
        return [good("PATTERN_REMOVED", here, "'pattern' was removed")]
    if theirs is None:
        return [bad("PATTERN_ADDED", here, "'pattern' was added")]
    message = "'pattern' was changed; cannot decide which of them accepts more"
    return [bad("PATTERN_CHANGED", here, message)]


def _snake(keyword: str) -> str:
    """`maxLength` as MAX_LENGTH."""
    return "".join(f"_{one}" if one.isupper() else one for one in keyword).upper()
