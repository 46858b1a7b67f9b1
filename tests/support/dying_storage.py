"""A file system whose user dies before a certain call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.os_storage import OsStorage

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.log.storage import Directory, Entry


class Killed(BaseException):
    """No code of the broker may catch it."""


class DyingStorage(OsStorage):
    """Counts the calls that change or sync something; `dies_at` is the first that never happens."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.calls: list[str] = []
        self.dies_at = dies_at

    def _step(self, what: str) -> None:
        if len(self.calls) == self.dies_at:
            raise Killed(what)
        self.calls.append(what)

    def write_file(self, path: Path | Entry, data: bytes) -> None:
        self._step("write")
        super().write_file(path, data)

    def sync_file(self, path: Path | Entry) -> None:
        self._step("sync")
        super().sync_file(path)

    def rename(self, source: Path | Entry, target: Path | Entry) -> None:
        self._step("rename")
        super().rename(source, target)

    def fsync_dir(self, path: Path | Directory) -> None:
        self._step("sync directory")
        super().fsync_dir(path)
