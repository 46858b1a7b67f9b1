"""When answers to failed authentications leave: the time tells nothing about the check."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.access.refusals import LEAST_SECONDS, MAX_HELD, Refusals
from ottla.security import mechanisms
from ottla.security.mechanisms import Verifiers, password_step
from ottla.security.scram import MIN_ITERATIONS, SHA_256, make_credential
from ottla.security.steps import Failure, Success, Work

if TYPE_CHECKING:
    from ottla.security.scram import ScramCredential
    from ottla.security.steps import Step

DELAY = 0.1
CREDENTIALS = {
    name: make_credential(SHA_256, "secret", name.encode().ljust(24), MIN_ITERATIONS)
    for name in ("back", "new")
}


class Clock:
    now = 1_000.0


def test_case_26_all_failures_leave_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with a verifier, one without, and none: the password of one of them is hashed."""
    clock = Clock()
    hashed = []

    def is_password(credential: ScramCredential, password: str) -> bool:
        hashed.append(credential)
        clock.now += 0.007
        return False

    monkeypatch.setattr(mechanisms, "is_password", is_password)
    refusals, verifiers = Refusals(), Verifiers(b"key")
    verifiers.keep("back", CREDENTIALS["back"], "secret")
    for name in ("back", "new", "nobody"):
        arrived = clock.now
        step: Step = password_step(name, "wrong", CREDENTIALS.get, verifiers)
        attempt, _ = refusals.arrived("10.0.0.7", DELAY, clock.now)
        if isinstance(step, Work):
            step = step.finish()
        assert isinstance(step, Failure)
        assert attempt.leaves_at(clock.now) == pytest.approx(arrived + DELAY)
        clock.now += 60
    assert hashed == [CREDENTIALS["new"]]
    assert password_step("back", "secret", CREDENTIALS.get, verifiers) == Success("back")


@given(
    st.lists(
        st.tuples(st.floats(0, 0.05), st.floats(0, 2 * DELAY, exclude_max=True)),
        min_size=1,
        max_size=30,
    )
)
def test_case_26_delays_do_not_depend_on_the_order_in_which_checks_end(
    attempts: list[tuple[float, float]],
) -> None:
    """Fault: of two attempts at once the one whose check ended first got the shorter delay."""

    def delays(takes: list[float]) -> list[float]:
        refusals, now, found, ends = Refusals(), 0.0, [], []
        for (pause, _), taken in zip(attempts, takes, strict=True):
            now += pause
            attempt, _ = refusals.arrived("10.0.0.7", DELAY, now)
            found.append(attempt)
            ends.append((now + taken, attempt))
        for _, attempt in sorted(ends, key=lambda end: end[0]):
            refusals.left(attempt)
        return [attempt.delay for attempt in found]

    assert delays([taken for _, taken in attempts]) == delays([0.0] * len(attempts))


@pytest.mark.parametrize(
    ("taken", "delays"), [(0.0, 1), (0.0999, 1), (0.1001, 2), (0.1999, 2), (0.95, 10)]
)
def test_a_check_that_takes_longer_moves_its_answer_by_whole_delays(
    taken: float, delays: int
) -> None:
    attempt, _ = Refusals().arrived("10.0.0.7", DELAY, 5.0)
    assert attempt.leaves_at(5.0 + taken) == pytest.approx(5.0 + delays * DELAY)


def test_a_delay_of_nothing_is_long_enough_for_a_check() -> None:
    refusals = Refusals()
    for _ in range(30):  # an address with many failures, too
        attempt, _ = refusals.arrived("10.0.0.7", 0.0, 5.0)
        assert attempt.leaves_at(5.0) == 5.0 + LEAST_SECONDS


def test_attempts_count_until_one_succeeds() -> None:
    refusals = Refusals()
    found = [refusals.arrived("10.0.0.7", DELAY, 5.0)[0].delay for _ in range(12)]
    assert found == [DELAY] * 10 + [2 * DELAY, 4 * DELAY]
    refusals.succeeded("10.0.0.7")
    assert refusals.arrived("10.0.0.7", DELAY, 5.0)[0].delay == DELAY


def test_the_first_to_come_is_dropped_when_too_many_wait() -> None:
    refusals = Refusals()
    held = [refusals.arrived(f"host-{number}", DELAY, 5.0)[0] for number in range(MAX_HELD)]
    refusals.left(held[0])  # it is answered
    assert refusals.arrived("one more", DELAY, 5.0)[1] is None
    assert not any(attempt.is_dropped for attempt in held)
    assert refusals.arrived("and one", DELAY, 5.0)[1] is held[1]
    assert [attempt for attempt in held if attempt.is_dropped] == [held[1]]
    assert len(refusals) == MAX_HELD
    refusals.left(held[1])
    assert len(refusals) == MAX_HELD
