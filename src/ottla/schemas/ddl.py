"""Spark's DDL to Arrow columns and back: `shop string, amount double, at timestamp`.

- Types are those that Iceberg and Spark share. `tinyint`, `smallint`, `char` and others are refused
  with the type to use instead.
- `NOT NULL` is read and has no effect: every value column may be null. `COMMENT 'text'` becomes the
  column's doc.
- A name in backquotes may have any characters; a backquote in it is doubled.
- Two columns whose names differ in case alone: the later one is renamed (`columns.finished`).
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

import pyarrow as pa

from ottla.schemas import names
from ottla.schemas.limits import MAX_DEPTH, finished
from ottla.schemas.model import InvalidSchema, SchemaTooLarge

MAX_TEXT: Final = 1024 * 1024
"""Most characters: 2,000 columns need far fewer."""
MAX_PRECISION: Final = 38
DEFAULT_PRECISION: Final = 10

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<text>'(?:[^'\\]|\\.)*'"
    r'|"(?:[^"\\]|\\.)*")|(?P<mark>[<>(),:]))',
    re.DOTALL,
)
_SIMPLE: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
}
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
_WRITTEN: Final = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    TIMESTAMP: "timestamp",
    TIMESTAMP_NTZ: "timestamp_ntz",
}
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_ddl(text: str) -> pa.Schema:
    """The columns of `text`. Raises InvalidSchema with the place of the fault."""
    if len(text) > MAX_TEXT:
        raise SchemaTooLarge(f"expected DDL of at most {MAX_TEXT} characters, got {len(text)}")
    parser = _Parser(text)
    if parser.peek().lower() == "struct" and parser.peek(1) == "<":
        fields = list(parser.kind(0))
    else:
        fields = parser.fields(0, end="")
    if parser.peek():
        parser.fail("',' or the end")
    if not fields:
        parser.fail("at least one column, such as `amount double`")
    return finished(fields)


def to_ddl(columns: pa.Schema) -> str:
    """DDL that `parse_ddl` and Spark read as these columns."""
    return ", ".join(
        f"{_name(each.name)} {type_ddl(each.type)}{_comment(each)}" for each in columns
    )


def type_ddl(kind: pa.DataType) -> str:
    """One type as DDL."""
    if kind in _WRITTEN:
        return _WRITTEN[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    below = names.children(kind)
    if pa.types.is_struct(kind):
        inner = ", ".join(f"{_name(each.name)}: {type_ddl(each.type)}" for each in below)
        return f"struct<{inner}>"
    if pa.types.is_map(kind):
        return f"map<{type_ddl(below[0].type)}, {type_ddl(below[1].type)}>"
    if pa.types.is_list(kind):
        return f"array<{type_ddl(below[0].type)}>"
    raise InvalidSchema(f"expected a type that Spark and Iceberg have, got {kind}")


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _comment(column: pa.Field) -> str:
    doc = (column.metadata or {}).get(names.DOC)
    if doc is None:
        return ""
    escaped = doc.decode().replace("\\", "\\\\").replace("'", "\\'")
    return f" COMMENT '{escaped}'"


class _Parser:
    def __init__(self, text: str) -> None:
        text = text.rstrip()
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        self._at = 0
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

    def fields(self, depth: int, end: str) -> list[pa.Field]:
        """Columns up to `end`, which is not taken."""
        found: list[pa.Field] = []
        while self.peek() != end:
            if found:
                self.take(",")
            name = self.name()
            self.has(":")
            kind = self.kind(depth)
            if self.has("not"):
                self.take("null")
            found.append(names.field(name, kind, doc=self.comment()))
        return found

    def comment(self) -> str | None:
        if not self.has("comment"):
            return None
        kind = self._tokens[self._at][0] if self._at < len(self._tokens) else ""
        if kind != "text":
            self.fail("a comment in quotes")
        token = self.peek()
        self._at += 1
        return re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.DOTALL)

    def kind(self, depth: int) -> pa.DataType:
        if depth > MAX_DEPTH:
            raise SchemaTooLarge(f"expected columns at most {MAX_DEPTH} deep, got deeper ones")
        word = self.peek().lower()
        if word in _SIMPLE:
            self._at += 1
            return _SIMPLE[word]
        if word in ("decimal", "dec", "numeric"):
            self._at += 1
            return self.decimal()
        if word in ("array", "map", "struct"):
            self._at += 1
            return self.nested(word, depth + 1)
        known = f"a type ({', '.join(sorted(_SIMPLE))}, decimal, array, map, struct)"
        instead = _INSTEAD.get(word)
        return self.fail(known if instead is None else f"a type that Iceberg has (use {instead})")

    def nested(self, word: str, depth: int) -> pa.DataType:
        self.take("<")
        kind: pa.DataType
        if word == "array":
            kind = names.list_of(names.field(names.ELEMENT, self.kind(depth)))
        elif word == "map":
            key = self.kind(depth)
            self.take(",")
            kind = names.map_of(key, names.field("value", self.kind(depth)))
        else:
            kind = pa.struct(self.fields(depth, end=">"))
        self.take(">")
        return kind

    def decimal(self) -> pa.DataType:
        precision, scale = DEFAULT_PRECISION, 0
        if self.has("("):
            precision = self.number()
            if self.has(","):
                scale = self.number()
            self.take(")")
        if not 1 <= precision <= MAX_PRECISION or scale > precision:
            self.fail(f"a decimal of 1 to {MAX_PRECISION} digits with a scale within them")
        return pa.decimal128(precision, scale)

    def number(self) -> int:
        if not re.fullmatch(r"[0-9]{1,3}", self.peek()):
            self.fail("a number of digits")
        self._at += 1
        return int(self._tokens[self._at - 1][1])
