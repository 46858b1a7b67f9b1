"""Which store a URL or a path names, for tools.

    DIRECTORY, file:///DIRECTORY       lock files
    sqlite:///FILE                     SQLite; three slashes and a relative path, four and an
                                       absolute one
    postgresql://...                   PostgreSQL, in libpq's own syntax

`?table=NAME` names another table than `stream_offsets`, `?lance=NAME` the LANCE layout.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlencode

from ottla.offsets.errors import InvalidOffsetArgument
from ottla.offsets.layouts import Lance
from ottla.offsets.lockfile import LockFileOffsetStore
from ottla.offsets.postgres import PostgresOffsetStore
from ottla.offsets.sql import DEFAULT_TABLE
from ottla.offsets.sqlite import SqliteOffsetStore
from ottla.redaction import redact

if TYPE_CHECKING:
    from typing import TypeAlias

    AnyOffsetStore: TypeAlias = LockFileOffsetStore | SqliteOffsetStore | PostgresOffsetStore


def store_from_url(url: str) -> AnyOffsetStore:
    """The store. ValueError if the URL names none."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return LockFileOffsetStore(url)
    place, _, query = rest.partition("?")
    options = _options(url, query) if query else {}
    if scheme == "file":
        lance = options.pop("lance", None)
        _refuse(url, options)
        return LockFileOffsetStore(_path(url, place), None if lance is None else Lance(lance))
    table = options.pop("table", DEFAULT_TABLE)
    if scheme == "sqlite":
        _refuse(url, options)
        return SqliteOffsetStore(Path(_path(url, place).removeprefix("/")), table=table)
    if scheme in {"postgresql", "postgres"}:
        # What is left are libpq's own parameters.
        left = f"?{urlencode(options)}" if options else ""
        return PostgresOffsetStore(f"{scheme}://{place}{left}", table=table)
    raise InvalidOffsetArgument(
        f"{scheme!r} names no offset store: use a directory, sqlite:///FILE or postgresql://..."
    )


def _options(url: str, query: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(query, strict_parsing=True))
    except ValueError:
        # Its message would quote what may be a part of a password.
        raise InvalidOffsetArgument(
            f"{redact(url)!r} has a query that is not NAME=VALUE&..."
        ) from None


def _path(url: str, place: str) -> str:
    if not place.startswith("/"):
        shown = redact(url)
        raise InvalidOffsetArgument(
            f"{shown!r} names a host: write {shown.replace('://', ':///', 1)!r}"
        )
    return unquote(place)


def _refuse(url: str, options: dict[str, str]) -> None:
    if options:
        unknown = ", ".join(options)
        raise InvalidOffsetArgument(
            f"{redact(url)!r} has options this store does not know: {unknown}"
        )
