"""Ottla: Kafka's little sister, a Kafka-compatible broker, queues and pipelines in Python."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.client.admin import Admin as Admin

__version__ = "0.1.0.dev0"

# Where the public names live. They are imported on first use, so that a program pays only for the
# rooms it enters.
_PUBLIC: Final = {
    "Admin": "ottla.client.admin",
}


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
