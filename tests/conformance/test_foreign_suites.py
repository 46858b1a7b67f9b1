"""The broker tests of other clients, where a variable names a checkout of theirs.

`scripts/run_foreign_suites.py` runs them, and says which cannot pass.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "run_foreign_suites.py"


@pytest.mark.soak("each takes many minutes")
@pytest.mark.parametrize(
    ("suite", "variable"),
    [("franz-go", "OTTLA_TEST_FRANZ_GO"), ("librdkafka", "OTTLA_TEST_LIBRDKAFKA")],
)
def test_a_suite_of_others_passes(suite: str, variable: str) -> None:
    checkout = os.environ.get(variable)
    if checkout is None:
        pytest.skip(f"{variable} names no checkout of {suite}")
    done = subprocess.run([sys.executable, SCRIPT, suite, checkout], check=False)
    assert done.returncode == 0
