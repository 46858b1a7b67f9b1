"""How records are printed: as lines for people, JSON lines, or raw values.

Shared by the commands that read. Any value with the fields of `Shown` can be printed; further
fields are given as `extra`, by the name of their column or JSON field.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Generic, Protocol, TypeAlias, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.cli.output import Value

MS = 1000

Key: TypeAlias = Annotated[bool, typer.Option("--key", help="Print keys, too.")]
ShowHeaders: TypeAlias = Annotated[bool, typer.Option("--headers", help="Print headers, too.")]
JsonLines: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print each record as one line of JSON.")
]
Raw: TypeAlias = Annotated[
    bool, typer.Option("--raw", help="Print only values, each followed by a newline.")
]


class Shown(Protocol):
    """The fields of a record that are printed."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...


R = TypeVar("R", bound=Shown)


class Printer(Generic[R]):
    """Writes records to stdout in the form that was asked for."""

    def __init__(
        self,
        *,
        as_json: bool,
        raw: bool,
        key: bool,
        headers: bool,
        extra: Mapping[str, Callable[[R], int]],
    ) -> None:
        if as_json and raw:
            raise typer.BadParameter("choose one of --json and --raw", param_hint="--raw")
        if raw and headers:
            raise typer.BadParameter("--headers cannot be used with --raw", param_hint="--headers")
        self._key = key
        self._headers = headers
        self._extra = extra
        if raw:
            self._show = self._raw_with_key if key else self._raw
        else:
            self._show = self._json if as_json else self._text
        self._has_title = not as_json and not raw

    def records(self, records: Sequence[R]) -> None:
        """All of them, in one write; names of the columns come before the first."""
        title = self._title() if self._has_title and records else b""
        self._has_title = self._has_title and not title
        self._write(title + b"".join(map(self._show, records)))

    def _title(self) -> bytes:
        columns = ["partition", "    offset", "timestamp               ", *self._extra]
        columns += ["key"] * self._key + ["headers"] * self._headers + ["value"]
        return "  ".join(columns).encode() + b"\n"

    def _write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def _json(self, record: R) -> bytes:
        """The record; bytes that are not UTF-8 are base64, in a field with the suffix _base64."""
        found: dict[str, Value] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            **{name: field(record) for name, field in self._extra.items()},
            **_field("key", record.key),
            **_field("value", record.value),
            "headers": [{"key": name, **_field("value", value)} for name, value in record.headers],
        }
        return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

    def _raw(self, record: R) -> bytes:
        return (record.value or b"") + b"\n"

    def _raw_with_key(self, record: R) -> bytes:
        return (record.key or b"") + b"\t" + self._raw(record)

    def _text(self, record: R) -> bytes:
        """A line for people; control characters are escaped."""
        cells = [f"{record.partition:9}", f"{record.offset:10}", _time(record.timestamp_ms)]
        cells += [f"{field(record):{len(name)}}" for name, field in self._extra.items()]
        if self._key:
            cells.append(_text(record.key))
        if self._headers:
            cells.append(
                " ".join(f"{name}={_text(value)}" for name, value in record.headers) or "-"
            )
        return "  ".join([*cells, _text(record.value)]).encode() + b"\n"


def _field(name: str, data: bytes | None) -> dict[str, Value]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        import base64

        assert data is not None
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _time(ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(ms / MS, UTC):%Y-%m-%dT%H:%M:%S}.{ms % MS:03}Z"
    except (ValueError, OverflowError, OSError):
        return f"{ms:<24}"  # no producer's clock is that wrong, but its data may be


def _text(data: bytes | None) -> str:
    if data is None:
        return "-"
    said = data.decode(errors="backslashreplace")
    if said.isprintable():
        return said
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in said
    )
