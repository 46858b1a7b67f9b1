"""Random Avro schemas, their values, and the rows that fastavro and `from_pylist` make of them."""

from __future__ import annotations

import copy
import datetime
import io
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer

if TYPE_CHECKING:
    import random

PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
FAMILIES = (
    ("boolean",),
    ("int", "long"),
    ("float", "double"),
    ("bytes",),
    ("string",),
    ("array",),
    ("record",),
)
"""At most one branch of each in a union, so that a Python value says which branch it is of."""
APART = (("boolean",), ("int", "long", "float", "double"), ("bytes", "string"), *FAMILIES[-2:])
"""The same without promotion from one to another: fastavro takes the first branch that fits, by
promotion or not, where Java and Ottla prefer one of the same type."""


class RandomAvro:
    """Schemas and values from one source of chance."""

    def __init__(self, rng: random.Random, *, logical: bool = True) -> None:
        self._rng = rng
        self._logical = logical
        self._names = 0

    def record(self, depth: int = 0) -> dict[str, Any]:
        fields = [
            {"name": f"f{index}", "type": self.schema(depth + 1)}
            for index in range(self._rng.randint(1, 6))
        ]
        return {"type": "record", "name": self._name(), "fields": fields}

    def schema(self, depth: int) -> Any:
        rng = self._rng
        kinds = ["primitive"] * 5 + ["nullable"] * 3 + ["enum", "fixed"]
        kinds += ["logical"] * 2 if self._logical else []
        if depth < 4:
            kinds += ["array", "map", "record", "union", "null"]
        kind = rng.choice(kinds)
        if kind == "logical":
            return dict(rng.choice(LOGICAL))
        if kind == "nullable":
            inner = self.schema(depth + 1)
            while isinstance(inner, list) or inner == "null":
                inner = self.schema(depth + 1)
            return ["null", inner] if rng.random() < 0.8 else [inner, "null"]
        if kind == "union":
            return self._union(depth)
        if kind == "null":
            return "null"
        return self._of(rng.choice(PRIMITIVES) if kind == "primitive" else kind, depth)

    def _of(self, kind: str, depth: int) -> Any:
        if kind == "enum":
            symbols = [f"S{index}" for index in range(self._rng.randint(1, 5))]
            return {"type": "enum", "name": self._name(), "symbols": symbols}
        if kind == "fixed":
            return {"type": "fixed", "name": self._name(), "size": self._rng.randint(1, 20)}
        if kind == "array":
            return {"type": "array", "items": self.schema(depth + 1)}
        if kind == "map":
            return {"type": "map", "values": self.schema(depth + 1)}
        return self.record(depth + 1) if kind == "record" else kind

    def _union(self, depth: int) -> list[Any]:
        families = self._rng.sample(FAMILIES if self._logical else APART, self._rng.randint(2, 4))
        branches = [self._of(self._rng.choice(family), depth + 1) for family in families]
        return ["null", *branches] if self._rng.random() < 0.5 else branches

    def _name(self) -> str:
        self._names += 1
        return f"N{self._names}"

    # -- values ---------------------------------------------------------------------------------

    def value(self, schema: Any) -> Any:
        rng = self._rng
        if isinstance(schema, list):
            return self.value(rng.choice(schema))
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(schema, dict) and "logicalType" in schema:
            return self._logical_value(schema["logicalType"])
        if kind == "record":
            return {each["name"]: self.value(each["type"]) for each in schema["fields"]}
        if kind == "array":
            return [self.value(schema["items"]) for _ in range(rng.choice((0, 0, 1, 2, 5)))]
        if kind == "map":
            keys = rng.sample(("", "a", "é", "key", "🐟"), rng.choice((0, 1, 3)))
            return {key: self.value(schema["values"]) for key in keys}
        if kind == "enum":
            return rng.choice(schema["symbols"])
        if kind == "fixed":
            return rng.randbytes(schema["size"])
        return self._primitive(kind)

    def _primitive(self, kind: str) -> Any:
        rng = self._rng
        if kind == "null":
            return None
        if kind == "boolean":
            return rng.random() < 0.5
        if kind in ("int", "long"):
            bits = 31 if kind == "int" else 63
            return rng.choice((0, -1, 1, 2**bits - 1, -(2**bits), rng.randint(-70, 20_000)))
        if kind == "float":
            return rng.randint(-(2**20), 2**20) / 64
        if kind == "double":
            return rng.uniform(-1e9, 1e9)
        size = rng.choice((0, 1, 7, 8, 9, 31, 70))
        return rng.randbytes(size) if kind == "bytes" else "".join(rng.choices("abé🐟", k=size))

    def _logical_value(self, kind: str) -> Any:
        rng = self._rng
        micros = rng.randint(-(10**15), 10**15)
        if kind == "date":
            return (EPOCH + datetime.timedelta(microseconds=micros)).date()
        if kind.startswith("time-"):
            step = 1_000 if kind == "time-millis" else 1
            at = EPOCH + datetime.timedelta(
                microseconds=rng.randrange(86_400_000_000) // step * step
            )
            return at.time()
        if kind == "uuid":
            return uuid.UUID(int=rng.getrandbits(128))
        if kind == "decimal":
            return Decimal(rng.randint(-(10**12) + 1, 10**12 - 1)).scaleb(-3)
        step = 1_000 if kind.endswith("millis") else 1
        at = EPOCH + datetime.timedelta(microseconds=micros // step * step)
        return at.replace(tzinfo=None) if kind.startswith("local") else at

    # -- evolution ------------------------------------------------------------------------------

    def evolved(self, schema: Any) -> Any:
        """A reader's schema for records of `schema`, which resolves."""
        made = copy.deepcopy(schema)
        self._evolve_record(made)
        return made

    def _evolve_record(self, record: Any) -> None:
        rng = self._rng
        fields = [each for each in record["fields"] if rng.random() < 0.85]
        for each in fields:
            each["type"] = self._evolved_type(each["type"])
            if rng.random() < 0.2:
                each["aliases"] = [each["name"]]
                each["name"] = f"renamed_{each['name']}"
        for index in range(rng.randint(0, 2)):
            name, kind = f"new{index}", self._plain_default()
            fields.append({"name": name, "type": kind[0], "default": kind[1]})
        rng.shuffle(fields)
        record["fields"] = fields or [{"name": "only", "type": "int", "default": 7}]

    def _plain_default(self) -> tuple[Any, Any]:
        inner = {
            "type": "record",
            "name": self._name(),
            "fields": [
                {"name": "x", "type": "int"},
                {"name": "y", "type": ["null", "string"], "default": None},
            ],
        }
        options: list[tuple[Any, Any]] = [
            ("int", -5),
            ("string", "é"),
            ("bytes", "ascii"),
            ("double", 1.5),
            ("boolean", True),
            (["null", "int"], None),
            (["int", "null"], 9),
            ({"type": "array", "items": "long"}, [1, 2]),
            ({"type": "map", "values": "string"}, {"k": "v"}),
            ({"type": "map", "values": "string"}, {}),
            ({"type": "enum", "name": self._name(), "symbols": ["A", "B"]}, "B"),
            (inner, {"x": 3, "y": None}),
        ]
        return self._rng.choice(options)

    def _evolved_type(self, schema: Any) -> Any:
        rng = self._rng
        if isinstance(schema, list):
            branches = [
                self._evolved_type(each) if isinstance(each, dict) else each for each in schema
            ]
            return branches if "null" in branches or rng.random() < 0.5 else ["null", *branches]
        if isinstance(schema, dict):
            if schema["type"] == "record":
                self._evolve_record(schema)
            elif schema["type"] in ("array", "map"):
                key = "items" if schema["type"] == "array" else "values"
                schema[key] = self._evolved_type(schema[key])
            elif schema["type"] == "enum" and rng.random() < 0.5:
                schema["symbols"] = [*schema["symbols"], "NEW"]
                rng.shuffle(schema["symbols"])
            return schema
        wider = {"int": ("long", "float", "double"), "long": ("double",), "float": ("double",)}
        wider |= {"string": ("bytes",)}
        if schema in wider and rng.random() < 0.4:
            return rng.choice(wider[schema])
        return ["null", schema] if schema != "null" and rng.random() < 0.2 else schema


def encoded(schema: Any, values: list[Any]) -> list[bytes]:
    parsed = parse_schema(copy.deepcopy(schema))
    found = []
    for each in values:
        stream = io.BytesIO()
        schemaless_writer(stream, parsed, each)
        found.append(stream.getvalue())
    return found


def rows_of(data: list[bytes], writer: Any, reader: Any = None) -> list[Any]:
    """What fastavro reads, in the shape of the columns."""
    parsed = parse_schema(copy.deepcopy(writer))
    wanted = None if reader is None else parse_schema(copy.deepcopy(reader))
    return [
        row_of(reader or writer, schemaless_reader(io.BytesIO(each), parsed, wanted))
        for each in data
    ]


def row_of(schema: Any, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(schema, list):
        return _union_row([each for each in schema if each != "null"], value)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return {
            each["name"]: row_of(each["type"], value[each["name"]]) for each in schema["fields"]
        }
    if kind == "array":
        return [row_of(schema["items"], each) for each in value]
    if kind == "map":
        return [(key, row_of(schema["values"], each)) for key, each in value.items()]
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, datetime.time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        micros = seconds * 1_000_000 + value.microsecond
        return micros // 1_000 if schema["logicalType"] == "time-millis" else micros
    return value


def _union_row(branches: list[Any], value: Any) -> Any:
    if len(branches) == 1:
        return row_of(branches[0], value)
    found = {}
    for each in branches:
        kind = each["type"] if isinstance(each, dict) else each
        name = each["name"] if kind == "record" else kind
        found[name] = row_of(each, value) if _is_of(kind, value) else None
    return found


def _is_of(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    kinds: dict[type, tuple[str, ...]] = {
        int: ("int", "long"),
        float: ("float", "double"),
        bytes: ("bytes",),
        str: ("string",),
        list: ("array",),
        dict: ("record",),
    }
    return kind in kinds[type(value)]
