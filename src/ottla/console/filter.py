"""Filters of records: "contains", and "where" in CEL.

CEL has no loops and no names but those given, and its regular expressions take linear time. What is
left to abuse are macros inside macros: at most one is allowed. A record for which an expression
fails (a field is not there) does not match; failures are counted and the first is told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ottla.console.decode.tree import plain
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from cel import Program

    from ottla.console.views.messages import Message, Shown

MAX_CHARACTERS: Final = 512
"""Enough for what people write; an expression takes 20 us a record."""
MAX_MACROS: Final = 1
"""Five nested ones over lists of ten take 0.3 s a record."""
NAMES: Final = ("key", "value", "headers", "partition", "offset", "timestamp", "size")
_STRING: Final = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""")
_MACRO: Final = re.compile(r"\.\s*(?:exists_one|exists|all|map|filter)\s*\(")


class BadWhere(OttlaError, ValueError):
    """An expression that cannot be used; the text says why, and where."""


@dataclass(slots=True)
class Where:
    """A compiled expression; make it with `compile_where`."""

    program: Program
    errors: int = 0
    first_error: str | None = None
    uses: frozenset[str] = field(default_factory=frozenset)

    def matches(self, message: Message) -> bool:
        """Whether the expression is true for the record."""
        try:
            return self.program.execute(self._variables(message)) is True
        except Exception as error:  # noqa: BLE001  # whatever it raises: the record does not match
            self.errors += 1
            if self.first_error is None:
                self.first_error = " ".join(str(error).split())[:200]
            return False

    def _variables(self, message: Message) -> dict[str, Any]:
        found: dict[str, Any] = {
            "partition": message.partition,
            "offset": message.offset,
            "timestamp": message.time,
            "size": message.size,
            "key": None,
            "value": None,
            "headers": {},
        }
        if "key" in self.uses:
            found["key"] = _value(message.key)
        if "value" in self.uses:
            found["value"] = _value(message.value)
        if "headers" in self.uses:
            found["headers"] = {one.name: _value(one.value) for one in message.headers}
        return found


def compile_where(text: str) -> Where:
    """The expression, ready for many records; raises `BadWhere`."""
    if len(text) > MAX_CHARACTERS:
        raise BadWhere(f"where has {len(text)} characters; at most {MAX_CHARACTERS} are allowed")
    outside = _STRING.sub('""', text)
    if len(_MACRO.findall(outside)) > MAX_MACROS:
        raise BadWhere(
            "where has more than one of exists, all, map and filter; nested ones would take too "
            "long, so one is allowed"
        )
    import cel

    try:
        program = cel.compile(text)
    except Exception as error:  # noqa: BLE001  # of the library; each means that it is wrong
        raise BadWhere(f"where is not an expression: {_told(error, text)}") from None
    used = frozenset(program.variables())
    return Where(program, uses=used)


def _told(error: Exception, text: str) -> str:
    """What is wrong, with the place in the text."""
    said = " ".join(str(error).split())[:300]
    return f"{said} (in {text!r:.80})"


def _value(shown: Shown) -> Any:
    if shown.form == "null":
        return None
    return plain(shown.tree) if shown.has_tree else shown.text
