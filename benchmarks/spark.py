"""The `ottla` format beside Spark's own `kafka` format: same session, broker and data.

    python -m benchmarks.spark [--quick]

What is compared is CPU: that of Spark's JVM and of all Python processes below it, user and system,
for one action; peers take turns. Wall time is printed beside it. `--quick` reads less. The floor of
a micro-batch is measured in sessions of their own, one with the profile and one without, by the
time Spark itself gives for each batch. Without Maven the script says what it skipped. The decoder
by itself is in `benchmarks.wire`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from benchmarks import _spark_share
from benchmarks._harness import Row, Timing, faster, report
from benchmarks._ottla import OttlaProcess
from benchmarks._spark_tier import tier_rows
from ottla import Admin, Producer
from tests.support.jvm import NoJvm
from tests.support.spark import connector_jars, session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

QUICK: Final = "--quick" in sys.argv
RECORDS: Final = 1_000_000 if QUICK else 10_000_000
ROUNDS: Final = 3
PARTITIONS: Final = 2
SMALL_PARTITIONS: Final = 200
SMALL_RECORDS: Final = 100
BATCHES: Final = 30 if QUICK else 100
AS_KAFKA: Final = {"ottla.flush.mode": "os"}
FORMATS: Final = ("ottla", "kafka")
TICKS: Final = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """Seconds of one action."""

    cpu: float
    wall: float


def main() -> None:
    if "--floor" in sys.argv:
        print(json.dumps(floor_of(sys.argv[sys.argv.index("--floor") + 1])))
        return
    jars = connector_jars()
    if isinstance(jars, NoJvm):
        print(f"skipped, no kafka format: {jars}")
        return
    with OttlaProcess({**AS_KAFKA, **_spark_share.BROKER}) as broker:
        asyncio.run(fill(broker.bootstrap))
        with session() as spark:
            rows = spark_rows(spark, broker.bootstrap)
            rows += _spark_share.share_rows(spark, broker.bootstrap, "records", RECORDS)
            rows += tier_rows(spark, METER.seconds, records(200_000), RECORDS, ROUNDS)
    rows += floor_rows()
    report("spark", rows, ("pyspark", "pyarrow", "numba"))
    print(f"  load average {os.getloadavg()[0]:.1f}; {RECORDS:,} records")


# -- data ------------------------------------------------------------------------------------------


def records(count: int, first: int = 0) -> pa.Table:
    """Values of 100 bytes: JSON with a field of few values."""
    numbers = range(first, first + count)
    note = b"x" * 49
    values = [
        b'{"shop": "%03d", "amount": 1%011d, "note": "%s"}' % (n % 500, n, note) for n in numbers
    ]
    return pa.table(
        {
            "key": pa.array([b"%08d" % n for n in numbers], pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )


async def fill(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topic("records", partitions=PARTITIONS)
        await admin.create_topic("small", partitions=SMALL_PARTITIONS)
        await admin.create_topic("written", partitions=PARTITIONS)
        table = records(200_000)
        for _ in range(RECORDS // table.num_rows):
            await producer.send_arrow("records", table)
        few = records(SMALL_RECORDS)
        for partition in range(SMALL_PARTITIONS):
            await producer.send_arrow("small", few, partition=partition)


# -- queries ---------------------------------------------------------------------------------------


def spark_rows(spark: SparkSession, bootstrap: str) -> list[Row]:
    def frame(name: str, **options: str) -> DataFrame:
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": "records", **options}
        return spark.read.format(name).options(**given).load()

    def noop(found: DataFrame) -> None:
        found.write.format("noop").mode("overwrite").save()

    def by_shop(found: DataFrame) -> None:
        shop = found.selectExpr("get_json_object(cast(value as string), '$.shop') as shop")
        assert shop.groupBy("shop").count().count() == 500

    pruned = {"ottla": {"columns": "value"}, "kafka": {}}
    return [
        compared("read, all columns, noop", 0.9, RECORDS, lambda name: noop(frame(name))),
        compared(
            "read, value alone, noop",
            1.2,
            RECORDS,
            lambda name: noop(frame(name, **pruned[name]).select("value")),
        ),
        compared(
            "read, JSON field, group by", 1.0, RECORDS, lambda n: by_shop(frame(n, **pruned[n]))
        ),
        compared(
            f"AvailableNow, {SMALL_PARTITIONS} partitions of {SMALL_RECORDS}",
            2.0,
            SMALL_PARTITIONS * SMALL_RECORDS,
            lambda name: stream(spark, bootstrap, name, "small", "noop"),
            # The peer takes a task, and half a second of waiting, for each partition.
            rounds=1 if QUICK else ROUNDS,
        ),
        compared(
            "streaming write, key and value",
            1.0,
            RECORDS,
            lambda name: stream(spark, bootstrap, name, "records", name, source="ottla"),
        ),
    ]


def stream(
    spark: SparkSession, bootstrap: str, name: str, topic: str, sink: str, source: str | None = None
) -> None:
    """One run of a stream over a topic."""
    servers = {"kafka.bootstrap.servers": bootstrap}
    reader = spark.readStream.format(source or name).options(**servers)
    found = reader.options(subscribe=topic, startingOffsets="earliest").load()
    checkpoint = tempfile.mkdtemp()
    try:
        writer = found.select("key", "value").writeStream.format(sink).options(**servers)
        writer = writer.option("topic", "written").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    finally:
        shutil.rmtree(checkpoint)


def compared(
    what: str, target: float, rows: int, action: Callable[[str], None], rounds: int = ROUNDS
) -> Row:
    """CPU of the two formats for the same action, in turns."""
    costs: dict[str, list[Cost]] = {name: [] for name in FORMATS}
    for name in FORMATS:
        action(name)
    for _ in range(rounds):
        for name in FORMATS:
            cpu, wall = METER.seconds(), time.perf_counter()
            action(name)
            costs[name].append(Cost(METER.seconds() - cpu, time.perf_counter() - wall))
    ours, theirs = (Timing(tuple(one.cpu for one in costs[name])) for name in FORMATS)
    walls = [statistics.median(one.wall for one in costs[name]) for name in FORMATS]
    row = faster(what, ours, theirs, target, lambda t: f"{t.median / rows * 1e6:.2f} CPU us/row")
    row = _with_wall(row, walls)
    print(f"  {row.what}: {row.ours} | {row.peer} | {row.ratio:.2f}x", flush=True)
    return row


def _with_wall(row: Row, walls: Sequence[float]) -> Row:
    shown = [f"{cpu}, {wall:.2f} s" for cpu, wall in zip((row.ours, row.peer), walls, strict=True)]
    return Row(row.what, shown[0], shown[1], row.ratio, row.spread, row.target)


class Meter:
    """CPU of Spark's JVM and all below it; what processes used is kept when they are gone."""

    def __init__(self) -> None:
        self._used: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def seconds(self) -> float:
        """All that has been used so far."""
        with self._lock:
            self._look()
            return sum(self._used.values()) / TICKS

    def _watch(self) -> None:
        while True:
            with self._lock:
                self._look()
            time.sleep(0.2)

    def _look(self) -> None:
        parents: dict[int, int] = {}
        found: dict[int, tuple[int, int]] = {}  # pid: when it started, ticks
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                parents[int(entry.name)] = int(fields[1])
                found[int(entry.name)] = int(fields[19]), int(fields[11]) + int(fields[12])
        for pid, (began, ticks) in found.items():
            above, top = parents.get(pid, 0), pid
            while above not in (0, 1, os.getpid()):
                top, above = above, parents.get(above, 0)
            if above == os.getpid() and _is_java(top):
                self._used[pid, began] = ticks


def _is_java(pid: int) -> bool:
    try:
        return b"pyspark-shell" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


# -- the floor of a micro-batch --------------------------------------------------------------------


def floor_rows() -> list[Row]:
    found: dict[str, list[float]] = {}
    for kind in ("ottla", "stock", "kafka"):
        command = [sys.executable, "-m", "benchmarks.spark", "--floor", kind]
        quick = ["--quick"] if QUICK else []
        said = subprocess.run([*command, *quick], capture_output=True, text=True, check=True)
        found[kind] = json.loads(said.stdout.splitlines()[-1])
    ours = Timing(tuple(found["ottla"]))
    return [
        _floor(f"micro-batch floor, {what}", ours, Timing(tuple(found[kind])), target)
        for kind, what, target in (
            ("stock", "stock session", 2.0),
            ("kafka", "kafka format, our profile", 1.0),
        )
    ]


def _floor(what: str, ours: Timing, peer: Timing, target: float) -> Row:
    # On a busy machine the least says more about the work, the median about the neighbours.
    shown = [
        f"{one.median * 1000:.0f} ms, least {min(one.seconds) * 1000:.0f}" for one in (ours, peer)
    ]
    ratio = peer.median / ours.median
    return Row(what, shown[0], shown[1], ratio, (ratio, ratio), target)


def floor_of(kind: str) -> list[float]:
    """Seconds Spark gives for each batch of a record or so."""
    name = "kafka" if kind == "kafka" else "ottla"
    with OttlaProcess(AS_KAFKA) as broker, session(stock=kind == "stock") as spark:
        asyncio.run(_create(broker.bootstrap))
        stop = threading.Event()
        feeder = threading.Thread(target=lambda: asyncio.run(_feed(broker.bootstrap, stop)))
        feeder.start()
        checkpoint = tempfile.mkdtemp()
        reader = spark.readStream.format(name).option("subscribe", "tiny")
        frame = reader.option("kafka.bootstrap.servers", broker.bootstrap).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.start()
        while query.lastProgress is None or query.lastProgress["batchId"] < BATCHES:
            time.sleep(0.2)
        times = [
            one["durationMs"]["triggerExecution"] / 1000
            for one in query.recentProgress
            if one["numInputRows"] and one["batchId"] >= BATCHES // 3
        ]
        stop.set()
        feeder.join()
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    return times


async def _create(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic("tiny")


async def _feed(bootstrap: str, stop: threading.Event) -> None:
    async with Producer(bootstrap) as producer:
        while not stop.is_set():
            await producer.send("tiny", b"x")
            await asyncio.sleep(0.01)


METER: Final = Meter()

if __name__ == "__main__":
    main()
