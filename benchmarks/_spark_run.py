"""How long `ottla run` takes to its first rows: a broker with samples, Java, Spark, one batch.

    python -m benchmarks._spark_run [--quick]

The first rows are there when the first batch that has some is committed. One run before warms up
what an environment has of caches, and waits for the archive of Spark's classes that it leaves.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks._harness import Row, Timing, report
from ottla.spark.class_archive import LISTS, cache_directory

QUICK: Final = "--quick" in sys.argv
ROUNDS: Final = 1 if QUICK else 3
ALLOWED_SECONDS: Final = 12.0
ARCHIVE_SECONDS: Final = 120.0
PIPELINE: Final = Path(__file__).parents[1] / "examples" / "orders.py"


def run_rows() -> list[Row]:
    _to_first_rows()
    _wait_for_archive()
    took = Timing(tuple(_to_first_rows() for _ in range(ROUNDS)))
    shares = [seconds / ALLOWED_SECONDS for seconds in took.seconds]
    return [
        Row(
            "ottla run examples/orders.py, to the first rows",
            f"{took.median:.1f} s",
            f"{ALLOWED_SECONDS:.0f} s allowed",
            took.median / ALLOWED_SECONDS,
            (min(shares), max(shares)),
            1.0,
            at_most=True,
        )
    ]


def _wait_for_archive() -> None:
    """The list of classes goes when the archive is made, or cannot be."""
    deadline = time.monotonic() + ARCHIVE_SECONDS
    time.sleep(1)  # until the process that makes it has begun
    while list(cache_directory().glob(f"*{LISTS}")) and time.monotonic() < deadline:
        time.sleep(0.5)


def _to_first_rows() -> float:
    command = [sys.executable, "-m", "ottla.cli", "run", str(PIPELINE), "--once", "--json"]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "progress" and event["rows"]:
                took = time.perf_counter() - began
                process.send_signal(signal.SIGINT)
                process.communicate()
                return took
    raise RuntimeError(f"it ended with status {process.returncode} before it had rows")


if __name__ == "__main__":
    report("spark: a pipeline", run_rows(), ("pyspark",))
