"""Bytes and names of strangers, made visible: whatever they hold, they cannot play tricks.

Control characters, bidi overrides and isolates, zero-width and tag characters, separators of lines
and paragraphs, lone surrogates and private characters become `⟨U+202E⟩`; of a run of
combining marks eight are shown, and the number of the others. Escaping for HTML is the renderer's
work, and comes after this.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MOST_MARKS: Final = 8
"""Combining marks in a row that are shown: scripts of people need up to four."""

# Cc: controls; Cf: bidi, zero-width, tags; Cs: surrogates; Co: private use.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
# Shown as nothing, although their categories are others: fillers, variation selectors, a joiner,
# code points that Unicode reserves for more of these.
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
_PLAIN: Final = re.compile(r"[\x20-\x7e]*\Z")


def visible(text: str, *, lines: bool = False) -> str:
    """The text with everything in it that could not be seen written out.

    With `lines`, for a box of its own, line feeds and tabs stay.
    """
    if _PLAIN.match(text):
        return text
    shown: list[str] = []
    marks = 0
    for char in text:
        kind = unicodedata.category(char)
        if kind in ("Mn", "Me", "Mc") and not _BLANK.match(char):
            marks += 1
            if marks <= MOST_MARKS:
                shown.append(char)
            continue
        if marks > MOST_MARKS:
            shown.append(_cut(marks))
        marks = 0
        if lines and char in "\n\t":
            shown.append(char)
        elif kind in _HIDDEN or _BLANK.match(char):
            shown.append(f"⟨U+{ord(char):04X}⟩")
        else:
            shown.append(char)
    if marks > MOST_MARKS:
        shown.append(_cut(marks))
    return "".join(shown)


def _cut(marks: int) -> str:
    return f"⟨{marks - MOST_MARKS} more marks⟩"


def shortened(text: str, most: int) -> str:
    """At most so many characters, the last an ellipsis if some were cut."""
    return text if len(text) <= most else text[: most - 1] + "…"


def name(text: str, most: int = 80) -> str:
    """The name of a topic, group, member, client or header, for a line of a table."""
    return shortened(visible(text), most)


def csv_cell(text: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return "'" + text if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
