"""The lock on a log directory ends with the process that holds it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from ottla.log.directory import (
    DataDirectory,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_the_lock_ends_with_its_holder(tmp_path: Path) -> None:
    script = "import sys, pathlib; from ottla.log.directory import DataDirectory\n"
    script += "DataDirectory(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
    DataDirectory(tmp_path).close()
    DataDirectory(tmp_path).close()
