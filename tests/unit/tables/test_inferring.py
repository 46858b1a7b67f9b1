"""Columns for JSON values, by looking at them (case 96)."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from ottla.schemas.ddl import parse_ddl, to_ddl
from ottla.schemas.decode import decode
from ottla.tables.errors import TableError
from ottla.tables.inferring import MAX_NAMES, Inference


def inferred(*values: bytes | None) -> Inference:
    found = Inference()
    for one in values:
        found.add(one)
    return found


def ddl(*values: Any) -> str:
    return to_ddl(inferred(*(json.dumps(one).encode() for one in values)).columns())


def test_case_96_two_shapes_are_read_by_one_ddl() -> None:
    rng = random.Random(96)
    values = []
    for number in range(10_000):
        one: dict[str, Any] = {"id": number, "at": {"lat": 1.5, "tags": ["a", None]}}
        if number % 2:
            one |= {"note": "x", "code": number, "at": {"lat": 2, "height": 3}}
        else:
            one |= {"code": rng.choice(["x", True, [1], {"y": 1}])}
        values.append(json.dumps(one).encode())
    found = inferred(*values)
    text = to_ddl(found.columns())
    assert text == (
        "id bigint, at struct<lat: double, tags: array<string>, height: bigint>, code string, "
        "note string"
    )
    assert (found.optional(), found.mixed()) == ({"note": 5_000}, ["code"])
    assert (found.objects, found.others) == (10_000, 0)
    columns = parse_ddl(text)
    read = decode(pa.array(values, pa.binary()), None, None, columns, format="json")
    assert read.bad.tolist() == []
    rows = read.columns.to_pylist()
    for number in range(0, 10_000, 7):
        code = json.loads(values[number])["code"]
        shown = code if isinstance(code, str) else json.dumps(code, separators=(",", ":"))
        assert (rows[number]["id"], rows[number]["code"]) == (number, shown)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([{"a": 1}, {"a": 2.5}], "a double"),
        ([{"a": 1}, {"a": 2**63}], "a decimal(38,0)"),
        ([{"a": 2**63}, {"a": 0.5}], "a double"),
        ([{"a": 10**40}], "a string"),
        ([{"a": None}], "a string"),
        ([{"a": {}}], "a string"),
        ([{"a": []}, {"a": [[1]]}], "a array<array<bigint>>"),
        ([{"a": []}], "a array<string>"),
        ([{"a": True}, {"a": 1}], "a string"),
        ([{"a b": 1, "": 2}], "`a b` bigint"),
        ([{"a": [{"b": 1}, {"c": "x"}]}], "a array<struct<b: bigint, c: string>>"),
        ([{"a": {f"k{n}": n for n in range(MAX_NAMES + 1)}}], "a map<string, bigint>"),
        (
            [{"a": {f"k{n}": n for n in range(MAX_NAMES + 1)}}, {"a": {"x": "y"}}],
            "a map<string, string>",
        ),
    ],
)
def test_each_type(values: list[Any], wanted: str) -> None:
    assert ddl(*values) == wanted
    columns = parse_ddl(wanted)
    texts = [json.dumps(one).encode() for one in values]
    read = decode(pa.array(texts, pa.binary()), None, None, columns, format="json")
    assert read.bad.tolist() == []


def test_what_is_too_deep_is_text() -> None:
    value: Any = 1
    for _ in range(40):
        value = {"a": value}
    text = ddl(value)
    assert text == "a " + "struct<a: " * 15 + "string" + ">" * 15
    columns = parse_ddl(text)
    values = pa.array([json.dumps(value).encode()], pa.binary())
    assert decode(values, None, None, columns, format="json").bad.tolist() == []


def test_values_that_are_no_objects_are_counted() -> None:
    found = inferred(
        b"", b"{", b"[1]", b"1", b'{"a":NaN}', b'{"a":1,"a":2}', b"\xff", b"[" * 100_000, None,
        b'{"a":1}',
    )  # fmt: skip
    assert (found.objects, found.others) == (1, 8)
    assert to_ddl(found.columns()) == "a bigint"


def test_too_many_fields_are_refused() -> None:
    values = [b'{"k%d":1}' % number for number in range(2_001)]
    assert len(inferred(*values[:-1]).columns()) == 2_000
    with pytest.raises(TableError, match="more than 2000 different fields"):
        inferred(*values)
