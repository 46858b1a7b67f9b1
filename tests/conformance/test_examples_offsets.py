"""The example of docs/how-to/offsets.md runs, and does what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_exactly_once_into_sqlite() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "examples" / "exactly_once_sqlite.py"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    payments, result = ran.stdout.splitlines()
    assert payments.startswith("3000 payments, ")
    assert int(payments.split()[2]) > 0, "no worker has died, so nothing was shown"
    assert result == "each payment counted exactly once"


def test_the_documentation_shows_the_example() -> None:
    page = (ROOT / "docs" / "how-to" / "offsets.md").read_text()
    example = (ROOT / "examples" / "exactly_once_sqlite.py").read_text()
    assert example in page
