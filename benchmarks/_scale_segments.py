"""Partition directories with many closed segments, made as files: rolling them would take hours.

Each segment holds one record of two hours ago, its indexes and the snapshot of producers at its
end, as a broker leaves them after a clean stop. The log room writes the first partition; all others
are hard links to its files but for the last segment of each, which a broker may write to.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Final

from ottla.log.config import LogConfig
from ottla.log.partition import PartitionLog
from ottla.wire.batch import RecordBatch
from ottla.wire.builder import BatchBuilder

if TYPE_CHECKING:
    from pathlib import Path

AGE_MS: Final = 2 * 3600 * 1000


def build_segments(data_dir: Path, names: list[str], count: int) -> None:
    """Give each of these partitions, which have no directory yet, `count` old segments."""
    now = int(time.time() * 1000)
    first = data_dir / names[0]
    log = PartitionLog.open(first, LogConfig(), now_ms=now)
    for number in range(count):
        if number:
            log.roll(now)
        builder = BatchBuilder()
        builder.append(b"old", timestamp=now - AGE_MS)
        batch = RecordBatch(memoryview(builder.build()))
        log.append(batch, leader_epoch=0, now_ms=now)
    last = f"{log.segments[-1].base_offset:020d}"
    assert log.close()
    files = sorted(path.name for path in first.iterdir())
    shared = [name for name in files if not name.startswith(last) and name[0] == "0"]
    own = [name for name in files if name not in shared]
    for name in names[1:]:
        directory = data_dir / name
        directory.mkdir()
        for file in shared:
            os.link(first / file, directory / file)
        for file in own:
            shutil.copyfile(first / file, directory / file)


def segments_left(data_dir: Path, names: list[str]) -> int:
    """How many segments these partitions have, those that are being deleted not counted."""
    return sum(
        path.suffix == ".log" for directory in names for path in (data_dir / directory).iterdir()
    )
