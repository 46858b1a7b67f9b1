"""The `ottla` format: the class that Spark creates for a query.

Spark creates a source in the process that plans a batch, and sends a pickled one to the process
that commits a stream's batch. Only the former may take the lease of an exactly-once sink, because a
lease fences the previous batch; pickling tells the two apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from ottla.spark.options import parse_source, warn_unknown
from ottla.spark.readers import BatchReader, PushdownReader, StreamReader
from ottla.spark.schema import source_schema, wanted_columns
from ottla.spark.sink.exactly_once import OnceBatchWriter, OnceStreamWriter
from ottla.spark.sink.options import SINK_NAMES, parse_sink
from ottla.spark.sink.sink import BatchWriter, StreamWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class OttlaSource(DataSource):
    """Reads and writes topics; options and columns are those of Spark's `kafka` format."""

    _was_sent = False

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _was_sent=True)

    def schema(self) -> StructType:
        warn_unknown(self.options)
        return source_schema(parse_source(self.options, "unknown"))

    def reader(self, schema: StructType) -> BatchReader:
        options = parse_source(self.options, "batch")
        kind = PushdownReader if options.pushdown else BatchReader
        return kind(options, wanted_columns(schema, options))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802  # Spark's name
        options = parse_source(self.options, "stream")
        return StreamReader(options, wanted_columns(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter | OnceBatchWriter:
        warn_unknown(self.options, SINK_NAMES)
        options = parse_sink(self.options, schema, overwrite=overwrite)
        if options.transactional is None:
            return BatchWriter(options)
        return OnceBatchWriter.leased(options, options.transactional)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter | OnceStreamWriter:  # noqa: N802  # Spark's name
        options = parse_sink(self.options, schema, stream=True)
        if options.transactional is None:
            return StreamWriter(options)
        if self._was_sent:
            return OnceStreamWriter(options, options.transactional, lease=None)
        return OnceStreamWriter.leased(options, options.transactional)
