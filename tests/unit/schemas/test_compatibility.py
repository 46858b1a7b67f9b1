"""Seven levels, for each format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.schemas.compatibility import MOST, Level, check
from ottla.schemas.model import Kind, Parsed, Schema
from ottla.schemas.parsing import parse


def avro(*fields: tuple[Any, ...]) -> str:
    made = [{"name": f[0], "type": f[1], **({"default": f[2]} if f[2:] else {})} for f in fields]
    return json.dumps({"type": "record", "name": "R", "fields": made})


def closed(**properties: str) -> str:
    schemas = {name: {"type": kind} for name, kind in properties.items()}
    return json.dumps({"type": "object", "properties": schemas, "additionalProperties": False})


def given(kind: Kind, text: str) -> Parsed:
    return parse(Schema(kind, text), {})


OLD = {
    Kind.AVRO: avro(("a", "int")),
    Kind.JSON: closed(a="integer"),
    Kind.PROTOBUF: 'syntax = "proto3"; message M { int32 a = 1; } message N {}',
}
NEW: dict[Kind, dict[str, str]] = {
    Kind.AVRO: {
        "backward": avro(),
        "forward": avro(("a", "int"), ("b", "int")),
        "full": avro(("a", "int"), ("b", "int", 1)),
        "neither": avro(("a", "string")),
    },
    Kind.JSON: {
        "backward": closed(a="integer", b="string"),
        "forward": closed(),
        "full": '{"title":"t",' + closed(a="integer")[1:],
        "neither": closed(a="string"),
    },
    Kind.PROTOBUF: {
        "backward": 'syntax = "proto3"; message M { int32 a = 1; } message N {} message O {}',
        "forward": 'syntax = "proto3"; message M { int32 a = 1; }',
        "full": 'syntax = "proto3"; message M { int32 a = 1; int32 b = 2; } message N {}',
        "neither": 'syntax = "proto3"; message M { string a = 1; } message N {}',
    },
}
LEVELS = {
    Level.NONE: {"backward", "forward", "full", "neither"},
    Level.BACKWARD: {"backward", "full"},
    Level.BACKWARD_TRANSITIVE: {"backward", "full"},
    Level.FORWARD: {"forward", "full"},
    Level.FORWARD_TRANSITIVE: {"forward", "full"},
    Level.FULL: {"full"},
    Level.FULL_TRANSITIVE: {"full"},
}


@pytest.mark.parametrize("kind", OLD)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("change", ["backward", "forward", "full", "neither"])
def test_case_5_every_level_accepts_and_refuses(kind: Kind, level: Level, change: str) -> None:
    found = check(kind, level, given(kind, NEW[kind][change]), [given(kind, OLD[kind])])
    assert (not found) is (change in LEVELS[level])
    assert all(one.message and one.kind.isupper() for one in found)


def test_case_6_transitive_levels_look_at_all_versions() -> None:
    versions = [avro(("a", "int")), avro(("a", "int"), ("b", "int", 1))]
    old = [given(Kind.AVRO, text) for text in versions]
    new = given(Kind.AVRO, avro(("a", "int"), ("b", "int")))
    assert check(Kind.AVRO, Level.BACKWARD, new, old) == []
    [found] = check(Kind.AVRO, Level.BACKWARD_TRANSITIVE, new, old)
    assert "'b' has no default" in found.message
    back = given(Kind.AVRO, avro())
    assert check(Kind.AVRO, Level.FORWARD, back, [given(Kind.AVRO, avro(("b", "int", 1)))]) == []
    assert check(Kind.AVRO, Level.FORWARD_TRANSITIVE, back, [old[0], old[1]])


def test_case_4_a_field_without_default_is_refused_and_one_with_it_is_not() -> None:
    old = [given(Kind.AVRO, OLD[Kind.AVRO])]
    without = given(Kind.AVRO, NEW[Kind.AVRO]["forward"])
    [found] = check(Kind.AVRO, Level.BACKWARD, without, old)
    assert found.path == "/fields/1"
    assert "'b'" in found.message
    assert check(Kind.AVRO, Level.BACKWARD, given(Kind.AVRO, NEW[Kind.AVRO]["full"]), old) == []


def test_nothing_to_compare_with_is_compatible() -> None:
    assert check(Kind.AVRO, Level.FULL_TRANSITIVE, given(Kind.AVRO, '"int"'), []) == []


def test_another_format_is_never_compatible() -> None:
    [found] = check(
        Kind.JSON, Level.FULL, given(Kind.JSON, "{}"), [given(Kind.AVRO, OLD[Kind.AVRO])]
    )
    assert found.kind == "FORMAT_CHANGED"


def test_the_list_of_differences_is_bounded() -> None:
    names = [(f"f{number}", "int") for number in range(2 * MOST)]
    new, old = given(Kind.AVRO, avro(*names)), given(Kind.AVRO, avro())
    assert len(check(Kind.AVRO, Level.BACKWARD, new, [old])) == MOST


def test_case_23_schemas_too_deep_to_compare_are_undecided() -> None:
    refs: dict[str, Any] = {
        f"d{n}": {"properties": {"a": {"$ref": f"#/definitions/d{n + 1}"}}} for n in range(1_000)
    }

    def chain(leaf: str) -> Parsed:
        definitions = {**refs, "d1000": {"type": leaf}}
        schema = {"$ref": "#/definitions/d0", "definitions": definitions}
        return given(Kind.JSON, json.dumps(schema))

    [found] = check(Kind.JSON, Level.BACKWARD, chain("string"), [chain("integer")])
    assert found.kind == "UNDECIDED"
