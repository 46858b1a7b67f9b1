"""What declaring a pipeline imports, in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from ottla.spark.pipelines.load import load
from tests.support.three_flows import THREE_FLOWS

if TYPE_CHECKING:
    from pathlib import Path


def write(directory: Path, text: str, name: str = "p.py") -> Path:
    file = directory / name
    file.write_text(text)
    return file


def test_functions_stay_what_they_are(tmp_path: Path) -> None:
    file = write(tmp_path, THREE_FLOWS + "\nassert clean('x') == 'x'\nassert large.__name__\n")
    assert load(file)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_declaring_and_checking_needs_no_spark(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom ottla.spark.pipelines.load import load\n"
        "load(Path(sys.argv[1]))\nassert 'pyspark' not in sys.modules\n"
    )
    file = write(tmp_path, THREE_FLOWS)
    done = subprocess.run(
        [sys.executable, "-c", program, file], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
