"""Text, and the bytes of what is none."""

from __future__ import annotations

import re
from typing import Final

from ottla.console.decode.tree import Unreadable

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")
HEX_COLUMNS: Final = 16


def read(data: bytes) -> str:
    """The text; raises `Unreadable` for what is not UTF-8 or has control characters."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 at byte {error.start:,}") from None
    found = _CONTROL.search(text)
    if found is not None:
        raise Unreadable(f"control character U+{ord(found[0]):04X} at character {found.start():,}")
    return text


def read_loosely(data: bytes) -> str:
    r"""The text where somebody wants to see it as such; other bytes as `\xff`."""
    return data.decode("utf-8", "backslashreplace")


def in_hex(data: bytes) -> str:
    """All bytes on one line."""
    return data.hex(" ")


def dump(data: bytes) -> str:
    """Lines of 16 bytes: where they are, the bytes, and those that are ASCII."""
    lines = []
    for at in range(0, len(data), HEX_COLUMNS):
        part = data[at : at + HEX_COLUMNS]
        shown = "".join(chr(one) if 32 <= one < 127 else "." for one in part)
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {shown}")
    return "\n".join(lines)
