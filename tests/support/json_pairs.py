"""Random pairs of small JSON Schemas without defaults, and values that tell them apart."""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

DRAFT = "https://json-schema.org/draft/2020-12/schema"
SCALARS: list[Any] = [None, True, False, 0, 1, 2, 2.0, 3, 1.5, "", "a", "bb", "ccc"]
SMALL: list[Any] = [None, 1, 1.5, "a", "bb"]
VALUES: list[Any] = [
    *SCALARS,
    *([*items] for size in range(3) for items in itertools.product(SMALL, repeat=size)),
    [1, 1, 1],
    *({"a": one} for one in SMALL),
    *({"b": one} for one in SMALL),
    *({"ab": one} for one in SMALL),
    *({"a": one, "b": two} for one in SMALL for two in SMALL),
    {"a": 1, "b": "a", "c": None},
    {"a": {"a": 1}},
    {"a": {"b": "a"}},
    {"a": [1]},
    {},
]
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]


def schema(random: Random, depth: int = 2) -> Any:
    choice = random.randrange(12)
    if choice == 0:
        return random.choice([True, True, False])
    if choice < 3 or not depth:
        return {"type": random.choice([*TYPES, ["string", "null"], ["integer", "string"]])}
    if choice == 3:
        return {"enum": random.sample(SCALARS, random.randrange(1, 4))}
    if choice == 4:
        return _bounded(random)
    if choice < 8:
        return _object(random, depth - 1)
    if choice == 8:
        return _array(random, depth - 1)
    return _combined(random, depth - 1)


def _bounded(random: Random) -> dict[str, Any]:
    word = random.choice(
        ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
         "minItems", "maxItems", "minProperties", "maxProperties", "multipleOf"]
    )  # fmt: skip
    made: dict[str, Any] = {word: random.randrange(1, 4)}
    if random.random() < 0.5:
        made["type"] = random.choice(TYPES)
    return made


def _object(random: Random, depth: int) -> dict[str, Any]:
    names = random.sample(["a", "b"], random.randrange(3))
    made: dict[str, Any] = {"properties": {name: schema(random, depth) for name in names}}
    if random.random() < 0.7:
        made["type"] = "object"
    if random.random() < 0.5:
        made["additionalProperties"] = random.choice([False, schema(random, 0)])
    if random.random() < 0.3:
        made["patternProperties"] = {random.choice(["^a", "b$"]): schema(random, 0)}
    if random.random() < 0.4:
        made["required"] = [random.choice(["a", "b"])]
    if random.random() < 0.1:
        made["dependentRequired"] = {"a": ["b"]}
    if random.random() < 0.1:
        made["dependentSchemas"] = {"a": schema(random, depth)}
    if random.random() < 0.1:
        made["propertyNames"] = {"maxLength": random.randrange(1, 3)}
    if random.random() < 0.1:
        made["unevaluatedProperties"] = False
    return made


def _array(random: Random, depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if random.random() < 0.6:
        made["items"] = schema(random, depth)
    if random.random() < 0.4:
        count = random.randrange(1, 3)
        made["prefixItems"] = [schema(random, depth) for _ in range(count)]
    if random.random() < 0.3:
        made["uniqueItems"] = True
    if random.random() < 0.2:
        made["contains"] = schema(random, 0)
    return made


def _combined(random: Random, depth: int) -> dict[str, Any]:
    word = random.choice(["allOf", "anyOf", "oneOf", "not", "if"])
    if word == "not":
        return {"not": schema(random, depth)}
    if word == "if":
        return {"if": schema(random, depth), "then": schema(random, depth)}
    made: dict[str, Any] = {word: [schema(random, depth) for _ in range(random.randrange(1, 4))]}
    if random.random() < 0.3:
        made["type"] = random.choice(TYPES)
    if random.random() < 0.1:
        made["unevaluatedProperties"] = False
    return made


def pair(random: Random) -> tuple[Any, Any]:
    """Reader and writer, most of them alike."""
    writer = schema(random)
    while isinstance(writer, bool):
        writer = schema(random)
    reader = copy.deepcopy(writer)
    for _ in range(random.randrange(1, 3)):
        reader = _mutated(reader, random)
    if not isinstance(reader, dict) or random.random() < 0.1:
        reader = {"anyOf": [reader, schema(random)]}
    if random.random() < 0.5:
        reader, writer = writer, reader
    return {"$schema": DRAFT, **reader}, {"$schema": DRAFT, **writer}


def _mutated(node: Any, random: Random) -> Any:
    """The schema with one place changed."""
    if not isinstance(node, dict) or not node or random.random() < 0.2:
        return random.choice([schema(random, 1), {"anyOf": [node, schema(random, 1)]}])
    key = random.choice([*node])
    value = node[key]
    if random.random() < 0.25:
        del node[key]
    elif key in ("properties", "patternProperties", "dependentSchemas"):
        name = random.choice(["^a", "b$"] if key == "patternProperties" else ["a", "b"])
        value[name] = _mutated(value[name], random) if name in value else schema(random, 1)
    elif key in ("allOf", "anyOf", "oneOf", "prefixItems"):
        _mutate_list(value, random)
    elif key in ("items", "additionalProperties", "not", "then", "contains"):
        node[key] = _mutated(value, random)
    elif isinstance(value, int) and not isinstance(value, bool):
        node[key] = random.randrange(1, 4)
    else:
        node.update(_bounded(random))
    return node


def _mutate_list(schemas: list[Any], random: Random) -> None:
    choice = random.randrange(4)
    if choice == 0:
        schemas.append(schema(random, 1))
    elif choice == 1 and len(schemas) > 1:
        schemas.pop()
    elif choice == 2:
        random.shuffle(schemas)
    else:
        index = random.randrange(len(schemas))
        schemas[index] = _mutated(schemas[index], random)
