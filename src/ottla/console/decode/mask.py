"""Masks: fields of records that are replaced before anything else sees them.

The rules of a topic are found once. A part of a record (key or value) that a mask reaches into has
to be decoded; if it cannot be, only its length is shown.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.console.decode.tree import Tree
    from ottla.console.settings import ClusterSettings

Part: TypeAlias = Literal["key", "value"]


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for one topic."""

    hidden: bool = False
    fields: tuple[tuple[tuple[str, ...], str], ...] = ()
    """Paths such as ("value", "customer", "email"), and what is shown in their place."""
    key_form: str = "auto"
    value_form: str = "auto"

    @property
    def masked(self) -> bool:
        return bool(self.fields)

    def reaches(self, part: Part) -> bool:
        """Whether a mask may change this part of a record."""
        return any(path[0] == part for path, _ in self.fields)

    def whole(self, part: Part) -> str | None:
        """What is shown in place of the whole part, if that is masked."""
        return next((text for path, text in self.fields if path == (part,)), None)

    def apply(self, part: Part, tree: Tree) -> Tree:
        """The tree without what is masked; a copy where something is."""
        for path, text in self.fields:
            if path[0] == part:
                tree = _masked(tree, path[1:], text)
        return tree

    def header(self, name: str) -> str | None:
        """What is shown in place of a header's value, if it is masked."""
        for path, text in self.fields:
            if path[0] == "headers" and (len(path) == 1 or ".".join(path[1:]) == name):
                return text
        return None


def rules_of(cluster: ClusterSettings, topic: str) -> Rules:
    """The rules for a topic; patterns are those of a shell."""
    fields = tuple(
        (tuple(path.split(".")), mask.text)
        for mask in cluster.masks
        if fnmatch.fnmatchcase(topic, mask.topics)
        for path in mask.fields
    )
    hidden = any(fnmatch.fnmatchcase(topic, pattern) for pattern in cluster.hidden)
    for one in cluster.decoders:
        if fnmatch.fnmatchcase(topic, one.topics):
            return Rules(hidden, fields, one.key, one.value)
    return Rules(hidden, fields)


def _masked(tree: Tree, path: Sequence[str], text: str) -> Tree:
    """A path goes through every element of a list."""
    if not path:
        return text
    if isinstance(tree, list):
        return [_masked(one, path, text) for one in tree]
    if isinstance(tree, dict) and path[0] in tree:
        return {**tree, path[0]: _masked(tree[path[0]], path[1:], text)}
    return tree
