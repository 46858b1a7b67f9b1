"""After a crash: find batches in the journal that a log has lost.

Rules:

- At most one slot was being written, so only the last one may be torn. If a slot is damaged and the
  header of a later one exists, the damaged slot held acknowledged batches: replay raises
  CorruptJournal and changes nothing.
- The batches of slots below the newest `trim` are in the logs. All other slots must exist.
- A log is first recovered as after any crash. Then replay goes through its batches in the journal.
  A batch below the log's end is skipped. A batch at the end is appended with its offset, epoch and
  bytes unchanged. A batch beyond the end is a gap, and the partition stays offline. A crash leaves
  no gap; copying a directory in use, or restoring an old file, does.
- Replay only appends: it creates, cuts and overwrites nothing else. So it can be repeated.

The files are not needed any more when every log they have batches of is replayed and synced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.log.checkpoints import CorruptCheckpoint
from ottla.log.errors import StorageFailure
from ottla.log.journal.files import STATE_FILE, file_path, read_state
from ottla.log.journal.slots import HEADER_BYTES, CorruptSlot, Header, Slot, decode, decode_header
from ottla.log.journal.writer import BLOCK
from ottla.wire.batch import HEADER_SIZE, RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ottla.log.directory import DataDirectory
    from ottla.log.journal.files import JournalState
    from ottla.log.partition import PartitionLog
    from ottla.log.storage import Storage

Key = tuple[bytes, int]
"""Topic id and partition."""


class CorruptJournal(Exception):
    """The journal is damaged: acknowledged batches may be lost."""


class JournalMissing(Exception):
    """The journal that the directory names is missing."""


class Stretch(NamedTuple):
    """Batches of one partition, in a journal file."""

    path: Path
    position: int
    length: int
    base: int
    end: int


class Leftover:
    """The batches that a crash left in a journal, by partition.

    Each log is replayed when it is first opened; `settle` says that it is done.
    """

    def __init__(self, storage: Storage, stretches: dict[Key, list[Stretch]]) -> None:
        self._storage = storage
        self._stretches = stretches

    def __len__(self) -> int:
        """Logs that are not settled yet."""
        return len(self._stretches)

    def unsettled(self) -> list[Key]:
        return list(self._stretches)

    def settle(self, key: Key) -> None:
        self._stretches.pop(key, None)

    def first_offset(self, key: Key) -> int | None:
        stretches = self._stretches.get(key)
        return stretches[0].base if stretches else None

    def replay(self, key: Key, log: PartitionLog, now_ms: int) -> int:
        """Append the batches that the log has lost; returns their number. Blocks."""
        replayed = 0
        for batch in self._batches(self._stretches.get(key, ())):
            end = log.log_end_offset
            if batch.last_offset < end:
                continue
            if batch.base_offset != end:
                raise StorageFailure(
                    f"log {log.directory.name} ends at {end}, but the journal continues at"
                    f" {batch.base_offset}: files of this partition are missing or older than the"
                    f" journal; restore them, or delete the topic"
                )
            log.append_replayed(batch, now_ms)
            replayed += 1
        return replayed

    def _batches(self, stretches: Sequence[Stretch]) -> Iterator[RecordBatch]:
        for stretch in stretches:
            fd = self._storage.open(stretch.path, create=False)
            try:
                data = memoryview(self._storage.pread(fd, stretch.length, stretch.position))
            finally:
                self._storage.close(fd)
            while len(data) >= HEADER_SIZE:
                batch = RecordBatch(data)
                batch = RecordBatch(data[: batch.size])
                batch.verify_crc()
                yield batch
                data = data[batch.size :]


class Found(NamedTuple):
    """The header of a slot, and where it is."""

    header: Header
    path: Path
    position: int


def scan(directory: DataDirectory) -> Leftover | None:
    """The batches to replay; None without a journal. Changes nothing. Blocks."""
    try:
        state = read_state(directory)
    except CorruptCheckpoint as error:
        raise CorruptJournal(str(error)) from error
    if state is None:
        return None
    storage = directory.storage
    return Leftover(storage, _stretches(storage, find_slots(directory, state)))


def find_slots(directory: DataDirectory, state: JournalState) -> list[Found]:
    """The headers of this stream, in the order of their numbers. Blocks."""
    found: list[Found] = []
    for number in range(state.files):
        path = file_path(directory, state.path, number)
        try:
            data = memoryview(directory.storage.read_file(path))
        except FileNotFoundError:
            raise JournalMissing(
                f"{directory.path / STATE_FILE} names a journal, but {path} is missing; mount or"
                f" restore it, or set ottla.journal.lost=accept to start without it and lose the"
                f" newest acknowledged records"
            ) from None
        found += [
            Found(header, path, position)
            for position in range(0, len(data), BLOCK)
            if (header := decode_header(data[position : position + HEADER_BYTES])) is not None
            and header.stream == state.stream
        ]
    found.sort(key=lambda one: one.header.seq)
    return found


def read_slot(storage: Storage, found: Found) -> Slot:
    """Raises CorruptSlot if it is not whole. Blocks."""
    fd = storage.open(found.path, create=False)
    try:
        return decode(memoryview(storage.pread(fd, found.header.size, found.position)))
    finally:
        storage.close(fd)


def _stretches(storage: Storage, found: Sequence[Found]) -> dict[Key, list[Stretch]]:
    if not found:
        return {}
    newest = found[-1].header
    needed = [one for one in found if one.header.seq >= newest.trim]
    stretches: dict[Key, list[Stretch]] = {}
    for expected, one in enumerate(needed, newest.trim):
        header, path, start = one
        if header.seq != expected:
            raise CorruptJournal(
                f"slot {expected} of the journal is damaged or missing, but later ones up to"
                f" {newest.seq} exist; restore {path.parent}, or set ottla.journal.lost=accept to"
                f" start without the journal and lose acknowledged records"
            )
        try:
            slot = read_slot(storage, one)
        except CorruptSlot as error:
            if header is newest:
                break  # it was being written
            raise CorruptJournal(
                f"slot {header.seq} at {start} of {path} is damaged: {error}; restore the file, or"
                f" accept that acknowledged records are lost with ottla.journal.lost=accept"
            ) from error
        for extent in slot.extents:
            stretches.setdefault((extent.topic_id, extent.partition), []).append(
                Stretch(path, start + extent.position, extent.length, extent.base, extent.end)
            )
    return stretches
