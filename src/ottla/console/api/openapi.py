"""OpenAPI 3.1, made from the routes and the dataclasses of the views.

A copy is kept in docs/reference/console-openapi.json; a test compares them.
"""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, Union, get_args, get_origin
from typing import get_type_hints as hints_of

from ottla.console import attention, findings, lag, missing, window
from ottla.console.missing import Missing
from ottla.console.views import (
    doctor,
    frame,
    group,
    groups,
    lags,
    letters,
    nodes,
    overview,
    pipelines,
    queue,
    queues,
    schemas,
    security,
    series,
    table,
    tables,
    tier,
    topic,
    topics,
    transactions,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.console.api.changes import Changed
    from ottla.console.api.routes import Served

Schema: TypeAlias = "dict[str, Any]"

VERSION: Final = "1"
PROBLEM: Final = {
    "type": "object",
    "required": ["status", "title"],
    "properties": {
        "type": {"type": "string"},
        "status": {"type": "integer"},
        "title": {"type": "string", "description": "A sentence that says what to do."},
        "detail": {"type": "string"},
    },
}
_PROBLEM_ANSWER: Final = {
    "description": "A sentence that says what is wrong and what to do.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_MISSING: Final = {
    "type": "object",
    "required": ["missing"],
    "properties": {"missing": {"type": "string", "description": "Why there is no value."}},
}
_PLAIN: Final[dict[Any, Schema]] = {
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},
    str: {"type": "string"},
    datetime: {"type": "string", "format": "date-time"},
}


# Annotations are texts; these modules have the names in them.
_NAMES: Final[dict[str, Any]] = {
    name: value
    for module in (
        attention, findings, lag, missing, window, doctor, frame, group, groups, lags, letters,
        nodes, overview, pipelines, queue, queues, schemas, security, series, table, tables, tier,
        topic, topics, transactions,
    )
    for name, value in vars(module).items()
    if not name.startswith("_")
} | {"datetime": datetime}  # fmt: skip


def document(served: Sequence[Served], changed: Sequence[Changed]) -> Schema:
    """The description of all routes."""
    schemas = _Schemas()
    paths: Schema = {
        one.path: {
            "get": {
                "summary": one.summary,
                "parameters": [
                    *_path_parameters(one.path),
                    *(_query_parameter(name, words) for name, words in one.query),
                ],
                "responses": {
                    "200": {"description": one.summary, "content": _content(one, schemas)},
                    "default": _PROBLEM_ANSWER,
                },
            }
        }
        for one in served
    }
    for change in changed:
        paths.setdefault(change.path, {})["post"] = _change(change)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ottla console", "version": VERSION},
        "paths": paths,
        "components": {"schemas": {"Problem": PROBLEM, **dict(sorted(schemas.made.items()))}},
    }


def _change(one: Changed) -> Schema:
    dry = {"type": "boolean", "default": True, "description": "false: do it."}
    keys = {name: {"description": words} for name, words in one.keys}
    body = {"type": "object", "properties": {**keys, "dry_run": dry}, "additionalProperties": False}
    return {
        "summary": one.summary,
        "parameters": _path_parameters(one.path),
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": {
                "description": "What was done, or with `dry_run` what would be.",
                "content": {
                    "application/json": {
                        "schema": {
                            "type": "object",
                            "required": ["dry_run"],
                            "properties": {"dry_run": {"type": "boolean"}},
                        }
                    }
                },
            },
            "default": _PROBLEM_ANSWER,
        },
    }


def _content(one: Served, schemas: _Schemas) -> Schema:
    if one.view is None:
        return {"application/x-ndjson": {"schema": {"type": "string"}}}
    return {"application/json": {"schema": schemas.of(one.view)}}


def _path_parameters(path: str) -> list[Schema]:
    names = [part.strip("{}") for part in path.split("/") if part.startswith("{")]
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]


def _query_parameter(name: str, words: str) -> Schema:
    return {"name": name, "in": "query", "description": words, "schema": {"type": "string"}}


class _Schemas:
    """JSON Schemas of types; dataclasses are named and referred to."""

    def __init__(self) -> None:
        self.made: dict[str, Schema] = {}

    def of(self, kind: Any) -> Schema:
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        if kind is Missing:
            self.made["Missing"] = dict(_MISSING)
            return {"$ref": "#/components/schemas/Missing"}
        origin, inner = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(one) for one in inner]}
        if origin is Literal:
            return {"enum": list(inner)}
        if origin is tuple:
            if len(inner) == 2 and inner[1] is ...:
                return {"type": "array", "items": self.of(inner[0])}
            return {"type": "array", "prefixItems": [self.of(one) for one in inner]}
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [one.value for one in kind]}
        if is_dataclass(origin or kind):
            return self._named(origin or kind, inner)
        raise TypeError(f"no schema for {kind!r}")

    def _named(self, kind: Any, inner: tuple[Any, ...]) -> Schema:
        name = kind.__name__ + "".join(f"Of{one.__name__}" for one in inner)
        if name not in self.made:
            self.made[name] = {}  # it may refer to itself
            variables = (
                dict(zip(getattr(kind, "__parameters__", ()), inner, strict=True)) if inner else {}
            )
            hints = hints_of(kind, localns=_NAMES)
            self.made[name] = {
                "type": "object",
                "required": [one.name for one in fields(kind)],
                "properties": {
                    one.name: self.of(_filled(hints[one.name], variables)) for one in fields(kind)
                },
            }
        return {"$ref": f"#/components/schemas/{name}"}


def _filled(kind: Any, variables: dict[Any, Any]) -> Any:
    """The type with its variables replaced: `tuple[T, ...]` of `Table[TopicRow]`."""
    if kind in variables:
        return variables[kind]
    open_ones = tuple(getattr(kind, "__parameters__", ()))
    if variables and open_ones:
        return kind[tuple(variables[one] for one in open_ones)]
    return kind
