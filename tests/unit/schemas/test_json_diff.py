"""JSON Schema compatibility: every kind of change, and validators as judges of random pairs."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from ottla.schemas.json_diff import changes, differences
from ottla.schemas.json_schema import parse
from tests.support import json_pairs
from tests.support.sizes import some

S, I, N = {"type": "string"}, {"type": "integer"}, {"type": "number"}  # noqa: E741


def tree(schema: Any, **references: Any) -> Any:
    texts = {name: json.dumps(one) for name, one in references.items()}
    return parse(json.dumps(schema), texts).tree


def kinds(reader: Any, writer: Any) -> list[str]:
    """Kinds of all changes; those that are incompatible have a ! before them."""
    found = changes(tree(reader), tree(writer))
    return [one.kind if one.is_compatible else f"!{one.kind}" for one in found]


def obj(rest: Any = None, required: Any = (), **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if rest is not None:
        schema["additionalProperties"] = rest
    if required:
        schema["required"] = [*required]
    return schema


OPEN, CLOSED, PARTLY = "open", "closed", "partly open"
REST: dict[str, Any] = {OPEN: None, CLOSED: False, PARTLY: I}


@pytest.mark.parametrize(
    ("model", "added", "required", "kind"),
    [
        (OPEN, S, False, "!PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
        (OPEN, {}, False, "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL"),
        (CLOSED, S, False, "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"),
        (CLOSED, S, True, "!REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"),
        (CLOSED, {**S, "default": ""}, True,
         "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL"),
        (PARTLY, N, False, "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
        (PARTLY, S, False, "!PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
    ],
)  # fmt: skip
def test_case_8_a_property_is_added(model: str, added: Any, required: bool, kind: str) -> None:
    rest = REST[model]
    reader = obj(rest, ["p"] if required else (), a=S, p=added)
    assert kind in kinds(reader, obj(rest, a=S))


@pytest.mark.parametrize(
    ("model", "removed", "kind"),
    [
        (OPEN, S, "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL"),
        (CLOSED, S, "!PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
        (CLOSED, False, "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
        (PARTLY, I, "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
        (PARTLY, S, "!PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
    ],
)
def test_case_8_a_property_is_removed(model: str, removed: Any, kind: str) -> None:
    rest = REST[model]
    assert kinds(obj(rest, a=S), obj(rest, a=S, p=removed))[-1] == kind


def test_case_8_patterns_make_content_partly_open() -> None:
    writer = {"type": "object", "patternProperties": {"^x_": S}, "additionalProperties": False}
    assert kinds({**writer, "properties": {"x_a": S}}, writer) == [
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
    ]
    assert "!PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL" in kinds(
        {**writer, "properties": {"x_a": I}}, writer
    )
    assert kinds({**writer, "properties": {"a": I}}, writer) == [
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"
    ]
    assert kinds({**writer, "patternProperties": {"^x_": I}}, writer) == ["!TYPE_CHANGED"]
    assert kinds({**writer, "patternProperties": {}}, writer) == ["!PATTERN_PROPERTY_REMOVED"]
    more = {"^x_": S, "^y_": S}
    assert kinds({**writer, "patternProperties": more}, writer) == []
    assert kinds({**writer, "patternProperties": {**more, "^z_": I}}, writer) == [
        "!PATTERN_PROPERTY_ADDED"  # a name can match both patterns
    ]
    lookahead = {**writer, "patternProperties": {"^(?!x)": S}, "properties": {"a": S}}
    assert "!UNDECIDED" in kinds(lookahead, {**writer, "properties": {"a": S}})


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        (False, True, "!ADDITIONAL_PROPERTIES_REMOVED"),
        (True, False, "ADDITIONAL_PROPERTIES_ADDED"),
        (I, False, "ADDITIONAL_PROPERTIES_ADDED"),
        (N, I, "ADDITIONAL_PROPERTIES_EXTENDED"),
        (I, N, "!ADDITIONAL_PROPERTIES_NARROWED"),
        (I, True, "!ADDITIONAL_PROPERTIES_NARROWED"),
        (True, I, "ADDITIONAL_PROPERTIES_EXTENDED"),
    ],
)
def test_case_8_additional_properties(reader: Any, writer: Any, expected: str) -> None:
    assert kinds(obj(reader, a=S), obj(writer, a=S)) == [expected]


@pytest.mark.parametrize("model", [OPEN, CLOSED, PARTLY])
def test_case_8_required_with_and_without_default(model: str) -> None:
    rest = REST[model]
    plain, default = obj(rest, a=S), obj(rest, a={**S, "default": ""})
    assert kinds({**plain, "required": ["a"]}, plain) == ["!REQUIRED_ATTRIBUTE_ADDED"]
    assert kinds({**default, "required": ["a"]}, plain) == ["REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED"]
    assert kinds(plain, {**plain, "required": ["a"]}) == ["REQUIRED_ATTRIBUTE_REMOVED"]


KEYWORDS: list[tuple[Any, Any, str]] = [
    (N, I, "TYPE_EXTENDED"),
    (I, N, "!TYPE_NARROWED"),
    (S, I, "!TYPE_CHANGED"),
    ({"type": ["string", "null"]}, S, "TYPE_EXTENDED"),
    (S, {"type": ["string", "null"]}, "!TYPE_NARROWED"),
    (S, {}, "!TYPE_NARROWED"),
    (False, S, "!TYPE_NARROWED"),
    ({"enum": ["a", "b"]}, {"enum": ["a"]}, "ENUM_ARRAY_EXTENDED"),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, "!ENUM_ARRAY_NARROWED"),
    ({"enum": ["a"]}, {"enum": ["b"]}, "!ENUM_ARRAY_CHANGED"),
    ({"enum": ["a"]}, S, "!ENUM_ARRAY_ADDED"),
    (S, {"enum": ["a"]}, ""),
    ({**S, "minLength": 0}, {"type": "string", "enum": ["a"]}, "ENUM_ARRAY_REMOVED"),
    ({"const": 1}, {"const": 2}, "!ENUM_ARRAY_CHANGED"),
    ({"const": 1}, {"const": True}, "!ENUM_ARRAY_CHANGED"),
    ({"const": 1}, {"const": 1.0}, ""),
    ({"enum": [None, True, False, 1]}, {"type": ["null", "boolean"]}, "ENUM_ARRAY_EXTENDED"),
    ({**I, "multipleOf": 2}, {**I, "multipleOf": 6}, "MULTIPLE_OF_REDUCED"),
    ({**I, "multipleOf": 4}, {**I, "multipleOf": 6}, "!MULTIPLE_OF_CHANGED"),
    ({**N, "multipleOf": 0.1}, {**N, "multipleOf": 0.3}, "MULTIPLE_OF_REDUCED"),
    ({**I, "multipleOf": 2}, I, "!MULTIPLE_OF_ADDED"),
    (I, {**I, "multipleOf": 2}, "MULTIPLE_OF_REMOVED"),
    ({**S, "pattern": "a"}, {**S, "pattern": "b"}, "!PATTERN_CHANGED"),
    ({**S, "pattern": "a"}, S, "!PATTERN_ADDED"),
    (S, {**S, "pattern": "a"}, "PATTERN_REMOVED"),
    ({**N, "exclusiveMaximum": 5}, {**N, "maximum": 5}, "!EXCLUSIVE_MAXIMUM_DECREASED"),
    ({**N, "maximum": 5}, {**N, "exclusiveMaximum": 5}, "MAXIMUM_INCREASED"),
    ({**N, "exclusiveMinimum": 5}, {**N, "minimum": 5}, "!EXCLUSIVE_MINIMUM_INCREASED"),
    ({**N, "minimum": 5}, {**N, "exclusiveMinimum": 5}, "MINIMUM_DECREASED"),
    ({"type": "array", "uniqueItems": True}, {"type": "array"}, "!UNIQUE_ITEMS_ADDED"),
    ({"type": "array"}, {"type": "array", "uniqueItems": True}, "UNIQUE_ITEMS_REMOVED"),
    ({"not": S}, {"not": {"type": ["string", "null"]}}, "NOT_TYPE_NARROWED"),
    ({"not": {"type": ["string", "null"]}}, {"not": S}, "!NOT_TYPE_EXTENDED"),
    ({"not": S}, I, ""),
    ({"dependentRequired": {"a": ["b"]}}, {}, "!DEPENDENCY_ARRAY_ADDED"),
    ({"dependentRequired": {"a": ["b", "c"]}}, {"dependentRequired": {"a": ["b"]}},
     "!DEPENDENCY_ARRAY_EXTENDED"),
    ({"type": "object"}, {"type": "object", "dependentRequired": {"a": ["b"]}},
     "DEPENDENCY_ARRAY_NARROWED"),
    ({"dependentRequired": {"a": ["b"]}}, {"required": ["b"]}, "REQUIRED_ATTRIBUTE_REMOVED"),
    ({"dependentSchemas": {"a": obj(b=S)}}, {}, "!DEPENDENCY_SCHEMA_ADDED"),
    ({"propertyNames": {"maxLength": 3}}, {"propertyNames": {"maxLength": 4}},
     "!MAX_LENGTH_DECREASED"),
    ({"if": S, "then": {"maxLength": 1}}, {}, "!UNDECIDED"),
    ({"if": S, "then": {"maxLength": 1}}, {"if": S, "then": {"maxLength": 1}, "title": "x"}, ""),
    ({"type": "array", "contains": S}, {"type": "array"}, "!UNDECIDED"),
    ({"$dynamicRef": "#x", "$dynamicAnchor": "x"}, {}, "!UNDECIDED"),
]  # fmt: skip
for most, least, kind in (
    ("maxLength", "minLength", "string"),
    ("maxItems", "minItems", "array"),
    ("maxProperties", "minProperties", "object"),
    ("maximum", "minimum", "number"),
):
    up, low = ("".join(f"_{c}" if c.isupper() else c for c in w).upper() for w in (most, least))
    T = {"type": kind}
    KEYWORDS += [
        ({**T, most: 5}, T, f"!{up}_ADDED"),
        (T, {**T, most: 5}, f"{up}_REMOVED"),
        ({**T, most: 6}, {**T, most: 5}, f"{up}_INCREASED"),
        ({**T, most: 5}, {**T, most: 6}, f"!{up}_DECREASED"),
        ({**T, least: 5}, T, f"!{low}_ADDED"),
        (T, {**T, least: 5}, f"{low}_REMOVED"),
        ({**T, least: 6}, {**T, least: 5}, f"!{low}_INCREASED"),
        ({**T, least: 5}, {**T, least: 6}, f"{low}_DECREASED"),
    ]


@pytest.mark.parametrize(("reader", "writer", "expected"), KEYWORDS)
@pytest.mark.parametrize("model", ["alone", OPEN, CLOSED, PARTLY])
def test_case_8_keywords(reader: Any, writer: Any, expected: str, model: str) -> None:
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    if model != "alone":  # the same inside of an object
        reader, writer = obj(REST[model], a=reader), obj(REST[model], a=writer)
    elif reader is False:
        reader = {"not": {}}
    found = [one for one in kinds({**draft, **reader}, {**draft, **writer}) if one]
    expected_bad = expected if expected.startswith("!") else ""
    assert [one for one in found if one.startswith("!")] == [expected_bad][: bool(expected_bad)]
    assert not expected or expected in found


ARRAY = {"type": "array"}
P = "prefixItems"


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        ({"items": S}, {"items": I}, ["!TYPE_CHANGED"]),
        ({"items": N}, {"items": I}, ["TYPE_EXTENDED"]),
        ({P: [S, S]}, {P: [S]}, ["!ITEM_ADDED_TO_OPEN_CONTENT_MODEL"]),
        ({P: [S, True]}, {P: [S]}, ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL"]),
        ({P: [S, S], "items": False}, {P: [S], "items": False},
         ["ITEM_ADDED_TO_CLOSED_CONTENT_MODEL"]),
        ({P: [S, N], "items": I}, {P: [S], "items": I},
         ["TYPE_EXTENDED", "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"]),
        ({P: [S, S], "items": I}, {P: [S], "items": I},
         ["!TYPE_CHANGED", "!ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"]),
        ({P: [S]}, {P: [S, S]}, ["ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL"]),
        ({P: [S], "items": False}, {P: [S, S], "items": False},
         ["!ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"]),
        ({P: [S], "items": I}, {P: [S, S], "items": I},
         ["!TYPE_CHANGED", "!ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"]),
        ({P: [S], "items": False}, {P: [S]}, ["!ADDITIONAL_ITEMS_REMOVED"]),
        ({P: [S]}, {P: [S], "items": False}, []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_old", [False, True])
def test_case_8_items(reader: Any, writer: Any, expected: list[str], is_old: bool) -> None:
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    if is_old:  # the same in the words of draft 7
        draft = {}
        reader, writer = (
            {"items": one[P], **({"additionalItems": one["items"]} if "items" in one else {})}
            if P in one
            else one
            for one in (reader, writer)
        )
    assert kinds({**draft, **ARRAY, **reader}, {**draft, **ARRAY, **writer}) == expected


NULL = {"type": "null"}
CAT = obj(None, ["kind"], kind={"const": "cat"})
DOG = obj(None, ["kind"], kind={"const": "dog"})


@pytest.mark.parametrize("word", ["anyOf", "oneOf"])
@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        ([S, NULL, I], [S, NULL], ["SUM_TYPE_EXTENDED"]),
        ([S, NULL], [S, NULL, I], ["!SUM_TYPE_NARROWED"]),
        ([NULL, S], [S, NULL], []),
        ([S, NULL], S, ["SUM_TYPE_EXTENDED"]),
        (S, [S, NULL], ["!TYPE_CHANGED"]),
        ({"type": ["string", "null"]}, [S, NULL], None),
        ([S, NULL], {"type": ["string", "null"]}, []),
        ([CAT, DOG], [CAT], ["SUM_TYPE_EXTENDED"]),
        ([CAT, DOG], [CAT, NULL], ["!TYPE_CHANGED", "!SUM_TYPE_NARROWED"]),
    ],
)
def test_case_8_sums(word: str, reader: Any, writer: Any, expected: list[str] | None) -> None:
    reader, writer = ({word: one} if isinstance(one, list) else one for one in (reader, writer))
    found = kinds(reader, writer)
    if expected is None:
        assert not any(one.startswith("!") for one in found)
    else:
        assert found == expected


def test_case_8_one_of_with_branches_that_may_overlap_is_undecided() -> None:
    assert "!UNDECIDED" in kinds({"oneOf": [I, N]}, {"oneOf": [I]})
    assert kinds({"anyOf": [I, N]}, {"anyOf": [I]}) == ["SUM_TYPE_EXTENDED"]
    both = [{"maximum": 5}, {"minimum": 3}]
    assert kinds({"oneOf": both, "title": "b"}, {"oneOf": both, "title": "a"}) == []


def test_case_8_products() -> None:
    a, b = obj(a=S), obj(b=I)
    assert kinds({"allOf": [a]}, {"allOf": [a, b]})[-1] == "PRODUCT_TYPE_NARROWED"
    found = kinds({"allOf": [a, b]}, {"allOf": [a]})
    assert found[-1] == "!PRODUCT_TYPE_EXTENDED"
    assert not [one for one in kinds({"allOf": [b, a]}, {"allOf": [a, b]}) if one[0] == "!"]
    assert not [one for one in kinds(obj(a=S, b=I), {"allOf": [a, b]}) if one[0] == "!"]
    assert not [one for one in kinds({"allOf": [a, b]}, obj(a=S, b=I)) if one[0] == "!"]


def test_refs_are_followed_and_may_recur() -> None:
    def linked(value: Any) -> Any:
        node = obj(False, value=value, next={"$ref": "#/definitions/node"})
        return {"$ref": "#/definitions/node", "definitions": {"node": node}}

    assert kinds(linked(N), linked(I)) == ["TYPE_EXTENDED"]
    assert kinds(linked(I), linked(N)) == ["!TYPE_NARROWED"]
    assert kinds(linked(I), linked(I)) == []


def test_references_are_followed() -> None:
    schema = {"properties": {"a": {"$ref": "x.json"}}}
    new, old = tree(schema, **{"x.json": S}), tree(schema, **{"x.json": I})
    assert [one[0] for one in differences(new, old)] == ["TYPE_CHANGED"]
    assert differences(old, old) == []


def test_a_difference_names_path_and_property() -> None:
    new, old = (
        tree(obj(False, ["b"], a=obj(**{"x/y": S}), b=S)),
        tree(obj(False, a=obj(**{"x/y": I}))),
    )
    assert differences(new, old) == [
        ("TYPE_CHANGED", "#/properties/a/properties/x~1y/type", "integer is not accepted any more"),
        (
            "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
            "#/properties/b",
            "property 'b' was added, is required and has no default",
        ),
    ]


def test_case_23_refs_that_double_are_compared_once() -> None:
    def laughs(leaf: Any) -> Any:
        definitions: dict[str, Any] = {"d0": leaf}
        for level in range(1, 30):
            ref = {"$ref": f"#/definitions/d{level - 1}"}
            definitions[f"d{level}"] = obj(a=ref, b=ref, c={"anyOf": [ref, NULL]})
        return {"$ref": "#/definitions/d29", "definitions": definitions}

    assert "TYPE_CHANGED" in {one[0] for one in differences(tree(laughs(S)), tree(laughs(I)))}
    assert differences(tree(laughs(S)), tree(laughs(S))) == []


@pytest.mark.sampled
def test_case_8_what_is_compatible_accepts_every_value_that_the_writer_accepts() -> None:
    from jsonschema import Draft202012Validator

    compatible = 0
    for seed in some(range(800), 2):
        reader, writer = json_pairs.pair(random.Random(seed))
        new, old = tree(reader), tree(writer)
        assert differences(old, old) == []
        if differences(new, old):
            continue
        compatible += reader != writer
        reads, writes = Draft202012Validator(reader), Draft202012Validator(writer)
        for value in json_pairs.VALUES:
            assert not writes.is_valid(value) or reads.is_valid(value), (reader, writer, value)
    assert compatible > 30
