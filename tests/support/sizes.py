"""How much a test tries: a part in `make test`, all in `make verify`, far more in `make soak`.

HYPOTHESIS_PROFILE says which, `quick` or `soak`; without it, as in a run by hand, everything is
tried. What a test leaves out in `make test` is tried by `make verify`, which runs all tests with
Hypothesis and those that are marked `sampled`.
"""

from __future__ import annotations

import os
from typing import Final

QUICK: Final = os.environ.get("HYPOTHESIS_PROFILE") == "quick"
SOAK: Final = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
EXAMPLES: Final = 100
"""Of a property for which nothing else is said: Hypothesis' own default."""
SOAK_EXAMPLES: Final = 20_000
PART: Final = 4
"""`make test` takes a quarter: the first examples of a property find most of what all find."""


def examples(count: int = EXAMPLES) -> int:
    """How many examples a property gets that is worth `count` of them."""
    if SOAK:
        return max(SOAK_EXAMPLES, count)
    return max(1, count // PART) if QUICK else count


def some(cases: range, turn: int) -> range:
    """Every `PART`th case in `make test`, else all; tests with different turns take others."""
    return cases[turn % PART :: PART] if QUICK else cases
