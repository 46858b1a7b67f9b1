"""Writes the rows of flows to their targets.

- A frame with a column `value` is written to a topic as it is, any other as JSON objects.
- A flow with rejects, and one that prints, is written batch by batch: both halves of a batch are
  where they belong before Spark logs it. A batch that is repeated is written again.
- So is a topic in another mode than append, because Spark's Python sinks support append alone.
- A flow that is delivered exactly once is arranged so that one task writes each partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.spark.pipelines.model import (
    EXACTLY_ONCE,
    OUR_FORMAT,
    Flow,
    Reject,
    Target,
    ToConsole,
    ToTable,
    ToTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ottla.spark.pipelines.places import Places

VALUE: Final = "value"
# Between flows; Spark's own default loses the microseconds.
JSON_OPTIONS: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}

# Prints a batch: flow, batch, columns, rows, and whether there are more rows than these.
Show: TypeAlias = "Callable[[str, int, Sequence[str], Sequence[Sequence[object]], bool], object]"


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a pipeline's flows write. Without `show`, Spark prints where its driver runs."""

    places: Places
    connection: Mapping[str, str]
    show: Show | None = None

    def writer(self, frame: DataFrame, flow: Flow) -> DataStreamWriter:
        """A stream writer with its target set."""
        target = flow.writes
        if (
            flow.reject is not None
            or (isinstance(target, ToConsole) and self.show is not None)
            or (isinstance(target, ToTopic) and flow.mode != "append")
        ):
            return frame.writeStream.foreachBatch(BatchOutput(self, flow.name, target, flow.reject))
        if isinstance(target, ToConsole):
            return frame.writeStream.format("console").option("numRows", target.rows)
        if isinstance(target, ToTable):
            writer = frame.writeStream.format(target.format).options(**target.options)
            writer = writer.option("path", self.places.table(target))
            return writer.partitionBy(*target.partition_by) if target.partition_by else writer
        assert isinstance(target, ToTopic)  # the graph's check
        options = self.topic_options(target)
        records = as_records(frame, target)
        if flow.delivery == EXACTLY_ONCE:
            from ottla.spark.sink.owners import by_partition

            options["delivery"] = flow.delivery
            records = by_partition(records, options)
        return records.writeStream.format(OUR_FORMAT).options(**options)

    def topic_options(self, target: ToTopic) -> dict[str, str]:
        """Options of the sink."""
        return {**self.connection, "topic": target.name, **target.options}


@dataclass(frozen=True, slots=True)
class BatchOutput:
    """Write batch by batch, with Spark's batch writers."""

    outputs: Outputs
    flow: str
    target: Target | None
    reject: Reject | None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if self.reject is None:
            self._write(frame, batch, self.target)
            return
        from pyspark.sql import functions as f

        is_bad = f.coalesce(f.expr(self.reject.when), f.lit(True))
        kept = frame.persist()
        try:
            self._write(kept.where(is_bad), batch, self.reject.to)
            self._write(kept.where(~is_bad), batch, self.target)
        finally:
            kept.unpersist()

    def _write(self, frame: DataFrame, batch: int, target: Target | None) -> None:
        if isinstance(target, ToTopic):
            writer = as_records(frame, target).write.format(OUR_FORMAT).mode("append")
            writer.options(**self.outputs.topic_options(target)).save()
        elif isinstance(target, ToTable):
            writer = frame.write.format(target.format).mode("append").options(**target.options)
            writer.partitionBy(*target.partition_by).save(self.outputs.places.table(target))
        elif isinstance(target, ToConsole):
            if self.outputs.show is None:
                frame.show(target.rows, truncate=False)
                return
            rows = frame.limit(target.rows + 1).collect()
            more = len(rows) > target.rows
            self.outputs.show(self.flow, batch, frame.columns, rows[: target.rows], more)


def as_records(frame: DataFrame, target: ToTopic) -> DataFrame:
    """Rows for the sink: the frame itself if it has a value, else JSON objects."""
    if VALUE in frame.columns:
        return frame
    from pyspark.sql import functions as f

    value = f.to_json(f.struct("*"), JSON_OPTIONS)
    if target.key is None:
        return frame.select(value.alias(VALUE))
    return frame.select(f.col(target.key).cast("string").alias("key"), value.alias(VALUE))
