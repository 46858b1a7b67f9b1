"""What every writer of Iceberg tables does: entries of manifests, commits, files that are named."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationError
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID

from ottla.tables.errors import CommitRefused, SchemaConflict
from ottla.tables.iceberg_types import iceberg_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.manifest import ManifestEntry
    from pyiceberg.table import Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.typedef import Record

MAIN: Final = "main"


def manifest_file(
    metadata: TableMetadata, url: str, size: int, footer: object, partition: Record
) -> DataFile:
    """The entry of a Parquet file, with the statistics of its footer."""
    schema = metadata.schema()
    read: Any = footer
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=read,
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=url,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=size,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def entries(table: Table) -> Iterator[ManifestEntry]:
    """The data files of the current snapshot, as manifests have them."""
    current = table.metadata.current_snapshot()
    if current is None:
        return
    for manifest in current.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            if entry.data_file.content == DataFileContent.DATA:
                yield entry


def named_files(table: Table) -> set[str]:
    """The URLs of all files that kept snapshots or the metadata name."""
    metadata = table.metadata
    named = {table.metadata_location, *(one.metadata_file for one in metadata.metadata_log)}
    manifests = {}
    for snapshot in metadata.snapshots:
        named.add(snapshot.manifest_list)
        manifests.update({one.manifest_path: one for one in snapshot.manifests(table.io)})
    for path, manifest in manifests.items():
        named.add(path)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            named.add(entry.data_file.file_path)
    return named


def widen(transaction: Transaction, wanted: pa.Schema) -> None:
    """Add the columns that a table lacks, and give others wider types."""
    try:
        with transaction.update_schema() as update:
            update.union_by_name(iceberg_schema(wanted))
    except (ValueError, ValidationError) as error:
        raise SchemaConflict(
            f"the table's columns cannot become those of the schema: {error}"
        ) from None


def hand_over(
    catalog: SqlCatalog,
    table: Table,
    updates: tuple[TableUpdate, ...],
    written: tuple[str, ...],
    more: Iterable[TableRequirement] = (),
) -> Table:
    """Commit on top of the snapshot that was loaded; `written` are manifests that only this names.

    pyiceberg's own retry would move a stale append on top of a newer snapshot.
    """
    current = table.metadata.current_snapshot()
    number = None if current is None else current.snapshot_id
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId.model_validate({"ref": MAIN, "snapshot-id": number}),
        *more,
    )
    try:
        made = catalog.commit_table(table, requirements, updates)
    except (CommitFailedException, NoSuchTableError) as error:
        for path in written:
            with suppress(OSError):
                table.io.delete(path)
        name = ".".join(table.name())
        raise CommitRefused(f"table {name} has moved on: {error}") from error
    return Table(table.name(), made.metadata, made.metadata_location, table.io, catalog)
