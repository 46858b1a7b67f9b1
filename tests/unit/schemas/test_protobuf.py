"""Protobuf: what is valid, base64, references, and the text that is printed."""

from __future__ import annotations

import base64
from importlib import import_module
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

from ottla.schemas.model import InvalidSchema, Parsed
from ottla.schemas.proto_known import KNOWN
from ottla.schemas.protobuf import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

PROTO3 = 'syntax = "proto3";\n'
EVERYTHING_2 = """
// A comment.
syntax = "proto2";
package shop.v1;
import public "google/protobuf/timestamp.proto";
import "google/protobuf/descriptor.proto";
option java_package = "a\\"b\\n\\303\\244";
option optimize_for = CODE_SIZE;
extend google.protobuf.FieldOptions { repeated string tags = 50001; optional Note note = 50002; }
extend google.protobuf.FileOptions { optional double weight = 50003; optional bytes raw = 50004; }
option (weight) = -inf;
option (raw) = "\\000\\377";
message Note { optional string text = 1; repeated int32 n = 2; }
/* another */ message Order {
  option deprecated = true;
  required int64 id = 1 [default = -3, deprecated = true];
  optional string name = 2 [default = "a\\"\\\\\\n", (tags) = "x", (tags) = "y"];
  optional bytes data = 3 [default = "\\001\\377", (note) = { text: "t" n: 1 n: 2 }];
  repeated double d = 4 [packed = true];
  optional float f = 5 [default = nan, json_name = "other"];
  optional Kind kind = 6 [default = B];
  map<string, Note> notes = 7;
  oneof choice { uint32 one = 8; .shop.v1.Note two = 9; group Three = 10 { optional bool x = 1; } }
  repeated group Item = 11 { optional int32 a = 1; message Deep { optional sint32 s = 1; } }
  optional google.protobuf.Timestamp at_time = 12;
  enum Kind {
    option allow_alias = true; A = 0; B = 1 [deprecated = true]; C = 1;
    reserved 5, 7 to max; reserved "Z";
  }
  message Inner { optional fixed64 x_y_2z = 1; extensions 100 to max; }
  extensions 100 to 199, 500;
  reserved 20, 30 to 40, 1000 to max;
  reserved "old", "older";
  extend Inner { optional sfixed32 more = 100; }
}
enum Top { NEGATIVE = -1; ZERO = 0; }
service Shop {
  option deprecated = true;
  rpc Buy (Order) returns (stream Note);
  rpc Chat (stream Order) returns (stream Note) { option idempotency_level = IDEMPOTENT; }
}
"""
EVERYTHING_3 = """
syntax = "proto3";
import "google/protobuf/any.proto";
message M {
  optional int32 a = 1; repeated sint64 b = 2 [packed = false]; string c_d = 3; M self = 4;
  oneof x { string y = 5; google.protobuf.Any z = 6; }
  map<int32, E> es = 7; reserved 9; reserved "q";
}
enum E { E_ZERO = 0; }
"""
EDITION = """
edition = "2023";
package e;
option features.field_presence = IMPLICIT;
message M {
  int32 a = 1 [features.field_presence = LEGACY_REQUIRED];
  repeated int32 b = 2 [features.repeated_field_encoding = EXPANDED];
  M c = 3 [features.message_encoding = DELIMITED];
  reserved gone;
}
enum E { option features.enum_type = CLOSED; ONE = 1; }
"""


def files(parsed: Parsed) -> list[FileDescriptorProto]:
    return [*FileDescriptorSet.FromString(parsed.tree).file]


def encoded(parsed: Parsed) -> str:
    """As Python's client sends it: with a name, without names for JSON."""
    file = files(parsed)[-1]
    file.name = "somewhere/x.proto"
    for message in _messages(file):
        for field in message.field:
            if field.name != "f":
                field.ClearField("json_name")
    return base64.b64encode(file.SerializeToString()).decode()


def _messages(file: FileDescriptorProto) -> Iterator[DescriptorProto]:
    left = [*file.message_type]
    while left:
        message = left.pop()
        yield message
        left += message.nested_type


@pytest.mark.parametrize("text", [EVERYTHING_2, EVERYTHING_3, EDITION])
def test_the_printed_text_has_the_same_descriptor(text: str) -> None:
    parsed = parse(text, {})
    again = parse(parsed.canonical, {})
    assert again == parsed
    assert files(parse(parsed.normalized, {}))[-1].message_type == files(parsed)[-1].message_type


@pytest.mark.parametrize(
    "path",
    sorted(Path(str(resources("grpc_tools") / "_proto")).rglob("*.proto")),
    ids=lambda path: path.stem,
)
def test_googles_own_files_are_printed_and_read_back(path: Path) -> None:
    parsed = parse(path.read_text(), {})
    assert parse(parsed.canonical, {}).canonical == parsed.canonical
    assert parse(encoded(parsed), {}).canonical == parsed.canonical
    assert parse(parsed.normalized, {}).normalized == parsed.normalized


def test_the_printed_text() -> None:
    assert parse(EVERYTHING_3, {}).canonical == (
        """syntax = "proto3";

import "google/protobuf/any.proto";

message M {
  optional int32 a = 1;
  repeated sint64 b = 2 [packed = false];
  string c_d = 3;
  .M self = 4;
  oneof x {
    string y = 5;
    .google.protobuf.Any z = 6;
  }
  map<int32, .E> es = 7;
  reserved 9;
  reserved "q";
}

enum E {
  E_ZERO = 0;
}
"""
    )


@pytest.mark.parametrize("text", [EVERYTHING_2, EVERYTHING_3, EDITION])
def test_case_17_base64_of_a_descriptor_is_the_same_schema(text: str) -> None:
    parsed = parse(text, {})
    assert parse(encoded(parsed), {}) == parsed


def test_case_16_normalising_sorts_imports_and_options() -> None:
    one = (
        'import "google/protobuf/any.proto"; import "google/protobuf/empty.proto";'
        'option java_package = "x"; option cc_enable_arenas = true;'
        "message M { google.protobuf.Any a = 1; google.protobuf.Empty b = 2; }"
    )
    two = (
        'import "google/protobuf/empty.proto"; import "google/protobuf/any.proto";'
        'option cc_enable_arenas = true; option java_package = "x";'
        "message M { google.protobuf.Any a = 1; google.protobuf.Empty b = 2; }"
    )
    first, second = parse(PROTO3 + one, {}), parse(PROTO3 + two, {})
    assert first.canonical != second.canonical
    assert first.normalized == second.normalized


@pytest.mark.parametrize("is_encoded", [False, True])
def test_case_12_references_are_imported_by_path(is_encoded: bool) -> None:
    inner = PROTO3 + "package a; message Inner { int32 x = 1; }"
    middle = PROTO3 + 'import public "a/inner.proto"; package a; message Middle { Inner i = 1; }'
    references = {"a/inner.proto": inner, "middle.proto": middle}
    if is_encoded:
        first = parse(inner, {})
        references = {
            "a/inner.proto": encoded(first),
            "middle.proto": encoded(parse(middle, {"a/inner.proto": inner})),
        }
    user = PROTO3 + 'import "middle.proto"; message User { a.Middle m = 1; a.Inner i = 2; }'
    parsed = parse(user, references)
    assert [file.name for file in files(parsed)] == [
        "a/inner.proto",
        "middle.proto",
        "schema.proto",
    ]
    assert parse(encoded(parsed), references) == parsed


@pytest.mark.parametrize("name", KNOWN)
def test_files_that_confluents_clients_take_for_known(name: str) -> None:
    module = name.removesuffix(".proto").replace("/", ".")
    theirs = FileDescriptorProto.FromString(
        import_module(f"confluent_kafka.schema_registry.{module}_pb2").DESCRIPTOR.serialized_pb
    )
    theirs.ClearField("options")
    assert theirs.name == name
    ours = parse(KNOWN[name], {})
    assert parse(base64.b64encode(theirs.SerializeToString()).decode(), {}) == ours


def test_a_known_file_is_imported_without_a_reference() -> None:
    text = PROTO3 + (
        'import "confluent/meta.proto"; import "confluent/type/decimal.proto";'
        'message M { confluent.type.Decimal d = 1 [(confluent.field_meta).doc = "why"]; }'
    )
    parsed = parse(text, {})
    assert '(.confluent.field_meta) = { doc: "why" }' in parsed.canonical
    assert parse(encoded(parsed), {}) == parsed


def test_a_reference_may_have_our_name() -> None:
    other = {"schema.proto": PROTO3 + "message A {}"}
    parsed = parse(PROTO3 + 'import "schema.proto"; message B { A a = 1; }', other)
    assert [file.name for file in files(parsed)] == ["schema.proto", "_schema.proto"]


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        (" ", "the schema is empty", ""),
        ("message {", "Expected message name", "line 1, column 9"),
        (PROTO3 + "message M { X x = 1; }", '"X" is not defined', "line 2, column 13"),
        (PROTO3 + 'import "x.proto";', "'x.proto': File not found. Add a reference", ""),
        (PROTO3 + "message M { int32 a = 1; int32 b = 1; }", "already been used", "line 2"),
        ("AAAA", "neither a .proto file nor base64", ""),
        ("Zm9v=", "neither a .proto file nor base64", ""),
        (PROTO3 + 'import "../../../../etc/passwd";', "import", ""),
    ],
)
def test_an_invalid_schema_says_why_and_where(text: str, message: str, place: str) -> None:
    with pytest.raises(InvalidSchema, match=message) as raised:
        parse(text, {})
    assert raised.value.path.startswith(place)


@pytest.mark.parametrize(
    "name", ["/etc/x", "../x", "a/../../x", "a//b", "", "a\\b", "a\x00b", "x" * 300]
)
def test_a_reference_cannot_leave_its_directory(name: str) -> None:
    with pytest.raises(InvalidSchema, match="is no path that can be imported"):
        parse(PROTO3, {name: PROTO3})


def test_a_reference_that_is_invalid_is_named() -> None:
    with pytest.raises(InvalidSchema) as raised:
        parse(PROTO3 + 'import "a.proto";', {"a.proto": PROTO3 + "message"})
    assert raised.value.path.startswith("a.proto, line 2")


def test_case_23_deep_messages_are_refused() -> None:
    with pytest.raises(InvalidSchema):
        parse(PROTO3 + "message M { " * 10_000 + "}" * 10_000, {})
