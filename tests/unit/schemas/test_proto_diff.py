"""Protobuf compatibility: every kind of difference."""

from __future__ import annotations

import pytest

from ottla.schemas.proto_diff import differences
from ottla.schemas.protobuf import parse


def compared(reader: str, writer: str, syntax: str = "proto3") -> list[tuple[str, str, str]]:
    head = f'syntax = "{syntax}";\n'
    return differences(parse(head + reader, {}).tree, parse(head + writer, {}).tree)


def message(fields: str) -> str:
    return f"enum E {{ Z = 0; }} message N {{}} message O {{}} message M {{ {fields} }}"


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("uint32 a = 1;", "int32 a = 1;"),
        ("bool a = 1;", "int64 a = 1;"),
        ("E a = 1;", "int32 a = 1;"),
        ("sint64 a = 1;", "sint32 a = 1;"),
        ("sfixed32 a = 1;", "fixed32 a = 1;"),
        ("sfixed64 a = 1;", "fixed64 a = 1;"),
        ("bytes a = 1;", "string a = 1;"),
        ("int32 renamed = 1;", "int32 a = 1;"),
        ("int32 a = 1; string b = 2;", "int32 a = 1;"),
        ("", "int32 a = 1;"),
        ("repeated int32 a = 1;", "int32 a = 1;"),
        ("string a = 1;", "repeated string a = 1;"),
        ("int32 a = 1;", "repeated int32 a = 1 [packed = false];"),
        ("optional int32 a = 1;", "int32 a = 1;"),
        ("oneof x { int32 a = 1; }", "int32 a = 1;"),
        ("oneof x { int32 a = 1; string b = 2; }", "int32 a = 1;"),
        ("oneof x { int32 a = 1; string b = 2; }", "oneof x { int32 a = 1; }"),
        ("int32 a = 1;", "oneof x { int32 a = 1; }"),
        ("map<string, int64> a = 1;", "map<string, int32> a = 1;"),
    ],
)
def test_case_9_what_is_compatible(reader: str, writer: str) -> None:
    assert compared(message(reader), message(writer)) == []


@pytest.mark.parametrize(
    ("reader", "writer", "kind", "path"),
    [
        ("string a = 1;", "int32 a = 1;", "FIELD_SCALAR_KIND_CHANGED", "1"),
        ("sint32 a = 1;", "int32 a = 1;", "FIELD_SCALAR_KIND_CHANGED", "1"),
        ("float a = 1;", "fixed32 a = 1;", "FIELD_SCALAR_KIND_CHANGED", "1"),
        ("N a = 1;", "int32 a = 1;", "FIELD_KIND_CHANGED", "1"),
        ("N a = 1;", "O a = 1;", "FIELD_NAMED_TYPE_CHANGED", "1"),
        ("int32 a = 1;", "repeated int32 a = 1;", "FIELD_LABEL_CHANGED", "1"),
        ("map<string, int32> a = 1;", "N a = 1;", "FIELD_KIND_CHANGED", "1"),
        ("map<string, int32> a = 1;", "map<string, string> a = 1;", "FIELD_SCALAR_KIND_CHANGED",
         "1"),
        ("oneof x { int32 a = 1; int32 b = 2; }", "int32 a = 1; int32 b = 2;",
         "MULTIPLE_FIELDS_MOVED_TO_ONEOF", "x"),
        ("oneof x { int32 a = 1; int32 b = 2; }", "oneof x { int32 a = 1; } int32 b = 2;",
         "FIELD_MOVED_TO_EXISTING_ONEOF", "x"),
        ("oneof x { int32 a = 1; }", "oneof x { int32 a = 1; int32 b = 2; }",
         "ONEOF_FIELD_REMOVED", "x/2"),
        ("oneof x { int32 a = 1; } int32 b = 2;", "oneof x { int32 a = 1; int32 b = 2; }",
         "ONEOF_FIELD_REMOVED", "x/2"),
    ],
)  # fmt: skip
def test_case_9_what_is_not(reader: str, writer: str, kind: str, path: str) -> None:
    assert [found[:2] for found in compared(message(reader), message(writer))] == [
        (kind, f"#/M/{path}")
    ]


def test_case_9_messages_and_packages() -> None:
    assert [one[0] for one in compared("message A {}", "message A {} message B {}")] == [
        "MESSAGE_REMOVED"
    ]
    assert compared("message B {} message A {}", "message A {}") == []
    nested = "message A { message B { int32 x = 1; } }"
    assert [one[:2] for one in compared("message A {}", nested)] == [("MESSAGE_REMOVED", "#/A.B")]
    assert [one[:2] for one in compared(nested.replace("int32", "string"), nested)] == [
        ("FIELD_SCALAR_KIND_CHANGED", "#/A.B/1")
    ]
    assert [one[0] for one in compared("package a; message A {}", "package b; message A {}")] == [
        "PACKAGE_CHANGED"
    ]


def test_case_9_values_and_enums_may_come_and_go() -> None:
    assert compared("enum E { A = 0; C = 2; }", "enum E { A = 0; B = 1; }") == []
    assert compared("", "enum E { A = 0; }") == []


def test_case_9_required_fields() -> None:
    def kinds(reader: str, writer: str) -> list[str]:
        return [one[0] for one in compared(message(reader), message(writer), "proto2")]

    required, optional = "required int32 a = 1;", "optional int32 a = 1;"
    assert kinds(required, "") == ["REQUIRED_FIELD_ADDED"]
    assert kinds(required, optional) == ["REQUIRED_FIELD_ADDED"]
    assert kinds("", required) == ["REQUIRED_FIELD_REMOVED"]
    assert kinds(optional, required) == []
    assert kinds(optional, "") == kinds("", optional) == []
    assert kinds("optional int32 a = 1;", "repeated int32 a = 1;") == []  # not packed
    assert kinds("optional group A = 1 {}", "optional N a = 1;")[0] == "FIELD_KIND_CHANGED"


def test_case_12_types_of_references_are_compared() -> None:
    text = 'syntax = "proto3"; import "x.proto"; message M { X x = 1; }'
    new, old = (
        parse(text, {"x.proto": f'syntax = "proto3"; message X {{ {kind} a = 1; X self = 2; }}'})
        for kind in ("string", "int32")
    )
    assert [one[:2] for one in differences(new.tree, old.tree)] == [
        ("FIELD_SCALAR_KIND_CHANGED", "#/X/1")
    ]
    assert differences(new.tree, new.tree) == []
