"""The files of a round: columns that grow while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.tables import parquet_files
from ottla.tables.errors import SchemaNotYet
from ottla.tables.parquet_files import RoundFiles, write_parquet
from ottla.tables.rows import raw_columns, raw_rows
from ottla.tables.settings import topic_settings
from tests.support.table_model import table_state
from tests.unit.schemas.test_decode import framed
from tests.unit.tables.test_converting import ONE, TWO, converter, records, schemas

if TYPE_CHECKING:
    from pathlib import Path

ON = {"ottla.table.enable": "true", "ottla.table.value.format": "registry"}
FIRST = [framed(1, b"\x02")] * 2
SECOND = [framed(2, b"\x04\x02a"), framed(1, b"\x06")]


def round_files(directory: Path, decided: dict[int, set[int]] | None = None) -> RoundFiles:
    made = converter(schemas({1: ONE, 2: TWO}), value_format="registry")
    made.start(made.columns)
    settings = topic_settings("orders", ON)
    assert settings is not None
    return RoundFiles(
        directory / "round",
        table_state(),
        made.columns,
        "commit",
        made,
        settings,
        decided or {},
        lambda: pytest.fail("no letter is expected"),
        lambda wanted: wanted,
    )


def test_case_55_rows_of_a_file_have_the_columns_of_later_schemas(tmp_path: Path) -> None:
    files = round_files(tmp_path)
    assert files.add(records(FIRST)) == 2
    assert files.columns.names[:2] == ["amount", "_partition"]
    assert files.add(records(SECOND)) == 2
    [file], _ = files.finish()
    found = pq.read_table(file.spool, partitioning=None)
    assert found.column("amount").to_pylist() == [1, 1, 2, 3]
    assert found.column("shop").to_pylist() == [None, None, "a", None]
    assert found.schema.field("amount").type == pa.int64()


def test_a_round_ends_before_columns_that_its_files_do_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "BUFFER_BYTES", 1)
    files = round_files(tmp_path)
    assert files.add(records(FIRST)) == 2
    assert files.add(records(SECOND)) == 0
    [file], _ = files.finish()
    assert file.rows == 2
    assert "shop" not in files.columns.names


def test_case_34_a_round_ends_before_a_schema_that_is_not_there_yet(tmp_path: Path) -> None:
    unknown = framed(9, b"\x02")
    files = round_files(tmp_path, {1: {10}})
    # Offset 10 is a dead letter already, 11 is taken, 12 waits.
    assert files.add(records([unknown, FIRST[0], unknown, FIRST[0]])) == 2
    [file], _ = files.finish()
    assert file.rows == 1


def test_case_34_a_round_that_can_take_nothing_fails(tmp_path: Path) -> None:
    with pytest.raises(SchemaNotYet, match="offset 10 is not in the registry yet; partition 1"):
        round_files(tmp_path).add(records([framed(9, b"\x02")]))


def test_columns_of_offsets_and_times_are_small(tmp_path: Path) -> None:
    rows = raw_rows(records([b"x"] * 10_000), raw_columns())
    path = tmp_path / "one.parquet"
    write_parquet(path, raw_columns(), iter([rows]))
    group = pq.read_metadata(path).row_group(0)
    for at in range(group.num_columns):
        column = group.column(at)
        if column.path_in_schema in parquet_files.ENCODINGS:
            assert "DELTA_BINARY_PACKED" in column.encodings
            assert column.total_compressed_size < 1_000
    assert pq.read_table(path).column("_offset").to_pylist() == list(range(10, 10_010))
