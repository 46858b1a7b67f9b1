"""Iceberg tables that flows write: each batch once, whatever dies in between. No Spark."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars
import pyarrow as pa
import pytest

from ottla.objects.location import StoreLocation
from ottla.spark.errors import SparkError
from ottla.spark.pipelines import iceberg_sink
from ottla.spark.pipelines.iceberg_sink import TaskWriter, sink_file
from ottla.tables import iceberg_files
from ottla.tables.errors import BadTableSetting, ColumnsMoved, CommitRefused, SchemaConflict
from ottla.tables.flow_tables import FlowTable, divide, parse_divider
from ottla.tables.iceberg_catalogs import open_catalog
from ottla.tables.iceberg_flows import GRACE_MS, IcebergSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyiceberg.table import Table

pytestmark = pytest.mark.long("dozens of commits, and pyiceberg's import")
COLUMNS = pa.schema([("number", pa.int64()), ("shop", pa.string())])
START = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def no_warning_of_a_missing_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


class Killed(BaseException):
    """The driver is gone."""


def where(directory: Path, *dividers: str, name: str = "totals") -> FlowTable:
    return FlowTable(
        f"sqlite:///{directory}/catalog.db",
        "ottla",
        name,
        StoreLocation("file", f"{directory}/{name}", ""),
        tuple(parse_divider(one) for one in dividers),
    )


@contextmanager
def opened(at: FlowTable, **arguments: Any) -> Iterator[IcebergSink]:
    sink = IcebergSink(at, sleep=lambda _: None, **arguments)
    try:
        yield sink
    finally:
        sink.close()


def loaded(at: FlowTable) -> Table:
    catalog = open_catalog(at.catalog, at.place)
    try:
        return catalog.load_table(at.full_name)
    finally:
        catalog.close()


def rows_of(batch: int) -> pa.RecordBatch:
    numbers = list(range(3 * batch, 3 * batch + 3))
    shops = [f"shop-{one % 2}" for one in numbers]
    return pa.RecordBatch.from_pydict({"number": numbers, "shop": shops}, COLUMNS)


def write(
    sink: IcebergSink,
    batch: int,
    rows: pa.RecordBatch,
    *,
    replace: bool = False,
    query: str = "q",
    step: Callable[[str], None] = lambda _: None,
) -> bool:
    """What the driver does with a batch, and what its tasks do."""
    step("begin")
    if sink.noted(query) >= batch:
        return False
    step("noted")
    layout = sink.prepare(rows.schema)
    step("prepared")
    tasks = [rows.slice(0, 1), rows.slice(1)]
    files = []
    for one in tasks:
        for found in TaskWriter(layout, batch)([one]):
            files += [sink_file(_Row(row)) for row in found.to_pylist()]
        step("written")
    done = sink.commit(query, batch, layout, files, replace=replace)
    step("committed")
    return done


class _Row:
    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)


def numbers(at: FlowTable) -> list[int]:
    """The rows by another engine."""
    frame = polars.scan_iceberg(loaded(at).metadata_location).select("number").collect()
    return sorted(frame["number"].to_list())


def test_case_91_each_row_once_with_a_kill_at_every_step_of_50_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = where(tmp_path, "shop")
    steps = ("begin", "noted", "prepared", "written", "committed", "handed over", None)
    hand_over = iceberg_files.hand_over

    for batch in range(50):
        kill_at = steps[batch % len(steps)]

        def step(name: str, kill_at: str | None = kill_at) -> None:
            if name == kill_at:
                raise Killed

        def lost(*arguments: Any, kill_at: str | None = kill_at) -> Any:
            made = hand_over(*arguments)
            if kill_at == "handed over":
                raise Killed
            return made

        monkeypatch.setattr("ottla.tables.iceberg_flows.hand_over", lost)
        with opened(at) as sink, suppress(Killed):
            write(sink, batch, rows_of(batch), step=step)
        monkeypatch.setattr("ottla.tables.iceberg_flows.hand_over", hand_over)
        with opened(at) as sink:  # the next run repeats the batch
            had = kill_at in ("committed", "handed over", None)
            assert write(sink, batch, rows_of(batch)) is not had
            assert sink.noted("q") == batch
    assert numbers(at) == list(range(150))
    table = loaded(at)
    assert table.scan().to_arrow().num_rows == 150
    assert table.scan(row_filter="shop = 'shop-1'").to_arrow().num_rows == 75
    summary = table.metadata.snapshots[-1].summary
    assert summary is not None
    assert summary.additional_properties["ottla.sink.q"] == "49"


def test_case_91_complete_mode_shows_the_last_batch_alone(tmp_path: Path) -> None:
    at = where(tmp_path)
    with opened(at) as sink:
        for batch in range(3):
            assert write(sink, batch, rows_of(batch), replace=True)
        assert not write(sink, 2, rows_of(9), replace=True)
        assert numbers(at) == [6, 7, 8]
        layout = sink.prepare(COLUMNS)
        assert sink.commit("q", 3, layout, [], replace=True)
    assert numbers(at) == []


def test_a_new_checkpoint_is_another_sink(tmp_path: Path) -> None:
    at = where(tmp_path)
    with opened(at) as sink:
        assert write(sink, 5, rows_of(0))
        assert write(sink, 0, rows_of(1), query="another")
        assert not write(sink, 4, rows_of(2))
    assert numbers(at) == list(range(6))


def test_a_batch_is_offered_again_when_somebody_else_has_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = where(tmp_path)
    hand_over = iceberg_files.hand_over
    with opened(at) as sink, opened(at) as other:
        write(other, 0, rows_of(0), query="other")
        left = [1, 1]

        def later(*arguments: Any) -> Any:
            if left:
                left.pop()
                monkeypatch.setattr("ottla.tables.iceberg_flows.hand_over", hand_over)
                write(other, 2 - len(left), rows_of(2 - len(left)), query="other")
                monkeypatch.setattr("ottla.tables.iceberg_flows.hand_over", later)
            return hand_over(*arguments)

        monkeypatch.setattr("ottla.tables.iceberg_flows.hand_over", later)
        assert write(sink, 0, rows_of(3))
    assert numbers(at) == list(range(12))


def test_a_table_that_never_rests_fails_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Any:
        raise CommitRefused("moved on")

    at = where(tmp_path)
    monkeypatch.setattr("ottla.tables.iceberg_flows.hand_over", refused)
    with opened(at) as sink, pytest.raises(CommitRefused):
        write(sink, 0, rows_of(0))


def test_columns_are_added_and_widened_with_their_rows(tmp_path: Path) -> None:
    at = where(tmp_path)
    old = pa.RecordBatch.from_pydict({"number": [1]}, pa.schema([("number", pa.int32())]))
    text = pa.RecordBatch.from_pydict({"number": ["x"]}, pa.schema([("number", pa.string())]))
    with opened(at) as sink:
        write(sink, 0, old)
        stale = sink.prepare(old.schema)
        write(sink, 1, rows_of(1))
        write(sink, 2, old)  # a narrower type and fewer columns fit
        with pytest.raises(SchemaConflict):
            sink.prepare(text.schema)
        with pytest.raises(ColumnsMoved):  # its files have the old type
            sink.commit("q", 3, stale, [], replace=False)
    found = loaded(at).scan().to_arrow().sort_by("number").to_pylist()
    assert [(one["number"], one["shop"]) for one in found] == [
        *[(1, None), (1, None)],
        *[(3, "shop-1"), (4, "shop-0"), (5, "shop-1")],
    ]


def test_case_93_the_table_of_a_topic_is_refused(tmp_path: Path) -> None:
    at = where(tmp_path)
    with opened(at) as sink:
        sink.check()  # there is none yet
        write(sink, 0, rows_of(0))
        sink.check()
    catalog = open_catalog(at.catalog, at.place)
    with catalog.load_table(at.full_name).transaction() as transaction:
        transaction.set_properties({"ottla.topic": "orders"})
    catalog.close()
    with opened(at) as sink:
        for call in (sink.check, lambda: sink.prepare(COLUMNS), sink.set_aside):
            with pytest.raises(BadTableSetting, match="table of topic orders"):
                call()


def test_a_table_that_is_set_aside_keeps_its_files(tmp_path: Path) -> None:
    at = where(tmp_path)
    with opened(at) as sink:
        assert sink.set_aside() is None
        for number in (1, 2):
            write(sink, 0, rows_of(number))
            assert sink.set_aside() == f"ottla.totals__before_{number}"
        write(sink, 0, rows_of(3))
        sink.upkeep()
    assert numbers(at) == [9, 10, 11]
    assert numbers(where(tmp_path, name="totals__before_1")) == [3, 4, 5]


def test_files_of_dead_attempts_are_swept_after_the_grace(tmp_path: Path) -> None:
    at = where(tmp_path)
    wall = [0]
    now = int(datetime.now(UTC).timestamp() * 1000)
    with opened(at, wall_ms=lambda: now + wall[0]) as sink:
        layout = sink.prepare(COLUMNS)
        list(TaskWriter(layout, 0)([rows_of(0)]))  # and the driver dies
        write(sink, 0, rows_of(0))
        sink.upkeep()
        files = list((tmp_path / "totals").rglob("*.parquet"))
        assert len(files) == 3
        wall[0] = 2 * GRACE_MS
        sink.upkeep()
    assert len(list((tmp_path / "totals").rglob("*.parquet"))) == 2
    assert numbers(at) == [0, 1, 2]


def test_rows_are_divided_by_times_and_values() -> None:
    times = [START, START + timedelta(hours=5), None, datetime(1969, 12, 31, 23, tzinfo=UTC)]
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(times, pa.timestamp("us", tz="UTC")),
            pa.array([date(2026, 3, 1), date(1969, 12, 31), None, None], pa.date32()),
            pa.array(["a", "a", "b", None]),
        ],
        names=["at", "on", "shop"],
    )

    def found(*texts: str) -> dict[tuple[Any, ...], int]:
        parts = divide(rows, [parse_divider(one) for one in texts])
        return {key: part.num_rows for key, part in parts}

    day = (START - datetime(1970, 1, 1, tzinfo=UTC)).days
    assert found() == {(): 4}
    assert found("day(at)") == {(day,): 2, (None,): 1, (-1,): 1}
    assert found("hour(at)") == {(24 * day,): 1, (24 * day + 5,): 1, (None,): 1, (-1,): 1}
    assert found("month(at)", "shop") == {
        (56 * 12 + 2, "a"): 2,
        (None, "b"): 1,
        (-1, None): 1,
    }
    assert found("year( on )") == {(56,): 1, (-1,): 1, (None,): 2}
    assert found("on") == {(day,): 1, (-1,): 1, (None,): 2}


@pytest.mark.parametrize(
    ("divider", "said"),
    [
        ("bucket(shop)", "not 'bucket"),
        ("day(shop)", "needs a time"),
        ("nowhere", "there is no column nowhere"),
        ("at", "needs text"),
    ],
)
def test_a_column_that_cannot_divide_is_refused(tmp_path: Path, divider: str, said: str) -> None:
    columns = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("shop", pa.string())])
    with (
        pytest.raises(BadTableSetting, match=said),
        opened(where(tmp_path, divider)) as sink,
    ):
        sink.prepare(columns)


def test_a_table_that_is_divided_otherwise_is_refused(tmp_path: Path) -> None:
    with opened(where(tmp_path, "shop")) as sink:
        write(sink, 0, rows_of(0))
    with (
        opened(where(tmp_path)) as sink,
        pytest.raises(BadTableSetting, match=r"divided by identity\(shop\)"),
    ):
        sink.prepare(COLUMNS)


def test_a_value_of_its_own_for_each_row_does_not_divide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_sink, "TASK_FILES", 2)
    at = where(tmp_path, "number")
    with opened(at) as sink, pytest.raises(SparkError, match="more than 2 files"):
        list(TaskWriter(sink.prepare(COLUMNS), 0)([rows_of(0)]))
