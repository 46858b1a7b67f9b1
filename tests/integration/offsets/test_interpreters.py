"""Exactly once in SQLite on each Python that is supported: its `sqlite3` changed with 3.12."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ottla

PROGRAM = Path(__file__).with_name("sqlite_on_any_python.py")
VERSIONS = ["3.11", "3.12", "3.13", *(["3.14"] if shutil.which("python3.14") else [])]
SOURCES = Path(ottla.__file__).parents[1]


def interpreter(version: str) -> str | None:
    """One that runs; pyenv's shims are there for versions that are not chosen, and fail."""
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for found in (shutil.which(f"python{version}"), *map(str, reversed(installed))):
        if (
            found
            and subprocess.run([found, "-V"], capture_output=True, check=False).returncode == 0
        ):
            return found
    return None


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_and_position_are_one_transaction(version: str) -> None:
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        python: str | None = sys.executable
    else:
        python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    done = subprocess.run(
        [python, str(PROGRAM)],
        env={**os.environ, "PYTHONPATH": str(SOURCES), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"ok {version.replace('.', ' ')}\n", done.stderr
