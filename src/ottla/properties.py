"""Java's properties format, in which Kafka's brokers and tools have their settings."""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = r"(?s)\\(u[0-9A-Fa-f]{4}|.)"
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END: Final = r"\r\n|\r|\n"
_KEY_AND_VALUE: Final = r"(?s)((?:\\.|[^\\=:\s])*)(?:\s*[=:]\s*|\s+|$)(.*)"


def parse_properties(text: str) -> dict[str, str]:
    """Java's properties format: comments, three separators, continued lines, escapes."""
    values: dict[str, str] = {}
    logical = ""
    for line in re.split(_LINE_END, text):
        stripped = line.lstrip()
        if not logical and (not stripped or stripped[0] in "#!"):
            continue
        logical += stripped
        trailing = len(logical) - len(logical.rstrip("\\"))
        if trailing % 2:
            logical = logical[:-1]
            continue
        _add_property(values, logical)
        logical = ""
    if logical:
        _add_property(values, logical)
    return values


def _add_property(values: dict[str, str], line: str) -> None:
    found = re.fullmatch(_KEY_AND_VALUE, line)
    assert found is not None  # key and value may both be empty: every line matches
    values[_unescaped(found[1])] = _unescaped(found[2])


def _unescaped(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _CONTROLS.get(code, code)

    return re.sub(_ESCAPE, plain, text)
