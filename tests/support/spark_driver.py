"""A Spark driver to be killed: one stream from a topic into Parquet files by batch.

    python -m tests.support.spark_driver BOOTSTRAP TOPIC DIRECTORY START POINT BATCH

It stops at a point of a batch, says so by a file `there`, and waits for its end. Writing a batch
again replaces what was written of it. `read_to_the_end` is the same stream in any session, which
stops nowhere.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POINTS: Final = ("logged", "tasks", "written", "committed")
STARTED: Final = "started"  # the query knows where it starts
THERE: Final = "there"  # the driver is at the point


def wait_here(directory: Path) -> None:
    """Until somebody ends the process."""
    (directory / THERE).touch()
    time.sleep(600)


def frame_of(spark: SparkSession, bootstrap: str, topic: str, start: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": start}
    options |= {"maxOffsetsPerTrigger": "50", "minPartitions": "2"}
    return spark.readStream.format("ottla").options(**options).load()


def write(found: DataFrame, number: int, directory: Path) -> None:
    found.write.mode("overwrite").parquet(str(directory / "out" / str(number)))


def read_to_the_end(
    spark: SparkSession, bootstrap: str, topic: str, directory: Path, start: str
) -> StreamingQuery:
    """From where the checkpoint is to what there is now."""
    frame = frame_of(spark, bootstrap, topic, start)
    writer = frame.writeStream.foreachBatch(lambda found, at: write(found, at, directory))
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def main() -> None:
    from ottla.spark.session import local_session

    bootstrap, topic, where, start, point, batch = sys.argv[1:]
    directory, at = Path(where), int(batch)
    spark = local_session()
    spark.sparkContext.setLogLevel("ERROR")
    frame = frame_of(spark, bootstrap, topic, start)

    def stall(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = context.getLocalProperty("streaming.sql.batchId")
        for one in batches:
            yield one
            if point == "tasks" and number == str(at):
                wait_here(directory)

    def write_or_wait(found: DataFrame, number: int) -> None:
        if point == "logged" and number == at:
            wait_here(directory)
        write(found, number, directory)
        if point == "written" and number == at:
            wait_here(directory)

    writer = frame.mapInArrow(stall, frame.schema).writeStream.foreachBatch(write_or_wait)
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(processingTime="0 seconds").start()
    while not query.status["message"].startswith("Waiting for data"):
        time.sleep(0.01)
        if list((directory / "checkpoint" / "offsets").glob("[0-9]*")):
            break
    (directory / STARTED).touch()
    while point == "committed" and not (directory / "checkpoint" / "commits" / batch).exists():
        time.sleep(0.001)
    if point == "committed":
        wait_here(directory)
    query.awaitTermination()


if __name__ == "__main__":
    main()
