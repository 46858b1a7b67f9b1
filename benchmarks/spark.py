"""The `ottla` format beside Spark's own `kafka` format: same session, broker and data.

    python -m benchmarks.spark [--quick] [--only=TEXT] [--records=N]

What is compared is CPU: that of Spark's JVM and of all its Python processes, user and system, for
one action; peers take turns. Wall time is printed beside it. `--quick` reads 1 M records, and
`--records` says how many (a multiple of 200,000), where the 10 M of the target take too long.
Without Maven, and so without the `kafka` format, the script says what it skipped. The decoder by
itself is in `benchmarks.wire`, micro-batches and `ottla run` in `_spark_floor` and `_spark_run`.
"""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from benchmarks import _spark_share
from benchmarks._harness import Row, Timing, faster, part, report, wanted
from benchmarks._ottla import OttlaProcess
from benchmarks._spark_floor import floor_rows
from benchmarks._spark_once import once_rows
from benchmarks._spark_run import run_rows
from benchmarks._spark_tier import tier_rows
from ottla import Admin, Producer
from tests.support.jvm import NoJvm
from tests.support.spark import connector_jars, session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

QUICK: Final = "--quick" in sys.argv
ASKED: Final = [int(each[10:]) for each in sys.argv if each.startswith("--records=")]
RECORDS: Final = ASKED[-1] if ASKED else 1_000_000 if QUICK else 10_000_000
ROUNDS: Final = 3
PARTITIONS: Final = 2
SMALL_PARTITIONS: Final = 200
SMALL_RECORDS: Final = 100
FEW_PARTITIONS: Final = 4
PATIENCE: Final = 300
AS_KAFKA: Final = {"ottla.flush.mode": "os"}
FORMATS: Final = ("ottla", "kafka")
READ_ALL: Final = "read, all columns, noop"
READ_VALUE: Final = "read, value alone, noop"
READ_FIELD: Final = "read, JSON field, group by"
AVAILABLE_NOW: Final = f"AvailableNow, {SMALL_PARTITIONS} partitions of {SMALL_RECORDS}"
WRITE: Final = "streaming write, key and value"
ONCE: Final = "exactly-once write"
SHARE: Final = "share source"
TIER: Final = "tier scan, memory"
SESSION_PARTS: Final = (
    *(READ_ALL, READ_VALUE, READ_FIELD, AVAILABLE_NOW, WRITE, ONCE, SHARE, TIER),
)
TICKS: Final = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """Seconds of one action."""

    cpu: float
    wall: float


class Comparison(NamedTuple):
    """What is done with each format."""

    what: str
    target: float
    action: Callable[[str], None]
    warm_up: Callable[[str], None] | None = None
    rows: int = RECORDS
    rounds: int = ROUNDS


def main() -> None:
    if wanted(*SESSION_PARTS):
        session_parts()
    tell("micro-batches", part("micro-batch floor", floor_rows))
    tell("pipelines", part("ottla run", run_rows))


def session_parts() -> None:
    """All that is done in one session, on one broker."""
    with OttlaProcess({**AS_KAFKA, **_spark_share.BROKER}) as broker:
        asyncio.run(fill(broker.bootstrap))
        with session() as spark:
            tell("beside the kafka format", format_rows(spark, broker.bootstrap))
            tell("exactly once", part(ONCE, lambda: once(spark, broker)))
            tell("share source", part(SHARE, lambda: share_rows(spark, broker)))
            tell("tier", part(TIER, lambda: tier(spark)))


def tell(what: str, rows: list[Row]) -> None:
    """Print what a part has found as soon as it is there."""
    if rows:
        report(f"spark: {what}", rows, ("pyspark", "pyarrow", "numba"))
        print(f"  load average {os.getloadavg()[0]:.1f}; {RECORDS:,} records")


def once(spark: SparkSession, broker: OttlaProcess) -> list[Row]:
    return once_rows(spark, broker.bootstrap, "records", "few", RECORDS, ROUNDS)


def share_rows(spark: SparkSession, broker: OttlaProcess) -> list[Row]:
    return _spark_share.share_rows(spark, broker.bootstrap, "records", RECORDS)


def tier(spark: SparkSession) -> list[Row]:
    return tier_rows(spark, METER.seconds, records(200_000), RECORDS, ROUNDS)


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
        await admin.create_topic("written", partitions=PARTITIONS)
        table = records(200_000)
        for _ in range(RECORDS // table.num_rows):
            await producer.send_arrow("records", table)
        some = records(SMALL_RECORDS)
        for topic, partitions in (("small", SMALL_PARTITIONS), ("few", FEW_PARTITIONS)):
            await admin.create_topic(topic, partitions=partitions)
            for partition in range(partitions):
                await producer.send_arrow(topic, some, partition=partition)


# -- queries ---------------------------------------------------------------------------------------


def format_rows(spark: SparkSession, bootstrap: str) -> list[Row]:
    def frame(name: str, **options: str) -> DataFrame:
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": "records", **options}
        return spark.read.format(name).options(**given).load()

    def value(name: str) -> DataFrame:
        return frame(name, **({"columns": "value"} if name == "ottla" else {})).select("value")

    def noop(found: DataFrame) -> None:
        found.write.format("noop").mode("overwrite").save()

    def by_shop(found: DataFrame) -> None:
        shop = found.selectExpr("get_json_object(cast(value as string), '$.shop') as shop")
        assert shop.groupBy("shop").count().count() == 500

    comparisons = [
        Comparison(READ_ALL, 0.9, lambda name: noop(frame(name))),
        Comparison(READ_VALUE, 1.2, lambda name: noop(value(name))),
        Comparison(READ_FIELD, 1.0, lambda name: by_shop(value(name))),
        # The peer takes a task, and half a second of waiting, for each partition of the stream.
        Comparison(
            AVAILABLE_NOW,
            2.0,
            lambda name: stream(spark, bootstrap, name, "small", "noop"),
            lambda name: stream(spark, bootstrap, name, "few", "noop"),
            rows=SMALL_PARTITIONS * SMALL_RECORDS,
            rounds=1 if QUICK else 2,
        ),
        Comparison(
            WRITE,
            1.0,
            lambda name: stream(spark, bootstrap, name, "records", name, source="ottla"),
        ),
    ]
    return [row for one in comparisons for row in part(one.what, functools.partial(compared, one))]


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
        if not query.awaitTermination(PATIENCE):
            query.stop()
            raise TimeoutError(f"the stream has not ended after {PATIENCE} s")
    finally:
        shutil.rmtree(checkpoint)


def compared(one: Comparison) -> list[Row]:
    """CPU of the two formats for the same action, in turns."""
    jars = connector_jars()
    if isinstance(jars, NoJvm):
        raise jars
    costs: dict[str, list[Cost]] = {name: [] for name in FORMATS}
    for name in FORMATS:
        (one.warm_up or one.action)(name)
    for _ in range(one.rounds):
        for name in FORMATS:
            cpu, wall = METER.seconds(), time.perf_counter()
            one.action(name)
            costs[name].append(Cost(METER.seconds() - cpu, time.perf_counter() - wall))
    ours, theirs = (Timing(tuple(cost.cpu for cost in costs[name])) for name in FORMATS)
    walls = [statistics.median(cost.wall for cost in costs[name]) for name in FORMATS]
    row = faster(
        one.what, ours, theirs, one.target, lambda t: f"{t.median / one.rows * 1e6:.2f} CPU us/row"
    )
    row = _with_wall(row, walls)
    print(f"  {row.what}: {row.ours} | {row.peer} | {row.ratio:.2f}x", flush=True)
    return [row]


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
            if above == os.getpid() and _is_of_spark(top):
                self._used[pid, began] = ticks


def _is_of_spark(pid: int) -> bool:
    """Its JVM, or the process that its Python processes are copies of."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"pyspark-shell" in command or b"ottla.spark.zygote" in command


METER: Final = Meter()

if __name__ == "__main__":
    main()
