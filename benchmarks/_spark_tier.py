"""Rows of `benchmarks.spark` about segments in object storage, and about memory.

The same records are read from the live log and from the segments that the broker has copied to a
directory. While the segments are read the broker is stopped by a signal: it serves not a byte.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks._harness import Row, Timing, faster
from benchmarks._ottla import OttlaProcess
from ottla import Admin, Producer
from tests.support.processes import pythons_below, watching

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MIB: Final = 1024 * 1024
SEGMENT_BYTES: Final = 16 * MIB
PARTITIONS: Final = 2
SMALL_PART: Final = 8  # what memory is compared with reads an eighth
PATIENCE: Final = 300.0


def tier_rows(
    spark: SparkSession, cpu: Callable[[], float], some: pa.Table, records: int, rounds: int
) -> list[Row]:
    """`cpu` gives the seconds that Spark and its workers have used so far."""
    with tempfile.TemporaryDirectory(prefix="ottla-tier-") as directory:
        config = {
            "ottla.flush.mode": "os",
            "remote.log.storage.system.enable": "true",
            "rsm.config.url": f"file://{directory}",
            "remote.log.manager.task.interval.ms": "200",
        }
        with OttlaProcess(config) as broker:
            asyncio.run(_fill(broker.bootstrap, some, records))
            _wait_for_copies(Path(directory))
            live = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "tiered"}
            tier = {"subscribe": "tiered", "tier": "only", "tierUrl": f"file://{directory}"}
            return [
                _scan(spark, cpu, broker, live, tier, rounds),
                _memory(spark, broker, live, records),
            ]


async def _fill(bootstrap: str, some: pa.Table, records: int) -> None:
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        settings = {"remote.storage.enable": "true", "segment.bytes": str(SEGMENT_BYTES)}
        await admin.create_topic("tiered", partitions=PARTITIONS, configs=settings)
        for _ in range(records // some.num_rows):
            await producer.send_arrow("tiered", some)


def _wait_for_copies(directory: Path) -> None:
    """Until the store has not grown for a while."""
    deadline = time.monotonic() + PATIENCE
    seen, quiet = -1, 0
    while quiet < 5:
        count = len(list(directory.rglob("*.meta")))
        quiet = quiet + 1 if count == seen and count else 0
        seen = count
        if time.monotonic() > deadline:
            raise TimeoutError("the broker has not copied its segments")
        time.sleep(1)


def _scan(
    spark: SparkSession,
    cpu: Callable[[], float],
    broker: OttlaProcess,
    live: dict[str, str],
    tier: dict[str, str],
    rounds: int,
) -> Row:
    copied = spark.read.format("ottla").options(**tier).load()
    ends = copied.groupBy("partition").agg({"offset": "max"}).collect()
    last = json.dumps({"tiered": {row[0]: row[1] + 1 for row in ends}})
    same = spark.read.format("ottla").options(**live, endingOffsets=last).load()
    frames = [copied, same]
    counts = [frame.select("offset").count() for frame in frames]
    assert counts[0] == counts[1]
    costs: list[list[float]] = [[], []]
    walls: list[list[float]] = [[], []]
    for number in range(rounds + 1):
        for which, frame in enumerate(frames):
            if which == 0:
                broker.pause()
            used, began = cpu(), time.perf_counter()
            _noop(frame)
            seconds, wall = cpu() - used, time.perf_counter() - began
            if which == 0:
                broker.resume()
            if number:  # the first round warms up
                costs[which].append(seconds / counts[which])
                walls[which].append(wall / counts[which])
    ours, theirs = (Timing(tuple(one)) for one in walls)
    row = faster(
        "tier scan, broker stopped, all columns",
        ours,
        theirs,
        1.0,
        lambda timing: f"{1 / timing.median / 1e6:.2f} M rows/s",
    )
    shown = [
        f"{text}, {statistics.median(cost) * 1e6:.2f} CPU us/row"
        for text, cost in zip((row.ours, row.peer), costs, strict=True)
    ]
    return Row(row.what, shown[0], shown[1], row.ratio, row.spread, row.target)


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _memory(spark: SparkSession, broker: OttlaProcess, live: dict[str, str], records: int) -> Row:
    """The most that Python processes of Spark hold at once, for a part of a topic and for all."""
    part = records // PARTITIONS // SMALL_PART
    end = ", ".join(f'"{number}": {part}' for number in range(PARTITIONS))
    small = {**live, "endingOffsets": f'{{"tiered": {{{end}}}}}'}
    peaks = []
    for options in (small, live):
        seen = [0]
        with watching(lambda: seen.append(_resident_in_all()), 0.1):  # noqa: B023  # of this round
            _noop(spark.read.format("ottla").options(**options).load())
        peaks.append(max(seen))
    shown = [f"{one / MIB:.0f} MiB" for one in peaks]
    ratio = peaks[1] / peaks[0]
    what = f"memory of all workers, {SMALL_PART} times the records"
    return Row(what, shown[1], shown[0], ratio, (ratio, ratio), 1.5, at_most=True)


def _resident_in_all() -> int:
    return sum(map(_resident, pythons_below(os.getpid())))


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
