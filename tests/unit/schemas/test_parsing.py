"""Limits of schemas, and references that are followed."""

from __future__ import annotations

import pickle

import pytest

from ottla.schemas.model import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_REFERENCES,
    InvalidSchema,
    Kind,
    Reference,
    Schema,
    SchemaTooLarge,
)
from ottla.schemas.parsing import parse, resolve

AVRO, JSON = Kind.AVRO, Kind.JSON


def known(*schemas: tuple[str, Schema]) -> dict[str, Schema]:
    return dict(schemas)


def schema(text: str, *names: str) -> Schema:
    return Schema(AVRO, text, tuple(Reference(name, name, 1) for name in names))


def test_references_of_references_come_before_their_users() -> None:
    subjects = {"b": schema('"b"', "c"), "c": schema('"c"'), "d": schema('"d"', "c")}
    found = resolve(schema("x", "b", "d"), lambda one: subjects.get(one.subject))
    assert list(found.items()) == [("c", '"c"'), ("b", '"b"'), ("d", '"d"')]


def test_case_13_a_reference_cycle_is_refused() -> None:
    subjects = {"b": schema("b", "c"), "c": schema("c", "b")}
    with pytest.raises(InvalidSchema, match="references form a cycle: b -> c -> b"):
        resolve(schema("x", "b"), lambda one: subjects.get(one.subject))


def test_case_13_a_reference_to_a_missing_version_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="'b' means version 1 of subject 'b', which does not"):
        resolve(schema("x", "b"), lambda _: None)
    with pytest.raises(InvalidSchema, match="reference 'b' is not resolved"):
        parse(schema('"int"', "b"), {})


def test_case_13_too_many_references_are_refused() -> None:
    names = [f"n{number}" for number in range(MAX_REFERENCES + 1)]
    with pytest.raises(SchemaTooLarge, match="more than 1000 references"):
        resolve(schema("x", *names), lambda _: Schema(AVRO, "x"))
    with pytest.raises(SchemaTooLarge, match="more than 1000 references"):
        parse(schema('"int"', *names), dict.fromkeys(names, '"int"'))
    assert len(resolve(schema("x", *names[1:]), lambda _: Schema(AVRO, "x"))) == MAX_REFERENCES


def test_a_long_chain_of_references_is_followed_to_its_bound() -> None:
    def next_one(one: Reference) -> Schema:
        return schema("x", str(int(one.name) + 1))

    with pytest.raises(SchemaTooLarge):
        resolve(schema("x", "0"), next_one)


def test_case_23_a_schema_beyond_5_mib_is_refused() -> None:
    text = f'"{"x" * MAX_BYTES}"'
    with pytest.raises(SchemaTooLarge, match="more than 5 MiB"):
        parse(Schema(AVRO, text), {})
    with pytest.raises(SchemaTooLarge, match="more than 5 MiB"):
        parse(Schema(AVRO, '"int"'), {"a": "ä" * (MAX_BYTES // 2)})


@pytest.mark.parametrize("kind", [AVRO, JSON])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 10_000])
def test_case_23_a_deep_schema_is_refused(kind: Kind, depth: int) -> None:
    for start, end in (("[", "]"), ('{"a":', "}")):
        with pytest.raises(SchemaTooLarge, match="nested more than 128 levels"):
            parse(Schema(kind, start * depth + "1" + end * depth), {})


@pytest.mark.parametrize("kind", [AVRO, JSON])
@pytest.mark.parametrize(
    "text", ["", "{", "string", '{"a": NaN}', '{"a": 1e999}', '"\\ud800"', "1", "null", "[1]"]
)
def test_what_is_no_schema_is_refused(kind: Kind, text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse(Schema(kind, text), {})


def test_an_error_says_where_and_pickles() -> None:
    error = InvalidSchema("no", "/fields/1")
    assert str(pickle.loads(pickle.dumps(error))) == "/fields/1: no"  # our own
    assert str(InvalidSchema("no")) == "no"
