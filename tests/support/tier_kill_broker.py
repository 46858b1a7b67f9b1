"""A broker that kills itself before a named step of its first copy.

The step is in the environment, as TIER_KILL_BEFORE; without it the broker lives on.
"""

from __future__ import annotations

import os
import signal
import sys

from ottla.tier.upkeep.copier import CopyStep, SegmentCopy
from tests.support import faults_broker

KILL_BEFORE = "TIER_KILL_BEFORE"


def main(data_dir: str, *sets: str) -> None:
    step = SegmentCopy.step

    async def step_or_die(copy: SegmentCopy) -> None:
        if copy.next is CopyStep[os.environ[KILL_BEFORE]]:
            os.kill(os.getpid(), signal.SIGKILL)
        await step(copy)

    if KILL_BEFORE in os.environ:
        setattr(SegmentCopy, "step", step_or_die)  # noqa: B010  # a type checker sees no method
    faults_broker.main(data_dir, *sets)


if __name__ == "__main__":
    main(*sys.argv[1:])
