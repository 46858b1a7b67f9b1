"""May a new version follow the versions that a subject has? Seven levels, three formats.

- BACKWARD: the new schema reads what the existing ones have written. FORWARD: the existing ones
  read what the new one writes. FULL: both. NONE: not asked.
- Without `_TRANSITIVE`, the newest existing version alone counts.
- A schema of another format than the existing one is never compatible with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ottla.schemas.model import Kind, Parsed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST = 100
"""Differences that an answer lists. More help nobody, and a schema can have thousands."""


class Level(StrEnum):
    """Compatibility that a subject asks of its versions."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        return self.endswith("_TRANSITIVE")

    @property
    def is_backward(self) -> bool:
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def is_forward(self) -> bool:
        return self.startswith(("FORWARD", "FULL"))


@dataclass(frozen=True, slots=True)
class Difference:
    """One reason why two schemas are not compatible."""

    kind: str
    path: str
    message: str


def check(kind: Kind, level: Level, new: Parsed, existing: Sequence[Parsed]) -> list[Difference]:
    """Why `new` may not follow `existing`, oldest first; empty: it may."""
    if level is Level.NONE or not existing:
        return []
    against = existing if level.is_transitive else existing[-1:]
    found: dict[Difference, None] = {}
    for one in reversed(against):
        for difference in _between(kind, level, new, one):
            found[difference] = None
            if len(found) == MOST:
                return list(found)
    return list(found)


def _between(kind: Kind, level: Level, new: Parsed, old: Parsed) -> Iterator[Difference]:
    if not new.kind == old.kind == kind:
        message = f"the new schema is {new.kind}, the existing one {old.kind}"
        yield Difference("FORMAT_CHANGED", "", message)
        return
    if level.is_backward:
        yield from _differences(kind, new, old)
    if level.is_forward:
        yield from _differences(kind, old, new)


def _differences(kind: Kind, reader: Parsed, writer: Parsed) -> list[Difference]:
    """Why `reader` cannot read what `writer` has written."""
    try:
        return [Difference(*found) for found in _found(kind, reader, writer)]
    except RecursionError:
        return [
            Difference("UNDECIDED", "", "the schemas refer to each other too deeply to compare")
        ]


def _found(kind: Kind, reader: Parsed, writer: Parsed) -> list[tuple[str, str, str]]:
    if kind is Kind.AVRO:
        from ottla.schemas import avro_compat

        return avro_compat.differences(reader.tree, writer.tree)
    if kind is Kind.JSON:
        from ottla.schemas import json_diff

        return json_diff.differences(reader.tree, writer.tree)
    from ottla.schemas import proto_diff

    return proto_diff.differences(reader.tree, writer.tree)
