"""Sources other than the live log, inside Spark: batches, streams and their checkpoints."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import redis

from ottla.streams.ss.writer import SsWriter, runs
from ottla.streams.types import Create, FileOptions, Outgoing
from ottla.testing.embedded import EmbeddedBroker
from tests.support.spark import run
from tests.support.spark_source import fill, new_topic
from tests.support.spark_tier import upload_topic

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.services import RedisServer

FIRST, ROUNDS = 20, 8


class Tier:
    """A topic that is mostly in a store, and the directory its broker has left behind."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.url = f"file://{directory}/store"
        with EmbeddedBroker(self.data) as broker:
            self.topic = new_topic(broker)
            for _ in range(ROUNDS):
                fill(broker, self.topic, {0: FIRST})
            ends = upload_topic(broker, self.data, self.topic, self.url, directory)
        self.end = ends[0]

    def values(self, end: int) -> list[tuple[int, bytes]]:
        return [(offset, f"0:{offset % FIRST}".encode()) for offset in range(end)]


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Tier:
    found = Tier(tmp_path_factory.mktemp("tier"))
    assert 0 < found.end < FIRST * ROUNDS
    return found


def table(spark: SparkSession, name: str) -> list[tuple[int, bytes]]:
    found = spark.sql(f"select offset, value from {name}").collect()
    return sorted((row.offset, bytes(row.value)) for row in found)


def test_case_46_a_backfill_with_the_broker_down(
    spark: SparkSession, tier: Tier, tmp_path: Path
) -> None:
    options = {"subscribe": tier.topic, "tier": "only", "tierUrl": tier.url}
    batch = spark.read.format("ottla").options(**options).load()
    found = sorted((row.offset, bytes(row.value)) for row in batch.collect())
    assert found == tier.values(tier.end)
    frame = spark.readStream.format("ottla").options(startingOffsets="earliest", **options).load()
    run(frame, tmp_path, options={"queryName": "only_tier"}, availableNow=True)
    assert table(spark, "only_tier") == found


def test_case_46_tier_and_live_log_in_one_batch(
    spark: SparkSession, tier: Tier, tmp_path: Path
) -> None:
    with EmbeddedBroker(tier.data) as broker:
        options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": tier.topic}
        options |= {"tierUrl": tier.url, "tierMinBytes": "0", "startingOffsets": "earliest"}
        frame = spark.readStream.format("ottla").options(**options).load()
        query = run(frame, tmp_path, options={"queryName": "both"}, availableNow=True)
    total = FIRST * ROUNDS
    (progress,) = query.recentProgress
    # The checkpoint does not know where the bytes came from.
    assert json.loads(progress["sources"][0]["endOffset"])[tier.topic] == {"0": total}
    assert table(spark, "both") == tier.values(total)


def test_a_log_directory_without_its_broker(spark: SparkSession, tier: Tier) -> None:
    directory = next(tier.data.rglob("meta.properties")).parent
    options = {"store": "segments", "subscribe": tier.topic}
    frame = spark.read.format("ottla").options(**options).load(str(directory))
    found = sorted((row.offset, bytes(row.value)) for row in frame.collect())
    assert found == tier.values(FIRST * ROUNDS)


def test_redis_streams(spark: SparkSession, redis_server: RedisServer, tmp_path: Path) -> None:
    options = {"store": "redis", "subscribe": "shop", "startingOffsets": "earliest"}
    options["path"] = redis_server.url
    frame = spark.readStream.format("ottla").options(**options, maxOffsetsPerTrigger="4").load()
    with closing(redis.Redis(host=redis_server.host, port=redis_server.port)) as client:
        for rows in (6, 3):
            for number in range(rows):
                client.xadd("shop", {"msg": str(number), "key": "k"})
            query = run(frame, tmp_path, sink="noop", availableNow=True)
            assert sum(one["numInputRows"] for one in query.recentProgress) == rows
    batch = spark.read.format("ottla").options(**options).load()
    found = batch.selectExpr("cast(value as string)", "cast(key as string)", "topic").collect()
    assert [tuple(row) for row in found] == [
        (str(number), "k", "shop") for rows in (6, 3) for number in range(rows)
    ]


def test_a_file_of_streams(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "events.ss")
    with closing(SsWriter(path, FileOptions(create=Create.IF_MISSING))) as writer:
        writer.append(runs([Outgoing("clicks", b"%d" % number, 0) for number in range(50)]))
        writer.sync()
    frame = spark.readStream.format("ottla").options(store="ss", startingOffsets="earliest")
    query = run(frame.load(path), tmp_path / "checkpoint", sink="noop", availableNow=True)
    assert [one["numInputRows"] for one in query.recentProgress] == [50]
    batch = spark.read.format("ottla").options(store="ss").load(path)
    assert [bytes(row.value) for row in batch.collect()] == [b"%d" % n for n in range(50)]
