"""JSON Schema: drafts, forms, and where `$ref` leads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.schemas.json_schema import DRAFTS, parse
from ottla.schemas.model import InvalidSchema, Parsed


def given(schema: Any, **references: Any) -> Parsed:
    texts = {name.replace("__", "."): json.dumps(one) for name, one in references.items()}
    return parse(json.dumps(schema), texts)


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("end", ["", "#"])
def test_every_draft_is_known(draft: str, end: str) -> None:
    schema = {"$schema": draft + end, "type": "object", "properties": {"a": {"type": "integer"}}}
    assert given(schema).canonical == json.dumps(schema, separators=(",", ":"))
    with pytest.raises(InvalidSchema) as raised:
        given({**schema, "properties": {"a": {"type": "whole"}}})
    assert raised.value.path == "/properties/a/type"


def test_an_unknown_draft_is_refused() -> None:
    with pytest.raises(InvalidSchema, match=r"unknown \$schema 'http://x'; known are http://json-"):
        given({"$schema": "http://x"})


def test_case_3_keys_are_kept_in_order_and_white_space_is_not() -> None:
    assert parse('{"type" : "object",\n "title":"ä"}', {}).canonical == (
        '{"type":"object","title":"ä"}'
    )


def test_case_16_normalising_sorts_keys() -> None:
    one, two = given({"type": "string", "title": "t"}), given({"title": "t", "type": "string"})
    assert one.canonical != two.canonical
    assert one.normalized == two.normalized == '{"title":"t","type":"string"}'


@pytest.mark.parametrize("schema", [True, False, {}])
def test_smallest_schemas(schema: Any) -> None:
    assert given(schema).tree == {"root": schema, "references": {}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/definitions/a", "definitions": {"a": {"type": "string"}}},
        {"properties": {"x": {"$ref": "#"}}},
        {"$id": "http://x/y.json", "properties": {"x": {"$ref": "y.json#/definitions/a%20b"}},
         "definitions": {"a b": True}},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#it",
         "$defs": {"a": {"$anchor": "it"}}},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "in.json",
         "$defs": {"a": {"$id": "in.json", "$ref": "#/$defs/b", "$defs": {"b": True}}}},
        {"$ref": "#it", "definitions": {"a": {"$id": "#it"}}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://x/",
         "allOf": [{"$ref": "http://x/#/definitions/a"}], "definitions": {"a": {}}},
        {"properties": {"default": {"$ref": "#/definitions/a"}}, "definitions": {"a": True}},
        {"const": {"$ref": "#/nowhere"}},
    ],
)  # fmt: skip
def test_a_ref_inside_of_the_schema(schema: Any) -> None:
    given(schema)


def test_case_12_a_ref_to_a_reference_by_its_name_or_id() -> None:
    other = {"$id": "http://x/other", "definitions": {"a": {"type": "string"}}}
    for ref in ("other.json#/definitions/a", "http://x/other#/definitions/a"):
        given({"$ref": ref}, other__json=other)
    given({"$id": "http://y/z.json", "allOf": [{"$ref": "other.json"}]}, other__json=other)
    given({"$ref": "a.json"}, a__json={"$ref": "b.json"}, b__json={"type": "string"})


@pytest.mark.parametrize(
    "ref",
    ["#/definitions/x", "other.json", "http://json-schema.org/other", "#x", "file:///etc/passwd"],
)
def test_a_ref_that_leads_nowhere_is_refused_and_not_fetched(ref: str) -> None:
    with pytest.raises(InvalidSchema, match="leads nowhere; add a reference of that name"):
        given({"properties": {"a": {"$ref": ref}}})


def test_a_ref_to_itself_and_what_is_no_uri_are_refused() -> None:
    with pytest.raises(InvalidSchema, match="leads back to itself"):
        given({"definitions": {"a": {"$ref": "#/definitions/a"}}})
    with pytest.raises(InvalidSchema):
        given({"$ref": "http://[x"})


def test_a_pattern_of_another_dialect_is_accepted() -> None:
    given({"type": "string", "pattern": r"^\p{L}+$"})


def test_case_23_a_pattern_that_explodes_is_not_run() -> None:
    given({"type": "string", "pattern": "(a+)+$", "default": "a" * 60 + "b"})
