"""Avro compatibility: every kind of difference, and Apache's own verdict on random pairs."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from ottla.schemas.avro import parse
from ottla.schemas.avro_compat import differences
from tests.support.avro_pairs import pair
from tests.support.sizes import some


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [*fields], **more}


def field(kind: Any, name: str = "a", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": [*symbols], **more}


def compared(reader: Any, writer: Any) -> list[tuple[str, str, str]]:
    trees = [parse(json.dumps(one), {}).tree for one in (reader, writer)]
    return differences(*trees)


@pytest.mark.parametrize(
    ("reader", "writer", "kind", "path"),
    [
        ("int", "long", "TYPE_MISMATCH", ""),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}, "TYPE_MISMATCH",
         "/items"),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, "TYPE_MISMATCH",
         "/values"),
        (record(name="A"), record(name="B"), "NAME_MISMATCH", "/name"),
        ({"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 2},
         "FIXED_SIZE_MISMATCH", "/size"),
        (enum("A"), enum("A", "B"), "MISSING_ENUM_SYMBOLS", "/symbols"),
        (["int"], ["int", "string"], "MISSING_UNION_BRANCH", "/1"),
        (["null", "int"], "string", "MISSING_UNION_BRANCH", ""),
        ("int", ["int", "null"], "TYPE_MISMATCH", ""),
        (record(field("int")), record(), "READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0"),
        (record(field("int")), record(field("string")), "TYPE_MISMATCH", "/fields/0/type"),
        (record(field("int", aliases=["b"])), record(field("int"), field("int", "b")),
         "AMBIGUOUS_FIELD", "/fields/0"),
    ],
)  # fmt: skip
def test_a_difference_has_a_kind_and_a_path(reader: Any, writer: Any, kind: str, path: str) -> None:
    assert [found[:2] for found in compared(reader, writer)] == [(kind, path)]


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("long", "int"),
        ("float", "long"),
        ("double", "float"),
        ("bytes", "string"),
        ("string", "bytes"),
        (["null", "long"], "int"),
        ("long", ["int", "long"]),
        (enum("A", default="A"), enum("A", "B")),
        (record(field("int", default=1)), record()),
        (record(), record(field("int"))),
        (record(field("int", "b", aliases=["a"])), record(field("int"))),
        (record(name="New", aliases=["Old"]), record(name="Old")),
        (record(name="a.R"), record(name="b.R")),
        ({"type": "int", "logicalType": "date"}, "int"),
    ],
)
def test_what_is_compatible(reader: Any, writer: Any) -> None:
    assert compared(reader, writer) == []


def test_case_4_the_message_names_the_field() -> None:
    [(_, _, message)] = compared(record(field("int", "amount")), record())
    assert message == "field 'amount' has no default and is missing in the writer"


def test_recursive_schemas_are_compared_once() -> None:
    def tree(*more: Any) -> Any:
        return record(field(["null", "R"]), *more)

    assert compared(tree(), tree(field("int", "b"))) == []
    assert [found[0] for found in compared(tree(field("int", "b")), tree())] == [
        "READER_FIELD_MISSING_DEFAULT_VALUE"
    ]


def test_case_23_differences_do_not_double_with_each_level() -> None:
    def laughs(leaf: str) -> Any:
        inner: Any = record(field(leaf), name="R0")
        for level in range(1, 25):
            inner = record(field(inner), field(f"R{level - 1}", "b"), name=f"R{level}")
        return inner

    assert len(compared(laughs("int"), laughs("string"))) == 1


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore:Unknown other")  # a logical type that it does not know
def test_case_7_apaches_python_library_agrees_on_random_pairs() -> None:
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
    from avro.schema import parse as avro_parse

    verdicts = []
    for seed in some(range(400), 1):
        one, two = (json.dumps(schema) for schema in pair(random.Random(seed)))
        checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]  # theirs
        result = checker.get_compatibility(avro_parse(one), avro_parse(two))
        verdicts.append(result.compatibility is SchemaCompatibilityType.compatible)
        ours = differences(parse(one, {}).tree, parse(two, {}).tree)
        assert (not ours) is verdicts[-1], (one, two, ours, result.messages)
    assert 0.2 < sum(verdicts) / len(verdicts) < 0.8  # both verdicts are tried
