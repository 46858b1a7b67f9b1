"""Partition directories with many closed segments, written as files: rolling them would take hours.

Each segment holds one record of two hours ago, its indexes, and is what a broker has left after a
clean stop.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Final

from ottla.log.segment import INDEX, LOG, TIME_INDEX, segment_path
from ottla.wire.builder import BatchBuilder

if TYPE_CHECKING:
    from pathlib import Path

AGE_MS: Final = 2 * 3600 * 1000
_TIME_ENTRY = struct.Struct(">qi")
_BASE_OFFSET = struct.Struct(">q")


def build_segments(data_dir: Path, topic_prefix: str, count: int) -> int:
    """Give each partition of such topics `count` old segments; how many partitions there are."""
    old = int(time.time() * 1000) - AGE_MS
    builder = BatchBuilder()
    builder.append(b"old", timestamp=old)
    batch = builder.build()
    entry = _TIME_ENTRY.pack(old, 0)
    directories = sorted(data_dir.glob(f"{topic_prefix}*"))
    for directory in directories:
        for file in directory.glob("0*.*"):
            file.unlink()
        for base in range(count):
            _BASE_OFFSET.pack_into(batch, 0, base)
            segment_path(directory, base, LOG).write_bytes(batch)
            segment_path(directory, base, INDEX).touch()
            segment_path(directory, base, TIME_INDEX).write_bytes(entry)
    return len(directories)


def segment_files(data_dir: Path, topic_prefix: str) -> int:
    """How many segments such topics have, those that are being deleted not counted."""
    return sum(1 for _ in data_dir.glob(f"{topic_prefix}*/*.log"))
