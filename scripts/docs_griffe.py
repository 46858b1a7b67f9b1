"""Examples in docstrings, for the reference pages: `>>>` and what follows become a block of code.

mkdocstrings asks for it in mkdocs.yml; Markdown would take `>>>` for a quotation.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import griffe

if TYPE_CHECKING:
    from typing import Any


class ExampleBlocks(griffe.Extension):
    """Called for every object that has been read from the sources."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """The text with its examples, and what they print, in fences."""
    examples = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
    return examples.sub(lambda found: f"```pycon\n{found[0]}\n```", docstring)
