"""JSON, read within limits. What readers could take in two ways stays text."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

from ottla.console.decode.tree import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_NODES,
    Number,
    Tree,
    Unreadable,
    compact,
)

_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""Also one that does not end: each character is looked at once, whatever comes."""
_LONG: Final = re.compile(rf"(?<![0-9])[0-9]{{{MAX_DIGITS + 1}}}")
"""From the first digit only: else a text of long numbers would be looked at from each of them."""
_BRACKET: Final = re.compile(r"[\[{\]}]")


def read(data: bytes) -> Tree:
    """The document; raises `Unreadable`."""
    if len(data) > MAX_BYTES:
        raise Unreadable(f"JSON of more than {MAX_BYTES:,} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 at byte {error.start:,}") from None
    _check_limits(text)
    try:
        tree: Tree = json.loads(
            text,
            parse_int=Number,
            parse_float=Number,
            parse_constant=_refuse,
            object_pairs_hook=_object,
        )
    except json.JSONDecodeError as error:
        raise Unreadable(f"not JSON: {error.msg} at character {error.pos:,}") from None
    except RecursionError:
        raise Unreadable("nested too deep") from None
    if "\\u" in text:
        try:
            compact(tree).encode("utf-8")
        except UnicodeEncodeError:
            raise Unreadable("a lone surrogate is no character") from None
    return tree


def _check_limits(text: str) -> None:
    outside = _STRING.sub('""', text)
    if outside.count(",") + outside.count("[") + outside.count("{") >= MAX_NODES:
        raise Unreadable(f"JSON of more than {MAX_NODES:,} nodes")
    if _LONG.search(outside):
        raise Unreadable(f"a number of more than {MAX_DIGITS:,} digits")
    depth = 0
    for found in _BRACKET.finditer(outside):
        depth += 1 if found[0] in "[{" else -1
        if depth > MAX_DEPTH:
            raise Unreadable(f"JSON nested more than {MAX_DEPTH} deep")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise Unreadable(f"the key {name!r:.60} is there more than once")
            seen.add(name)
    return made


def _refuse(name: str) -> NoReturn:
    raise Unreadable(f"{name} is not JSON")
