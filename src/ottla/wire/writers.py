"""Writers: for each message and version one straight-line function, compiled on first use.

A writer takes the message's NamedTuple and returns parts for a vectored write. Bytes between two
records fields are one part; records are parts of their own and never copied. A records value may be
one buffer, or a list or tuple of buffers (slices of several files) that count as one value. The
result is byte for byte that of kio's interpreted writer.
"""

from __future__ import annotations

import struct
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.wire.errors import UnsupportedVersion
from ottla.wire.varints import UVARINTS
from ottla.wire.writer_source import WriterSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.wire.spec import Message, Records

Part: TypeAlias = bytes | bytearray | memoryview
Parts: TypeAlias = list[Part]
Writer: TypeAlias = "Callable[[Any], Parts]"


class UnwritableValue(ValueError):
    """A value that does not fit its field: null, out of range, too long or of the wrong type."""


@cache
def compile_writer(message: Message, version: int) -> Writer:
    """The writer of this message in this version."""
    low, high = message.versions
    name = message.root.__name__
    if not low <= version <= high:
        raise UnsupportedVersion(f"{low} to {high}", version, name)
    builder = WriterSource(message, version)
    code = compile(builder.source(), f"<writer of {name} v{version}>", "exec")
    namespace: dict[str, Any] = {
        "add": _add_records,
        "failures": (AttributeError, TypeError, ValueError, struct.error),
        "join": b"".join,
        "null": _null,
        "records_size": _records_size,
        "too_long": _too_long,
        "unwritable": partial(_unwritable, f"{name} v{version}"),
        "uvarints": UVARINTS,
        **builder.constants,
    }
    exec(code, namespace)
    write: Writer = namespace["write"]
    return write


def _records_size(records: Records) -> int:
    if isinstance(records, list | tuple):
        return sum(map(len, records))
    return len(records)


def _add_records(parts: Parts, records: Records) -> None:
    if isinstance(records, list | tuple):
        parts.extend(records)
    else:
        parts.append(records)  # type: ignore[arg-type]  # the union's other half was the branch above


def _too_long(field: str, length: int) -> UnwritableValue:
    return UnwritableValue(f"{field}: {length} bytes do not fit a string with an int16 length")


def _null(field: str) -> UnwritableValue:
    return UnwritableValue(f"{field}: null in a field that is not nullable")


def _unwritable(name: str, error: Exception) -> UnwritableValue:
    return UnwritableValue(f"{name}: {error}")
