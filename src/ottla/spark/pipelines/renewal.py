"""A run outlives its Spark session: when one is lost another is begun, after a pause.

The first session has to start: if it cannot, the user has to fix something. Later ones are retried,
since the cause (a JVM that ran out of memory, a Connect server that is being restarted) may take a
while to go away.
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
    """Run in as many sessions as it takes; whether all flows are well in the end.

    `tell` gets the event of a session, and the seconds until the next one.
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
