"""The real file system, until told otherwise: chosen calls on chosen paths fail."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from ottla.log.os_storage import OsStorage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ottla.log.storage import Buffer, Entry


class FaultyStorage(OsStorage):
    """After `break_(call, part, error)` the call fails on every path that contains the part."""

    def __init__(self) -> None:
        self._rules: list[tuple[str, str, int]] = []
        self._paths: dict[int, str] = {}
        self.struck = 0

    def break_(self, call: str, part: str, error: int = errno.EIO) -> None:
        self._rules.append((call, part, error))

    def repair(self) -> None:
        self._rules.clear()

    def _strike(self, call: str, path: str) -> None:
        for broken, part, error in self._rules:
            if broken == call and part in path:
                self.struck += 1
                raise OSError(error, f"simulated failure of {call}", path)

    def open(self, path: Path | Entry, *, create: bool) -> int:
        self._strike("open", str(path))
        fd = super().open(path, create=create)
        self._paths[fd] = str(path)
        return fd

    def pwritev(self, fd: int, chunks: Sequence[Buffer], position: int) -> int:
        self._strike("pwritev", self._paths[fd])
        return super().pwritev(fd, chunks, position)

    def write_durably(self, fd: int, chunks: Sequence[Buffer], position: int) -> None:
        self._strike("write_durably", self._paths[fd])
        super().write_durably(fd, chunks, position)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self._strike("pread", self._paths[fd])
        return super().pread(fd, size, position)

    def fdatasync(self, fd: int) -> None:
        self._strike("fdatasync", self._paths[fd])
        super().fdatasync(fd)

    def rename(self, source: Path | Entry, target: Path | Entry) -> None:
        self._strike("rename", str(target))
        super().rename(source, target)

    def mkdir(self, path: Path) -> None:
        self._strike("mkdir", str(path))
        super().mkdir(path)
