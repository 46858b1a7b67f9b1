"""Rows of flows into Iceberg tables, exactly once.

- Tasks write Parquet files, each attempt of its own name. The driver commits those of the attempts
  that Spark counts, with the number of the batch (`ottla.tables.iceberg_flows`).
- A batch that is repeated after a kill is found in the table and not added again. It is computed
  all the same: Spark's state and watermarks come from that.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from uuid import uuid4

from ottla.metadata.names import table_name
from ottla.objects.location import BadLocation, parse_location
from ottla.spark.errors import BadSchema, SparkError
from ottla.spark.pipelines.errors import DefinitionError, EnvironmentProblem
from ottla.spark.pipelines.places import local_path
from ottla.tables.errors import BadTableSetting, TableError
from ottla.tables.flow_tables import FlowTable, divide, parse_divider

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from ottla.spark.pipelines.model import ToTable
    from ottla.spark.pipelines.places import Places
    from ottla.tables.iceberg_flows import IcebergSink, Layout, SinkFile

OPTIONS: Final = ("catalog", "namespace", "endpoint", "region")
NAMESPACE: Final = "ottla"
CATALOG: Final = "catalog.db"
SQLITE: Final = "sqlite:///"
TASK_BYTES: Final = 64 * 1024 * 1024
"""Rows that a task holds before the largest part of them becomes a file."""
TASK_FILES: Final = 1000
"""A task with more has a `partition_by` with nearly as many values as rows."""
QUERY_ID: Final = "sql.streaming.queryId"
WRITTEN: Final = "url string, size long, partition string, footer binary"


def flow_table(places: Places, target: ToTable) -> FlowTable:
    """Where the table is; `DefinitionError` names what is wrong with its options."""
    unknown = [name for name in target.options if name not in OPTIONS]
    if unknown:
        raise DefinitionError(
            f"table {target.name}: {', '.join(unknown)} is no option of an Iceberg table; there "
            f"are {', '.join(OPTIONS)}. Secrets come from the environment"
        )
    place = places.table(target)
    local = local_path(place)
    url = (
        f"file://{quote(str(local))}" if local is not None else place.replace("s3a://", "s3://", 1)
    )
    store = {name: text for name, text in target.options.items() if name in ("endpoint", "region")}
    catalog = target.options.get("catalog")
    root = local_path(places.tables)
    if catalog is None:
        if root is None:
            raise DefinitionError(
                f"table {target.name}: give options={{'catalog': 'postgresql://...'}}; only tables "
                "on this machine have a catalogue of their own"
            )
        catalog = f"{SQLITE}{root / CATALOG}"
    try:
        location = parse_location(
            {"rsm.config.url": url, **{f"rsm.config.{name}": text for name, text in store.items()}}
        )
        dividers = tuple(parse_divider(one) for one in target.partition_by)
    except BadLocation as error:
        said = str(error).replace("rsm.config.url", "tables")
        raise DefinitionError(f"table {target.name}: {said}") from None
    except BadTableSetting as error:
        raise DefinitionError(f"table {target.name}: {error}") from None
    namespace = target.options.get("namespace", NAMESPACE)
    name = table_name(target.name.rstrip("/").rpartition("/")[2])
    return FlowTable(catalog, namespace, name, location, dividers)


def has_catalog(where: FlowTable) -> bool:
    """False for a catalogue on this machine that is not there yet."""
    file = where.catalog.removeprefix(SQLITE)
    return file == where.catalog or Path(file).exists()


def open_sink(where: FlowTable) -> IcebergSink:
    """Connect to the catalogue; one on this machine is made if there is none."""
    try:
        from ottla.tables.iceberg_flows import IcebergSink
    except ImportError:
        raise EnvironmentProblem("Iceberg tables need: pip install 'ottla[tables]'") from None
    if where.catalog.startswith(SQLITE):
        Path(where.catalog.removeprefix(SQLITE)).parent.mkdir(parents=True, exist_ok=True)
    return IcebergSink(where)


def table_columns(schema: StructType) -> pa.Schema:
    """The columns of a table for the rows of a frame."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from ottla.tables.iceberg_types import iceberg_schema

    try:
        found = to_arrow_schema(schema, timezone="UTC")
        columns = _stored_schema(found)
        iceberg_schema(columns)
    except (TableError, TypeError, ValueError) as error:
        raise BadSchema(f"the rows do not fit an Iceberg table: {error}") from error
    return columns


@dataclass(slots=True)
class IcebergOutput:
    """Writes the batches of a flow."""

    sink: IcebergSink
    columns: pa.Schema
    replaces: bool

    def __call__(self, frame: DataFrame, batch: int) -> None:
        query: str | None = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if query is None:
            raise SparkError("Spark does not say which query writes; run the flow by ottla run")
        if self.sink.noted(query) >= batch:
            frame.write.format("noop").mode("append").save()
            return
        self._add(frame, query, batch)

    def add_once(self, frame: DataFrame, sink: str) -> None:
        """Add the rows of a frame, unless the table has those of this sink."""
        if self.sink.noted(sink) < 0:
            self._add(frame, sink, 0)

    def _add(self, frame: DataFrame, query: str, batch: int) -> None:
        layout = self.sink.prepare(self.columns)
        rows = frame.mapInArrow(TaskWriter(layout, batch), WRITTEN).collect()
        files = [sink_file(row) for row in rows]
        if files or self.replaces:
            self.sink.commit(query, batch, layout, files, replace=self.replaces)
            self.sink.upkeep()


@dataclass(frozen=True, slots=True)
class TaskWriter:
    """Writes the rows of a task, in Spark's workers; what comes back are its files."""

    layout: Layout
    batch: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = _TaskFiles(self.layout, self.batch)
        for rows in batches:
            if rows.num_rows:
                yield from files.add(rows)
        yield from files.finish()


@dataclass(slots=True)
class _TaskFiles:
    layout: Layout
    batch: int
    waiting: dict[tuple[Any, ...], list[pa.RecordBatch]] = field(default_factory=dict)
    sizes: dict[tuple[Any, ...], int] = field(default_factory=dict)
    count: int = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        columns = self.layout.columns
        arrays = [rows.column(one.name).cast(one.type) for one in columns]
        stored = pa.RecordBatch.from_arrays(arrays, schema=columns)
        for key, part in divide(stored, self.layout.dividers):
            self.waiting.setdefault(key, []).append(part)
            self.sizes[key] = self.sizes.get(key, 0) + part.nbytes
        while sum(self.sizes.values()) > TASK_BYTES:
            yield self._write(max(self.sizes, key=lambda key: self.sizes[key]))

    def finish(self) -> Iterator[pa.RecordBatch]:
        for key in list(self.waiting):
            yield self._write(key)

    def _write(self, key: tuple[Any, ...]) -> pa.RecordBatch:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from ottla.tables.iceberg_io import SyncedFileIO
        from ottla.tables.parquet_files import ZSTD_LEVEL

        self.count += 1
        if self.count > TASK_FILES:
            raise SparkError(
                f"partition_by makes more than {TASK_FILES:,} files in one task of a batch: "
                "divide rows by something with fewer values, such as a day"
            )
        table = pa.Table.from_batches(self.waiting.pop(key), self.layout.columns)
        del self.sizes[key]
        buffer = io.BytesIO()
        # One row group: a file has at most TASK_BYTES of rows.
        pq.write_table(
            table,
            buffer,
            row_group_size=max(1, table.num_rows),
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            store_schema=False,
            write_page_index=True,
        )
        url = f"{self.layout.location}/data/{uuid4().hex}-{self.batch}.parquet"
        with SyncedFileIO(dict(self.layout.properties)).new_output(url).create() as opened:
            opened.write(buffer.getvalue())
        footer = io.BytesIO()
        pq.read_metadata(buffer).write_metadata_file(footer)
        return pa.RecordBatch.from_pydict(
            {
                "url": [url],
                "size": [buffer.getbuffer().nbytes],
                "partition": [json.dumps(key)],
                "footer": [footer.getvalue()],
            }
        )


def sink_file(row: Any) -> SinkFile:
    import pyarrow.parquet as pq

    from ottla.tables.iceberg_flows import SinkFile

    footer = pq.read_metadata(io.BytesIO(row.footer))
    return SinkFile(row.url, row.size, tuple(json.loads(row.partition)), footer)


def _stored_schema(columns: pa.Schema) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([pa.field(one.name, _stored(one.type)) for one in columns])


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type in which a table has values of a type of Spark's."""
    import pyarrow as pa

    if kind in (pa.int8(), pa.int16()):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if pa.types.is_struct(kind):
        inner = [kind.field(at) for at in range(kind.num_fields)]
        return pa.struct([pa.field(one.name, _stored(one.type)) for one in inner])
    if pa.types.is_list(kind):
        return pa.list_(_stored(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_stored(kind.key_type), _stored(kind.item_type))
    return kind
