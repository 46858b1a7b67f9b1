"""A driver to be killed: a query on a share group and one on the log, with counting sinks.

Run as a module it starts both, starts each again when it fails, and ends when a file named `stop`
appears in its directory. A batch is a file named by its number, with the offsets it held; a batch
that is run again has to hold the same, else there is a file `differs`. `ChaosDriver` starts the
program and kills it, or parts of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.spark.pipelines.errors import SessionLost
from tests.support.processes import descendants
from tests.support.spark import NO_PAUSE, session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

KINDS: Final = ("share", "plain")
SOURCE: Final = b"python_streaming_source_runner"
WORKER: Final = b"pyspark.worker"
MAX_STARTS: Final = 10  # without a batch in between


class ChaosDriver:
    """`start`, then one of the kills, as often as wanted."""

    def __init__(self, directory: Path, bootstrap: str, topic: str, group: str) -> None:
        self.directory = directory
        self._arguments = [str(directory), bootstrap, topic, group]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.directory / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.spark_chaos", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=Path(__file__).parents[2],
            )

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self, what: str) -> int:
        """Kill -9 of a worker, of the source processes, or of the driver; how many processes."""
        assert self._process is not None
        below = descendants(self._process.pid)
        if what == "driver":
            # The JVM and Python; the others find out by themselves.
            victims = [self._process.pid]
            victims += [pid for pid, command in below.items() if b"java" in command.split(b"\0")[0]]
        elif what == "source":
            victims = [pid for pid, command in below.items() if SOURCE in command]
        else:
            daemons = [pid for pid, command in below.items() if WORKER in command]
            victims = daemons[-1:]  # a fork of the daemon, if there is one
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if what == "driver":
            self._process.wait()
            self.start()
        return len(victims)

    def stop(self) -> int:
        (self.directory / "stop").touch()
        assert self._process is not None
        return self._process.wait(120)

    def end(self) -> None:
        """Whatever happened, nothing stays."""
        if self._process is not None and self._process.poll() is None:
            for pid in [*descendants(self._process.pid), self._process.pid]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()

    def batches(self, kind: str) -> dict[int, list[tuple[int, int]]]:
        """The offsets of each batch."""
        return {
            int(file.stem): [
                (partition, offset) for partition, offset in json.loads(file.read_text())
            ]
            for file in (self.directory / kind).glob("*.json")
        }

    def log(self) -> str:
        return (self.directory / "driver.log").read_text(errors="replace")


def counting(directory: Path) -> Callable[[DataFrame, int], None]:
    """A sink that keeps one file for each batch, however often it is written."""
    directory.mkdir(parents=True, exist_ok=True)

    def write(frame: DataFrame, number: int) -> None:
        rows = sorted((row.partition, row.offset) for row in frame.collect())
        file, text = directory / f"{number}.json", json.dumps(rows)
        if file.exists() and file.read_text() != text:
            (directory.parent / "differs").write_text(f"{file}: {text}")
        new = directory / f"{number}.new"
        new.write_text(text)
        new.rename(file)

    return write


def start(
    spark: SparkSession, kind: str, directory: Path, bootstrap: str, topic: str, group: str
) -> StreamingQuery:
    options = {"subscribe": topic, "columns": "partition,offset", "startingOffsets": "earliest"}
    if kind == "share":
        options["shareGroup"] = group
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    writer = reader.options(**options).load().writeStream.foreachBatch(counting(directory / kind))
    checkpoint = str(directory / f"{kind}.checkpoint")
    return writer.option("checkpointLocation", checkpoint).trigger(**NO_PAUSE).start()


def main(directory: Path, bootstrap: str, topic: str, group: str) -> None:
    while not (directory / "stop").exists():
        with suppress(SessionLost), session() as spark:
            run(spark, directory, bootstrap, topic, group)


def run(spark: SparkSession, directory: Path, bootstrap: str, topic: str, group: str) -> None:
    """Until it is told to stop, or queries fail again and again: then the session is at fault."""
    queries: dict[str, StreamingQuery] = {}
    starts, seen = 0, -1
    while not (directory / "stop").exists():
        if starts >= MAX_STARTS:
            raise SessionLost(f"{starts} queries in a row have failed")
        for kind in KINDS:
            if kind not in queries or not queries[kind].isActive:
                queries[kind] = start(spark, kind, directory, bootstrap, topic, group)
                starts += 1
        batches = sum(1 for _ in directory.glob("*/*.json"))
        if batches != seen:
            starts, seen = 0, batches
        time.sleep(0.1)
    for query in queries.values():
        query.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
