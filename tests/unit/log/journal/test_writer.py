"""What the journal's machine decides, and how a slot of many extents is written."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from ottla.log.checkpoints import MetaProperties
from ottla.log.directory import DataDirectory
from ottla.log.journal.files import JournalFiles
from ottla.log.journal.replay import scan
from ottla.log.journal.slots import NewExtent
from ottla.log.journal.writer import SLOT_MAX_BYTES, Checkpoint, Fresh, JournalWriter, MakeFile
from ottla.log.os_storage import OsStorage
from ottla.log.storage import MAX_IOVECS
from tests.support.journal_crew import MemoryDirectory
from tests.support.log_batches import batch_of
from tests.support.log_faults import Fault, MemoryStorage, PowerLoss, Survival

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ottla.log.journal.writer import Round
    from ottla.log.storage import Buffer

STREAM = bytes(15) + b"\x01"
EXTENTS = 5000
BATCH = bytes(batch_of(b"value").data)


def fresh(key: int) -> Fresh[int]:
    topic_id = key.to_bytes(16, "big")
    return Fresh(key, NewExtent(topic_id, 0, 1, 0, 1, len(BATCH), [BATCH]))


def machine(*, files: int = 2) -> JournalWriter[int]:
    return JournalWriter(STREAM, node=1, files=files, extent_max_bytes=1000)


def cut(writer: JournalWriter[int], *keys: int) -> Round[int]:
    return writer.cut([fresh(key) for key in keys], now_ms=1)


def test_a_file_is_made_when_it_is_needed() -> None:
    """Not at the start, and not because a journal is idle."""
    writer = machine()
    assert writer.commands() == []
    assert cut(writer, 1).direct == [1]
    assert writer.commands() == [MakeFile(0)]
    writer.direct_ended([1])
    writer.made(0)
    slot = cut(writer, 1).slot
    assert slot is not None
    assert writer.written(slot.seq) == {1: 1}
    assert writer.commands() == []
    writer.rest()
    assert writer.commands() == [Checkpoint(0, {1: 1})]
    writer.checkpointed(0)
    assert writer.commands() == []
    assert writer.is_empty


def crowd(count: int, size: int) -> Round[int]:
    """One round of a machine with the limits of a broker and a file that is free."""
    writer: JournalWriter[int] = JournalWriter(STREAM, node=1, files=2, extent_max_bytes=256 * 1024)
    cut(writer, 0)
    writer.commands()
    writer.direct_ended([0])
    writer.made(0)
    extents = [NewExtent(bytes(16), key, 1, 0, 1, size, [bytes(size)]) for key in range(count)]
    return writer.cut([Fresh(extent.partition, extent) for extent in extents], now_ms=1)


def test_many_small_extents_share_a_slot() -> None:
    """A thousand partitions with little each: to sync hundreds of files would take far longer."""
    found = crowd(2000, 1500)
    assert not found.direct
    assert len(found.journalled) == 2000
    found = crowd(9000, 1000)
    assert found.slot is not None
    assert 2 * SLOT_MAX_BYTES - 10_000 < found.slot.size <= 2 * SLOT_MAX_BYTES
    assert len(found.direct) + len(found.journalled) == 9000


def test_the_largest_of_a_round_are_synced_by_themselves() -> None:
    found = crowd(12, 200_000)
    assert found.slot is not None
    assert found.slot.size <= SLOT_MAX_BYTES
    assert len(found.direct) == 2


class Counting(OsStorage):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def pwritev(self, fd: int, chunks: Sequence[Buffer], position: int) -> int:
        self.calls.append("pwritev")
        return super().pwritev(fd, chunks, position)

    def fdatasync(self, fd: int) -> None:
        self.calls.append("fdatasync")
        super().fdatasync(fd)


def test_a_slot_of_many_extents_is_synced_after_its_last_write(tmp_path: Path) -> None:
    """Case 4: a durable write speaks of the range of its own call only."""
    storage = Counting()
    directory = DataDirectory(tmp_path, storage)
    directory.write_meta(MetaProperties("c", 0, UUID(int=5)))
    files, writer = JournalFiles(directory, STREAM), machine()
    files.make(0)
    writer.made(0)
    slot = cut(writer, *range(EXTENTS)).slot
    assert slot is not None
    storage.calls.clear()
    files.write(slot)
    writes = -(-(EXTENTS + 3) // MAX_IOVECS)  # with header, index and padding
    assert storage.calls == [*["pwritev"] * writes, "fdatasync"]
    found = scan(directory)
    assert found is not None
    assert len(found) == EXTENTS
    files.close()
    directory.close()


@pytest.mark.parametrize("survival", list(Survival))
def test_a_crash_in_a_slot_of_many_extents_confirms_nothing(survival: Survival) -> None:
    """Case 4: between its writes, and before the sync."""
    for call in range(10):
        disk = MemoryStorage()
        directory = MemoryDirectory(disk)
        directory.write_meta(MetaProperties("c", 0, UUID(int=5)))
        files, writer = JournalFiles(directory, STREAM, file_bytes=1 << 20), machine()
        files.make(0)
        writer.made(0)
        first = cut(writer, 1).slot
        assert first is not None
        files.write(first)
        writer.written(first.seq)
        slot = cut(writer, *range(EXTENTS)).slot
        assert slot is not None
        disk.plan[disk.calls + call] = Fault.TORN_CRASH
        is_written = True
        try:
            files.write(slot)
        except PowerLoss:
            is_written = False
        directory.storage = disk.crash(survival)
        found = scan(directory)
        assert found is not None
        if is_written:
            assert len(found) == EXTENTS
            return
        # All of it may be there, but never a part.
        assert len(found) in (1, EXTENTS)
    raise AssertionError("a write that never ends")
