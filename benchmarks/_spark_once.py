"""What exactly once costs: our sink in both deliveries, on the same frame, in turns.

A large batch is compared by rows per second, small ones by what each takes longer. The times are
those that Spark gives itself for a batch; `by_partition`, and so a shuffle, is part of the one and
not of the other. Nobody has set a target.
"""

from __future__ import annotations

import shutil
import tempfile
from typing import TYPE_CHECKING, Final

from benchmarks._harness import Row, Timing
from ottla.spark.sink.owners import by_partition

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

DELIVERIES: Final = ("exactly-once", "at-least-once")
PER_BATCH: Final = 40
PATIENCE: Final = 300


def once_rows(
    spark: SparkSession, bootstrap: str, large: str, small: str, records: int, rounds: int
) -> list[Row]:
    """Rows for one batch of all of a topic, and for many batches of a little of another."""
    found = []
    for topic, limit in ((large, None), (small, PER_BATCH)):
        seconds: dict[str, list[float]] = {delivery: [] for delivery in DELIVERIES}
        for turn in range(rounds + 1):
            for delivery in DELIVERIES:
                taken = batches(spark, bootstrap, topic, delivery, limit)
                if turn:  # the first one is to warm up
                    seconds[delivery] += taken
        found.append({delivery: Timing(tuple(seconds[delivery])) for delivery in DELIVERIES})
    whole, parts = found
    added = (parts[DELIVERIES[0]].median - parts[DELIVERIES[1]].median) * 1000
    return [
        _row(
            "exactly-once write, one batch, peer at least once",
            whole,
            lambda one: f"{records / one.median:,.0f} rows/s",
        ),
        _row(
            f"exactly-once write, {added:+.0f} ms for a batch of {PER_BATCH}, peer at least once",
            parts,
            lambda one: f"{one.median * 1000:.0f} ms, least {min(one.seconds) * 1000:.0f}",
        ),
    ]


def batches(
    spark: SparkSession, bootstrap: str, topic: str, delivery: str, limit: int | None
) -> list[float]:
    """Seconds of each batch of a stream over what a topic has."""
    servers = {"kafka.bootstrap.servers": bootstrap}
    reader = spark.readStream.format("ottla").options(**servers).option("columns", "key,value")
    if limit is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(limit))
    frame = reader.options(subscribe=topic, startingOffsets="earliest").load()
    options = {**servers, "topic": "written", "delivery": delivery}
    rows = by_partition(frame, options) if delivery == DELIVERIES[0] else frame
    checkpoint = tempfile.mkdtemp()
    try:
        writer = rows.writeStream.format("ottla").options(**options)
        writer = writer.option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(PATIENCE):
            query.stop()
            raise TimeoutError(f"the stream has not ended after {PATIENCE} s")
    finally:
        shutil.rmtree(checkpoint)
    times = [
        one["durationMs"]["triggerExecution"] / 1000
        for one in query.recentProgress
        if one["numInputRows"]
    ]
    return times[1:] or times  # the first of several starts the workers


def _row(what: str, found: dict[str, Timing], shown: Callable[[Timing], str]) -> Row:
    ours, peer = (found[delivery] for delivery in DELIVERIES)
    least = min(peer.seconds) / min(ours.seconds)
    ratio = peer.median / ours.median
    spread = min(least, ratio), max(least, ratio)
    return Row(what, shown(ours), shown(peer), ratio, spread, None)
