"""Iceberg tables that flows write: the rows of a batch and the note of the batch in one commit.

Rules:

- The property `ottla.sink.<sink>` is the last batch of a sink that the table has. The commit that
  adds the rows of the batch sets it, and says it in the snapshot's summary. A batch that is noted
  is not added again.
- A sink is the id of a checkpoint's query. A query with a new checkpoint counts its batches from 0
  again, and is another sink.
- A commit requires the snapshot that was loaded. If somebody else has changed the table meanwhile,
  the same files are offered again on top, unless the batch is noted by then.
- Columns are added and widened by the commit that brings their first rows. None is removed.
- The table of a topic is refused: its worker alone writes it.
- Files that no kept snapshot names are deleted six hours after they were written: those of tasks
  and drivers that were killed, and those that `replace` took out.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    RemoveSnapshotsUpdate,
)
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.typedef import Record

from ottla.clock import SYSTEM
from ottla.tables.compacting import SnapshotInfo, is_rubbish, plan_expiry
from ottla.tables.errors import BadTableSetting, ColumnsMoved, CommitRefused
from ottla.tables.flow_tables import check_dividers
from ottla.tables.iceberg_catalogs import file_properties, open_catalog
from ottla.tables.iceberg_files import entries, hand_over, manifest_file, named_files, widen
from ottla.tables.iceberg_types import arrow_columns, iceberg_schema
from ottla.tables.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

    from ottla.tables.flow_tables import Divider, FlowTable

NOTE: Final = "ottla.sink."
PROPERTIES: Final = {
    "format-version": "2",
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "10",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
ATTEMPTS: Final = 10
"""To commit a batch while others change the table; then the batch fails, and Spark repeats it."""
FIRST_PAUSE: Final = 0.05
KEEP_MS: Final = 86_400_000
"""Snapshots are kept for a day, and at least ten of them."""
GRACE_MS: Final = 21_600_000
"""Before a file that nobody names is deleted: a reader may still have it open."""
SWEEP_MS: Final = 3_600_000
"""Between two sweeps: each lists all files."""
_OF_COLUMNS: Final = (AssertCurrentSchemaId, AssertLastAssignedFieldId)
_TRANSFORMS: Final[Mapping[str, Transform[Any, Any]]] = {
    "identity": IdentityTransform(),
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """What a task needs to know to write files of a table."""

    columns: pa.Schema
    location: str
    dividers: tuple[Divider, ...]
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SinkFile:
    """A Parquet file that a task has written."""

    url: str
    size: int
    partition: tuple[Any, ...]
    footer: object


class IcebergSink:
    """One table and the batches of flows in it. All methods wait; one thread at a time."""

    def __init__(
        self,
        where: FlowTable,
        *,
        wall_ms: Callable[[], int] = SYSTEM.wall_ms,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._where = where
        self._catalog: SqlCatalog = open_catalog(where.catalog, where.place)
        self._wall_ms = wall_ms
        self._sleep = sleep
        self._swept_ms: int | None = None

    def close(self) -> None:
        self._catalog.close()

    def check(self) -> None:
        """Raise if the table is there and no flow may write it."""
        with suppress(NoSuchTableError):
            self._load()

    def noted(self, sink: str) -> int:
        """The last batch of a sink that the table has; -1: none."""
        try:
            return _noted(self._load(), sink)
        except NoSuchTableError:
            return -1

    def prepare(self, columns: pa.Schema) -> Layout:
        """Make the table if there is none; how files with these columns are written."""
        check_dividers(self._where.dividers, columns)
        try:
            table = self._load()
        except NoSuchTableError:
            table = self._create(columns)
        _check_spec(table, self._where)
        transaction = table.transaction()
        widen(transaction, columns)
        return Layout(
            _numbered(transaction.table_metadata.schema(), columns.names),
            table.metadata.location,
            self._where.dividers,
            {**file_properties(self._where.place)},
        )

    def commit(
        self, sink: str, batch: int, layout: Layout, files: Sequence[SinkFile], *, replace: bool
    ) -> bool:
        """Add the files of a batch, in place of all others with `replace`.

        False if the table has the batch already.
        """
        pause = FIRST_PAUSE
        for left in reversed(range(ATTEMPTS)):
            table = self._load()
            if _noted(table, sink) >= batch:
                return False
            try:
                self._offer(table, sink, batch, layout, files, replace=replace)
            except ColumnsMoved:
                raise
            except CommitRefused:
                if not left:
                    raise
                self._sleep(pause)
                pause *= 2
            else:
                break
        return True

    def upkeep(self) -> None:
        """Forget old snapshots, and delete files that nobody names, once an hour."""
        now = self._wall_ms()
        table = self._load()
        metadata = table.metadata
        old = plan_expiry(
            [SnapshotInfo(one.snapshot_id, one.timestamp_ms) for one in metadata.snapshots],
            {one.snapshot_id for one in metadata.refs.values()},
            now,
            KEEP_MS,
        )
        if old:
            removal = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(old)})
            with suppress(CommitRefused):
                table = hand_over(self._catalog, table, (removal,), ())
        if self._swept_ms is None or now - self._swept_ms >= SWEEP_MS:
            self._swept_ms = now
            asyncio.run(self._sweep(table, now))

    def set_aside(self) -> str | None:
        """Rename the table, so that the next batch makes another; None if there is none."""
        try:
            self._load()
        except NoSuchTableError:
            return None
        names = (f"{self._where.name}__before_{number}" for number in count(1))
        namespace = self._where.namespace
        name = next(one for one in names if not self._catalog.table_exists((namespace, one)))
        self._catalog.rename_table(self._where.full_name, (namespace, name))
        return f"{namespace}.{name}"

    def _load(self) -> Table:
        table = self._catalog.load_table(self._where.full_name)
        topic = table.metadata.properties.get("ottla.topic")
        if topic is not None:
            raise BadTableSetting(
                f"{self._where} is the table of topic {topic}, which its worker alone writes: "
                "give the flow's table another name or namespace"
            )
        return table

    def _create(self, columns: pa.Schema) -> Table:
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(self._where.namespace)
        schema = iceberg_schema(columns)
        with suppress(TableAlreadyExistsError):
            self._catalog.create_table(
                self._where.full_name,
                schema,
                location=f"{self._where.place}{uuid4().hex}",
                partition_spec=_spec(schema, self._where.dividers),
                properties=PROPERTIES,
            )
        return self._load()

    def _offer(
        self,
        table: Table,
        sink: str,
        batch: int,
        layout: Layout,
        files: Sequence[SinkFile],
        *,
        replace: bool,
    ) -> None:
        transaction = table.transaction()
        widen(transaction, layout.columns)
        now = _numbered(transaction.table_metadata.schema(), layout.columns.names)
        if not now.equals(layout.columns, check_metadata=True):
            raise ColumnsMoved(f"somebody else has changed columns of {self._where}")
        note = {NOTE + sink: str(batch)}
        transaction.set_properties(note)
        update = transaction.update_snapshot(snapshot_properties=note)
        producer = update.overwrite() if replace else update.merge_append()
        if replace:
            for entry in entries(table):
                producer.delete_data_file(entry.data_file)
        for one in files:
            producer.append_data_file(
                manifest_file(
                    transaction.table_metadata,
                    one.url,
                    one.size,
                    one.footer,
                    Record(*one.partition),
                )
            )
        producer.commit()
        hand_over(
            self._catalog,
            table,
            transaction._updates,
            (*producer._written_manifests, *producer._written_manifest_lists),
            (one for one in transaction._requirements if isinstance(one, _OF_COLUMNS)),
        )

    async def _sweep(self, table: Table, now: int) -> None:
        warehouse = Warehouse(self._where.place)
        found = [one async for one in warehouse.list(table.metadata.location)]
        named = named_files(table)
        for url, modified_ms in found:
            if is_rubbish(url, modified_ms, named, now, GRACE_MS):
                await warehouse.delete(url)


def _noted(table: Table, sink: str) -> int:
    return int(table.metadata.properties.get(NOTE + sink, "-1"))


def _numbered(schema: Schema, names: Sequence[str]) -> pa.Schema:
    """These columns of a table, with their ids."""
    import pyarrow as pa

    columns = arrow_columns(schema)
    return pa.schema([columns.field(name) for name in names])


def _spec(schema: Schema, dividers: Sequence[Divider]) -> PartitionSpec:
    return PartitionSpec(
        *(
            PartitionField(
                schema.find_field(one.column).field_id,
                1000 + at,
                _TRANSFORMS[one.transform],
                one.name,
            )
            for at, one in enumerate(dividers)
        )
    )


def _check_spec(table: Table, where: FlowTable) -> None:
    schema = table.metadata.schema()
    fields = table.metadata.spec().fields
    has = [(schema.find_column_name(one.source_id), one.transform) for one in fields]
    wanted = [(one.column, _TRANSFORMS[one.transform]) for one in where.dividers]
    if has != wanted:
        told = ", ".join(f"{transform}({column})" for column, transform in has) or "not at all"
        raise BadTableSetting(
            f"table {where} is divided by {told}: give the flow that partition_by, or its table "
            "another name"
        )
