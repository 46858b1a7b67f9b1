"""What a long collection leaves is frozen, so that the next one does not look at it again."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from ottla.broker.running.garbage import FULL, MAX_PAUSE_SECONDS, Freezer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def _thawed() -> Iterator[None]:
    """What other tests have is not frozen for good."""
    yield
    gc.unfreeze()


@pytest.mark.parametrize(
    ("generation", "pause", "frozen"),
    [
        (FULL, 2 * MAX_PAUSE_SECONDS, 1),
        (FULL, MAX_PAUSE_SECONDS / 2, 0),
        (FULL - 1, 2 * MAX_PAUSE_SECONDS, 0),
    ],
)
def test_a_long_full_collection_freezes(generation: int, pause: float, frozen: int) -> None:
    times = iter([100.0, 100.0 + pause])
    calls: list[None] = []
    freezer = Freezer(lambda: next(times), lambda: calls.append(None))
    freezer("start", {"generation": generation})
    freezer("stop", {"generation": generation})
    assert len(calls) == frozen


@pytest.mark.usefixtures("_thawed")
def test_the_collector_does_not_look_again_at_what_stays() -> None:
    stays = [[number] for number in range(1_000)]
    times = iter([0.0, 2 * MAX_PAUSE_SECONDS])
    freezer = Freezer(lambda: next(times))
    gc.callbacks.append(freezer)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(freezer)
    looked_at = {id(one) for one in gc.get_objects()}
    assert not looked_at & {id(one) for one in stays}
