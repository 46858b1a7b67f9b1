"""Exactly once in SQLite. `make verify` runs this on each Python: `sqlite3` changed with 3.12."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("sqlite_transactions.py")


def test_rows_and_position_are_one_transaction() -> None:
    """In a process of its own, because the program forks."""
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("ok\n", "")
