"""How fast copies go beside the requests of clients."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.tier.store.pacing import (
    BUSY_REQUESTS,
    CATCH_UP,
    CEILING,
    FASTER,
    FLOOR,
    HOLD,
    LATE,
    STEP,
    CopyPace,
)

PIECE = 8 * 1024 * 1024
ON_TIME, TOO_LATE = 0.0, 2 * LATE


def busy_pace(*, waiting: int = 0) -> CopyPace:
    """At 1 second, of a broker that has served enough to be called busy."""
    pace = CopyPace(0.0)
    pace.look(1.0, requests=int(BUSY_REQUESTS), waiting=waiting)
    return pace


def test_nothing_holds_copies_of_an_idle_broker_back() -> None:
    pace = CopyPace(0.0)
    pace.look(1.0, requests=int(BUSY_REQUESTS) - 1, waiting=1 << 40)
    for now in (1.0, 1.1, 1.2):
        pace.woken(now, TOO_LATE)
        pace.record(PIECE, now)
        assert pace.delay(now) == 0
    assert pace.rate == inf


def test_a_busy_broker_copies_faster_while_its_loop_is_on_time() -> None:
    pace = busy_pace()
    assert pace.rate == FLOOR
    rates = []
    for step in range(1, 30):
        pace.woken(1.0 + step * STEP, ON_TIME)
        rates.append(pace.rate)
    assert rates[0] == FLOOR * FASTER
    assert rates == sorted(rates)
    assert rates[-1] == CEILING


def test_it_goes_half_as_fast_when_the_loop_is_late_once_for_one_reason() -> None:
    pace = busy_pace()
    pace.rate = CEILING
    pace.woken(2.0, TOO_LATE)
    pace.woken(2.0 + HOLD / 2, TOO_LATE)
    assert pace.rate == CEILING / 2
    pace.woken(2.0 + HOLD, TOO_LATE)
    assert pace.rate == CEILING / 4
    for number in range(20):
        pace.woken(3.0 + number, TOO_LATE)
    assert pace.rate == FLOOR


def test_a_backlog_is_copied_in_time_however_busy_the_broker_is() -> None:
    waiting = int(10 * FLOOR * CATCH_UP)
    pace = busy_pace(waiting=waiting)
    for number in range(20):
        pace.woken(2.0 + number, TOO_LATE)
    assert pace.rate == pytest.approx(waiting / CATCH_UP)
    pace.look(30.0, requests=10_000, waiting=2 * waiting)
    assert pace.rate == pytest.approx(2 * waiting / CATCH_UP)


def test_it_is_at_full_speed_again_once_the_clients_are_gone() -> None:
    pace = busy_pace()
    pace.record(PIECE, 1.0)
    assert pace.delay(1.0) == pytest.approx(PIECE / FLOOR)
    pace.look(1.5, requests=int(BUSY_REQUESTS) + 1, waiting=0)
    assert pace.delay(1.5) == 0


@given(
    st.lists(st.tuples(st.floats(0.001, 0.3), st.sampled_from([ON_TIME, TOO_LATE])), max_size=100)
)
def test_pieces_go_at_the_pace(wakings: list[tuple[float, float]]) -> None:
    """Offered as fast as they may go: never more than the rates allow, but for one piece."""
    pace = busy_pace()
    now, allowed, gone = 1.0, 0.0, 0
    for wait, late in wakings:
        assert FLOOR <= pace.rate <= CEILING
        fastest = pace.rate
        end = now + wait
        while (delay := pace.delay(now)) < end - now:
            now += delay
            pace.record(PIECE, now)
            gone += PIECE
        now = end
        allowed += wait * fastest
        pace.woken(now, late)
        assert gone <= allowed + PIECE + 1
