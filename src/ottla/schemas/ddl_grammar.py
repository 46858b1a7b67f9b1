"""The grammar of Spark's DDL: `shop string, amount double, at timestamp`. No libraries.

    columns  = column {"," column} | "struct" "<" columns ">"
    column   = name [":"] type ["not" "null"] ["comment" text]
    type     = a word of SIMPLE | decimal ["(" digits ["," digits] ")"]
             | "array" "<" type ">" | "map" "<" type "," type ">" | "struct" "<" columns ">"

- Types are those that Iceberg and Spark share. `tinyint`, `smallint`, `char` and others are refused
  with the type to use instead.
- `NOT NULL` is read and has no effect: every value column may be null.
- A name in backquotes may have any characters; a backquote in it is doubled.

A broker checks a setting with it, and loads no Arrow; `ddl` makes Arrow columns of the tree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from ottla.schemas.bounds import MAX_DEPTH, MAX_LEAVES
from ottla.schemas.model import InvalidSchema, SchemaTooLarge

MAX_TEXT: Final = 64 * 1024
"""Most characters: 32 for each of 2,000 columns. A broker reads it while others wait."""
MAX_PRECISION: Final = 38
DEFAULT_PRECISION: Final = 10

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<text>'(?:[^'\\]|\\.)*'"
    r'|"(?:[^"\\]|\\.)*")|(?P<mark>[<>(),:]))',
    re.DOTALL,
)
SIMPLE: Final = {
    "boolean": "boolean",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}
"""Types of one word, and the names they have here."""
_INSTEAD: Final = {
    "tinyint": "int",
    "byte": "int",
    "smallint": "int",
    "short": "int",
    "char": "string",
    "varchar": "string",
    "character": "string",
    "variant": "string",
    "time": "bigint",
    "interval": "bigint",
    "void": "string",
}


@dataclass(frozen=True, slots=True)
class Simple:
    """A type of one word."""

    name: str


@dataclass(frozen=True, slots=True)
class Decimal:
    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class Array:
    element: Type


@dataclass(frozen=True, slots=True)
class Map:
    key: Type
    value: Type


@dataclass(frozen=True, slots=True)
class Struct:
    columns: tuple[Column, ...]


Type: TypeAlias = Simple | Decimal | Array | Map | Struct


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: Type
    comment: str | None


def parse_columns(text: str) -> tuple[Column, ...]:
    """The columns of `text`. Raises InvalidSchema with the place of the fault."""
    if len(text) > MAX_TEXT:
        raise SchemaTooLarge(f"expected DDL of at most {MAX_TEXT} characters, got {len(text)}")
    parser = _Parser(text)
    if parser.peek().lower() == "struct" and parser.peek(1) == "<":
        found = parser.kind(-1)
        assert isinstance(found, Struct)
        columns = found.columns
    else:
        columns = parser.columns(0, end="")
    if parser.peek():
        parser.fail("',' or the end")
    if not columns:
        parser.fail("at least one column, such as `amount double`")
    return columns


class _Parser:
    def __init__(self, text: str) -> None:
        text = text.rstrip()
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        self._at = 0
        self._leaves = 0
        position = 0
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None or found.lastgroup is None:
                raise InvalidSchema(
                    "expected a name, a type or a mark in DDL, "
                    f"got {text[position : position + 20].lstrip()!r}",
                    f"character {position + 1}",
                )
            self._tokens.append((found.lastgroup, found[found.lastgroup], found.start()))
            position = found.end()

    def peek(self, ahead: int = 0) -> str:
        """The next token as it is written; empty at the end."""
        at = self._at + ahead
        return self._tokens[at][1] if at < len(self._tokens) else ""

    def fail(self, wanted: str) -> NoReturn:
        at_end = self._at >= len(self._tokens)
        place = len(self._text) if at_end else self._tokens[self._at][2]
        got = "the end" if at_end else repr(self.peek())
        raise InvalidSchema(f"expected {wanted} in DDL, got {got}", f"character {place + 1}")

    def take(self, mark: str) -> None:
        if self.peek().lower() != mark:
            self.fail(repr(mark))
        self._at += 1

    def has(self, mark: str) -> bool:
        if self.peek().lower() != mark:
            return False
        self._at += 1
        return True

    def name(self) -> str:
        kind = self._tokens[self._at][0] if self._at < len(self._tokens) else ""
        if kind not in ("quoted", "word"):
            self.fail("a column name")
        token = self.peek()
        self._at += 1
        return token[1:-1].replace("``", "`") if kind == "quoted" else token

    def columns(self, depth: int, end: str) -> tuple[Column, ...]:
        """Columns up to `end`, which is not taken."""
        found: list[Column] = []
        while self.peek() != end:
            if found:
                self.take(",")
            name = self.name()
            self.has(":")
            kind = self.kind(depth)
            if self.has("not"):
                self.take("null")
            found.append(Column(name, kind, self.comment()))
        return tuple(found)

    def comment(self) -> str | None:
        if not self.has("comment"):
            return None
        kind = self._tokens[self._at][0] if self._at < len(self._tokens) else ""
        if kind != "text":
            self.fail("a comment in quotes")
        token = self.peek()
        self._at += 1
        return re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.DOTALL)

    def kind(self, depth: int) -> Type:
        if depth >= MAX_DEPTH:
            raise SchemaTooLarge(f"expected columns at most {MAX_DEPTH} deep, got deeper ones")
        word = self.peek().lower()
        if word in ("array", "map", "struct"):
            self._at += 1
            return self.nested(word, depth + 1)
        self._leaves += 1
        if self._leaves > MAX_LEAVES:  # before all of a long text is read
            raise SchemaTooLarge(f"expected at most {MAX_LEAVES} leaf columns, got more")
        if word in SIMPLE:
            self._at += 1
            return Simple(SIMPLE[word])
        if word in ("decimal", "dec", "numeric"):
            self._at += 1
            return self.decimal()
        known = f"a type ({', '.join(sorted(SIMPLE))}, decimal, array, map, struct)"
        instead = _INSTEAD.get(word)
        return self.fail(known if instead is None else f"a type that Iceberg has (use {instead})")

    def nested(self, word: str, depth: int) -> Type:
        self.take("<")
        kind: Type
        if word == "array":
            kind = Array(self.kind(depth))
        elif word == "map":
            key = self.kind(depth)
            self.take(",")
            kind = Map(key, self.kind(depth))
        else:
            kind = Struct(self.columns(depth, end=">"))
            if not kind.columns:
                self.fail("a column name")
        self.take(">")
        return kind

    def decimal(self) -> Type:
        precision, scale = DEFAULT_PRECISION, 0
        if self.has("("):
            precision = self.number()
            if self.has(","):
                scale = self.number()
            self.take(")")
        if not 1 <= precision <= MAX_PRECISION or scale > precision:
            self.fail(f"a decimal of 1 to {MAX_PRECISION} digits with a scale within them")
        return Decimal(precision, scale)

    def number(self) -> int:
        if not re.fullmatch(r"[0-9]{1,3}", self.peek()):
            self.fail("a number of digits")
        self._at += 1
        return int(self._tokens[self._at - 1][1])
