"""pyiceberg's files, durable: what a catalogue names must outlive a power cut.

The library writes manifests and metadata files without syncing them; the catalogue's own database
is synced. So on a local disk the name could be there and the file not.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

if TYPE_CHECKING:
    from pyiceberg.io import OutputStream


class SyncedFileIO(PyArrowFileIO):
    """Syncs local files when they are closed; object stores do so themselves."""

    def new_output(self, location: str) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return SyncedFile(location, path, self.fs_by_scheme(scheme, netloc))


class SyncedFile(PyArrowFile):
    """A local file to write."""

    def create(self, overwrite: bool = False) -> OutputStream:
        return SyncedStream(Path(self._path), "wb" if overwrite else "xb")


class SyncedStream(io.BufferedWriter):
    """Syncs itself and its directory when it is closed."""

    def __init__(self, path: Path, mode: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(io.FileIO(path, mode))
        self._directory = path.parent

    def close(self) -> None:
        if self.closed:
            return
        self.flush()
        os.fsync(self.fileno())
        super().close()
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def __exit__(self, *_: Any) -> None:
        self.close()
