"""What a schema is: its format, its text, what it refers to; and how parsing can refuse it.

- Values are frozen and picklable, and know nothing of a registry or a process.
- `parsing.parse` turns a `Schema` into a `Parsed`, `compatibility.check` compares `Parsed` ones.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NoReturn

from ottla.errors import OttlaError

MAX_BYTES = 5 * 1024 * 1024
"""A schema with all its references, in UTF-8. The registry's bound for the body of a request."""
MAX_REFERENCES = 1_000
"""References of a schema, those of its references included. Each is a document to parse."""
MAX_DEPTH = 128
"""Levels of JSON. Parsers recurse a few frames for each, and Python allows 1,000 frames."""


FRAMED: Final = ("registry", "registry-latest")
"""Formats of columns whose values name their schemas."""


class Kind(StrEnum):
    """Format of a schema, as registries name it (`schemaType`)."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class SchemaError(OttlaError):
    """Base class of errors about schemas."""


class InvalidSchema(SchemaError, ValueError):
    """A schema that cannot be parsed; `path` says where, as a JSON pointer or a line."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message, path)
        self.message = message
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ChunkTooLarge(OttlaError):
    """The columns of some values would be too large; the values are valid. Decode fewer of them."""


class SchemaTooLarge(InvalidSchema):
    """A schema beyond a limit; the message names the limit."""


@dataclass(frozen=True, slots=True)
class Reference:
    """`name` in the schema's text stands for a version of another subject."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as it is registered."""

    kind: Kind
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Any = None
    """JSON or None."""
    rules: Any = None
    """JSON or None; stored and given back, never executed."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A valid schema."""

    kind: Kind
    canonical: str
    """Identity: equal texts are one schema."""
    normalized: str
    """Identity where the registry is asked to normalise."""
    encoded: bytes
    """The tree as bytes: cheap to keep, and to send to and from the parsing child."""

    @property
    def tree(self) -> Any:
        """What the schema says, with its references; made anew by each call.

        - Avro: the schema as a JSON value with full names, references inlined where they are first
          used, so that any Avro library reads it.
        - JSON Schema: `{"root": schema, "references": {name: schema}}`.
        - Protobuf: the bytes of a `FileDescriptorSet`, dependencies first, the schema's file last.
        """
        return self.encoded if self.kind is Kind.PROTOBUF else json.loads(self.encoded)


def load_json(text: str, what: str = "the schema") -> Any:
    """The JSON value of a text, at most `MAX_DEPTH` levels deep."""
    try:
        value = json.loads(text, parse_constant=_refuse_number, parse_float=_finite)
    except RecursionError:
        raise SchemaTooLarge(_too_deep(what)) from None
    except ValueError as error:
        raise InvalidSchema(f"{what} is not JSON: {error}") from None
    check_depth(value, what)
    return value


def dump_json(value: Any, *, sort_keys: bool = False) -> str:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)


def encode(text: str) -> bytes:
    """UTF-8; a JSON escape can name half of a character, which has none."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidSchema("the schema has half of a surrogate pair in a text") from None


def check_depth(value: Any, what: str) -> None:
    """Refuse a JSON value of more than `MAX_DEPTH` levels."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    raise SchemaTooLarge(_too_deep(what))


def _too_deep(what: str) -> str:
    return f"{what} is nested more than {MAX_DEPTH} levels deep"


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse_number(text)


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is no number that can be held")
