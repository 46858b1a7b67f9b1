"""A driver that is killed: what is read again, and what is left of its processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq
import pytest

from tests.support.faults_broker import soak
from tests.support.processes import descendants
from tests.support.spark_driver import POINTS, STARTED, THERE, read_to_the_end
from tests.support.spark_source import fill, new_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from ottla.testing.embedded import EmbeddedBroker

PATIENCE: Final = 180
RECORDS: Final = 120
# A driver takes seconds to start, so the short run has one kill and the long one has them all.
KILLS: Final = [(point, batch) for batch in (0, 1) for point in POINTS] if soak() else []


class Driver:
    """One process of `tests.support.spark_driver`, and those below it."""

    def __init__(
        self,
        broker: EmbeddedBroker,
        topic: str,
        directory: Path,
        start: str,
        point: str,
        batch: int,
    ) -> None:
        for name in (STARTED, THERE):
            (directory / name).unlink(missing_ok=True)
        self._directory = directory
        self._log = directory / "driver.log"
        command = [sys.executable, "-m", "tests.support.spark_driver", broker.bootstrap, topic]
        command += [str(directory), start, point, str(batch)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def reach(self, what: str) -> None:
        """Wait for a file of the driver's."""
        deadline = time.monotonic() + PATIENCE
        while not (self._directory / what).exists():
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            assert time.monotonic() < deadline, self._log.read_text()[-3000:]
            time.sleep(0.02)

    def kill(self) -> list[int]:
        """End the driver and its JVM at once; the processes that were theirs."""
        below = descendants(self._process.pid)
        (java,) = [pid for pid, command in below.items() if b"pyspark-shell" in command]
        for pid in (java, self._process.pid):
            os.kill(pid, signal.SIGKILL)
        self._process.wait()
        return list(below)

    def discard(self) -> None:
        """Let nothing of it stay behind, whatever the test found."""
        if self._process.poll() is None:
            self.kill()


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def rows(directory: Path, batch: int | None = None) -> list[tuple[int, int]]:
    """(partition, offset) of what was written, in all batches or in one."""
    found: list[tuple[int, int]] = []
    for path in (directory / "out").glob(f"{'*' if batch is None else batch}/*.parquet"):
        table = pq.read_table(path, columns=["partition", "offset"], partitioning=None)
        found += zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    return sorted(found)


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    found: list[Driver] = []
    yield found
    for one in found:
        one.discard()


def test_case_18_19_25_each_record_once_whenever_the_driver_is_killed(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, drivers: list[Driver]
) -> None:
    topic = new_topic(broker, 2)
    written = {0: 0, 1: 0}

    def produce(count: int) -> None:
        fill(broker, topic, dict.fromkeys(written, count))
        for partition in written:
            written[partition] += count

    # Before the first batch there is nothing but "latest" to say where the query starts.
    produce(7)
    skipped = dict(written)
    checkpoint = tmp_path / "checkpoint"
    for number, (point, batch) in enumerate([("logged", 0), *KILLS]):
        driver = Driver(broker, topic, tmp_path, "latest", point, batch + number)
        drivers.append(driver)
        driver.reach(STARTED)
        produce(RECORDS // len(written))
        driver.reach(THERE)
        logged = sorted(int(one.name) for one in (checkpoint / "offsets").glob("[0-9]*"))
        below = driver.kill()
        deadline = time.monotonic() + PATIENCE
        while left := [pid for pid in below if _command(pid)]:
            assert time.monotonic() < deadline, [_command(pid) for pid in left]
            time.sleep(0.05)
        if not number:
            assert logged == [0]
            first = json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[-1])
    produce(RECORDS // len(written))
    query = read_to_the_end(spark, broker.bootstrap, topic, tmp_path, "latest")
    assert query.awaitTermination(PATIENCE)
    expected = [
        (partition, offset)
        for partition, end in written.items()
        for offset in range(skipped[partition], end)
    ]
    assert rows(tmp_path) == expected
    # Case 18: the first batch is what was logged of it before the driver died.
    assert rows(tmp_path, 0) == [
        (partition, offset)
        for partition in written
        for offset in range(skipped[partition], first[topic][str(partition)])
    ]
