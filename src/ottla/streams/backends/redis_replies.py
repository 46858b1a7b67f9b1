"""What XREAD, XREADGROUP and XAUTOCLAIM answer, in one shape.

The reply differs by protocol (RESP2: pairs, RESP3: a map) and by how the driver was told to present
it (fields as a flat list or as a dict, entries wrapped once more). All of them become
`[(key, [(id, fields)])]`; `fields` is empty for an entry that is pending and was trimmed away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

Fields: TypeAlias = Sequence[bytes] | Mapping[bytes, bytes]


class RawEntry(NamedTuple):
    """One entry: its id, and its fields as names and values in turn (or as a dict)."""

    id: str
    fields: Fields


def read_reply(reply: object) -> list[tuple[bytes, list[RawEntry]]]:
    """The entries of an XREAD or XREADGROUP by key; none for a read that timed out."""
    if not reply:
        return []
    pairs = reply.items() if isinstance(reply, Mapping) else reply
    return [(key, entries(found)) for key, found in cast("Iterable[tuple[bytes, object]]", pairs)]


def entries(found: object) -> list[RawEntry]:
    """A list of entries as XRANGE and XAUTOCLAIM give it; None stands for a deleted one."""
    items = cast("Sequence[Sequence[object] | None]", found)
    if len(items) == 1 and items[0] and isinstance(items[0][0], list | tuple):
        items = cast("Sequence[Sequence[object] | None]", items[0])
    return [
        RawEntry(
            item[0].decode() if type(item[0]) is bytes else str(item[0]),
            cast("Fields", item[1]) or (),
        )
        for item in items
        if item is not None and item[0] is not None
    ]


def claim_reply(reply: object) -> tuple[str, list[RawEntry], list[str]]:
    """The cursor, the claimed entries and the ids that are deleted, of an XAUTOCLAIM."""
    parts = cast("Sequence[object]", reply)
    deleted = cast("Sequence[object]", parts[2]) if len(parts) > 2 else ()
    return text(parts[0]), entries(parts[1]), [text(one) for one in deleted]


def text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
