"""Spark's DDL and Arrow columns."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from ottla.schemas import names
from ottla.schemas.columns import columns_of
from ottla.schemas.ddl import parse_ddl, to_ddl
from ottla.schemas.model import InvalidSchema, SchemaTooLarge

TIMESTAMP = pa.timestamp("us", tz="UTC")
WHOLE = (
    "a boolean, b int, c bigint, d float, e double, f string, g binary, h date, i timestamp, "
    "j timestamp_ntz, k decimal(12,2), l array<string>, m map<string, bigint>, "
    "n struct<x: int, `y z`: array<struct<q: double>>>"
)


def test_each_type_has_its_arrow_type() -> None:
    found = parse_ddl(WHOLE)
    assert [each.type for each in found][:11] == [
        pa.bool_(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        TIMESTAMP,
        pa.timestamp("us"),
        pa.decimal128(12, 2),
    ]
    assert found.field("l").type == pa.list_(pa.field("element", pa.string()))
    assert found.field("m").type == pa.map_(pa.string(), pa.int64())
    assert found.field("n").type.field("y z").type.value_type.field("q").type == pa.float64()
    assert all(each.nullable for each in found)


def test_ddl_and_columns_go_round() -> None:
    assert to_ddl(parse_ddl(WHOLE)) == WHOLE
    assert columns_of(WHOLE) == parse_ddl(WHOLE)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("A LONG, B Integer", "A bigint, B int"),
        ("a: string NOT NULL,b decimal", "a string, b decimal(10,0)"),
        ("struct<a: int, b: dec(3)>", "a int, b decimal(3,0)"),
        ("`a``b` numeric ( 5 , 1 )", "`a``b` decimal(5,1)"),
        ("a timestamp_ltz comment 'it\\'s \\\\'", "a timestamp COMMENT 'it\\'s \\\\'"),
        ('a int COMMENT "x"', "a int COMMENT 'x'"),
        ("\n a\tint \n", "a int"),
        ("`größe.🐟` string", "`größe.🐟` string"),
    ],
)
def test_other_spellings(text: str, same: str) -> None:
    assert to_ddl(parse_ddl(text)) == same


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one column"),
        ("a", "a type"),
        ("a tinyint", "use int"),
        ("a varchar(10)", "use string"),
        ("a int b int", "','"),
        ("a int,", "a column name"),
        ("a array<int", "'>'"),
        ("a map<int>", "','"),
        ("a struct<>", "a column name"),
        ("a decimal(39,1)", "1 to 38 digits"),
        ("a decimal(3,4)", "1 to 38 digits"),
        ("a int not", "'null'"),
        ("a int comment b", "in quotes"),
        ("a int;", "got ';'"),
        ("select 1", "a type"),
        ("1.5 int", "a type"),
    ],
)
def test_what_is_no_ddl_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse_ddl(text)
    assert message in str(caught.value)
    assert caught.value.path.startswith("character ")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_limits() -> None:
    with pytest.raises(SchemaTooLarge, match="characters"):
        parse_ddl("a int," * 200_000)
    with pytest.raises(SchemaTooLarge, match="16 deep"):
        parse_ddl("a " + "array<" * 5_000 + "int" + ">" * 5_000)
    parse_ddl("a " + "array<" * 15 + "int" + ">" * 15)
    with pytest.raises(SchemaTooLarge, match="16 deep"):
        parse_ddl("a " + "array<" * 16 + "int" + ">" * 16)
    inner = "a " + "array<" * 15 + "int" + ">" * 15
    assert parse_ddl(f"struct<{inner}>") == parse_ddl(inner)


def test_case_36_names() -> None:
    found = parse_ddl("Id int, id string, `a.b` int, `🐟` int, _offset int, s struct<X:int,x:int>")
    assert found.names == ["Id", "id__2", "a.b", "🐟", "_offset", "s"]
    assert names.source_of(found.field("id__2")) == "id"
    assert found.field("s").type.names == ["X", "x__2"]
    assert parse_ddl("a int, A int, a__2 int, A__2 int").names == [
        "a",
        "A__2",
        "a__2__2",
        "A__2__3",
    ]
    kept = names.names_of(found)
    assert kept == {"id__2": {"source": "id"}, "s/x__2": {"source": "x"}}
    assert names.with_names(pa.schema([each.remove_metadata() for each in found]), kept).equals(
        found, check_metadata=True
    )


def test_case_36_too_many_leaves() -> None:
    columns = ",".join(f"c{index} int" for index in range(1_999))
    assert len(parse_ddl(f"{columns}, s struct<a: int>")) == 2_000
    with pytest.raises(SchemaTooLarge, match="2000 leaf columns, got more"):
        parse_ddl(f"{columns}, s struct<a: int, b: int>")
