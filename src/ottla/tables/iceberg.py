"""Topics' tables in Iceberg, through pyiceberg.

- A commit is handed to the catalogue with requirements of our own: the table's UUID, and `main` at
  the snapshot that was loaded. pyiceberg's own retry would move a stale append on top of a newer
  snapshot, which is how two workers would add rows twice.
- Position, commit id and holes are properties, set by the same commit. Summaries have them, too,
  to notice a rollback; they go with expired snapshots.
- Every commit makes a snapshot, also one without files: only snapshots can be required.
"""

from __future__ import annotations

import json
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    RemoveSnapshotsUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, Transform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType

from ottla.schemas.names import names_of, with_names
from ottla.tables.compacting import RETENTION, SnapshotInfo
from ottla.tables.errors import (
    ColumnsMoved,
    NotATopicTable,
    TableError,
    TablePaused,
)
from ottla.tables.format import DataFile, Snapshot, TableState
from ottla.tables.iceberg_catalogs import FILE_IO, open_catalog
from ottla.tables.iceberg_files import entries, hand_over, manifest_file, named_files, widen
from ottla.tables.iceberg_types import arrow_columns, iceberg_schema
from ottla.tables.position import (
    DROPPED,
    dropped_below,
    dump_holes,
    dump_offsets,
    is_rolled_back,
    load_holes,
    load_offsets,
    renamed_sentence,
)
from ottla.tables.rows import CONVERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyarrow.fs import FileSystem
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

    from ottla.tables.format import Commit, NewFile, NewTable
    from ottla.tables.settings import WorkerSettings

FORMAT: Final = "iceberg"
NAMES: Final = "ottla.names"
"""The property with names of fields that columns do not have."""
_OF_COLUMNS: Final = (AssertCurrentSchemaId, AssertLastAssignedFieldId)
ID_CHARACTERS: Final = 8
"""Of a topic's id, in the name of its table's directory: 48 bits of it."""
SHOWN_OF_ERROR: Final = 200
"""Characters of what the library says about a file."""
PROPERTIES: Final = {
    "format-version": "2",
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "10",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "ottla.version": "1",
}
_TRANSFORMS: Final[dict[str, tuple[str, Transform[Any, Any]]]] = {
    "day(_timestamp)": ("_day", DayTransform()),
    "hour(_timestamp)": ("_hour", HourTransform()),
    "month(_timestamp)": ("_month", MonthTransform()),
}


class IcebergTables:
    """The tables of one catalogue and namespace."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._catalog: SqlCatalog = open_catalog(settings.catalog, settings.warehouse)

    def close(self) -> None:
        self._catalog.close()

    def load(self, table: str) -> TableState | None:
        try:
            return _state(self._catalog.load_table(self._name(table)))
        except NoSuchTableError:
            return None

    def create(self, table: NewTable) -> TableState:
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(self._settings.namespace)
        schema = iceberg_schema(table.columns)
        offsets = dump_offsets(table.first)
        try:
            made = self._catalog.create_table(
                self._name(table.name),
                schema,
                location=self._location(table),
                partition_spec=_spec(schema, table.partition),
                properties={
                    **PROPERTIES,
                    "ottla.topic": table.topic,
                    "ottla.topic-id": table.topic_id,
                    "ottla.cluster-id": table.cluster_id,
                    "ottla.first": offsets,
                    "ottla.next": offsets,
                    "ottla.holes": "[]",
                    **_column_properties(table.columns),
                },
            )
        except TableAlreadyExistsError:
            made = self._catalog.load_table(self._name(table.name))
        return _state(made)

    def widened(self, state: TableState, wanted: pa.Schema) -> pa.Schema:
        transaction = _table(state).transaction()
        widen(transaction, wanted)
        names = {**names_of(state.columns), **names_of(wanted)}
        columns = with_names(arrow_columns(transaction.table_metadata.schema()), names)
        return columns.with_metadata(wanted.metadata)

    def commit(self, state: TableState, commit: Commit) -> TableState:
        table = _table(state)
        position = dump_offsets(commit.next)
        transaction = table.transaction()
        if commit.columns is not None:
            widen(transaction, commit.columns)
            columns = arrow_columns(transaction.table_metadata.schema())
            columns = with_names(columns, names_of(commit.columns))
            if not columns.equals(commit.columns.remove_metadata(), check_metadata=True):
                raise ColumnsMoved(f"somebody else has changed columns of {state.table}")
            transaction.set_properties(_column_properties(commit.columns))
        transaction.set_properties(
            {
                "ottla.commit": commit.id,
                "ottla.first": dump_offsets(commit.first),
                "ottla.next": position,
                "ottla.holes": dump_holes(commit.holes),
            }
        )
        summary = {
            "ottla.commit": commit.id,
            "ottla.from": dump_offsets(commit.start),
            "ottla.next": position,
            **commit.summary,
        }
        append = transaction.update_snapshot(snapshot_properties=summary).merge_append()
        for one in commit.files:
            append.append_data_file(_data_file(transaction.table_metadata, one))
        append.commit()
        return self._hand_over(
            state,
            transaction._updates,
            (*append._written_manifests, *append._written_manifest_lists),
            (one for one in transaction._requirements if isinstance(one, _OF_COLUMNS)),
        )

    def replace(
        self,
        state: TableState,
        old: Sequence[DataFile],
        new: Sequence[NewFile],
        why: str,
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> TableState:
        table = _table(state)
        urls = {one.url for one in old}
        transaction = table.transaction()
        summary = {"ottla.op": why, "ottla.next": dump_offsets(state.next)}
        overwrite = transaction.update_snapshot(snapshot_properties=summary).overwrite()
        for entry in entries(table):
            if entry.data_file.file_path in urls:
                overwrite.delete_data_file(entry.data_file)
        for one in new:
            overwrite.append_data_file(_data_file(table.metadata, one))
        overwrite.commit()
        if properties:
            transaction.set_properties(dict(properties))
        if why == RETENTION:
            before = load_offsets(table.metadata.properties.get(DROPPED, "{}"))
            transaction.set_properties({DROPPED: dump_offsets(dropped_below(old, before))})
        return self._hand_over(
            state,
            transaction._updates,
            (*overwrite._written_manifests, *overwrite._written_manifest_lists),
        )

    def property(self, state: TableState, name: str) -> str | None:
        return _table(state).metadata.properties.get(name)

    def snapshots(self, state: TableState) -> tuple[list[SnapshotInfo], set[int]]:
        metadata = _table(state).metadata
        kept = [SnapshotInfo(one.snapshot_id, one.timestamp_ms) for one in metadata.snapshots]
        return kept, {one.snapshot_id for one in metadata.refs.values()}

    def expire(self, state: TableState, snapshots: Sequence[int]) -> TableState:
        removal = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(snapshots)})
        return self._hand_over(state, (removal,), ())

    def named_files(self, state: TableState) -> set[str]:
        return named_files(_table(state))

    def _hand_over(
        self,
        state: TableState,
        updates: tuple[TableUpdate, ...],
        written: tuple[str, ...],
        more: Iterable[TableRequirement] = (),
    ) -> TableState:
        return _state(hand_over(self._catalog, _table(state), updates, written, more))

    def files(self, state: TableState) -> list[DataFile]:
        return list(_files(_table(state)))

    def rename(self, table: str, name: str) -> None:
        """Give a table another name; its files stay where they are."""
        self._catalog.rename_table(self._name(table), self._name(name))

    def drop(self, state: TableState) -> None:
        with suppress(NoSuchTableError):
            self._catalog.drop_table(_table(state).name())

    def open_file(self, state: TableState, url: str) -> tuple[FileSystem, str]:
        """The file system of a data file, and its path there."""
        return open_file(_table(state).io, url)

    def _location(self, table: NewTable) -> str:
        """A directory of its own, also for a topic that is made anew under an old name."""
        directory = f"{table.name}-{table.topic_id[:ID_CHARACTERS]}"
        return f"{self._settings.warehouse}{self._settings.namespace}/{directory}"

    def _name(self, table: str) -> tuple[str, str]:
        return self._settings.namespace, table


def open_snapshot(metadata_location: str, properties: Mapping[str, str] | None = None) -> Snapshot:
    """One snapshot of a topic's table, by its metadata file alone.

    `properties` are pyiceberg's, for stores that need them (`s3.endpoint` and others). A table that
    was rolled back is read up to where its rows end.
    """
    try:
        table = StaticTable.from_metadata(
            metadata_location, {"py-io-impl": FILE_IO, **(properties or {})}
        )
    except (ValidationError, UnicodeDecodeError) as error:
        why = str(error).partition("\n")[0][:SHOWN_OF_ERROR]
        raise TableError(f"{metadata_location} is no metadata of an Iceberg table: {why}") from None
    state = _state(table)
    if not state.topic_id:
        raise NotATopicTable(f"{metadata_location} is not a topic's table; read it as it is")
    if state.has_deletes:
        raise TablePaused(
            f"ForeignDeletes: {metadata_location} has delete files; have the engine that wrote "
            "them rewrite these data files"
        )
    if state.renamed:
        raise TablePaused(f"ColumnsChanged: {renamed_sentence(metadata_location, state.renamed)}")
    position = state.next
    if is_rolled_back(state):
        position = {**state.first, **(state.line_next or {})}
    return Snapshot(
        metadata_location,
        state.snapshot,
        tuple(_files(table)),
        state.columns.remove_metadata(),
        dict(table.metadata.properties),
        position,
    )


def open_file(io: FileIO, url: str) -> tuple[FileSystem, str]:
    """The file system of a URL, and the path there."""
    assert isinstance(io, PyArrowFileIO)
    scheme, netloc, path = io.parse_location(url, io.properties)
    return io.fs_by_scheme(scheme, netloc), path


def _table(state: TableState) -> Table:
    assert isinstance(state.handle, Table)
    return state.handle


def _state(table: Table) -> TableState:
    metadata = table.metadata
    properties = metadata.properties
    current = metadata.current_snapshot()
    line = (_said(one, "ottla.next") for one in ancestors_of(current, metadata))
    line_next = next((one for one in line if one is not None), None)
    commits = (_said(one, "ottla.commit") for one in metadata.snapshots)
    return TableState(
        table=".".join(table.name()),
        location=metadata.location,
        metadata_location=table.metadata_location,
        snapshot=None if current is None else current.snapshot_id,
        topic=properties.get("ottla.topic", ""),
        topic_id=properties.get("ottla.topic-id", ""),
        first=load_offsets(properties.get("ottla.first", "{}")),
        next=load_offsets(properties.get("ottla.next", "{}")),
        commit=properties.get("ottla.commit"),
        commits=frozenset(one for one in commits if one is not None),
        line_next=None if line_next is None else load_offsets(line_next),
        holes=load_holes(properties.get("ottla.holes", "[]")),
        columns=_columns(table),
        partition=_partition(metadata.spec(), metadata.schema()),
        has_deletes=_has_deletes(table, current),
        changed_ms=metadata.last_updated_ms,
        handle=table,
        renamed=_renamed(metadata),
    )


def _renamed(metadata: TableMetadata) -> tuple[tuple[str, str], ...]:
    """Columns that are not called any more as they were at first; the worker renames none."""
    if len(metadata.schemas) == 1:
        return ()
    first: dict[int, str | None] = {}
    for schema in sorted(metadata.schemas, key=lambda one: one.schema_id):
        for number in schema.field_ids:
            first.setdefault(number, schema.find_column_name(number))
    current = metadata.schema()
    names = [(first[one], current.find_column_name(one)) for one in current.field_ids]
    return tuple((str(old), str(new)) for old, new in names if old != new)


def _column_properties(columns: pa.Schema) -> dict[str, str]:
    """What Iceberg's own schema cannot say of columns."""
    found = {}
    names = names_of(columns)
    if names:
        found[NAMES] = json.dumps(names, separators=(",", ":"), ensure_ascii=False)
    told = (columns.metadata or {}).get(CONVERSION)
    if told is not None:
        found[CONVERSION.decode()] = told.decode()
    return found


def _columns(table: Table) -> pa.Schema:
    """The columns of a table, with what its properties say of them."""
    properties = table.metadata.properties
    columns = arrow_columns(table.metadata.schema())
    if NAMES in properties:
        try:
            columns = with_names(columns, json.loads(properties[NAMES]))
        except (ValueError, AttributeError, RecursionError):
            raise TableError(f"the property {NAMES} of {table.name()} cannot be read") from None
    told = properties.get(CONVERSION.decode())
    return columns if told is None else columns.with_metadata({CONVERSION: told.encode()})


def _said(snapshot: IcebergSnapshot, key: str) -> str | None:
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(key)


def _has_deletes(table: Table, current: IcebergSnapshot | None) -> bool:
    if current is None:
        return False
    return any(
        one.content == ManifestContent.DELETES
        and (one.added_files_count or 0) + (one.existing_files_count or 0) > 0
        for one in current.manifests(table.io)
    )


def _spec(schema: Schema, partition: str) -> PartitionSpec:
    if partition == "none":
        return UNPARTITIONED_PARTITION_SPEC
    name, transform = _TRANSFORMS[partition]
    source = schema.find_field("_timestamp").field_id
    return PartitionSpec(PartitionField(source, 1000, transform, name))


def _partition(spec: PartitionSpec, schema: Schema) -> str | None:
    if spec.is_unpartitioned():
        return "none"
    times = schema.find_field("_timestamp").field_id if "_timestamp" in schema.column_names else -1
    given = [(one.source_id, one.transform) for one in spec.fields]
    return next(
        (text for text, (_, transform) in _TRANSFORMS.items() if given == [(times, transform)]),
        None,
    )


def _data_file(metadata: TableMetadata, file: NewFile) -> ManifestDataFile:
    partition = Record() if file.bucket is None else Record(file.bucket)
    return manifest_file(metadata, file.url, file.size, file.footer, partition)


def _files(table: Table) -> Iterator[DataFile]:
    metadata = table.metadata
    current = metadata.current_snapshot()
    if current is None:
        return
    schema = metadata.schema()
    partition, offset = (schema.find_field(name).field_id for name in ("_partition", "_offset"))
    times = schema.find_field("_timestamp").field_id
    spec = metadata.spec()
    made = {one.snapshot_id: one.timestamp_ms for one in metadata.snapshots}
    for entry in entries(table):
        file = entry.data_file
        # A value of another spec has another unit.
        fields = spec.fields if file.spec_id == spec.spec_id else ()
        place = next((at for at, one in enumerate(fields) if one.source_id == times), None)
        yield DataFile(
            file.file_path,
            file.record_count,
            file.file_size_in_bytes,
            None if place is None else file.partition[place],
            _bounds(file, partition, IntegerType()),
            _bounds(file, offset, LongType()),
            made.get(entry.snapshot_id or 0, 0),
        )


def _bounds(
    file: ManifestDataFile, number: int, kind: IntegerType | LongType
) -> tuple[int, int] | None:
    low, high = (file.lower_bounds or {}).get(number), (file.upper_bounds or {}).get(number)
    if low is None or high is None:
        return None
    bounds: tuple[Any, Any] = from_bytes(kind, low), from_bytes(kind, high)
    return bounds
