"""Topics as tables in Spark, beside Spark's own `kafka` format: same session, broker and data.

    python -m benchmarks.tables [--quick] [--only=TEXT] [--records=N]

10 M records of 100 bytes of JSON, half of it random text (`--quick`: 1 M; `--records`: as many, a
multiple of 200,000). What is compared is CPU: that of Spark's JVM and of all Python processes below
it, user and system, for one action; peers take turns, and both sides must give the same result
before they are timed. Conversion is a row of its own and in none of the others: `ottla table run`
against Spark writing Parquet from the `kafka` format.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from benchmarks._harness import Row, Timing, faster, part, report
from benchmarks._ottla import OttlaProcess
from benchmarks.spark import METER, Cost
from ottla import Admin, Producer
from ottla.spark import tables
from tests.support.jvm import NoJvm
from tests.support.spark import connector_jars, session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

QUICK: Final = "--quick" in sys.argv
ASKED: Final = [int(each[10:]) for each in sys.argv if each.startswith("--records=")]
RECORDS: Final = ASKED[-1] if ASKED else 1_000_000 if QUICK else 10_000_000
ROUNDS: Final = 3
PARTITIONS: Final = 2
AT_ONCE: Final = 200_000
TAIL: Final = RECORDS // 40  # 2.5 %
TOPIC: Final = "records"
DDL: Final = "shop string, amount bigint, note string"
AS_KAFKA: Final = {"ottla.flush.mode": "os"}
TABLE: Final = {
    "ottla.table.enable": "true",
    "ottla.table.value.format": "json",
    "ottla.table.value.schema": DDL,
}
GROUP: Final = "group by a typed column, archive"
COUNT: Final = "count, archive"
UNION: Final = "group by a typed column, archive and a live tail of 2.5 %"
PART: Final = "sum of a column, 1 % by offset"
CONVERT: Final = "conversion to Parquet"


class Comparison(NamedTuple):
    """What is asked of a table and of the `kafka` format; both answers must be equal."""

    what: str
    target: float
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    rows: int = RECORDS


def main() -> None:
    jars = connector_jars()
    if isinstance(jars, NoJvm):
        raise jars
    with OttlaProcess(AS_KAFKA) as broker:
        asyncio.run(make_topic(broker.bootstrap))
        asyncio.run(fill(broker.bootstrap, 0, RECORDS))
        with session() as spark:
            rows = part(CONVERT, lambda: conversion(spark, broker))
            if not rows:
                convert(broker)
            rows += archive_rows(spark, broker.bootstrap)
            asyncio.run(fill(broker.bootstrap, RECORDS, TAIL))
            rows += tail_rows(spark, broker.bootstrap)
    report("tables in Spark", rows, ("pyspark", "pyarrow", "pyiceberg"))
    print(f"  load average {os.getloadavg()[0]:.1f}; {RECORDS:,} records")


# -- data ------------------------------------------------------------------------------------------


async def make_topic(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(TOPIC, partitions=PARTITIONS, configs=TABLE)


def records(first: int, count: int) -> pa.Table:
    """Values of 100 bytes: a field of 500 values, a number, and text that does not compress."""
    numbers = range(first, first + count)
    values = [
        b'{"shop": "%03d", "amount": 1%08d, "note": "%s"}'
        % (n % 500, n, os.urandom(26).hex().encode())
        for n in numbers
    ]
    return pa.table(
        {
            "key": pa.array([b"%08d" % n for n in numbers], pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )


async def fill(bootstrap: str, first: int, count: int) -> None:
    async with Producer(bootstrap) as producer:
        for at in range(first, first + count, AT_ONCE):
            await producer.send_arrow(TOPIC, records(at, min(AT_ONCE, first + count - at)))


def convert(broker: OttlaProcess) -> float:
    """Take all records into the table; CPU seconds of the process that does."""
    place = broker.data_dir.parent
    command = [
        *(sys.executable, "-m", "ottla.cli", "table", "run", "--once"),
        *("--bootstrap", broker.bootstrap, "--topics", TOPIC),
        *("--warehouse", f"file://{place}/warehouse/", "--catalog", f"sqlite:///{place}/tables.db"),
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# -- rows ------------------------------------------------------------------------------------------


def by_kafka(spark: SparkSession, bootstrap: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, **options}
    return spark.read.format("kafka").options(**given).load()


def fields(frame: DataFrame) -> DataFrame:
    return frame.selectExpr(f"from_json(cast(value as string), '{DDL}') as v").select("v.*")


def totals(frame: DataFrame) -> Any:
    return sorted(tuple(one) for one in frame.groupBy("shop").sum("amount").collect())


def archive_rows(spark: SparkSession, bootstrap: str) -> list[Row]:
    def ours(**arguments: Any) -> DataFrame:
        return tables.table(spark, TOPIC, bootstrap=bootstrap, **arguments)

    def theirs(**options: str) -> DataFrame:
        return by_kafka(spark, bootstrap, **options)

    half = RECORDS // PARTITIONS
    few = RECORDS // 100
    span = {str(one): half // 2 for one in range(PARTITIONS)}
    last = {one: offset + few // PARTITIONS for one, offset in span.items()}
    inside = f"_offset >= {half // 2} and _offset < {half // 2 + few // PARTITIONS}"
    offsets = {
        "startingOffsets": json.dumps({TOPIC: span}),
        "endingOffsets": json.dumps({TOPIC: last}),
    }
    comparisons = [
        Comparison(GROUP, 12, lambda: totals(ours()), lambda: totals(fields(theirs()))),
        Comparison(COUNT, 8, lambda: ours().count(), lambda: theirs().count()),
        Comparison(
            PART,
            1,
            lambda: ours(where=inside).agg({"amount": "sum"}).collect()[0][0],
            lambda: fields(theirs(**offsets)).agg({"amount": "sum"}).collect()[0][0],
            few,
        ),
    ]
    return [row for one in comparisons for row in part(one.what, functools.partial(compared, one))]


def tail_rows(spark: SparkSession, bootstrap: str) -> list[Row]:
    one = Comparison(
        UNION,
        8,
        lambda: totals(tables.table(spark, TOPIC, bootstrap=bootstrap)),
        lambda: totals(fields(by_kafka(spark, bootstrap))),
        RECORDS + TAIL,
    )
    return part(one.what, lambda: compared(one))


def compared(one: Comparison) -> list[Row]:
    """CPU of both sides for the same question, in turns."""
    if one.ours() != one.theirs():
        raise AssertionError(f"{one.what}: the two sides do not give the same answer")
    costs: dict[bool, list[Cost]] = {True: [], False: []}
    for _ in range(ROUNDS):
        for is_ours, ask in ((True, one.ours), (False, one.theirs)):
            cpu, wall = METER.seconds(), time.perf_counter()
            ask()
            costs[is_ours].append(Cost(METER.seconds() - cpu, time.perf_counter() - wall))
    mine, peer = (Timing(tuple(cost.cpu for cost in costs[which])) for which in (True, False))
    walls = [statistics.median(cost.wall for cost in costs[which]) for which in (True, False)]
    row = faster(
        one.what, mine, peer, one.target, lambda t: f"{t.median / one.rows * 1e6:.3f} CPU us/row"
    )
    shown = [f"{cpu}, {wall:.2f} s" for cpu, wall in zip((row.ours, row.peer), walls, strict=True)]
    row = Row(row.what, shown[0], shown[1], row.ratio, row.spread, row.target)
    print(f"  {row.what}: {row.ours} | {row.peer} | {row.ratio:.2f}x", flush=True)
    return [row]


def conversion(spark: SparkSession, broker: OttlaProcess) -> list[Row]:
    """One run of each, since a table takes its records once; Spark has been warmed up."""
    place = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
    frame = fields(by_kafka(spark, broker.bootstrap))
    try:
        frame.limit(1000).write.parquet(str(place / "warm"))
        before = METER.seconds()
        frame.write.parquet(str(place / "all"))
        theirs = Timing((METER.seconds() - before,))
    finally:
        shutil.rmtree(place)
    ours = Timing((convert(broker),))
    row = faster(
        CONVERT, ours, theirs, 4, lambda t: f"{t.median / RECORDS * 1e6:.2f} CPU us/record"
    )
    print(f"  {row.what}: {row.ours} | {row.peer} | {row.ratio:.2f}x", flush=True)
    return [row]


if __name__ == "__main__":
    main()
