"""What a journal holds, for people. Reads only, and takes no lock: a broker may be using it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from ottla.log.checkpoints import Checkpoint, CorruptCheckpoint, read_offsets
from ottla.log.directory import DataDirectory
from ottla.log.journal.files import read_state
from ottla.log.journal.replay import CorruptJournal, JournalMissing, find_slots, read_slot, scan
from ottla.log.journal.slots import CorruptSlot
from ottla.log.os_storage import OsStorage

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.log.checkpoints import TopicPartition

State = Literal["needed", "done", "torn"]


class SlotFound(NamedTuple):
    """A slot: `needed` after a crash, `done` when its batches are in their logs, or `torn`."""

    seq: int
    file: str
    position: int
    bytes: int
    created_ms: int
    state: State
    partitions: int


class Covered(NamedTuple):
    """Batches of one partition in slots that are needed."""

    topic: str
    partition: int
    first: int
    end: int
    bytes: int
    synced: int
    """Up to where the log is known to be synced: below it nothing is needed."""


class Inspection(NamedTuple):
    stream: str
    files: int
    slots: list[SlotFound]
    covered: list[Covered]
    problem: str | None
    """Why a start would be refused."""


class _Directory(DataDirectory):
    """One that another process may hold."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.storage = OsStorage()

    def close(self) -> None:
        """Nothing is held."""


def inspect(path: Path) -> Inspection | None:
    """The journal of a data directory; None if it has none. Raises JournalMissing and
    CorruptJournal if nothing can be said about it."""
    directory = _Directory(path)
    try:
        state = read_state(directory)
    except CorruptCheckpoint as error:
        raise CorruptJournal(str(error)) from error
    if state is None:
        return None
    found = find_slots(directory, state)
    trim = found[-1].header.trim if found else 0
    names = _names(directory)
    synced = read_offsets(directory.storage, path, Checkpoint.RECOVERY_POINT)
    slots = []
    covered: dict[tuple[bytes, int], Covered] = {}
    for one in found:
        header = one.header
        status: State = "needed" if header.seq >= trim else "done"
        partitions = 0
        try:
            slot = read_slot(directory.storage, one)
        except CorruptSlot:
            status = "torn"
        else:
            partitions = len(slot.extents)
            for extent in slot.extents if status == "needed" else ():
                key = extent.topic_id, extent.partition
                name = names.get(key)
                before = covered.get(key)
                covered[key] = Covered(
                    extent.topic_id.hex() if name is None else name.topic,
                    extent.partition,
                    extent.base if before is None else before.first,
                    extent.end,
                    extent.length + (0 if before is None else before.bytes),
                    0 if name is None else synced.get(name, 0),
                )
        slots.append(
            SlotFound(
                header.seq,
                one.path.name,
                one.position,
                header.size,
                header.created_ms,
                status,
                partitions,
            )
        )
    return Inspection(
        state.stream.hex(), state.files, slots, sorted(covered.values()), _problem(directory)
    )


def _problem(directory: DataDirectory) -> str | None:
    try:
        scan(directory)
    except (CorruptJournal, JournalMissing) as error:
        return str(error)
    return None


def _names(directory: DataDirectory) -> dict[tuple[bytes, int], TopicPartition]:
    names = {}
    for name in directory.partitions():
        topic_id = directory.topic_id(name)
        if topic_id is not None:
            names[topic_id.bytes, name.partition] = name
    return names
