"""A decoded document: what JSON and MessagePack have in common, numbers kept as they are written.

A tree is None, a bool, a `Number`, a str, a list of trees or a dict of trees by text. Nothing of it
passes through a float, so 9007199254740993 keeps its digits.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

MAX_BYTES: Final = 1024 * 1024
"""A larger document is shown as text; reading one takes 50 ms at most."""
MAX_DEPTH: Final = 100
"""Deeper ones are attacks on recursive readers, not data."""
MAX_NODES: Final = 100_000
"""A tree takes some 100 bytes a node, so 10 MiB."""
MAX_DIGITS: Final = 4300
"""Python's own limit for integers in text, against conversions that take quadratic time."""
_INT64: Final = 1 << 63


class Unreadable(Exception):
    """The bytes are not of this form, or beyond a limit; the text says why."""


class Number(str):
    """A number by its digits."""

    __slots__ = ()


Tree: TypeAlias = "bool | Number | str | list[Tree] | dict[str, Tree] | None"


def compact(tree: Tree) -> str:
    """The tree as JSON on one line."""
    return "".join(_parts(tree, None, ""))


def pretty(tree: Tree) -> str:
    """The tree as JSON, one entry a line."""
    return "".join(_parts(tree, "  ", "\n"))


def plain(tree: Tree) -> Any:
    """The tree as Python values, for expressions: integers of 64 bits, other numbers as floats."""
    if isinstance(tree, Number):
        try:
            whole = int(tree)
        except ValueError:
            return float(tree)
        return whole if -_INT64 <= whole < _INT64 else float(tree)
    if isinstance(tree, list):
        return [plain(one) for one in tree]
    if isinstance(tree, dict):
        return {key: plain(one) for key, one in tree.items()}
    return tree


def _parts(tree: Tree, indent: str | None, line: str) -> list[str]:
    if isinstance(tree, Number):
        return [str(tree)]
    if isinstance(tree, list):
        return _nested([("", one) for one in tree], "[]", indent, line)
    if isinstance(tree, dict):
        after = ":" if indent is None else ": "
        named = [(_quoted(key) + after, one) for key, one in tree.items()]
        return _nested(named, "{}", indent, line)
    if tree is None or isinstance(tree, bool):
        return [{None: "null", True: "true", False: "false"}[tree]]
    return [_quoted(tree)]


def _nested(
    entries: list[tuple[str, Tree]], brackets: str, indent: str | None, line: str
) -> list[str]:
    if not entries:
        return [brackets]
    inner = line + indent if indent is not None else line
    parts = [brackets[0]]
    for number, (name, one) in enumerate(entries):
        parts.append(f"{',' if number else ''}{inner}{name}")
        parts += _parts(one, indent, inner)
    parts += [line, brackets[1]]
    return parts


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
