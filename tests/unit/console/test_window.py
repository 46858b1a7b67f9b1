"""Windows of queues as columns, totals and sentences."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.admin.types import ShareWindow
from ottla.client.admin.types import ShareWindowRun as Run
from ottla.console import window as w
from ottla.console.window import State

LIMIT = 5


def made(
    runs: list[Run],
    *,
    start: int = 100,
    more: int = 0,
    members: tuple[str, ...] = ("worker-3", "worker-1"),
    max_locks: int = 2_000,
    stalled_ms: int = 0,
) -> ShareWindow:
    end = runs[-1].last + 1 if runs else start
    return ShareWindow(
        "orders", 1, start, end, end + more, runs, members,
        max_locks=max_locks, limit=LIMIT, lock_ms=30_000, stalled_ms=stalled_ms,
    )  # fmt: skip


@st.composite
def windows(draw: st.DrawFn) -> ShareWindow:
    start = draw(st.integers(0, 2**40))
    at = start
    runs = []
    for _ in range(draw(st.integers(0, 40))):
        size = draw(st.integers(1, 200))
        state = draw(st.sampled_from([0, 1, 2, 3, 4, -1]))
        deliveries = draw(st.integers(0, 6))
        member = draw(st.integers(-1, 1)) if state == 1 else -1
        lock = draw(st.integers(0, 60_000)) if state == 1 else 0
        if draw(st.integers(0, 9)):  # else the run is missing: a hole
            runs.append(Run(at, at + size - 1, state, deliveries, member, lock))
        at += size
    return ShareWindow(
        "orders", 0, start, at, at, runs, ("a", "b"), max_locks=2_000, limit=LIMIT, lock_ms=30_000
    )


def slowly(window: ShareWindow, offset: int) -> State:
    for run in window.runs:
        if run.first <= offset <= run.last:
            return w.state_of(run, window.limit)
    return State.UNKNOWN


@given(windows(), st.integers(1, 300))
def test_case_50_columns_cover_every_offset_once_and_show_the_most_urgent(
    window: ShareWindow, width: int
) -> None:
    drawn = w.columns(window, width)
    size = window.end - window.start
    assert len(drawn) == min(width, size)
    covered = [offset for one in drawn for offset in (one.first, one.last)]
    assert covered == sorted(covered)
    assert sum(one.last - one.first + 1 for one in drawn) == size
    if drawn:
        assert (drawn[0].first, drawn[-1].last) == (window.start, window.end - 1)
    for one in drawn[:: max(1, len(drawn) // 10)]:
        assert one.state == min(slowly(window, at) for at in range(one.first, one.last + 1))


@given(windows())
def test_case_50_totals_equal_the_counts(window: ShareWindow) -> None:
    found = w.totals(window)
    assert sum(found.values()) == window.end - window.start
    held = sum(run.records for run in window.runs if run.state == w.ACQUIRED)
    assert sum(found.get(state, 0) for state in w.HELD) == held
    settled = sum(run.records for run in window.runs if run.state in (2, 3, 4))
    assert sum(found.get(state, 0) for state in w.SETTLED) == settled
    owned = sum(run.records for run in window.runs if run.state == 1 and run.member >= 0)
    assert sum(w.held_by(window).values()) == owned


def test_case_50_the_order_of_urgency() -> None:
    runs = [
        Run(0, 0, w.ACKNOWLEDGED),
        Run(1, 1, w.ARCHIVED),
        Run(2, 2, -1),
        Run(3, 3, w.AVAILABLE),
        Run(4, 4, w.AVAILABLE, 1),
        Run(5, 5, w.ACQUIRED, 1, 0, 20_000),
        Run(6, 6, w.ACQUIRED, LIMIT, 0, 20_000),
        Run(7, 7, w.ACQUIRED, 1, 0, 4_999),
    ]
    window = made(runs, start=0)
    assert w.strip(window, 8) == "▒x?·a█!▓"
    assert [one.state for one in w.columns(window, 1)] == [State.ENDING]
    assert [one.deliveries for one in w.columns(window, 2)] == [0, LIMIT]


def test_an_empty_window_has_no_columns() -> None:
    assert w.columns(made([]), 60) == ()
    assert w.totals(made([])) == {}


def test_runs_that_overlap_or_lie_outside_are_cut() -> None:
    window = ShareWindow("t", 0, 10, 20, 20, [Run(0, 12, 2), Run(11, 15, 1), Run(18, 99, 0)])
    assert [(one.first, one.last, one.state) for one in w.covered(window)] == [
        (10, 12, 2),
        (13, 15, 1),
        (16, 17, -1),
        (18, 19, 0),
    ]


def test_case_51_a_full_window_is_stalled_and_the_reason_names_member_and_offset() -> None:
    runs = [Run(980_020, 980_020, 1, 4, 0, 21_000), Run(980_021, 982_019, 2)]
    window = made(runs, start=980_020, more=7_380, stalled_ms=242_000)
    assert w.is_full(window)
    assert w.is_stalled(window)
    said = " ".join(w.why(window))
    assert "offset 980,020 is held by worker-3" in said
    assert "4 min 02 s" in said
    assert "1,999 settled records" in said
    assert "2,000" in said


def test_case_51_it_clears_by_itself() -> None:
    moving = made([Run(100, 199, 1, 1, 0, 20_000)], more=10, stalled_ms=10_000)
    assert not w.is_stalled(moving)
    assert w.why(moving) == ()
    stuck = made([Run(100, 199, 1, 1, 0, 20_000)], more=10, stalled_ms=60_001)
    assert w.is_stalled(stuck)
    done = made([], more=0, stalled_ms=600_000)
    assert not w.is_stalled(done)


def test_records_that_nobody_takes() -> None:
    window = made([Run(100, 109, 0, 1)], more=5, stalled_ms=120_000, members=())
    assert "available and nobody takes it" in " ".join(w.why(window))
    nothing = ShareWindow("t", 0, 5, 5, 9, [], stalled_ms=120_000, lock_ms=30_000)
    assert "start members" in " ".join(w.why(nothing))


def test_case_54_two_hundred_thousand_runs_are_drawn_in_bounded_columns() -> None:
    runs = [Run(at, at + 4, at // 5 % 3) for at in range(0, 10_000, 5)]
    window = ShareWindow("t", 0, 0, 1_000_000, 1_000_000, runs, limit=LIMIT, cut=True)
    drawn = w.columns(window, 240)
    assert len(drawn) == 240
    assert drawn[-1].state == State.UNKNOWN, "what was cut is not known"
    assert sum(w.totals(window).values()) == 1_000_000
