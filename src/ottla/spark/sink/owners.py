"""A frame arranged so that each partition of its topic is written by one task.

    options = {"kafka.bootstrap.servers": b, "topic": "totals", "delivery": "exactly-once"}
    by_partition(totals, options).writeStream.format("ottla").options(**options)...

- Rows with a key get the partition that the sink would give them; rows with a `partition` keep it.
  All rows of a partition then go to one task. Partitions are counted when this is called, that is,
  at the start of a query; those that are added later are used by its next run.
- A repeated task must write its rows to the same partitions, so rows without a key in a keyed frame
  are placed by the hash of their value.
- Frames without any key need no shuffle: each task writes to one partition, another one in each
  batch, and there are no more tasks than partitions.
- If rows name their topics themselves, one task writes all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from ottla.client.producer.partition_kernels import hash_keys
from ottla.client.producer.partitioner import POSITIVE
from ottla.spark.background import background
from ottla.spark.client_settings import client_settings
from ottla.spark.cluster import make_client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from ottla.client.cluster.view import Topic
    from ottla.spark.client_settings import ClientSettings

PARTITION: Final = "partition"
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"


def by_partition(frame: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """The frame for a sink with these options: its column `partition` filled, one task for each."""
    given = {name.lower(): value for name, value in options.items()}
    topic = given.get("topic")
    if topic is None:
        return frame.repartition(1)
    partitions = partition_count(client_settings(given, writes=True), topic)
    if "key" not in frame.columns and PARTITION not in frame.columns:
        return frame.coalesce(partitions)
    tasks = int(frame.sparkSession.conf.get(_SHUFFLE_PARTITIONS) or partitions)
    placed = frame.withColumn(PARTITION, _partition_column(frame, partitions))
    return placed.repartitionById(min(tasks, partitions), PARTITION)


def partition_count(settings: ClientSettings, name: str) -> int:
    """How many partitions a topic has; a missing topic is created if the broker allows it."""
    client = make_client(settings)

    async def attempt() -> Topic:
        await client.refresh([name], create_missing=True)
        return (await client.topics([name]))[name]

    async def find() -> int:
        async with client:
            return len((await client.retry(attempt)).partitions)

    return background().call(find())


def _partition_column(frame: DataFrame, partitions: int) -> Column:
    """The partition of each row, a number even where it has neither key nor value."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf

    names = [name for name in ("key", "value") if name in frame.columns]
    text = f.coalesce(*(f.col(name).cast("binary") for name in names), f.lit(b""))
    hashes = arrow_udf(key_hashes, "int")  # type: ignore[call-overload]  # hints say the rest
    hashed = hashes(text) % f.lit(partitions)
    return f.coalesce(f.col(PARTITION), hashed) if PARTITION in frame.columns else hashed


def key_hashes(keys: pa.Array) -> pa.Array:
    """The hash that Kafka clients take modulo the number of partitions to place a key."""
    column = keys.cast(pa.large_binary())
    found = np.zeros(len(column), np.int32)
    _, offsets, content = column.buffers()
    hash_keys(
        np.frombuffer(offsets, np.int64)[column.offset :],
        0 if content is None else content.address,
        np.ones(len(column), np.bool_),
        POSITIVE + 1,
        found,
    )
    return pa.array(found)
