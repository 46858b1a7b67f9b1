"""The seed of a run with faults: the same in each run, except in `make soak`."""

from __future__ import annotations

import os
import random
from typing import Final

from tests.support.faults_broker import soak

FIXED: Final = 20_261_116


def run_seed() -> int:
    """OTTLA_TEST_SEED if that is set, to repeat a run; printed, so that a failure shows it."""
    given = int(os.environ.get("OTTLA_TEST_SEED", "0"))
    seed = given or (random.randrange(1, 2**31) if soak() else FIXED)
    print(f"OTTLA_TEST_SEED={seed}")
    return seed
