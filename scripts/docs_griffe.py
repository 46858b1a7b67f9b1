"""Prepares docstrings for the reference pages; mkdocs.yml names this extension.

- Examples (`>>>`) become blocks of code; Markdown would take them for quotations.
- Methods whose docstring begins with "Internal:" are left out: other modules need them, users do
  not.
- A method of an offset store without a docstring gets that of `SyncOffsetStore`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import griffe

if TYPE_CHECKING:
    from typing import Any


INTERNAL = "Internal:"
STORES = "ottla.offsets."
INTERFACE = "offsets.protocol.SyncOffsetStore"


class ReferenceDocstrings(griffe.Extension):
    """griffe calls `on_object` for every object that it has read, `on_package` at the end."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        interface = pkg[INTERFACE] if pkg.path == "ottla" and "offsets" in pkg.members else None
        prepare(pkg, interface)


def prepare(parent: griffe.Object, interface: griffe.Object | None) -> None:
    """Drop internal methods, and fill in docstrings of offset stores."""
    for name, member in list(parent.members.items()):
        if isinstance(member, griffe.Alias):
            continue
        if isinstance(member, griffe.Module | griffe.Class):
            prepare(member, interface)
        elif member.docstring is not None and member.docstring.value.startswith(INTERNAL):
            del parent.members[name]
        elif (
            interface is not None
            and member.docstring is None
            and member.path.startswith(STORES)
            and name in interface.members
        ):
            member.docstring = interface.members[name].docstring


def fenced(docstring: str) -> str:
    """The text with its examples, and what they print, in fences."""
    examples = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
    return examples.sub(lambda found: f"```pycon\n{found[0]}\n```", docstring)
