"""What a power cut may take from the logs of a broker that keeps a journal.

A killed process leaves everything it wrote to the system. Here the logs lose, in addition, some of
what was not synced: any part of the newest batches that the journal has too. Batches that were
synced in the log itself lie between those of the journal, so only those behind the last of them may
go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.checkpoints import Checkpoint, read_offsets
from ottla.log.directory import DataDirectory
from ottla.log.journal.replay import scan
from ottla.wire.batch import HEADER_SIZE, RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from random import Random

    from ottla.log.journal.replay import Leftover


def lose_power(data: Path, chance: Random) -> int:
    """How many bytes that took; nobody may use the directory."""
    directory = DataDirectory(data)
    lost = 0
    try:
        leftover = scan(directory)
        synced = read_offsets(directory.storage, data, Checkpoint.RECOVERY_POINT)
        for name in directory.partitions() if leftover is not None else ():
            topic_id = directory.topic_id(name)
            if topic_id is None:
                continue
            found = _last_run(leftover, (topic_id.bytes, name.partition))
            if found is not None:
                first, end = found
                first = max(first, synced.get(name, 0))
                lost += _cut(directory.path_of(name), first, end, chance)
    finally:
        directory.close()
    return lost


def _last_run(leftover: Leftover | None, key: tuple[bytes, int]) -> tuple[int, int] | None:
    """The newest offsets that the journal has without a gap."""
    assert leftover is not None
    stretches = leftover._stretches.get(key)
    if not stretches:
        return None
    first = stretches[-1].base
    for stretch in reversed(stretches[:-1]):
        if stretch.end != first:
            break
        first = stretch.base
    return first, stretches[-1].end


def _cut(path: Path, first: int, end: int, chance: Random) -> int:
    segments = sorted(path.glob("*.log"))
    batches = [
        (segment, position, batch)
        for segment in segments
        for position, batch in _batches(segment.read_bytes())
    ]
    if not batches or batches[-1][2].next_offset != end or first >= end:
        return 0  # what lies above the journal may have been synced
    keep = chance.randrange(first, end)
    segment, position, batch = next(one for one in batches if one[2].next_offset > keep)
    if chance.random() < 0.3:
        position += chance.randrange(batch.size)  # torn
    lost = sum(one.stat().st_size for one in segments if one >= segment) - position
    with segment.open("r+b") as file:
        file.truncate(position)
    for later in segments:
        if later > segment:
            for one in path.glob(f"{later.stem}.*"):
                one.unlink()
    return lost


def _batches(data: bytes) -> Iterator[tuple[int, RecordBatch]]:
    position = 0
    while len(data) - position >= HEADER_SIZE:
        batch = RecordBatch(memoryview(data)[position:])
        if batch.size > len(data) - position:
            return
        yield position, batch
        position += batch.size
