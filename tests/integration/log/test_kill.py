"""A process that is killed while it appends: what it called durable is there afterwards."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from ottla.log.config import LogConfig
from ottla.log.partition import PartitionLog
from ottla.wire.batch import iter_batches
from ottla.wire.records import iter_records
from tests.support.log_batches import read_all

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 8
WRITER = """
import sys, pathlib
from ottla.log.config import LogConfig
from ottla.log.partition import PartitionLog
from ottla.wire.batch import RecordBatch
from ottla.wire.builder import BatchBuilder

config = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
log = PartitionLog.open(pathlib.Path(sys.argv[1]), config, now_ms=0)
while True:
    for _ in range(7):
        builder = BatchBuilder()
        for index in range(3):
            number = log.log_end_offset + index
            builder.append(b"%d" % number * (number % 50), timestamp=number)
        batch = RecordBatch(memoryview(builder.build()))
        log.append(batch, leader_epoch=0, now_ms=0)
    print(log.flush(), flush=True)
"""


def test_kill_nine(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
    end = 0
    for number in range(ROUNDS):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(3 + number)]
        writer.kill()
        acknowledged += [int(line) for line in writer.stdout if line.endswith("\n")]
        writer.stdout.close()
        writer.wait()
        log = PartitionLog.open(tmp_path, config, now_ms=0)
        assert log.log_end_offset >= acknowledged[-1] > end
        end = log.log_end_offset
        batches = list(iter_batches(memoryview(read_all(log))))
        values = [(r.offset, r.value) for batch in batches for r in iter_records(batch)]
        assert values == [(offset, b"%d" % offset * (offset % 50)) for offset in range(end)]
        log.close(clean=False)
