"""Decode programs between guard pages, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.long("a process with guarded memory for each value")
def test_case_29_nothing_outside_the_buffers_is_touched() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.schema_guard_pages", "guarded", "60"],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.startswith("60 rounds, ")
