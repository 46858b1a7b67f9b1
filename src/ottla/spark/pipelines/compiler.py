"""Compile flows to Structured Streaming queries: their inputs. `outputs` has the sinks.

Readers of a flow get the columns it returned: from its table, from the JSON objects in its topic,
or raw records if the flow itself made those (it returned a column `value`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from ottla.spark.options import warn_unknown
from ottla.spark.pipelines.backfill import (
    BackfillQuery,
    Note,
    is_new,
    mark_done,
    new_note,
    read_note,
    refuse_state,
)
from ottla.spark.pipelines.errors import DefinitionError
from ottla.spark.pipelines.graph import parameter_for, reads_table, sources_of, topics_of
from ottla.spark.pipelines.model import (
    EXACTLY_ONCE,
    OUR_FORMAT,
    Flow,
    FromRegistry,
    Source,
    ToTable,
    ToTopic,
    seconds,
)
from ottla.spark.pipelines.outputs import JSON_OPTIONS, VALUE, Outputs
from ottla.spark.pipelines.preflight import connection
from ottla.spark.pipelines.sessions import is_classic, lives
from ottla.spark.pipelines.table_sources import source_table
from ottla.spark.pipelines.typed_sources import source_schema
from ottla.spark.typed_options import ERROR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

    from ottla.spark.pipelines.load import Pipeline
    from ottla.spark.pipelines.outputs import Show
    from ottla.tables.reading import Pinned

# The column that a schema may have for values that do not parse.
CORRUPT: Final = "_corrupt_record"


class Compiler:
    """The flows of a pipeline in one session."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        bootstrap: str,
        *,
        once: bool = False,
        backfill: bool = False,
        show: Show | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._backfill = backfill
        self._definition = pipeline.definition
        self._bootstrap = bootstrap
        self._kafka = pipeline.settings.kafka
        self._places = pipeline.places
        self._spark = spark
        self._once = once
        self._connection = connection(bootstrap, pipeline.settings.kafka)
        self._schemas: dict[str, StructType] = {}
        self._outputs = Outputs(
            pipeline.places, self._connection, show, bootstrap, pipeline.settings.kafka
        )

    def start(self, flow: Flow) -> StreamingQuery | BackfillQuery:
        """Start the query of a flow, under the name of the flow."""
        # A file that was reloaded for this session has new function objects.
        flow = self._definition.flows[flow.name]
        note = self._backfill_note(flow)
        frame = self.frame(flow)
        writer = self._writer(frame, flow)
        if note is None or note.done:
            return writer.start()
        # Both plans are made here: flows in SQL share the names of views.
        rows = self._rows(flow, flow, note)

        def fill() -> None:
            self._outputs.fill(rows, flow, note.id)
            mark_done(self._places, flow.name, note)

        return BackfillQuery(self._spark, note.id, fill, writer.start)

    def check_backfill(self, flow: Flow) -> None:
        """Raise if the query of a flow cannot begin with a batch."""
        if reads_table(self._definition, flow):
            if not is_classic(self._spark):
                raise DefinitionError("--backfill is not for Spark Connect: run it with --master")
            refuse_state(flow, self.frame(flow))

    def _writer(self, frame: DataFrame, flow: Flow) -> DataStreamWriter:
        writer = self._outputs.writer(frame, flow)
        writer = writer.queryName(flow.name).outputMode(flow.mode)
        writer = writer.option("checkpointLocation", self._places.checkpoint(flow))
        writer = writer.options(**flow.options)
        if self._once:
            writer = writer.trigger(availableNow=True)
        elif flow.trigger is not None:
            millis = round(seconds(flow.trigger, "trigger") * 1000)
            writer = writer.trigger(processingTime=f"{millis} milliseconds")
        return writer

    def _backfill_note(self, flow: Flow) -> Note | None:
        """Where the flow's batch over its table ends; None if it has none."""
        note = read_note(self._places, flow.name)
        if note is not None or not self._backfill or not reads_table(self._definition, flow):
            return note
        if not is_new(self._pipeline, flow) or self._start_note(flow):
            return None
        [source] = sources_of(self._definition, flow)
        pinned = source_table(source, self._connection)
        return new_note(self._places, flow.name, pinned.view.topic, pinned.view.cut)

    def lives(self) -> bool:
        """Whether the session can still start queries."""
        return lives(self._spark)

    def frame(self, flow: Flow) -> DataFrame:
        """The rows of a flow; Spark has checked names and types when this returns."""
        frame = self._rows(flow, flow)
        # A Connect session analyses a plan only when asked.
        self._schemas[flow.name] = frame.schema
        return frame

    def _rows(self, flow: Flow, query: Flow, note: Note | None = None) -> DataFrame:
        """The rows of a flow, as a stream, or with a note those before its cut."""
        frames = {parameter_for(name): self._read(name, query, note) for name in flow.reads}
        if flow.sql is not None:
            for name, frame in frames.items():
                frame.createOrReplaceTempView(name)
            return self._spark.sql(flow.sql)
        assert flow.function is not None  # the graph's check
        made: DataFrame = flow.function(**frames)
        if not hasattr(type(made), "writeStream"):
            got = type(made).__name__
            raise DefinitionError(f"flow {flow.name} returned {got}: return a dataframe")
        return made

    def _read(self, name: str, query: Flow, note: Note | None) -> DataFrame:
        source = self._definition.sources.get(name)
        if source is not None:
            return self._source(source, query, note)
        flow = self._definition.flows[name]
        if flow.inline:
            return self._rows(flow, query, note)
        written = self._schema(flow)
        if isinstance(flow.writes, ToTable):
            reader = self._spark.readStream.format(flow.writes.format).schema(written)
            return reader.load(self._places.table(flow.writes))
        if not isinstance(flow.writes, ToTopic):
            raise DefinitionError(
                f"flow {query.name} reads {name}, which only prints: give it a topic or a table"
            )
        options = {"startingOffsets": "earliest", "subscribe": flow.writes.name}
        if flow.delivery == EXACTLY_ONCE:  # readers of committed records rely on it
            options["kafka.isolation.level"] = "read_committed"
        options |= self._connection
        return self._records(options, None if VALUE in written.names else written, query)

    def _schema(self, flow: Flow) -> StructType:
        """The schema a flow returns; computed once, because each source costs a process."""
        if flow.name not in self._schemas:
            self._schemas[flow.name] = self._rows(flow, flow).schema
        return self._schemas[flow.name]

    def _source(self, source: Source, query: Flow, note: Note | None) -> DataFrame:
        if source.table is not None:
            frame = self._table(source, query, note)
        elif source.format != OUR_FORMAT:
            frame = self._spark.readStream.format(source.format).options(**source.options).load()
        else:
            options = {"startingOffsets": source.start, **source.options}
            if source.topic is not None:
                options["subscribe"] = ",".join(topics_of(source))
            if source.share_group is not None:
                options["shareGroup"] = source.share_group
            brokers = self._connection if source.needs_broker else {}
            if isinstance(source.schema, FromRegistry):
                found = source_schema(self._bootstrap, source, self._kafka)
                options = {**found.options(), **options}
                frame = self._records({**brokers, **options}, None, query)
                more = [ERROR] if found.invalid == "null" else []
                frame = frame.select(*(f"`{name}`" for name in found.columns.names), *more)
            else:
                frame = self._records({**brokers, **options}, source.schema, query)
        if source.shape is None:
            return frame
        shaped: DataFrame = source.shape(frame)
        return shaped

    def _table(self, source: Source, query: Flow, note: Note | None) -> DataFrame:
        """The rows of a topic's table, and those that come after them."""
        from ottla.spark.tables.frames import rows_of, stream_of

        given = {"startingOffsets": source.start, **self._connection, **source.options}
        given |= query.read_options
        lower = {name.lower(): text.strip().lower() for name, text in given.items()}
        fails = lower.get("failondataloss") != "false"
        if note is not None:
            at = {int(one): offset for one, offset in note.cut.items()}
            pinned = source_table(source, self._connection, at=at, accept_loss=not fails)
            told = {**self._connection, **source.options}
            return rows_of(self._spark, pinned, told, fail_on_data_loss=fails)
        pinned = source_table(source, self._connection, accept_loss=True)
        warn_unknown(given)
        return stream_of(self._spark, pinned, {**given, **self._start(query, pinned)})

    def _start(self, query: Flow, pinned: Pinned) -> dict[str, str]:
        """Where a flow starts: after its batch, or where a reset says."""
        from ottla.spark.tables.frames import starting_offsets

        note = read_note(self._places, query.name)
        if note is None:
            return self._start_note(query)
        return {"startingOffsets": starting_offsets(pinned, note.cut)}

    def _records(
        self, options: Mapping[str, str], schema: str | StructType | None, query: Flow
    ) -> DataFrame:
        given = {**options, **query.read_options, **self._start_note(query)}
        if schema is not None:
            given.setdefault("columns", VALUE)
        # If Spark asked the format itself, its messages would be lost.
        warn_unknown(given)
        frame = self._spark.readStream.format(OUR_FORMAT).options(**given).load()
        if schema is None:
            return frame
        from pyspark.sql import functions as f

        # Other writers format times differently; Spark's default parses most formats.
        how = {"columnNameOfCorruptRecord": CORRUPT} if isinstance(schema, str) else JSON_OPTIONS
        row = f.from_json(f.col(VALUE).cast("string"), schema, how)
        return frame.select(row.alias("row")).select("row.*")

    def _start_note(self, query: Flow) -> dict[str, str]:
        """The start position after a reset; Spark uses it only without a checkpoint."""
        note = self._places.start_note(query.name)
        found: dict[str, str] = json.loads(note.read_text()) if note.is_file() else {}
        return found
