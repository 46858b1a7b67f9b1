"""Which rows a command means: `user_id = 'x' and shop in ('a', 'b') and note is null`.

A predicate is a list of conditions that all hold: a column, or a field of it (`address.city`), that
equals a value, is one of several, or is null. Texts stand in single quotes, two for one inside;
bytes are compared with a text's UTF-8, or as x'0a1b'. Nothing else is understood: no `or`, function
or subquery. A comparison with null is false, as in SQL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from ottla.tables.errors import BadStatement

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_CHARACTERS: Final = 65_536
"""Of a predicate: some thousand ids in a list."""

_TOKENS: Final = re.compile(
    r"\s*(?:(?P<bytes>[xX]'[0-9a-fA-F]*')|(?P<text>'(?:[^']|'')*')"
    r"|(?P<number>-?[0-9]+(?:\.[0-9]+)?)|(?P<quoted>\"(?:[^\"]|\"\")+\")"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_.]*)|(?P<sign>[=(),]))"
)
_Value = str | bytes | bool | int | float


@dataclass(frozen=True, slots=True)
class Condition:
    """A column is one of these values; without any it is null."""

    column: str
    values: tuple[_Value, ...]


@dataclass(frozen=True, slots=True)
class Predicate:
    """Conditions that all hold."""

    conditions: tuple[Condition, ...]

    @property
    def columns(self) -> set[str]:
        """The columns that are looked at."""
        return {one.column.partition(".")[0] for one in self.conditions}

    def checked(self, columns: pa.Schema) -> Predicate:
        """Itself; `BadStatement` if a table with these columns cannot answer it."""
        for one in self.conditions:
            _literals(one, _type(one.column, columns))
        return self

    def mask(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Which rows are meant."""
        found = None
        for one in self.conditions:
            column = _values(one.column, rows)
            if one.values:
                is_one = pc.is_in(column, value_set=_literals(one, column.type))
            else:
                is_one = pc.is_null(column)
            found = is_one if found is None else pc.and_(found, is_one)
        assert found is not None
        return found


def parse_predicate(text: str) -> Predicate:
    """The predicate that a text says; `BadStatement` names what is not understood."""
    if len(text) > MAX_CHARACTERS:
        raise BadStatement(f"a predicate has at most {MAX_CHARACTERS} characters, not {len(text)}")
    return _Parser(_split(text), text).predicate()


def _split(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while text[at:].strip():
        match = _TOKENS.match(text, at)
        if match is None:
            raise BadStatement(f"not understood from here: {text[at:].strip()[:40]!r}")
        assert match.lastgroup is not None
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]], text: str) -> None:
        self._tokens = tokens
        self._text = text
        self._at = 0

    def predicate(self) -> Predicate:
        found = [self._condition()]
        while self._at < len(self._tokens):
            self._word("and")
            found.append(self._condition())
        return Predicate(tuple(found))

    def _next(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            self._fail("its end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _fail(self, found: str) -> NoReturn:
        raise BadStatement(
            f"{found} is not expected in {self._text[:80]!r}; a predicate is such as: "
            "user_id = 'x' and shop in ('a', 'b') and note is null"
        )

    def _word(self, *words: str) -> str:
        kind, text = self._next()
        if kind not in ("word", "sign") or text.lower() not in words:
            self._fail(repr(text))
        return text.lower()

    def _condition(self) -> Condition:
        kind, text = self._next()
        if kind == "quoted":
            column = text[1:-1].replace('""', '"')
        elif kind == "word":
            column = text
        else:
            self._fail(repr(text))
        how = self._word("=", "in", "is")
        if how == "is":
            self._word("null")
            return Condition(column, ())
        if how == "=":
            return Condition(column, (self._value(),))
        self._word("(")
        values = [self._value()]
        while self._word(",", ")") == ",":
            values.append(self._value())
        return Condition(column, tuple(values))

    def _value(self) -> _Value:
        kind, text = self._next()
        if kind == "text":
            return text[1:-1].replace("''", "'")
        if kind == "bytes" and len(text) % 2:
            return bytes.fromhex(text[2:-1])
        if kind == "number":
            return float(text) if "." in text else int(text)
        if kind != "word" or text.lower() not in ("true", "false"):
            self._fail(repr(text))
        return text.lower() == "true"


def _type(column: str, columns: pa.Schema) -> pa.DataType:
    name, *fields = column.split(".")
    found: Any = columns.field(name).type if name in columns.names else None
    for one in fields:
        index = found.get_field_index(one) if pa.types.is_struct(found) else -1
        found = found.field(index).type if index >= 0 else None
    if found is None:
        raise BadStatement(f"no column {column!r}; the columns are {', '.join(columns.names)}")
    return found


def _values(column: str, rows: pa.RecordBatch) -> pa.Array:
    name, *fields = column.split(".")
    found = rows.column(name)
    return pc.struct_field(found, fields) if fields else found


def _literals(condition: Condition, kind: pa.DataType) -> pa.Array:
    """The values as the column's type; `BadStatement` if they are of another."""
    values: Sequence[Any] = condition.values
    if pa.types.is_binary(kind):
        values = [one.encode() if isinstance(one, str) else one for one in values]
    try:
        return pa.array(values).cast(kind)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise BadStatement(f"{condition.column} is {kind}: {error}") from None
