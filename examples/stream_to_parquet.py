"""A stream of readings as Parquet files by day, which grow with every run.

    ottla run examples/stream_to_parquet.py --once --state /tmp/readings

With `--state` the broker that is started for the run keeps its data, and so do the checkpoint and
the table. Run it again and nothing is written twice: the flow goes on where it was.

If your broker keeps its older records in object storage, begin with those. The broker is not asked,
and a run without `--env backfill` then goes on with the live log at the right offset:

    TIER_URL=s3://bucket/tier ottla run examples/stream_to_parquet.py --once --env backfill
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from ottla.spark.pipelines import flow, on_batch, samples, source, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from ottla.spark.pipelines import Progress


@source("readings", topic="readings", schema="sensor string, at timestamp, degrees double")
def readings(rows: DataFrame) -> DataFrame:
    """What flows see: readings with the day they are of."""
    return rows.withColumn("day", f.to_date("at"))


@flow(
    "archive",
    reads=["readings"],
    writes=table("readings", partition_by=["day"]),
    trigger="30s",
    read_options={"maxOffsetsPerTrigger": 1_000_000},
)
def archive(readings: DataFrame) -> DataFrame:
    """Few files: a micro-batch becomes one file for each day in it."""
    return readings.where("degrees is not null").repartition("day")


@on_batch("archive")
def tell(progress: Progress) -> None:
    """Called when a batch is in the table and in Spark's log."""
    print(f"batch {progress.batch}: {progress.rows} readings", file=sys.stderr)


@samples("readings")
def some_readings() -> Iterator[dict[str, object]]:
    """Three days of two sensors."""
    for number in range(720):
        day, minute = divmod(number, 240)
        at = f"2026-03-{day + 1:02d}T{minute // 10:02d}:{minute % 10 * 6:02d}:00Z"
        yield {"sensor": f"s{number % 2}", "at": at, "degrees": number % 40 - 5.0}
