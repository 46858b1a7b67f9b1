"""The pipeline of the soak, as `ottla run` runs it, and ways to kill parts of it.

Four flows over one topic: a copy of the log, the work of a queue (share group), sums by windows of
time, and an archive of Parquet files. Whoever runs it starts it again when it is gone, as a service
manager does. `moments` is when something was killed or a flow failed: only batches that ran at one
of them may have been repeated.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ottla
from ottla.cli.run import DEFINITION, FLOW_FAILED
from tests.support.processes import descendants
from tests.support.spark_chaos import SOURCE

if TYPE_CHECKING:
    import random
    from typing import TextIO

NUMBERS, COPIED, WORKED, WINDOWS = "numbers", "copied", "worked", "windows"
GROUP: Final = "soak"
FLOWS: Final = ("copy", "work", "sums", "archive")
VICTIMS: Final = ("driver", "jvm", "source", "worker", "broker")
JVM: Final = b"pyspark-shell"
WORKERS: Final = (b"pyspark.daemon", b"pyspark.worker")
WINDOW_MS: Final = 10_000
PATIENCE: Final = 120.0
DIGITS: Final = 10

# A batch of a flow that has to catch up is bounded, so that its memory is.
PIPELINE: Final = f"""
from pyspark.sql import functions as f
from ottla.spark.pipelines import flow, source, table, topic

source("log", topic="{NUMBERS}")
source("queue", topic="{NUMBERS}", share_group="{GROUP}")
TEXT = "substring(value, 1, {DIGITS})"


def number():
    return f.expr(f"cast(cast({{TEXT}} as string) as long)").alias("n")


def limited(columns):
    return {{"columns": columns, "maxOffsetsPerTrigger": 400_000}}


@flow("copy", reads=["log"], writes=topic("{COPIED}", partitions=2), trigger="1s",
      read_options=limited("value"))
def copy(log):
    return log.select(f.expr(TEXT).alias("value"))


@flow("work", reads=["queue"], writes=topic("{WORKED}", partitions=2), trigger="1s",
      read_options=limited("value"))
def work(queue):
    return queue.select(f.expr(TEXT).alias("value"))


@flow("sums", reads=["log"], writes=topic("{WINDOWS}", key="start", partitions=2), mode="update",
      trigger="5s", read_options=limited("value,timestamp"))
def sums(log):
    rows = log.select(number(), "timestamp").withWatermark("timestamp", "10 minutes")
    window = f.window("timestamp", "{WINDOW_MS} milliseconds")
    found = rows.groupBy(window).agg(f.count("*").alias("records"), f.sum("n").alias("total"))
    return found.select(f.unix_millis("window.start").alias("start"), "records", "total")


@flow("archive", reads=["log"], writes=table("archive"), trigger="10s",
      read_options=limited("value"))
def archive(log):
    return log.select(number())
"""
# All batches stay in the checkpoints: they are what is compared in the end.
SETTINGS: Final = {
    "spark": {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.minBatchesToRetain": "1000000",
    }
}


class SoakPipeline:
    """`start`, then kills; `keep_running` looks after it in between."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.directory = directory
        self.state = directory / "state"
        self._file = directory / "soak.py"
        self._file.write_text(PIPELINE)
        self._file.with_suffix(".yaml").write_text(json.dumps(SETTINGS))
        self._bootstrap = bootstrap
        self._log = directory / "run.log"
        self.moments: list[tuple[float, float]] = []
        self.failures: list[str] = []
        self.starts = 0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "ottla.cli", "run", str(self._file), "--json"]
        command += ["--bootstrap", self._bootstrap, "--state", str(self.state)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": str(Path(ottla.__file__).parents[1])},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self.starts += 1
        threading.Thread(target=self._listen, args=[self._process.stdout], daemon=True).start()

    def _listen(self, lines: TextIO) -> None:
        with lines, (self.directory / "events.jsonl").open("a") as kept:
            for line in lines:
                now = time.time()
                kept.write(f"{now:.3f} {line}")
                kept.flush()
                if not line.endswith("\n"):  # its writer was killed on the way
                    continue
                event: dict[str, Any] = json.loads(line)
                if event.get("error"):
                    # The runner looks at its queries ten times in a second.
                    self.moments.append((now - 1, now))
                    self.failures.append(f"{event.get('flow', 'session')}: {event['error']}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def keep_running(self) -> None:
        """Start it again if it is gone, unless it says that it is no use."""
        assert self._process is not None
        status = self._process.poll()
        if status is not None:
            assert status not in (DEFINITION, FLOW_FAILED), self.log()[-3000:]
            self.start()

    def pids(self, kind: str) -> list[int]:
        """Its processes of a kind."""
        below = descendants(self.pid)
        if kind == "driver":
            return [self.pid]
        if kind == "jvm":
            return [pid for pid, command in below.items() if JVM in command]
        if kind == "source":
            return [pid for pid, command in below.items() if SOURCE in command]
        return [pid for pid, command in below.items() if any(name in command for name in WORKERS)]

    def kill(self, kind: str, chance: random.Random) -> None:
        """Kill -9 of one process, as soon as there is one; of a driver all of it has to go."""
        deadline = time.monotonic() + PATIENCE
        while not (found := self.pids(kind)):
            assert time.monotonic() < deadline, f"there is no {kind}: {self.log()[-3000:]}"
            self.keep_running()
            time.sleep(0.2)
        below = list(descendants(self.pid))
        before = time.time()
        with suppress(ProcessLookupError):
            os.kill(chance.choice(found), signal.SIGKILL)
        self.moments.append((before, time.time()))
        if kind == "driver":
            assert self._process is not None
            self._process.wait()
            while left := [pid for pid in below if Path(f"/proc/{pid}/cmdline").exists()]:
                assert time.monotonic() < deadline, f"still there after the driver: {left}"
                time.sleep(0.1)
            self.moments.append((before, time.time()))
            self.start()

    def stop(self) -> int:
        """As Ctrl-C does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(PATIENCE)

    def end(self) -> None:
        """Whatever happened, nothing stays."""
        if self._process is not None and self._process.poll() is None:
            for pid in [self.pid, *descendants(self.pid)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()

    def log(self) -> str:
        return self._log.read_text(errors="replace")
