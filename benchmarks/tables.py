"""Topics as tables in Spark, beside Spark's own `kafka` format: same session, broker and data.

    python -m benchmarks.tables [--quick] [--only=TEXT] [--records=N]

10 M records of 100 bytes of JSON, half of it random text (`--quick`: 1 M; `--records`: as many, a
multiple of 200,000). What is compared is CPU: that of Spark's JVM and of all Python processes below
it, user and system, for one action; peers take turns, and both sides must give the same result
before they are timed. Conversion is a row of its own and in none of the others: `ottla table run`
against Spark writing Parquet from the `kafka` format, as many records of 200 bytes. The worker's
memory is the most that it had at any time, of the same records against a tenth of them.

Rows without Spark: `_tables_decode` (Avro to Arrow columns) and `_tables_registry` (the registry
beside a producer, and a broker without both).
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from benchmarks._harness import Row, Timing, faster, part, report, wanted
from benchmarks._ottla import OttlaProcess
from benchmarks._tables_decode import decode_rows
from benchmarks._tables_registry import registry_rows
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
SALES: Final = "sales"
FEW_SALES: Final = "few-sales"
SALES_DDL: Final = "id bigint, shop string, user string, amount double, paid boolean, note string"
GROUP: Final = "group by a typed column, archive"
COUNT: Final = "count, archive"
UNION: Final = "group by a typed column, archive and a live tail of 2.5 %"
PART: Final = "sum of a column, 1 % by offset"
CONVERT: Final = "conversion to Parquet, JSON of 200 bytes"
MEMORY: Final = "memory of the worker, 10 times the records"
SESSION_PARTS: Final = (GROUP, COUNT, UNION, PART, CONVERT, MEMORY)
DECODE: Final = "Avro to Arrow"
MEMORY_LIMIT: Final = 1.2


class Comparison(NamedTuple):
    """What is asked of a table and of the `kafka` format; both answers must be equal."""

    what: str
    target: float
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    rows: int = RECORDS


class Took(NamedTuple):
    """What the worker took for a topic."""

    cpu: float
    most_bytes: int


def main() -> None:
    if wanted(*SESSION_PARTS):
        report("tables in Spark", session_rows(), ("pyspark", "pyarrow", "pyiceberg"))
        print(f"  load average {os.getloadavg()[0]:.1f}; {RECORDS:,} records")
    if rows := part(DECODE, decode_rows):
        report("tables: Avro to columns", rows, ("fastavro", "pyarrow", "numba"))
    if rows := registry_rows():
        report("tables: the registry", rows, ("h11",))


def session_rows() -> list[Row]:
    jars = connector_jars()
    if isinstance(jars, NoJvm):
        raise jars
    with OttlaProcess(AS_KAFKA) as broker, session() as spark:
        rows = []
        if wanted(CONVERT, MEMORY):
            asyncio.run(fill(broker.bootstrap, SALES, sales, 0, RECORDS))
            rows += part(CONVERT, lambda: conversion(spark, broker))
            rows += part(MEMORY, lambda: memory(broker))
        if wanted(GROUP, COUNT, UNION, PART):
            asyncio.run(fill(broker.bootstrap, TOPIC, records, 0, RECORDS))
            convert(broker, TOPIC)
            rows += archive_rows(spark, broker.bootstrap)
            asyncio.run(fill(broker.bootstrap, TOPIC, records, RECORDS, TAIL))
            rows += tail_rows(spark, broker.bootstrap)
    return rows


# -- data ------------------------------------------------------------------------------------------


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


WORDS: Final = ["".join(random.Random(n).choices("abcdefgh", k=5)) for n in range(5_000)]


def sales(first: int, count: int) -> pa.Table:
    """Values of 200 bytes: numbers, texts of words, and a flag."""
    rng = random.Random(first)
    values = [
        b'{"id": %d, "shop": "%03d", "user": "%012x", "amount": %d.%02d, "paid": %s, "note": "%s"}'
        % (
            *(10_000_000 + n, n % 500, rng.getrandbits(48), 100 + n % 900, n % 100),
            b"true" if n % 3 else b"false",
            " ".join(rng.choices(WORDS, k=17)).encode(),
        )
        for n in range(first, first + count)
    ]
    return pa.table({"value": pa.array(values, pa.binary())})


async def fill(
    bootstrap: str, topic: str, make: Callable[[int, int], pa.Table], first: int, count: int
) -> None:
    async with Admin(bootstrap) as admin:
        if topic not in {one.name for one in await admin.list_topics()}:
            columns = DDL if make is records else SALES_DDL
            configs = {**TABLE, "ottla.table.value.schema": columns}
            await admin.create_topic(topic, partitions=PARTITIONS, configs=configs)
    async with Producer(bootstrap) as producer:
        for at in range(first, first + count, AT_ONCE):
            await producer.send_arrow(topic, make(at, min(AT_ONCE, first + count - at)))


@functools.cache  # a table takes its records once
def convert(broker: OttlaProcess, topic: str) -> Took:
    """Take all records into the table; what the process that does so took."""
    place = broker.data_dir.parent
    command = [
        *(sys.executable, "-m", "ottla.cli", "table", "run", "--once"),
        *("--bootstrap", broker.bootstrap, "--topics", topic),
        *("--warehouse", f"file://{place}/warehouse/", "--catalog", f"sqlite:///{place}/tables.db"),
    ]
    with subprocess.Popen(command) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return Took(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


# -- rows ------------------------------------------------------------------------------------------


def by_kafka(spark: SparkSession, bootstrap: str, topic: str = TOPIC, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options}
    return spark.read.format("kafka").options(**given).load()


def fields(frame: DataFrame, columns: str = DDL) -> DataFrame:
    return frame.selectExpr(f"from_json(cast(value as string), '{columns}') as v").select("v.*")


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
    frame = fields(by_kafka(spark, broker.bootstrap, SALES), SALES_DDL)
    names = ["sum(id)", "sum(cast(amount * 100 as bigint))", "count_if(paid)", "sum(length(note))"]
    try:
        frame.limit(1000).write.parquet(str(place / "warm"))
        before = METER.seconds()
        frame.write.parquet(str(place / "all"))
        theirs = Timing((METER.seconds() - before,))
        wanted = spark.read.parquet(str(place / "all")).selectExpr(*names).collect()
    finally:
        shutil.rmtree(place)
    ours = Timing((convert(broker, SALES).cpu,))
    table = tables.table(spark, SALES, bootstrap=broker.bootstrap, tail=False)
    if table.selectExpr(*names).collect() != wanted:
        raise AssertionError(f"{CONVERT}: the two sides do not have the same rows")
    row = faster(
        CONVERT, ours, theirs, 4, lambda t: f"{t.median / RECORDS * 1e6:.2f} CPU us/record"
    )
    print(f"  {row.what}: {row.ours} | {row.peer} | {row.ratio:.2f}x", flush=True)
    return [row]


def memory(broker: OttlaProcess) -> list[Row]:
    """The most that the worker had at any time, with all records and with a tenth of them."""
    asyncio.run(fill(broker.bootstrap, FEW_SALES, sales, 0, RECORDS // 10))
    many, few = (convert(broker, topic).most_bytes for topic in (SALES, FEW_SALES))
    shown = [f"{one / 1024**2:.0f} MiB" for one in (many, few)]
    ratio = many / few
    row = Row(MEMORY, shown[0], shown[1], ratio, (ratio, ratio), MEMORY_LIMIT, at_most=True)
    print(f"  {row.what}: {row.ours} | {row.peer} | {row.ratio:.2f}x", flush=True)
    return [row]


if __name__ == "__main__":
    main()
