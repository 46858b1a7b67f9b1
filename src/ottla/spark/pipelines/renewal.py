"""Restarts a lost Spark session after a pause, so that a run outlives its sessions.

If the first session cannot start, the user has to fix something. Later sessions are retried,
because the cause (a JVM without memory, a Connect server that restarts) may go away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.spark.pipelines.errors import EnvironmentProblem, SessionLost

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ottla.spark.errors import SparkError
    from ottla.spark.pipelines.runner import Runner, Session


def run_in_sessions(
    runner: Runner,
    begin: Callable[[], AbstractContextManager[Session]],
    tell: Callable[[str, float], object],
) -> bool:
    """Run in as many sessions as needed; returns whether all flows ended well.

    `tell` is called with the event of a session and the seconds until the next one.
    """
    has_begun = False
    while True:
        said: SparkError
        try:
            with begin() as session:
                has_begun = True
                return runner.run(session)
        except SessionLost as lost:
            said = lost
        except EnvironmentProblem as problem:
            if not has_begun:
                raise
            said = problem
        pause = runner.pause_after_loss()
        if pause is None:
            raise EnvironmentProblem(f"Spark was lost again: {said}") from said
        tell(str(said), pause)
        if not runner.wait(pause):
            return runner.is_well
