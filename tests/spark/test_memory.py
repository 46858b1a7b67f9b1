"""Memory stays where it is when a topic is ten times as large.

Peaks are those of the kernel (VmHWM), by kind of process, and printed. The heap of the JVM grows as
it is allowed to, so what counts there is what is left of it after a collection.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from ottla.client.producer.producer import Producer
from ottla.testing.embedded import EmbeddedBroker
from tests.support.processes import pythons_below, watching
from tests.support.spark import start
from tests.support.spark_chaos import SOURCE
from tests.support.spark_share import BROKER_CONFIG, new_group
from tests.support.spark_source import new_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.soak("millions of records through Spark take minutes")
MIB: Final = 1024 * 1024
SMALL: Final = 200_000
TIMES: Final = 10
BATCH: Final = 50_000
PARTITIONS: Final = 2
SOURCE_LIMIT: Final = 200 * MIB  # case 56
PATIENCE: Final = 900


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker"), config=BROKER_CONFIG) as running:
        yield running


def fill(broker: EmbeddedBroker, topic: str, count: int) -> None:
    rows = BATCH // PARTITIONS
    table = pa.table({"value": pa.array([b"%0100d" % number for number in range(rows)])})

    async def send() -> None:
        async with Producer(broker.bootstrap) as producer:
            for number in range(count // rows):
                await producer.send_arrow(topic, table, partition=number % PARTITIONS)

    asyncio.run(send())


class Peaks:
    """The most that a process of each kind has held."""

    def __init__(self) -> None:
        self.most: dict[str, int] = {}

    def look(self) -> None:
        for pid, command in pythons_below(os.getpid()).items():
            kind = "source" if SOURCE in command else "worker"
            self.most[kind] = max(self.most.get(kind, 0), peak_of(pid))


def peak_of(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(sizes[0]) * 1024 if sizes else 0


def heap(spark: SparkSession) -> int:
    """What the driver's JVM keeps."""
    runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]  # it runs
    spark.sparkContext._jvm.java.lang.System.gc()  # type: ignore[union-attr]  # it runs
    return int(runtime.totalMemory() - runtime.freeMemory())


@pytest.mark.parametrize("kind", ["log", "share group"])
def test_case_56_memory_is_flat_whatever_the_topics_size(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, kind: str
) -> None:
    found: list[dict[str, int]] = []
    for count in (SMALL, SMALL * TIMES):
        topic = new_topic(broker, PARTITIONS)
        fill(broker, topic, count)
        options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
        options |= {"maxOffsetsPerTrigger": str(BATCH), "startingOffsets": "earliest"}
        if kind != "log":
            locks = {"share_partition_max_record_locks": str(BATCH)}
            options["shareGroup"] = new_group(broker.bootstrap, **locks)
        frame = spark.readStream.format("ottla").options(**options).load()
        peaks = Peaks()
        with watching(peaks.look, 0.2):
            query = start(frame, tmp_path / str(count), sink="noop", availableNow=True)
            assert query.awaitTermination(PATIENCE)
        rows = sum(one["numInputRows"] for one in query.recentProgress)
        assert rows == count
        found.append({**peaks.most, "heap": heap(spark)})
    small, large = found
    for name in small:
        print(
            f"{kind}, {name}: {small[name] / MIB:.0f} MiB for {SMALL:,} records, "
            f"{large[name] / MIB:.0f} MiB for {SMALL * TIMES:,}"
        )
    assert large["source"] <= SOURCE_LIMIT
    for name in small:
        # Ten times the records would be two hundred megabytes more if any of it were kept.
        assert large[name] <= small[name] + 64 * MIB, name
