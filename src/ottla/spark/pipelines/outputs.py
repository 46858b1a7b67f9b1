"""Writes the rows of flows to their targets.

- A frame with a column `value` is written to a topic as it is, any other as JSON objects.
- A flow with rejects, and one that prints, is written batch by batch: both halves of a batch are
  where they belong before Spark logs it. A batch that is repeated is written again.
- So is a topic in another mode than append, because Spark's Python sinks support append alone.
- A topic with a schema of a registry gets records in Avro.
- Iceberg tables are written batch by batch as well, exactly once: `iceberg_sink`.
- A flow that is delivered exactly once is arranged so that one task writes each partition.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.spark.pipelines.errors import DefinitionError
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
from ottla.spark.pipelines.sessions import is_classic
from ottla.spark.pipelines.typed_sources import registered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ottla.spark.pipelines.iceberg_sink import IcebergOutput
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
    bootstrap: str = ""
    kafka: Mapping[str, str] = field(default_factory=dict)

    def writer(self, frame: DataFrame, flow: Flow) -> DataStreamWriter:
        """A stream writer with its target set."""
        target = flow.writes
        if isinstance(target, ToTopic) and target.schema is not None:
            frame = self.encoded(frame, target)
        if (
            flow.reject is not None
            or (isinstance(target, ToConsole) and self.show is not None)
            or (isinstance(target, ToTopic) and flow.mode != "append")
        ):
            return frame.writeStream.foreachBatch(BatchOutput(self, flow.name, target, flow.reject))
        if isinstance(target, ToConsole):
            return frame.writeStream.format("console").option("numRows", target.rows)
        if isinstance(target, ToTable) and target.is_iceberg:
            return frame.writeStream.foreachBatch(self._iceberg(frame, flow, target))
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

    def fill(self, frame: DataFrame, flow: Flow, note: str) -> None:
        """Write a batch before the first of a stream; an Iceberg table takes each note once."""
        target = flow.writes
        if isinstance(target, ToTable) and target.is_iceberg:
            self._iceberg(frame, flow, target).add_once(frame, note)
            return
        if isinstance(target, ToTopic) and target.schema is not None:
            frame = self.encoded(frame, target)
        BatchOutput(self, flow.name, target, flow.reject)(frame, 0)

    def encoded(self, frame: DataFrame, target: ToTopic) -> DataFrame:
        """Records in Avro; their schema is that of the frame, and is registered here."""
        from pyspark.sql.pandas.types import to_arrow_schema

        from ottla.schemas.encode import CannotEncode, derived
        from ottla.spark.pipelines.encoding import RECORDS, RowEncoder

        if VALUE in frame.columns:
            raise DefinitionError(
                f"topic {target.name} has a schema, and the flow returned a column value: return "
                "the columns, or leave the schema out"
            )
        try:
            schema = derived(to_arrow_schema(frame.schema, timezone="UTC"), _name_of(target))
        except (CannotEncode, TypeError) as error:
            raise DefinitionError(f"topic {target.name}: {error}") from error
        number = registered(self.bootstrap, target, schema, self.kafka)
        return frame.mapInArrow(RowEncoder(schema.text, number, target.key), RECORDS)

    def _iceberg(self, frame: DataFrame, flow: Flow, target: ToTable) -> IcebergOutput:
        """The table is opened, and made, before the query starts: errors fail the start."""
        from ottla.spark.pipelines.iceberg_sink import (
            IcebergOutput,
            flow_table,
            open_sink,
            table_columns,
        )
        from ottla.tables.errors import TableError

        if not is_classic(frame.sparkSession):
            raise DefinitionError(
                f"flow {flow.name} writes an Iceberg table, which a Spark Connect server cannot: "
                "run it with --master"
            )
        columns = table_columns(frame.schema)
        try:
            sink = open_sink(flow_table(self.places, target))
            sink.prepare(columns)
        except TableError as error:
            raise DefinitionError(f"flow {flow.name}: {error}") from error
        return IcebergOutput(sink, columns, replaces=flow.mode == "complete")

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


def _name_of(target: ToTopic) -> str:
    """The name of the record, as Avro allows it."""
    return re.sub(r"\W|^(?=\d)", "_", target.name, flags=re.ASCII)


def as_records(frame: DataFrame, target: ToTopic) -> DataFrame:
    """Rows for the sink: the frame itself if it has a value, else JSON objects."""
    if VALUE in frame.columns:
        return frame
    from pyspark.sql import functions as f

    value = f.to_json(f.struct("*"), JSON_OPTIONS)
    if target.key is None:
        return frame.select(value.alias(VALUE))
    return frame.select(f.col(target.key).cast("string").alias("key"), value.alias(VALUE))
