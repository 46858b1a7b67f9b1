"""`onSettled=module:function`: call a user's function with processed offsets.

It runs in the process of the source, after the batch is in Spark's commit log, in the background:
at least once per batch unless a later batch replaces it, and once more for the last batch after a
crash. Its exceptions are logged as warnings.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Final

from ottla.spark.errors import BadOption
from ottla.spark.offsets import to_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.spark.offsets import Offsets

ON_SETTLED: Final = "onSettled"
_NAME: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class HookFailed(Exception):
    """The function has raised."""


def hook_name(text: str | None) -> str | None:
    """The option if it has the form `module:function`, else an error."""
    if text is not None and _NAME.fullmatch(text) is None:
        raise BadOption(f"{ON_SETTLED} is module:function, not {text!r}")
    return text


def settled_hook(name: str) -> Callable[[Offsets], None]:
    """The function, wrapped: it is called with offsets by topic and partition."""
    module, _, function = name.partition(":")
    try:
        hook = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise BadOption(
            f"{ON_SETTLED}={name} cannot be loaded ({error}): the module has to be importable "
            "where the driver runs"
        ) from None

    def call(offsets: Offsets) -> None:
        try:
            hook(to_json(offsets))
        except Exception as error:
            raise HookFailed(f"{type(error).__name__}: {error}") from error

    return call
