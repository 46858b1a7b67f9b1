"""Topics live and die while workers stand anywhere: see `tests.simulation.lifecycle`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.simulation.lifecycle import Lifecycle
from tests.support.sizes import SOAK, examples

if TYPE_CHECKING:
    from collections.abc import Callable

TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(max_examples=examples(80), stateful_step_count=80 if SOAK else 40)


def live(*steps: Callable[[Lifecycle], None]) -> None:
    """Steps that the machine found to fail, in their order."""
    machine = Lifecycle()
    try:
        machine.start()
        for step in steps:
            step(machine)
    finally:
        machine.teardown()


def test_a_coordinators_topic_is_deleted_while_it_writes() -> None:
    """No error is logged: nobody waits for what was decided."""
    live(Lifecycle.commit, Lifecycle.delete_the_coordinators_topic)


def test_a_coordinators_topic_is_deleted_while_it_is_loaded() -> None:
    live(
        Lifecycle.commit,
        lambda machine: machine.stop_and_start(order=0),
        Lifecycle.delete_the_coordinators_topic,
    )


def test_a_broker_stops_while_a_coordinator_waits_for_its_predecessor_to_write() -> None:
    """The stop waits for that, too: nothing is appended to a log that is being closed."""
    live(
        Lifecycle.commit,
        Lifecycle.load_the_coordinator_anew,
        lambda machine: machine.stop_and_start(order=0),
    )


@pytest.mark.parametrize("calls", [0, 4, 10, 20])
def test_a_broker_stops_while_a_worker_compacts(calls: int) -> None:
    """Who waits for the worker is cancelled; the worker keeps its files until it is done."""

    def go_on(machine: Lifecycle) -> None:
        (job,) = [job for job in machine.world.jobs if "compaction" in job.kind]
        machine.let_go(which=machine.world.jobs.index(job), calls=calls)

    live(
        lambda machine: machine.create(name="a", compacts=True),
        lambda machine: machine.write(
            name="a", sizes=[5], key=0, later=2000, batches=3, waits=True
        ),
        Lifecycle.compact,
        go_on,
        lambda machine: machine.stop_and_start(order=0),
    )


def test_files_of_a_deleted_topic_are_removed_while_a_worker_compacts_it() -> None:
    """The worker finds no directory to write to, and nobody is told of a failure."""
    live(
        lambda machine: machine.create_again_while_it_is_compacted(
            name="a", calls=0, compacts=False
        ),
        lambda machine: machine.let_all_go(order=0),
    )
