"""The directories of the lock-file store, one per consumer.

A directory is named after its consumer. A name too long for that is shortened, and the directory
then holds the whole name in a file of its own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from ottla.offsets import files
from ottla.offsets.errors import OffsetCorrupt
from ottla.offsets.files import Durability, OpenDirectory
from ottla.offsets.layouts import LONG_MARK, MAX_FILE_BYTES, Lance, part, quote

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.offsets.layouts import V1

NAME_FILE: Final = "consumer.name"
"""File with the full name of a consumer whose directory name was shortened."""


class ConsumerDirectories:
    """The directories below one that is the store's."""

    def __init__(self, base: Path, layout: V1 | Lance, durability: Durability) -> None:
        self._base = base
        self._layout = layout
        self._durability = durability

    def of(self, consumer: str) -> Path:
        return self._base / self._layout.directory(consumer)

    def opened(self, path: Path) -> OpenDirectory:
        return OpenDirectory(path, self._durability)

    def make(self, path: Path, consumer: str, unique: str) -> None:
        """Create the consumer's directory if missing; `unique` is for a temporary name."""
        files.make_directory(path, self._durability)
        if LONG_MARK not in path.name or isinstance(self._layout, Lance):
            return
        if not (path / NAME_FILE).exists():
            temporary = f".{NAME_FILE}.{unique}"
            with self.opened(path) as directory:
                directory.stage([temporary], quote(consumer).encode() + b"\n")
                directory.replace(temporary, NAME_FILE)
                directory.sync()

    def all(self, consumer: str | None) -> Iterator[tuple[str, Path]]:
        """(name, directory) of each consumer that has been saved, or of this one."""
        if isinstance(self._layout, Lance):
            yield "", self._base / self._layout.name
        elif consumer is not None:
            yield consumer, self.of(consumer)
        else:
            for name in sorted(names(self._base)):
                directory = self._base / name
                if directory.is_dir() and (found := _consumer_of(directory)) is not None:
                    yield found, directory


def names(directory: Path) -> list[str]:
    """The names in the directory; empty if it does not exist."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries]
    except FileNotFoundError:
        return []


def _consumer_of(directory: Path) -> str | None:
    """The consumer a directory belongs to; None if the directory is not of this store."""
    quoted = directory.name
    if LONG_MARK in quoted:
        path = directory / NAME_FILE
        data = files.read(str(path), MAX_FILE_BYTES)
        if data is None:
            raise OffsetCorrupt(path, "it is missing, so the consumer's name is not known")
        quoted = data.decode("ascii", "replace").strip()
    consumer = unquote(quoted)
    return consumer if part(consumer) == directory.name else None
