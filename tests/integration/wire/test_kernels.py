"""Compiled kernels between guard pages, and the wire room without numba, in fresh processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


PER_SEED = 2_000


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long("compiles all kernels with bounds checks")
def test_nothing_outside_the_buffers_is_touched(tmp_path: Path) -> None:
    # Bounds checks are compiled in here, so this process must not share a cache with others.
    done = _run(
        "-m",
        "tests.support.guard_pages",
        "guarded",
        str(PER_SEED),
        NUMBA_BOUNDSCHECK="1",
        NUMBA_CACHE_DIR=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{PER_SEED} decoded")


def test_the_guard_page_would_notice() -> None:
    assert _run("-m", "tests.support.guard_pages", "past-end").returncode == -signal.SIGSEGV


def test_the_wire_room_imports_without_numba() -> None:
    program = "import sys, ottla.wire, ottla.wire.batch; print({'numba', 'numpy'} & {*sys.modules})"
    assert _run("-c", program).stdout == "set()\n"
