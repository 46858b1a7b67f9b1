"""Random pairs of Avro schemas: a reader that was made from the writer by a few changes."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL = (
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 5},
    {"type": "string", "logicalType": "uuid"},
)
DEFAULTS: dict[str, Any] = {
    "null": None,
    "boolean": False,
    "int": 1,
    "long": 2,
    "float": 1.5,
    "double": 2.5,
    "bytes": "b",
    "string": "s",
}
SYMBOLS = ("A", "B", "C", "D")


class _Maker:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.names: list[str] = []
        self.open: list[str] = []
        """Records around this place, which it may refer to."""

    def schema(self, depth: int) -> Any:
        choice = self.random.randrange(10 if depth else 4)
        if choice < 3:
            return self.random.choice(PRIMITIVES)
        if choice == 3:
            return copy.deepcopy(self.random.choice(LOGICAL))
        if choice == 4:
            return {"type": "array", "items": self.schema(depth - 1)}
        if choice == 5:
            return {"type": "map", "values": self.schema(depth - 1)}
        if choice == 6:
            return self.union(depth - 1)
        return self.named(depth)

    def union(self, depth: int) -> list[Any]:
        branches: dict[str, Any] = {}
        for _ in range(self.random.randrange(1, 4)):
            branch = self.schema(depth)
            if not isinstance(branch, list):
                branches.setdefault(key(branch), branch)
        return list(branches.values()) or ["null"]

    def named(self, depth: int) -> Any:
        if self.open and self.random.random() < 0.25:
            return self.random.choice(self.open)
        name = f"N{len(self.names)}"
        self.names.append(name)
        choice = self.random.randrange(4)
        if choice == 0:
            return {"type": "fixed", "name": name, "size": self.random.randrange(1, 4)}
        if choice == 1:
            return self.enum(name)
        return self.record(name, depth)

    def enum(self, name: str) -> dict[str, Any]:
        symbols = [*SYMBOLS[: self.random.randrange(1, 5)]]
        made: dict[str, Any] = {"type": "enum", "name": name, "symbols": symbols}
        if self.random.random() < 0.3:
            made["default"] = symbols[0]
        return made

    def record(self, name: str, depth: int) -> dict[str, Any]:
        self.open.append(name)
        fields = [self.field(f"f{index}", depth) for index in range(self.random.randrange(4))]
        self.open.remove(name)
        return {"type": "record", "name": name, "fields": fields}

    def field(self, name: str, depth: int) -> dict[str, Any]:
        made = {"name": name, "type": self.schema(max(0, depth - 1))}
        if self.random.random() < 0.4:
            set_default(made)
        return made


def key(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    return str(schema.get("name", schema["type"]))


def set_default(field: dict[str, Any]) -> None:
    """A default, where one is easy to say."""
    kind = field["type"]
    if isinstance(kind, list):
        kind = kind[0]
    name = kind if isinstance(kind, str) else kind["type"]
    if name in DEFAULTS:
        field["default"] = DEFAULTS[name]
    elif name == "array":
        field["default"] = []
    elif name == "map":
        field["default"] = {}
    elif name == "enum":
        field["default"] = kind["symbols"][0]


def pair(random: Random) -> tuple[Any, Any]:
    """Reader and writer. Most are alike; one in ten has nothing to do with the other."""
    writer = _Maker(random).schema(4)
    while isinstance(writer, str) and random.random() < 0.9:
        writer = _Maker(random).schema(4)
    if random.random() < 0.1:
        return _Maker(random).schema(4), writer
    reader = copy.deepcopy(writer)
    for _ in range(random.randrange(3)):
        reader = _mutated(reader, random)
    _mend_defaults(reader)
    return (reader, writer) if random.random() < 0.7 else (writer, reader)


def _mend_defaults(schema: Any) -> None:
    """The first branch of a union may have changed."""
    for node in _nodes(schema):
        for field in node.get("fields", ()) if isinstance(node, dict) else ():
            if "default" in field and isinstance(field["type"], list):
                del field["default"]
                set_default(field)


def _nodes(schema: Any) -> list[Any]:
    """All schemas inside that are objects or unions."""
    if isinstance(schema, list):
        return [schema] + [node for branch in schema for node in _nodes(branch)]
    if not isinstance(schema, dict):
        return []
    inside = [field["type"] for field in schema.get("fields", ())]
    inside += [schema[name] for name in ("items", "values") if name in schema]
    return [schema] + [node for one in inside for node in _nodes(one)]


def _mutated(schema: Any, random: Random) -> Any:
    nodes = _nodes(schema)
    if not nodes:
        return random.choice([*PRIMITIVES, [schema, "null"] if schema != "null" else [schema]])
    node = random.choice(nodes)
    if isinstance(node, list):
        _mutate_union(node, random)
    elif node["type"] == "record":
        _mutate_record(node, random)
    elif node["type"] == "enum":
        _mutate_enum(node, random)
    elif node["type"] == "fixed":
        node["size"] = random.randrange(1, 4)
    elif node["type"] in ("array", "map"):
        inner = "items" if node["type"] == "array" else "values"
        if isinstance(node[inner], str) and node[inner] in PRIMITIVES:
            node[inner] = random.choice(PRIMITIVES)
    else:
        node.update(logicalType="other")
        node.pop("precision", None)
        node.pop("scale", None)
    return schema


def _mutate_union(union: list[Any], random: Random) -> None:
    there = {key(branch) for branch in union}
    more = [name for name in PRIMITIVES if name not in there]
    plain = [index for index, one in enumerate(union) if isinstance(one, str) and one in PRIMITIVES]
    if plain and len(union) > 1 and random.random() < 0.5:
        union.pop(random.choice(plain))
    elif more:
        union.append(random.choice(more))


def _mutate_record(record: dict[str, Any], random: Random) -> None:
    fields = record["fields"]
    choice = random.randrange(6)
    if choice == 0 or not fields:
        added: dict[str, Any] = {"name": f"g{len(fields)}", "type": random.choice(PRIMITIVES)}
        if random.random() < 0.6:
            set_default(added)
        if all(field["name"] != added["name"] for field in fields):
            fields.insert(random.randrange(len(fields) + 1), added)
        return
    field = random.choice(fields)
    if choice == 1 and not _nodes(field["type"]):
        fields.remove(field)
    elif choice == 2:
        field["aliases"] = [field["name"]]
        field["name"] = f"h{len(field['name'])}"
        if sum(one["name"] == field["name"] for one in fields) > 1:
            field["name"] = field.pop("aliases")[0]
    elif choice == 3 and isinstance(field["type"], str) and field["type"] in PRIMITIVES:
        field.pop("default", None)
        field["type"] = random.choice(PRIMITIVES)
    elif choice == 4:
        record["aliases"] = [record["name"]]
        if random.random() < 0.5:
            record["namespace"] = ""
    elif not any(_nodes(one["type"]) for one in fields):
        random.shuffle(fields)


def _mutate_enum(enum: dict[str, Any], random: Random) -> None:
    if random.random() < 0.5:
        enum["symbols"] = [*SYMBOLS[: random.randrange(1, 5)]]
        if enum.get("default") not in enum["symbols"]:
            enum.pop("default", None)
    else:
        enum["default"] = enum["symbols"][0]
