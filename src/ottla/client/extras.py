"""The `arrow` extra: said how to get, and loaded in a thread.

pyarrow, numpy and numba take a second to import, and compiled code as long to be compiled or read
from its cache. Meanwhile the event loop goes on. A module that is loaded here may have a `warm_up`,
which calls all compiled code that its functions would call in the event loop.
"""

from __future__ import annotations

import asyncio
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ottla.client.errors import MissingExtra

if TYPE_CHECKING:
    from types import ModuleType

PACKAGES: Final = frozenset({"llvmlite", "numba", "numpy", "pyarrow"})

_loaded: dict[str, Any] = {}


async def arrow(module: str, what: str) -> Any:
    """A module of the clients that needs the extra; `what` is its use, for the error."""
    found = _loaded.get(module)
    if found is None:
        try:
            found = _loaded[module] = await asyncio.to_thread(_load, module)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in PACKAGES:
                raise
            raise MissingExtra(
                f"{what} needs the arrow extra: pip install 'ottla[arrow]'"
            ) from error
    return found


@cache
def _load(module: str) -> ModuleType:
    found = import_module(f"ottla.client.{module}")
    if hasattr(found, "warm_up"):
        found.warm_up()
    return found
