"""`/api/v1/series`: names, spans and points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.clock import Now
from ottla.console.history import COARSE_MS, FINE_MS, History
from ottla.console.history_file import HistoryFile, Point
from ottla.console.missing import Missing
from ottla.console.slugs import BadSlug
from ottla.console.views import series

if TYPE_CHECKING:
    from pathlib import Path

DAY_MS = 86_400_000
WALL_MS = 1_700_000_000_000
NOW = Now(5_000_000, WALL_MS)


def test_names_of_series_are_paths_of_slugs() -> None:
    name = ("group", "a/b", "orders", "lag_s")
    text = series.written(name)
    assert text == "group/=YS9i/orders/lag_s"
    assert series.parsed(text) == name
    with pytest.raises(BadSlug):
        series.parsed("group//lag")


@settings(max_examples=30)
@given(st.integers(-DAY_MS, WALL_MS + DAY_MS), st.none() | st.integers(1, 86_400))
def test_a_span_has_at_most_2000_points(from_ms: int, step_s: int | None) -> None:
    asked = series.span(NOW, from_ms, step_s)
    assert 0 <= (asked.last_ms - asked.first_ms) // asked.step_ms < series.MOST_POINTS
    assert asked.step_ms % FINE_MS == 0
    assert asked.step_ms >= (step_s or 0) * 1000
    if from_ms < WALL_MS - 2 * 3_600_000:
        assert asked.step_ms % COARSE_MS == 0


def test_an_hour_in_steps_of_10_s_with_its_gaps() -> None:
    history, name = History(), ("topic", "orders", "records_per_s")
    for second, value in ((0, 1.0), (10, 2.0), (20, 3.0), (200, 7.0)):
        history.add(name, value, NOW.ms - 200_000 + second * 1_000)
    asked = series.span(NOW, WALL_MS - 200_000, None)
    assert asked.step_ms == FINE_MS
    page = series.page("local", name, asked, series.fine(history, name, NOW))
    assert not isinstance(page.points, Missing)
    assert [one.value for one in page.points if one.value is not None] == [1.0, 2.0, 3.0, 7.0]
    assert len(page.points) == 21
    assert (page.name, page.step_s) == ("topic/orders/records_per_s", 10.0)
    wide = series.page("local", name, series.span(NOW, WALL_MS - 200_000, 100), series.fine(
        history, name, NOW
    ))  # fmt: skip
    assert not isinstance(wide.points, Missing)
    known = [one for one in wide.points if one.value is not None]
    assert (known[0].value, known[0].most, known[-1].value) == (2.0, 3.0, 7.0)


def test_a_series_that_is_not_kept_says_so() -> None:
    history = History(most_rings=1)
    for name in ("a", "b"):
        for value in (1.0, 2.0):
            history.add(("topic", name, "records_per_s"), value, NOW.ms + int(value))
    lost = ("topic", "a", "records_per_s")
    found = series.fine(history, lost, NOW)
    page = series.page("local", lost, series.span(NOW, WALL_MS, None), found)
    assert isinstance(page.points, Missing)


def test_names_are_listed_and_cut() -> None:
    history = History()
    for number in range(1_100):
        history.add(("topic", f"t{number}", "records_per_s"), 0.0, 1)
    page = series.listed("local", history, "")
    assert (len(page.names), page.more_names) == (1_000, 100)
    assert series.listed("local", history, "T1099").names == ("topic/t1099/records_per_s",)
    assert ("topic", "t7", "records_per_s") in history
    assert ("topic", "none", "records_per_s") not in history


def test_case_66_older_points_come_from_the_file(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path / "history.sqlite", 1 << 20)
    file.open(WALL_MS // 1000)
    last = WALL_MS // COARSE_MS
    name, other = ("cluster", "in_per_s"), ("cluster", "taken_per_s")
    points = [Point(last - number, float(number), number + 0.5) for number in range(2_000, 0, -1)]
    file.save("id", [(name, points), (other, points[:1])], last)
    found = file.read("id", name, last - 1_500, last - 1_000)
    file.close()
    assert [one.slot for one in found] == list(range(last - 1_500, last - 999))
    assert found[0].mean == 1_500.0
    assert file.read("id", name, 0, last) == [], "it is closed"
    asked = series.span(NOW, (last - 1_500) * COARSE_MS, None)
    page = series.page("local", name, asked, series.coarse(found))
    assert not isinstance(page.points, Missing)
    assert sum(one.value is not None for one in page.points) == 501
