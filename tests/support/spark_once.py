"""A stream that is written exactly once: run it, break it, and see what readers see of it.

    python -m tests.support.spark_once BOOTSTRAP SOURCE TARGET DIRECTORY SINK_ID

runs one in a driver of its own; the file `failure` says how it ended.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.spark.sink.owners import by_partition
from tests.support.spark import start
from tests.support.spark_faults import FORMAT, Faults, FaultySource
from tests.support.topics import read_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PER_BATCH: Final = 16
PATIENCE: Final = 300
FAILURE: Final = "failure"


@dataclass
class OnceQuery:
    """A query from one topic to another; a directory is its checkpoint and its faults."""

    spark: SparkSession
    bootstrap: str
    source: str
    target: str
    directory: Path
    options: dict[str, str] = field(default_factory=dict)
    batch_rows: int = PER_BATCH

    def __post_init__(self) -> None:
        self.spark.dataSource.register(FaultySource)
        self.directory.mkdir(exist_ok=True)
        self.faults = Faults(str(self.directory))

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    def frame(self) -> DataFrame:
        """Each record becomes a row with its value as key."""
        reader = self.spark.readStream.format("ottla")
        reader = reader.option("kafka.bootstrap.servers", self.bootstrap)
        reader = reader.options(subscribe=self.source, startingOffsets="earliest")
        reader = reader.options(minPartitions="2", maxOffsetsPerTrigger=str(self.batch_rows))
        return reader.load().selectExpr("value as key", "value")

    def start(self, frame: DataFrame | None = None, **more: str) -> StreamingQuery:
        """Start it; a frame of one's own is written as it is."""
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "topic": self.target,
            "delivery": "exactly-once",
            "faults": str(self.directory),
            **self.options,
            **more,
        }
        rows = by_partition(self.frame(), options) if frame is None else frame
        return start(rows, self.checkpoint, sink=FORMAT, options=options, availableNow=True)

    def run(self, frame: DataFrame | None = None, **more: str) -> str:
        """Run to the end of what there is; why it failed, if it did."""
        return outcome(self.start(frame, **more))

    def committed(self) -> Counter[bytes | None]:
        """What readers of committed records see."""
        found = read_all(self.bootstrap, self.target, isolation="read_committed")
        return Counter(one.record.value for one in found)

    def batches(self) -> list[Counter[bytes | None]]:
        """What is in each batch that is planned, by the checkpoint."""
        found = []
        before: dict[str, int] = {}
        for path in sorted(
            (self.checkpoint / "offsets").glob("[0-9]*"), key=lambda one: int(one.name)
        ):
            ends: dict[str, int] = json.loads(path.read_text().splitlines()[-1])[self.source]
            values = [
                f"{partition}:{number}".encode()
                for partition, end in ends.items()
                for number in range(before.get(partition, 0), end)
            ]
            found.append(Counter[bytes | None](values))
            before = ends
        return found

    def expected(self, batches: int | None = None) -> Counter[bytes | None]:
        """The first batches, or all."""
        return sum(self.batches()[:batches], Counter[bytes | None]())


def outcome(query: StreamingQuery) -> str:
    """Wait for the end of a query; why it failed, if it did."""
    from pyspark.errors import StreamingQueryException

    try:
        assert query.awaitTermination(PATIENCE), "the query has not ended"
    except StreamingQueryException as error:
        return str(error)
    return ""


def main() -> None:
    from ottla.spark.session import local_session

    bootstrap, source, target, where, sink_id = sys.argv[1:]
    spark = local_session()
    spark.sparkContext.setLogLevel("ERROR")
    query = OnceQuery(spark, bootstrap, source, target, Path(where), {"sinkId": sink_id})
    failure = query.run()
    (query.directory / FAILURE).write_text(failure)
    spark.stop()


if __name__ == "__main__":
    main()
