"""Avro: what is valid, and the two forms of a schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.schemas.avro import parse
from ottla.schemas.model import InvalidSchema, Parsed

RECORD = {"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "long"}]}


def given(schema: Any, **references: Any) -> Parsed:
    texts = {name.replace("__", "."): json.dumps(one) for name, one in references.items()}
    return parse(json.dumps(schema), texts)


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [*fields], **more}


def field(kind: Any, name: str = "a", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def test_case_3_short_and_long_primitives_are_one_schema() -> None:
    assert given({"type": "string"}).canonical == given("string").canonical == '"string"'
    short, long = record(field("int")), record(field({"type": "int"}))
    assert given(short).canonical == given(long).canonical


def test_case_3_white_space_and_order_of_attributes_do_not_matter() -> None:
    spaced = '{ "name" : "shop.Order",\n "fields": [{"type":"long", "name":"id"}], "type":"record"}'
    assert parse(spaced, {}).canonical == given(RECORD).canonical


def test_case_3_the_order_of_fields_matters() -> None:
    one, two = field("int", "a"), field("int", "b")
    assert given(record(one, two)).canonical != given(record(two, one)).canonical


def test_the_canonical_form_keeps_names_and_the_normalised_one_has_full_names() -> None:
    inner = record(name="In", doc="why")
    parsed = given(record(field(inner), field("In", "b"), name="Out", namespace="n", z=1, b=2))
    assert parsed.canonical == (
        '{"type":"record","name":"Out","namespace":"n","fields":[{"name":"a","type":{"type":"record"'
        ',"name":"In","doc":"why","fields":[]}},{"name":"b","type":"In"}],"z":1,"b":2}'
    )
    assert parsed.normalized == (
        '{"type":"record","name":"n.Out","fields":[{"name":"a","type":{"type":"record",'
        '"name":"n.In","doc":"why","fields":[]}},{"name":"b","type":"n.In"}],"b":2,"z":1}'
    )
    assert given(parsed.tree).normalized == parsed.normalized


def test_case_16_normalising_finds_the_same_schema_under_other_names() -> None:
    full = record(field("a.B"), name="a.R")
    short = record(field("B"), name="R", namespace="a")
    reference = record(name="a.B")
    one, two = given(full, a__B=reference), given(short, a__B=reference)
    assert one.canonical != two.canonical
    assert one.normalized == two.normalized


def test_case_12_references_are_inlined_where_they_are_first_used() -> None:
    customer = record(field("Address"), name="Customer", namespace="shop")
    address = record(name="shop.Address")
    order = record(
        field(["null", "Customer"]), field("shop.Address", "b"), name="Order", namespace="shop"
    )
    parsed = given(order, shop__Customer=customer, shop__Address=address)
    assert parsed.canonical.count("Address") == 1
    definition = parsed.tree["fields"][0]["type"][1]
    assert definition["fields"][0]["type"]["name"] == "shop.Address"
    assert parsed.tree["fields"][1]["type"] == "shop.Address"
    assert given(parsed.tree).normalized == parsed.normalized


def test_case_12_a_type_inside_of_a_reference_can_be_used() -> None:
    outer = record(field({"type": "enum", "name": "Colour", "symbols": ["RED"]}), name="a.Outer")
    parsed = given(record(field("a.Colour"), field("a.Outer", "b"), name="R"), a__Outer=outer)
    assert parsed.tree["fields"][0]["type"]["symbols"] == ["RED"]
    assert parsed.tree["fields"][1]["type"]["fields"][0]["type"] == "a.Colour"


def test_a_name_without_namespace_is_found_from_inside_of_one() -> None:
    parsed = given(
        record(field("Plain"), field("Plain", "b"), name="a.R"), Plain=record(name="Plain")
    )
    assert parsed.tree["fields"][0]["type"] == {
        "type": "record",
        "name": "Plain",
        "namespace": "",
        "fields": [],
    }


def test_recursive_types_are_fine() -> None:
    tree = record(field(["null", "Tree"], default=None), name="Tree", namespace="t")
    assert given(tree).tree["fields"][0]["type"] == ["null", "t.Tree"]


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("null", None),
        ("boolean", True),
        ("int", -(2**31)),
        ("long", 2**63 - 1),
        ("float", 1),
        ({"type": "double", "x": 1}, 1),
        ("string", ""),
        ("bytes", "\u00ff"),
        (["null", "int"], 3),
        (["int", "null"], None),
        ({"type": "array", "items": "int"}, [1]),
        ({"type": "map", "values": "int"}, {"a": 1}),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A"),
        ({"type": "fixed", "name": "F", "size": 1}, "a"),
        (record(field("int"), field("int", "b", default=1), name="S"), {"a": 1}),
    ],
)
def test_a_default_that_fits(kind: Any, default: Any) -> None:
    assert given(record(field(kind, default=default))).tree["fields"][0]["default"] == default


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("null", 0),
        ("boolean", 1),
        ("int", True),
        ("int", 2**31),
        ("long", 2**63),
        ("int", 1.0),
        ("float", "1"),
        ("string", 1),
        (["null", "int"], "x"),
        ({"type": "array", "items": "int"}, ["x"]),
        ({"type": "map", "values": "int"}, {"a": "x"}),
        (record(field("int"), name="S"), {}),
    ],
)
def test_a_default_that_does_not_fit(kind: Any, default: Any) -> None:
    with pytest.raises(InvalidSchema, match="of field 'a' does not fit its type") as raised:
        given(record(field(kind, default=default)))
    assert raised.value.path == "/fields/0"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("nothing", "unknown type 'nothing'"),
        (record(field("n.Missing")), "unknown type 'n.Missing'"),
        ({"type": 1}, "'type' must be the name of a type, not 1"),
        ({}, "'type' must be the name of a type, not null"),
        (record(name="1x"), "the 'name' of a named type must be"),
        ({"type": "record", "name": "R"}, "a record needs a list of 'fields'"),
        (record(1), "a field needs 'name' and 'type'"),
        (record(field("int", "a.b")), "'a.b' is no name of a field"),
        (record(field("int"), field("long")), "has the field 'a' twice"),
        (record(field(record())), "'R' is defined twice"),
        (record(name="int"), "cannot be named after the primitive 'int'"),
        (record(aliases="x"), "'aliases' must be a list of names"),
        (record(namespace="a-b"), "is no namespace"),
        (["int", "int"], "the union has 'int' twice"),
        (["int", ["null"]], "a union cannot contain a union"),
        ([{"type": "array", "items": "int"}, {"type": "array", "items": "long"}], "'array' twice"),
        ({"type": "array"}, "an array needs 'items'"),
        ({"type": "map"}, "a map needs 'values'"),
        ({"type": "enum", "name": "E"}, "a list of 'symbols'"),
        ({"type": "enum", "name": "E", "symbols": ["a", "a"]}, "a symbol twice"),
        ({"type": "enum", "name": "E", "symbols": ["a-b"]}, "a list of 'symbols'"),
        ({"type": "enum", "name": "E", "symbols": ["a"], "default": "b"}, "none of the enum's"),
        ({"type": "fixed", "name": "F", "size": "x"}, "must be a whole number"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 0.5}, "precision"),
    ],
)
def test_an_invalid_schema_says_why(schema: Any, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        given(schema)


def test_a_type_is_not_defined_both_here_and_by_a_reference() -> None:
    with pytest.raises(InvalidSchema, match="'R' is defined here and by a reference"):
        given(record(), R=record())
