"""The files of a journal.

In the data directory: `ottla.journal`, a text file with the stream of the slots and the place and
number of the files. It exists from before the first slot to the end of a clean stop. During that
time `meta.properties` has version 2, so that a broker without journal support refuses the
directory.

Next to it, or in another directory: the files, `ottla.journal.0` and so on. They are filled with
zeros and synced before use, because the first write to a block that is only allocated would cost a
commit of the file system.

Every call blocks.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.checkpoints import KEEPS_JOURNAL, PLAIN, CorruptCheckpoint
from ottla.log.journal.writer import FILE_BYTES
from ottla.log.storage import File

if TYPE_CHECKING:
    from ottla.log.directory import DataDirectory
    from ottla.log.journal.writer import SlotWrite
    from ottla.log.storage import Storage

STATE_FILE: Final = "ottla.journal"
STALE_SUFFIX: Final = ".stale"
STREAM_BYTES: Final = 16
# The last room on a disk is left to the logs: they can do without a journal, not without room.
SPARE_BYTES: Final = 64 << 20
_FORMAT: Final = "1"
_ZEROS: Final = bytes(1 << 20)


class JournalState(NamedTuple):
    """The content of `ottla.journal`."""

    stream: bytes
    path: Path | None  # None: in the data directory itself, wherever that is by now
    files: int


def encode_state(state: JournalState) -> bytes:
    path = "" if state.path is None else state.path
    return (
        f"format={_FORMAT}\nstream={state.stream.hex()}\npath={path}\nfiles={state.files}\n"
    ).encode()


def decode_state(data: bytes) -> JournalState:
    try:
        entries = dict(line.split("=", 1) for line in data.decode().splitlines())
        if entries["format"] != _FORMAT:
            raise CorruptCheckpoint(f"{STATE_FILE} of format {entries['format']}")
        stream = bytes.fromhex(entries["stream"])
        files = int(entries["files"])
        path = Path(entries["path"]) if entries["path"] else None
    except (ValueError, KeyError) as error:
        raise CorruptCheckpoint(f"{STATE_FILE} cannot be read: {error}") from error
    if len(stream) != STREAM_BYTES or files < 0:
        raise CorruptCheckpoint(f"{STATE_FILE} cannot be read")
    return JournalState(stream, path, files)


def read_state(directory: DataDirectory) -> JournalState | None:
    """The state; None without a journal; raises CorruptCheckpoint."""
    try:
        return decode_state(directory.storage.read_file(directory.path / STATE_FILE))
    except FileNotFoundError:
        return None


def file_path(directory: DataDirectory, path: Path | None, number: int) -> Path:
    """In another directory the files of several brokers may lie side by side."""
    if path is None:
        return directory.path / f"{STATE_FILE}.{number}"
    meta = directory.meta()
    assert meta is not None
    return path / f"{meta.directory_id.hex}.journal.{number}"


class JournalFiles:
    """Those of one stream.

    `make` and `write` may run in different threads, each in one at a time: a file is written to
    only after `make` has returned. `close` comes after both.
    """

    def __init__(
        self,
        directory: DataDirectory,
        stream: bytes,
        path: Path | None = None,
        *,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._directory = directory
        self._storage: Storage = directory.storage
        self._stream = stream
        self._path = path
        self._bytes = file_bytes
        self._files: list[File] = []

    def make(self, number: int) -> None:
        """Create a durable file of zeros that the next start will find."""
        assert number == len(self._files)
        path = file_path(self._directory, self._path, number)
        self._require_room(path.parent)
        if not number:
            set_version(self._directory, KEEPS_JOURNAL)
        self._storage.unlink(path)  # of a journal before
        file = File(self._storage, path, create=True)
        try:
            self._fill(file, path)
            state = JournalState(self._stream, self._path, number + 1)
            self._storage.replace_file(self._directory.path / STATE_FILE, encode_state(state))
        except BaseException:
            file.close()
            raise
        self._files.append(file)

    def _require_room(self, directory: Path) -> None:
        free = self._storage.free_bytes(directory)
        if free is not None and free < self._bytes + SPARE_BYTES:
            told = f"the last {SPARE_BYTES >> 20} MiB of a disk are left to the logs"
            raise OSError(errno.ENOSPC, told, str(directory))

    def _fill(self, file: File, path: Path) -> None:
        try:
            for start in range(0, self._bytes, len(_ZEROS)):
                zeros = _ZEROS[: self._bytes - start]
                self._storage.write_all(file.fd, [zeros], start)
            self._storage.fdatasync(file.fd)
            self._storage.fsync_dir(path.parent)
        except OSError:
            # A disk that is full has no room for half of a file either.
            with suppress(OSError):
                self._storage.unlink(path)
            raise

    def write(self, slot: SlotWrite) -> None:
        self._storage.write_durably(self._files[slot.file].fd, slot.parts, slot.position)

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._files = []


def remove(directory: DataDirectory) -> None:
    """Everything of the journal is in the logs: the directory is one without a journal again.

    The order allows a crash at any point: files that the state file does not name are unused.
    """
    storage = directory.storage
    state = read_state(directory)
    if state is not None:
        storage.unlink(directory.path / STATE_FILE)
        storage.fsync_dir(directory.path)
        for number in range(state.files):
            storage.unlink(file_path(directory, state.path, number))
    set_version(directory, PLAIN)


def set_aside(directory: DataDirectory) -> list[Path]:
    """Keep the files of a journal that is not to be replayed for a person; their names."""
    storage = directory.storage
    paths = [directory.path / STATE_FILE]
    with suppress(CorruptCheckpoint):
        state = read_state(directory)
        assert state is not None
        paths += [file_path(directory, state.path, number) for number in range(state.files)]
    kept = []
    for path in reversed(paths):
        target = path.with_name(path.name + STALE_SUFFIX)
        try:
            storage.rename(path, target)
            kept.append(target)
        except FileNotFoundError:
            continue
    storage.fsync_dir(directory.path)
    set_version(directory, PLAIN)
    return kept


def set_version(directory: DataDirectory, version: str) -> None:
    meta = directory.meta()
    if meta is not None and meta.version != version:
        directory.write_meta(meta._replace(version=version))
