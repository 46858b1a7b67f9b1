"""Schemas that a broker refuses when they are set (tables.md, section 18)."""

from __future__ import annotations

import pytest

from ottla.broker.errors import ApiError
from ottla.broker.value_schemas import check_value_schema
from ottla.wire.error_codes import ErrorCode


@pytest.mark.parametrize(
    ("kind", "schema", "said"),
    [
        ("json", "shop strin", "(character 5: expected a type "),
        ("json", "shop string amount", "(character 12: expected ','"),
        ("json", "a array<int", "(character 12: expected '>' in DDL, got the end)"),
        ("json", "a int;", "(character 6: "),
        ("json", "a tinyint", "use int"),
        ("json", "a int," * 20_000, "at most 65536 characters"),
        ("json", ",".join(f"c{n} int" for n in range(2_001)), "at most 2000 leaf columns"),
        ("json", "a " + "array<" * 16 + "int" + ">" * 16, "at most 16 deep"),
        ("avro", '{"type":"record",', "is not JSON: Expecting property name"),
        ("avro", "[" * 100_000, "levels deep"),
    ],
)
def test_section_18_a_value_schema_that_is_none_is_refused(
    kind: str, schema: str, said: str
) -> None:
    keys = {"ottla.table.value.format": kind, "ottla.table.value.schema": schema}
    with pytest.raises(ApiError) as caught:
        check_value_schema(keys)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert "ottla.table.value.schema" in str(caught.value)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("raw", "not looked at"),
        ("protobuf", 'syntax = "proto3"; message M {}'),
        ("avro", '"string"'),
        ("json", " shop string, amount double "),
        ("json", ""),
    ],
)
def test_others_are_taken(kind: str, schema: str) -> None:
    keys = {"ottla.table.value.format": kind, "ottla.table.value.schema": schema}
    check_value_schema(keys)
