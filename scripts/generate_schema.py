"""Write src/ottla/wire/schema/ and error_codes.py from what kio knows of the protocol.

kio describes every version of a message by a class of its own, and importing them costs tens of
milliseconds. A broker wants one class per message that spans its versions, and wants to start in a
blink. So kio's metadata is folded once, here, into NamedTuples plus a table of which field exists
in which version; `ottla.wire.codec` compiles readers and writers from that table on first use.

    python scripts/generate_schema.py            write the modules
    python scripts/generate_schema.py --check    say whether they are up to date
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import keyword
import subprocess
import sys
import tempfile
import typing
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial._introspect import classify_field, is_optional
from kio.static.constants import EntityType

WIRE = Path(__file__).parent.parent / "src" / "ottla" / "wire"
TIMES = {"timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}
WIRE_TYPES = {**TIMES, "error_code": "int16"}
PYTHON_TYPES = {
    "bool": "bool",
    "string": "str",
    "bytes": "bytes",
    "records": "Records",
    "uuid": "bytes",
    "float64": "float",
}
IMPLICIT = {"str": '""', "bytes": 'b""', "bool": "False", "float": "0.0", "Records": 'b""'}

NO_DEFAULT = object()

# Ottla's own tagged fields (struct, name, type, default, tag): other implementations skip them.
# Kafka counts its tags from 0; these begin far above, where no protocol revision will get to.
EXTENSIONS = [
    ("DescribeClusterRequest", "with_state", "bool", False, 10_000),
    ("DescribeClusterResponse", "registry_url", "string", "", 10_000),
    ("DescribeClusterBroker", "state", "int8", -1, 10_000),
    ("DescribeClusterBroker", "lease_left_ms", "int32", -1, 10_001),
    ("DescribeClusterBroker", "leaders", "int32", -1, 10_002),
    ("DescribeClusterBroker", "load", "string", "", 10_003),
    ("DescribeShareGroupOffsetsRequest", "from_leader", "bool", False, 10_000),
    ("DescribeShareGroupOffsetsResponsePartition", "in_flight", "int64", -1, 10_000),
    ("DescribeShareGroupOffsetsResponsePartition", "delivery_complete_count", "int64", -1, 10_001),
    ("DescribeShareGroupOffsetsRequest", "window_runs", "int32", 0, 10_001),
    ("DescribeShareGroupOffsetsResponsePartition", "window", "[]ShareWindowRun", (), 10_002),
    ("DescribeShareGroupOffsetsResponsePartition", "members", "[]string", (), 10_003),
    ("DescribeShareGroupOffsetsResponsePartition", "end_offset", "int64", -1, 10_004),
    ("DescribeShareGroupOffsetsResponsePartition", "window_cut", "bool", False, 10_005),
    ("DescribeShareGroupOffsetsResponsePartition", "stalled_ms", "int64", -1, 10_006),
    ("ShareFetchRequest", "is_acquire_only", "bool", False, 10_000),
    ("ShareAcknowledgeRequest", "is_uncounted", "bool", False, 10_000),
]

# Structs of these fields, with the type of each part.
OWN_STRUCTS = {
    "ShareWindowRun": {
        "first": "int64",
        "last": "int64",
        "state": "int8",
        "delivery_count": "int16",
        "member": "int16",
        "lock_ms": "int32",
    }
}

Span = tuple[int, int]


@dataclasses.dataclass
class FieldFacts:
    """One field of one struct, seen across versions."""

    kio_name: str
    kafka_type: str
    is_struct: bool
    is_array: bool
    default: object = NO_DEFAULT
    present: list[int] = dataclasses.field(default_factory=list)
    nullable: list[int] = dataclasses.field(default_factory=list)
    tagged: list[int] = dataclasses.field(default_factory=list)
    tag: int | None = None

    @property
    def name(self) -> str:
        if self.kafka_type in TIMES and not self.kio_name.endswith("_ms"):
            return f"{self.kio_name}_ms"
        taken = keyword.iskeyword(self.kio_name) or hasattr(tuple, self.kio_name)
        return f"{self.kio_name}_" if taken else self.kio_name


Structs = dict[str, dict[str, FieldFacts]]


def span(versions: list[int], what: str) -> Span:
    low, high = min(versions), max(versions)
    assert versions == list(range(low, high + 1)), f"{what}: gap in {versions}"
    return low, high


def may_be_null(field: dataclasses.Field[Any], kafka_type: str, *, is_array: bool) -> bool:
    """Whether null has a form of its own on the wire; a zero uuid and a time of -1 are values."""
    if is_array:
        return typing.get_origin(field.type) is not tuple
    return is_optional(field) and kafka_type != "uuid" and kafka_type not in TIMES


def note_field(structs: Structs, owner: str, field: dataclasses.Field[Any], version: int) -> None:
    shape = classify_field(field)
    is_struct = dataclasses.is_dataclass(shape.type_)
    kafka_type = shape.type_.__name__ if is_struct else field.metadata["kafka_type"]
    facts = structs[owner].setdefault(
        field.name, FieldFacts(field.name, kafka_type, is_struct, shape.is_array)
    )
    assert (facts.kafka_type, facts.is_array) == (kafka_type, shape.is_array), (owner, field)
    facts.present.append(version)
    if may_be_null(field, kafka_type, is_array=shape.is_array):
        facts.nullable.append(version)
    if field.default is not dataclasses.MISSING:
        facts.default = field.default
    tag = field.metadata.get("tag")
    if tag is not None:
        facts.tag = int(tag)
        facts.tagged.append(version)


def note_struct(structs: Structs, cls: type[Any], version: int) -> None:
    structs.setdefault(cls.__name__, {})
    for field in dataclasses.fields(cls):
        inner = classify_field(field).type_
        if dataclasses.is_dataclass(inner):
            note_struct(structs, inner, version)
        note_field(structs, cls.__name__, field, version)


def in_schema_order(cls_by_version: dict[int, type[Any]], structs: Structs) -> Structs:
    """Order fields as the newest version has them; older ones keep their place among neighbours."""
    orders: dict[str, list[list[str]]] = {name: [] for name in structs}

    def visit(cls: type[Any]) -> None:
        orders[cls.__name__].append([f.name for f in dataclasses.fields(cls)])
        for field in dataclasses.fields(cls):
            inner = classify_field(field).type_
            if dataclasses.is_dataclass(inner):
                visit(inner)

    for version in sorted(cls_by_version, reverse=True):
        visit(cls_by_version[version])
    result: Structs = {}
    for name, facts in structs.items():
        merged: list[str] = []
        for order in orders[name]:
            place = 0
            for field_name in order:
                if field_name in merged:
                    place = merged.index(field_name) + 1
                else:
                    merged.insert(place, field_name)
                    place += 1
        result[name] = {field_name: facts[field_name] for field_name in merged}
    return result


def value_source(value: object) -> str:
    match value:
        case enum.Enum():
            return str(int(value.value))
        case datetime.timedelta():
            return str(round(value.total_seconds() * 1000))
        case uuid.UUID():
            return "ZERO_UUID" if value.int == 0 else repr(value.bytes)
        case bool() | None | str() | bytes() | float() | tuple():
            return repr(value)
        case int():
            return str(int(value))
    raise TypeError(f"no source form for default {value!r}")


def default_source(facts: FieldFacts, type_name: str) -> str:
    if facts.default is not NO_DEFAULT:
        if facts.kafka_type == "uuid" and facts.default is None and not facts.is_array:
            return "ZERO_UUID"
        if facts.kafka_type in TIMES and facts.default is None:
            return "-1"
        if facts.is_struct and facts.default is not None and not facts.is_array:
            values = [
                f"{field.name}={value_source(getattr(facts.default, field.name))}"
                for field in dataclasses.fields(facts.default)  # type: ignore[arg-type]
            ]
            return f"{type_name}({', '.join(values)})"
        return value_source(facts.default)
    if facts.is_array:
        return "()"
    if facts.is_struct:
        return f"{type_name}()"
    if facts.kafka_type == "uuid":
        return "ZERO_UUID"
    return IMPLICIT.get(PYTHON_TYPES.get(facts.kafka_type, "int"), "0")


def annotation(facts: FieldFacts, type_name: str) -> str:
    inner = type_name if facts.is_struct else PYTHON_TYPES.get(facts.kafka_type, "int")
    source = f"Sequence[{inner}]" if facts.is_array else inner
    return f"{source} | None" if facts.nullable else source


def field_source(facts: FieldFacts, type_name: str, whole: Span) -> str:
    wire_type = WIRE_TYPES.get(facts.kafka_type, facts.kafka_type)
    arguments = [repr(facts.name), type_name if facts.is_struct else repr(wire_type)]
    if facts.is_array:
        arguments.append("array=True")
    present = span(facts.present, facts.name)
    if present != whole:
        arguments.append(f"versions={present}")
    if facts.nullable:
        everywhere = facts.nullable == facts.present
        arguments.append(
            "nullable=ALWAYS" if everywhere else f"nullable={span(facts.nullable, facts.name)}"
        )
    if facts.tag is not None:
        arguments.append(f"tag={facts.tag}")
        if facts.tagged != facts.present:
            arguments.append(f"tagged={span(facts.tagged, facts.name)}")
    return f"Field({', '.join(arguments)})"


def message_facts(name: str, kind: EntityType) -> tuple[Structs, Span, int | None, str]:
    """The structs of a message, its versions, its first flexible version and its root's name."""
    classes = {
        version: load_entity_schema(name, version, kind)  # type: ignore[arg-type]
        for version in sorted(schema_name_map[name])
    }
    structs: Structs = {}
    for version, cls in classes.items():
        note_struct(structs, cls, version)
    for facts in structs.values():
        for field in facts.values():
            for versions in (field.present, field.nullable, field.tagged):
                versions[:] = sorted(set(versions))
    flexible = [v for v, cls in classes.items() if cls.__flexible__]
    root = next(iter(classes.values())).__name__
    ordered = in_schema_order(classes, structs)
    for struct, field_name, kafka_type, default, tag in EXTENSIONS:
        if struct in ordered:
            inner = kafka_type.removeprefix("[]")
            is_struct = inner in OWN_STRUCTS
            is_array = inner != kafka_type
            field = FieldFacts(field_name, inner, is_struct, is_array, default, tag=tag)
            field.present = field.tagged = flexible
            ordered[struct][field_name] = field
            for part, part_type in OWN_STRUCTS.get(inner, {}).items():
                own = FieldFacts(part, part_type, False, False, present=flexible)
                ordered.setdefault(inner, {})[part] = own
    return (
        ordered,
        span(sorted(classes), name),
        min(flexible) if flexible else None,
        root,
    )


def nested_first(structs: Structs, root: str) -> list[str]:
    order: list[str] = []

    def visit(name: str) -> None:
        for facts in structs[name].values():
            if facts.is_struct:
                visit(facts.kafka_type)
        if name not in order:
            order.append(name)

    visit(root)
    return order


def message_source(name: str, kind: EntityType, api_key: int, clashing: set[str]) -> list[str]:
    structs, whole, flexible, root = message_facts(name, kind)
    prefix = kind.name.capitalize()
    renamed = {s: f"{prefix}{s}" if s in clashing else s for s in structs}
    lines: list[str] = []
    order = nested_first(structs, root)
    for struct in order:
        lines += ["", "", f"class {renamed[struct]}(NamedTuple):"]
        for facts in structs[struct].values():
            type_name = renamed.get(facts.kafka_type, facts.kafka_type)
            lines.append(
                f"    {facts.name}: {annotation(facts, type_name)}"
                f" = {default_source(facts, type_name)}"
            )
        if not structs[struct]:
            lines.append("    pass")
    lines += ["", "", f"{name.upper()}_{kind.name.upper()} = Message("]
    lines.append(f"    {api_key}, {kind.name == 'request'}, {renamed[root]}, {whole}, {flexible},")
    lines.append("    {")
    for struct in order:
        lines.append(f"        {renamed[struct]}: (")
        for facts in structs[struct].values():
            type_name = renamed.get(facts.kafka_type, facts.kafka_type)
            lines.append(f"            {field_source(facts, type_name, whole)},")
        lines.append("        ),")
    lines += ["    },", ")"]
    return lines


def module_source(api_key: int, name: str) -> str:
    kinds = (EntityType.request, EntityType.response)
    names = Counter(struct for kind in kinds for struct in message_facts(name, kind)[0])
    clashing = {struct for struct, count in names.items() if count > 1}
    body = [line for kind in kinds for line in message_source(name, kind, api_key, clashing)]
    text = "\n".join(body)
    shared = [w for w in ("ALWAYS", "ZERO_UUID", "Field", "Message") if w in text]
    if ": Records" in text:
        shared.append("Records")
    head = [
        f'"""{name}, API key {api_key}. Made by scripts/generate_schema.py; do not edit."""',
        "",
    ]
    if "Sequence[" in text:
        head.append("from collections.abc import Sequence")
    head += ["from typing import NamedTuple", ""]
    head.append(f"from ottla.wire.spec import {', '.join(shared)}")
    return "\n".join(head) + text + "\n"


def index_source() -> str:
    rows = [f'    {key}: "{name}",' for key, name in sorted(api_key_map.items())]
    return "\n".join(
        [
            '"""One module per API. Made by scripts/generate_schema.py; do not edit."""',
            "",
            "API_NAMES: dict[int, str] = {",
            *rows,
            "}",
            "",
        ]
    )


def error_codes_source() -> str:
    return "\n".join(
        [
            '"""Kafka\'s error codes. Made by scripts/generate_schema.py; do not edit."""',
            "",
            "from enum import IntEnum",
            "",
            "",
            "class ErrorCode(IntEnum):",
            *(f"    {code.name.upper()} = {code.value}" for code in ErrorCode),
            "",
        ]
    )


def sources() -> dict[str, str]:
    """The generated files by their path below the wire room."""
    files = {"error_codes.py": error_codes_source(), "schema/__init__.py": index_source()}
    return files | {
        f"schema/{name}.py": module_source(key, name) for key, name in api_key_map.items()
    }


def write(target: Path, files: dict[str, str]) -> None:
    (target / "schema").mkdir(exist_ok=True)
    for file_name, source in files.items():
        (target / file_name).write_text(source)
    paths = [str(target / file_name) for file_name in files]
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", *paths], check=True)


def main() -> int:
    files = sources()
    if "--check" not in sys.argv:
        write(WIRE, files)
        return 0
    # Inside the project, so that the formatter finds its settings.
    with tempfile.TemporaryDirectory(dir=WIRE) as scratch:
        write(Path(scratch), files)
        stale = [f for f in files if (Path(scratch) / f).read_text() != (WIRE / f).read_text()]
    for file_name in stale:
        print(f"out of date: {file_name}; run scripts/generate_schema.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
