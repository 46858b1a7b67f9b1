"""Views: which files and offsets a reader sees, and when it is told that something is gone."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import BadArgument
from ottla.tables.errors import LogBehindTable, TableHasHoles, TopicReplaced
from ottla.tables.format import DataFile, Snapshot
from ottla.tables.views import (
    Choice,
    Log,
    OffsetRange,
    day_of,
    parse_offsets,
    parse_time,
    view,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = pa.schema([("value", pa.binary()), ("_partition", pa.int32()), ("_offset", pa.int64())])
ROOT = "file:///w/ottla/orders/data"


def data_file(
    name: str,
    day: str = "2026-11-14",
    partitions: tuple[int, int] | None = (0, 0),
    offsets: tuple[int, int] | None = (0, 9),
) -> DataFile:
    return DataFile(f"{ROOT}/_day={day}/{name}.parquet", 10, 1000, None, partitions, offsets)


def snapshot(
    position: Mapping[int, int], *files: DataFile, topic_id: str = "id", holes: str = "[]"
) -> Snapshot:
    properties = {"ottla.topic-id": topic_id, "ottla.holes": holes}
    return Snapshot("file:///w/m.json", 7, files, COLUMNS, properties, position)


def log(starts: Mapping[int, int], ends: Mapping[int, int], topic_id: str = "id") -> Log:
    return Log(topic_id, starts, ends)


def test_the_tail_begins_where_the_snapshot_ends() -> None:
    one = data_file("a")
    found = view("orders", snapshot({0: 10, 1: 0}, one), log({0: 0, 1: 0}, {0: 15, 1: 2}))
    assert found.files == (one,)
    assert found.tail == (OffsetRange(0, 10, 15), OffsetRange(1, 0, 2))
    assert (found.cut, found.end) == ({0: 10, 1: 0}, {0: 15, 1: 2})
    assert found.bounds is None
    assert found.tail_offsets == 7


def test_case_77_a_stale_pointer_is_a_smaller_archive_and_a_larger_tail() -> None:
    now = log({0: 0}, {0: 30})
    new = view("orders", snapshot({0: 20}, data_file("a"), data_file("b", offsets=(10, 19))), now)
    old = view("orders", snapshot({0: 10}, data_file("a")), now)
    assert new.end == old.end == {0: 30}
    assert (new.tail, old.tail) == ((OffsetRange(0, 20, 30),), (OffsetRange(0, 10, 30),))


def test_case_77_without_a_pointer_the_whole_log_is_the_tail() -> None:
    found = view("orders", None, log({0: 3, 1: 0}, {0: 5, 1: 0}))
    assert found.files == ()
    assert found.tail == (OffsetRange(0, 3, 5),)
    assert found.snapshot is None


def test_case_78_at_offsets_ends_the_view_there() -> None:
    first = data_file("a", offsets=(0, 9))
    second = data_file("b", offsets=(10, 19))
    other = data_file("c", partitions=(1, 1), offsets=(0, 4))
    archive = snapshot({0: 20, 1: 5}, first, second, other)
    now = log({0: 0, 1: 0}, {0: 30, 1: 9})
    inside = view("orders", archive, now, Choice(at={0: 10, 1: 7}))
    assert inside.files == (first, other)
    assert inside.bounds == {0: 10, 1: 7}
    assert inside.tail == (OffsetRange(1, 5, 7),)
    beyond = view("orders", archive, now, Choice(at={0: 25, 1: 5}))
    assert beyond.files == (first, second, other)
    assert beyond.bounds is None
    assert beyond.tail == (OffsetRange(0, 20, 25),)


def test_case_78_at_before_the_first_record_is_empty() -> None:
    archive = snapshot({0: 20}, data_file("a"))
    found = view("orders", archive, log({0: 0}, {0: 30}), Choice(at={0: 0}))
    assert (found.files, found.tail) == ((), ())


def test_a_partition_that_at_does_not_name_has_no_rows() -> None:
    other = data_file("c", partitions=(1, 1))
    archive = snapshot({0: 10, 1: 10}, data_file("a"), other)
    found = view("orders", archive, log({0: 0, 1: 0}, {0: 12, 1: 12}), Choice(at={0: 10}))
    assert other not in found.files
    assert found.bounds == {0: 10}
    assert found.tail == ()


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ({0: 31}, "offset 31 of partition 0 is not between 0 and its end, 30"),
        ({0: -1}, "offset -1 of partition 0"),
        ({4: 1}, "partition 4 does not exist; 0 do"),
    ],
)
def test_at_outside_of_the_topic_is_refused_with_the_bounds(at: dict[int, int], said: str) -> None:
    with pytest.raises(BadArgument, match=said):
        view("orders", snapshot({0: 20}), log({0: 0}, {0: 30}), Choice(at=at))


def test_case_80_a_hole_between_cut_and_log_start_names_partition_and_offsets() -> None:
    archive = snapshot({0: 10, 1: 5}, data_file("a"))
    now = log({0: 12, 1: 0}, {0: 20, 1: 6})
    with pytest.raises(TableHasHoles, match=r"orders-0 offsets 10\.\.11;"):
        view("orders", archive, now)
    rest = view("orders", archive, now, accept_loss=True)
    assert rest.tail == (OffsetRange(0, 12, 20), OffsetRange(1, 5, 6))
    assert rest.missing == (OffsetRange(0, 10, 12),)


def test_a_log_that_was_emptied_after_the_cut_is_a_hole() -> None:
    with pytest.raises(TableHasHoles, match=r"orders-0 offsets 10\.\.19"):
        view("orders", snapshot({0: 10}), log({0: 20}, {0: 20}))


def test_a_log_start_beyond_the_cut_is_no_hole_if_nothing_was_written_since() -> None:
    found = view("orders", snapshot({0: 10}), log({0: 10}, {0: 10}))
    assert (found.missing, found.tail) == ((), ())


def test_a_hole_after_at_does_not_matter() -> None:
    archive = snapshot({0: 10}, data_file("a"))
    assert view("orders", archive, log({0: 12}, {0: 20}), Choice(at={0: 10})).missing == ()


def test_a_recorded_hole_is_told_even_without_a_tail() -> None:
    archive = snapshot({0: 10}, data_file("a"), holes='[[0,3,5,"deleted"]]')
    with pytest.raises(TableHasHoles, match=r"orders-0 offsets 3\.\.4"):
        view("orders", archive, None)
    assert view("orders", archive, None, accept_loss=True).missing == (OffsetRange(0, 3, 5),)


def test_case_81_an_empty_tail_and_an_empty_archive() -> None:
    archive_alone = view("orders", snapshot({0: 10}, data_file("a")), log({0: 0}, {0: 10}))
    assert archive_alone.tail == ()
    tail_alone = view("orders", snapshot({0: 0}), log({0: 0}, {0: 10}))
    assert tail_alone.files == ()
    assert tail_alone.tail == (OffsetRange(0, 0, 10),)


def test_a_partition_that_the_table_does_not_know_is_read_from_its_start() -> None:
    found = view("orders", snapshot({0: 10}), log({0: 0, 1: 4}, {0: 10, 1: 9}))
    assert found.tail == (OffsetRange(1, 4, 9),)
    assert found.cut == {0: 10, 1: 4}


def test_a_recreated_topic_is_refused() -> None:
    with pytest.raises(TopicReplaced, match="with id old, and the topic has id new"):
        view("orders", snapshot({0: 10}, topic_id="old"), log({0: 0}, {0: 10}, "new"))


def test_a_log_that_ends_before_the_table_is_refused() -> None:
    with pytest.raises(LogBehindTable, match="orders-0 ends at 8, the table is at 10"):
        view("orders", snapshot({0: 10}), log({0: 0}, {0: 8}))


def test_days_outside_of_the_times_are_left_out() -> None:
    days = [data_file(day, day) for day in ("2026-11-12", "2026-11-13", "2026-11-14")]
    elsewhere = DataFile(f"{ROOT}/x.parquet", 1, 1, None, None, None)
    archive = snapshot({0: 10}, *days, elsewhere)
    since = Choice(since=datetime(2026, 11, 13, 5, tzinfo=UTC))
    assert view("orders", archive, None, since).files == (days[1], days[2], elsewhere)
    until = Choice(until=datetime(2026, 11, 13, 5, tzinfo=UTC))
    assert view("orders", archive, None, until).files == (days[0], days[1], elsewhere)


def test_the_day_of_a_file_is_that_of_its_directory() -> None:
    assert day_of(data_file("a")) == date(2026, 11, 14)
    assert day_of(data_file("a", "2026-13-14")) is None
    assert day_of(DataFile("file:///w/_day=2026-11-14/b/a", 1, 1, None, None, None)) is None


def test_times_and_offsets_are_read_as_people_write_them() -> None:
    assert parse_time("at", "2026-11-14") == datetime(2026, 11, 14, tzinfo=UTC)
    assert parse_time("at", "2026-11-14T08:30Z") == datetime(2026, 11, 14, 8, 30, tzinfo=UTC)
    assert parse_offsets("at", {"0": 5, "11": 0}) == {0: 5, 11: 0}
    for wrong in ("yesterday", datetime(2026, 11, 14)):  # what is refused
        with pytest.raises(BadArgument, match="at: "):
            parse_time("at", wrong)
    for offsets in ({}, {"x": 1}, {"0": "1"}, {"-1": 1}, {"0": True}):
        with pytest.raises(BadArgument, match="at: "):
            parse_offsets("at", offsets)  # type: ignore[arg-type]  # what is refused


@given(
    st.dictionaries(
        st.integers(0, 4),
        st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20), st.integers(0, 60)),
        min_size=1,
    )
)
def test_every_offset_is_in_exactly_one_part(parts: dict[int, tuple[int, int, int, int]]) -> None:
    """first <= cut <= end; `at` anywhere: each offset below it is archive or tail, never both."""
    cut = {one: first + taken for one, (first, taken, _, _) in parts.items()}
    end = {one: cut[one] + more for one, (_, _, more, _) in parts.items()}
    at = {one: min(at, end[one]) for one, (*_, at) in parts.items()}
    now = log({one: min(cut[one], first + 1) for one, (first, *_) in parts.items()}, end)
    found = view("orders", snapshot(cut), now, Choice(at=at))
    for one in parts:
        tail = {
            offset
            for part in found.tail
            if part.partition == one
            for offset in range(part.first, part.end)
        }
        archive = {
            offset
            for offset in range(cut[one])
            if found.bounds is None or offset < found.bounds.get(one, 0)
        }
        assert not tail & archive
        assert tail | archive == set(range(at[one]))
