"""The history file: what it keeps, what it survives."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

from ottla.clock import Now
from ottla.console.history import COARSE_MS, COARSE_SLOTS, History
from ottla.console.history_file import BLOCK_SLOTS, DAY_SLOTS, KEPT_DAYS, HistoryFile, Point
from ottla.console.keeping import SAVE_SECONDS, Keeper, recent
from tests.support.console_source import FakeSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

IN = ("cluster", "in_per_s")
MIB = 1 << 20
START = 1_000 * DAY_SLOTS


@pytest.fixture
def opened() -> Iterator[Callable[..., HistoryFile]]:
    """Opens files; they are closed after the test."""
    with ExitStack() as stack:

        def opened(path: Path, most: int = 128 * MIB) -> HistoryFile:
            file = HistoryFile(path, most)
            file.open(1_000)
            stack.callback(file.close)
            return file

        yield opened


def points(first: int, count: int) -> list[Point]:
    return [Point(first + index, float(index), float(index) + 0.5) for index in range(count)]


def test_points_come_back_over_blocks_and_gaps(
    tmp_path: Path, opened: Callable[..., HistoryFile]
) -> None:
    file = opened(tmp_path / "state" / "history.sqlite")
    first = START + BLOCK_SLOTS - 3
    saved = points(first, 10)
    assert file.save("a", [(IN, saved[:4]), (("topic", "\ud800", "x"), saved[:1])], first + 4)
    assert file.save("a", [(IN, saved[6:])], first + 10)
    assert file.save("b", [(IN, points(first, 1))], first)
    file.close()
    again = opened(tmp_path / "state" / "history.sqlite")
    found = dict(again.load("a", first, first + 100, 10))
    assert found[IN] == saved[:4] + saved[6:]
    assert found["topic", "\ud800", "x"] == saved[:1]
    assert dict(again.load("b", first, first + 100, 10)) == {IN: points(first, 1)}
    assert again.load("c", first, first + 100, 10) == []
    assert len(again.load("a", first, first + 100, 1)) == 1
    assert dict(again.load("a", first + 2, first + 3, 10))[IN] == saved[2:4]
    assert (tmp_path / "state" / "history.sqlite").stat().st_mode & 0o077 == 0


def test_case_66_a_damaged_file_is_set_aside(
    tmp_path: Path, opened: Callable[..., HistoryFile], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "history.sqlite"
    path.write_bytes(b"this is no database" * 100)
    file = opened(path)
    assert file.problem == ""
    assert file.save("a", [(IN, points(START, 1))], START)
    assert (tmp_path / "history.sqlite.damaged-1000").read_bytes().startswith(b"this is no")
    assert "kept as" in caplog.text
    file.close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE points SET data = x'00'")
    again = opened(path)
    assert again.load("a", START, START, 10) == []
    assert again.save("a", [(IN, points(START, 1))], START)


def test_case_66_a_full_disk_costs_points_and_nothing_else(
    tmp_path: Path, opened: Callable[..., HistoryFile], caplog: pytest.LogCaptureFixture
) -> None:
    file = opened(tmp_path / "history.sqlite")
    database = file._database
    assert database is not None
    [pages] = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages}").fetchall()
    many = [(("topic", str(number), "x"), points(START, 100)) for number in range(200)]
    assert not file.save("a", many, START)
    assert not file.save("a", many, START)
    assert "full" in file.problem
    assert caplog.text.count("in memory only") == 1
    database.execute(f"PRAGMA max_page_count = {pages + 1000}").fetchall()
    assert file.save("a", many, START)
    assert file.problem == ""
    assert len(file.load("a", START, START + 100, 1000)) == 200


def test_case_66_a_directory_that_cannot_be_made_is_told(
    tmp_path: Path, opened: Callable[..., HistoryFile]
) -> None:
    (tmp_path / "state").write_text("a file")
    file = opened(tmp_path / "state" / "history.sqlite")
    assert file.problem
    assert not file.save("a", [(IN, points(START, 1))], START)
    assert file.load("a", START, START, 10) == []
    file.close()


def test_old_days_go(tmp_path: Path, opened: Callable[..., HistoryFile]) -> None:
    file = opened(tmp_path / "history.sqlite")
    for day in range(KEPT_DAYS + 3):
        slot = START + day * DAY_SLOTS
        assert file.save("a", [(IN, points(slot, 1))], slot)
    last = START + (KEPT_DAYS + 2) * DAY_SLOTS
    [(_, kept)] = file.load("a", START, last, 10)
    assert kept[0].slot == START + 2 * DAY_SLOTS
    assert kept[-1].slot == last


def test_the_oldest_day_goes_first_where_there_is_no_room(
    tmp_path: Path, opened: Callable[..., HistoryFile]
) -> None:
    most = MIB // 4
    file = opened(tmp_path / "history.sqlite", most)
    for day in range(10):
        slot = START + day * DAY_SLOTS
        series = [
            (
                ("topic", f"{number}", "x"),
                [Point(slot + one, number * one + 0.1, one) for one in range(90)],
            )
            for number in range(150)
        ]
        assert file.save("a", series, slot + 90)
    database = file._database
    assert database is not None
    assert file._size(database) <= most
    found = file.load("a", START, START + 11 * DAY_SLOTS, 10_000)
    kept = {one.slot for _, some in found for one in some}
    assert max(kept) == START + 9 * DAY_SLOTS + 89
    assert min(kept) > START + DAY_SLOTS


def test_points_are_taken_by_wall_time() -> None:
    history = History()
    for number in range(10):
        history.add(IN, float(number), number * COARSE_MS)
    now = Now(9 * COARSE_MS, 1_000_000 * COARSE_MS + 77)
    found = recent(history, IN, now, 4)
    assert [one.mean for one in found] == [6.0, 7.0, 8.0, 9.0]
    assert [one.slot for one in found] == [999_997, 999_998, 999_999, 1_000_000]
    assert recent(history, ("nothing",), now, 4) == []


def test_case_66_a_restart_goes_on_where_it_was() -> None:
    before = History()
    for number in range(20):
        before.add(IN, float(number), number * COARSE_MS)
    kept = recent(before, IN, Now(19 * COARSE_MS, 500 * COARSE_MS), COARSE_SLOTS)
    after = History()
    now_ms = 30 * COARSE_MS
    after.add(IN, 100.0, now_ms)
    after.add(IN, 101.0, now_ms + 10_000)
    after.restore(IN, [((one.slot - 510) * COARSE_MS + now_ms, one.mean, one.most) for one in kept])
    found = after.coarse(IN, now_ms + 10_000, 31)
    assert isinstance(found, tuple)
    means, maxima = found
    assert means[:21] == [None, *(float(one) for one in range(20))]
    assert means[21:30] == [None] * 9
    assert (means[-1], maxima[-1]) == (101.0, 101.0)
    other = History()
    other.restore(IN, [(one * COARSE_MS, 1.0, 2.0) for one in range(-5, 1)])
    assert other.last(IN, 10_000_000) is None


async def test_history_is_kept_by_the_cluster_s_id(
    tmp_path: Path, opened: Callable[..., HistoryFile]
) -> None:
    """Case 17: another cluster under the name has another history."""
    source = FakeSource()
    cluster = source.cluster_of()
    file = opened(tmp_path / "history.sqlite")
    keeper = Keeper(file, [cluster], source.clock)
    await keeper.restore(cluster)  # it has not told its id
    await cluster.tick()
    await keeper.restore(cluster)
    for number in range(10):
        cluster.history.add(IN, float(number), source.clock.monotonic_ms())
        source.clock.advance(COARSE_MS)
    await keeper.save()
    source.id = "cluster-b"
    source.clock.advance(60_000)
    await cluster.tick()
    await keeper.restore(cluster)
    assert cluster.history.rings == 0
    await keeper.close()
    # Another process: the clocks agree on the wall, and on nothing else.
    later = FakeSource()
    later.clock.ms = 5_000_000
    later.clock.step(source.clock.wall_ms() + COARSE_MS - later.clock.wall_ms())
    found = later.cluster_of()
    again = opened(tmp_path / "history.sqlite")
    keeper = Keeper(again, [found], later.clock)
    await found.tick()
    await keeper.restore(found)
    means = found.history.coarse(IN, later.clock.monotonic_ms(), 20)
    assert isinstance(means, tuple)
    assert [one for one in means[0] if one is not None] == [float(one) for one in range(10)]
    await keeper.close()
    assert SAVE_SECONDS >= COARSE_MS / 1000
