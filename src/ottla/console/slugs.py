"""Names in URLs. A slug is the name itself if it is plain, else `=` and base64url of its UTF-8.

Group ids may hold anything: `a/b`, `..`, spaces, emoji. No slug is `.` or `..`, begins with a dot,
or needs escaping.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from ottla.errors import OttlaError

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*\Z")
_ENCODED: Final = re.compile(r"=[A-Za-z0-9_-]*\Z")


class BadSlug(OttlaError, ValueError):
    """A part of a URL that names nothing."""


def slug(name: str) -> str:
    """The name as one segment of a path."""
    if _PLAIN.match(name):
        return name
    encoded = base64.urlsafe_b64encode(name.encode("utf-8", "surrogatepass"))
    return "=" + encoded.rstrip(b"=").decode()


def unslug(segment: str) -> str:
    """The name of a segment; there is one slug for each name, and others are refused."""
    if _PLAIN.match(segment):
        return segment
    if _ENCODED.match(segment):
        encoded = segment[1:]
        try:
            raw = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
            name = raw.decode("utf-8", "surrogatepass")
        except (binascii.Error, UnicodeDecodeError):
            name = None
        if name is not None and slug(name) == segment:
            return name
    raise BadSlug(
        f"{segment[:80]!r} is not a name in a URL; a name with other characters than "
        "A-Z a-z 0-9 . _ - is written as = and its base64url"
    )
