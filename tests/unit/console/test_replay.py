"""Frames of windows: what was drawn is drawn again, and little of it is kept."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.admin.types import ShareWindow, ShareWindowRun
from ottla.console import replay, window
from ottla.console.views.queue import view

RUNS = [
    ShareWindowRun(100, 100, 1, 4, 0, 20_000),
    ShareWindowRun(101, 180, 2),
    ShareWindowRun(181, 299, 0, 1),
]
WINDOW = ShareWindow("orders", 1, 100, 300, 900, RUNS, ("m-1",), 200, 5, 30_000, 90_000)


@given(st.integers(100, 2_000), st.integers(0, 400))
def test_a_frame_is_drawn_as_the_window_was(end: int, deliveries: int) -> None:
    one = replace(WINDOW, end=end, runs=[replace(RUNS[0], deliveries=deliveries), *RUNS[1:]])
    drawn = window.columns(one, replay.COLUMNS)
    capped = [replace(column, deliveries=min(column.deliveries, 255)) for column in drawn]
    assert list(replay.frame(one, 5).columns()) == capped


def test_five_minutes_are_kept_of_windows_that_somebody_looks_at() -> None:
    kept = replay.Replay()
    kept.add("warehouse", [WINDOW], 0)
    key = ("warehouse", "orders", 1)
    assert kept.frames(key) == ()
    kept.watch(key)
    for at_ms in range(0, 400_000, 500):  # two a second
        kept.add("warehouse", [WINDOW], at_ms)
    frames = kept.frames(key)
    assert len(frames) == replay.MOST_FRAMES
    assert frames[-1].at_ms - frames[0].at_ms == 299_000
    for number in range(replay.MOST_WINDOWS):
        kept.watch(("warehouse", "orders", 10 + number))
    assert kept.frames(key) == ()


def test_the_page_shows_a_frame_of_then_and_zooms_to_single_offsets() -> None:
    zoomed = view(WINDOW, 40, zoom=180)
    assert (zoomed.columns[0].first, zoomed.columns[0].last, len(zoomed.columns)) == (180, 180, 40)
    assert view(WINDOW, 40, zoom=0).columns[0].first == 100
    assert view(WINDOW, 40, zoom=10_000).columns[-1].last == 299
    assert (zoomed.start, zoomed.end) == (100, 300)  # the whole window's
