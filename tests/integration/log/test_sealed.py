"""A process that may open few files reads more segments than that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ottla.log.sealed import MIN_DESCRIPTORS

MANY_SEGMENTS = """
import resource, sys
from pathlib import Path
from ottla.log.config import LogConfig
from ottla.log.partition import PartitionLog
from ottla.log.sealed import shared
from ottla.log.tail import TailCache
from tests.support.log_batches import batch_of, read_all

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
logs, contents = [], []
for number in range(3):
    home = Path(sys.argv[1]) / f"t-{number}"
    config = LogConfig(segment_bytes=200, index_interval_bytes=1)
    log = PartitionLog.open(home, config, now_ms=0, tail=TailCache(0))
    while len(log.segments) <= 100:
        log.append(batch_of(b"%d %d" % (number, log.log_end_offset)), leader_epoch=0, now_ms=0)
    log.advance_high_watermark(log.flush())
    logs.append(log)
for log in logs:
    contents.append(read_all(log))
    assert log.close()
for clean in (True, False):  # after a crash all of them are walked and synced
    logs = [
        PartitionLog.open(log.directory, log.config, now_ms=0, clean=clean, tail=TailCache(0))
        for log in logs
    ]
    assert [log.flush() for log in logs] == [log.log_end_offset for log in logs]
    assert [read_all(log) for log in logs] == contents
    assert [read_all(log) for log in reversed(logs)] == contents[::-1]
    print(len(shared().files), shared().files.limit)
    for log in logs:
        assert len(log.segments) == 101
        log.close()
assert len(set(contents)) == 3
"""


def test_more_segments_than_descriptors(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MANY_SEGMENTS, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.stderr == ""
    assert done.stdout.split() == [str(MIN_DESCRIPTORS)] * 4
