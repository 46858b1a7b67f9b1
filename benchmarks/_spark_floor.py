"""The floor of a micro-batch: how long Spark takes for a batch of a record or so.

    python -m benchmarks._spark_floor KIND [--quick]      prints the seconds of each batch as JSON

Each kind has a process, a broker and a session of its own: `ottla` is our format in our session
profile, `stock` our format in a session with Spark's defaults, `kafka` Spark's format in our
profile. The time is the one that Spark gives itself for each batch. They take turns, twice.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Final

from benchmarks._harness import Row, Timing, skipped
from benchmarks._ottla import OttlaProcess
from ottla import Admin, Producer
from tests.support.jvm import NoJvm
from tests.support.spark import connector_jars, session

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

QUICK: Final = "--quick" in sys.argv
BATCHES: Final = 30 if QUICK else 60
TURNS: Final = 1 if QUICK else 2
PATIENCE: Final = 180.0
# kind: what the row calls it, how much faster than it we must be
PEERS: Final = {
    "stock": ("stock session", 2.5),
    "kafka": ("kafka format, our profile", 1.0),
}


def floor_rows() -> list[Row]:
    peers = dict(PEERS)
    jars = connector_jars()
    if isinstance(jars, NoJvm):
        skipped("micro-batch floor, kafka format", str(jars))
        del peers["kafka"]
    found: dict[str, list[float]] = {kind: [] for kind in ("ottla", *peers)}
    for _ in range(TURNS):
        for kind in found:
            found[kind] += _measured(kind)
    ours = Timing(tuple(found["ottla"]))
    return [
        _row(f"micro-batch floor, peer {what}", ours, Timing(tuple(found[kind])), target)
        for kind, (what, target) in peers.items()
    ]


def _measured(kind: str) -> list[float]:
    command = [sys.executable, "-m", "benchmarks._spark_floor", kind]
    said = subprocess.run(
        [*command, "--quick"] if QUICK else command,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=2 * PATIENCE,
    )
    times: list[float] = json.loads(said.stdout.splitlines()[-1])
    return times


def _row(what: str, ours: Timing, peer: Timing, target: float) -> Row:
    # On a busy machine the least says more about the work, the median about the neighbours.
    shown = [
        f"{one.median * 1000:.0f} ms, least {min(one.seconds) * 1000:.0f}" for one in (ours, peer)
    ]
    least = min(peer.seconds) / min(ours.seconds)
    ratio = peer.median / ours.median
    return Row(what, shown[0], shown[1], ratio, (min(least, ratio), max(least, ratio)), target)


def floor_of(kind: str) -> list[float]:
    """Seconds Spark gives for each batch, those of the warm-up left out."""
    name = "kafka" if kind == "kafka" else "ottla"
    with (
        OttlaProcess({"ottla.flush.mode": "os"}) as broker,
        session(stock=kind == "stock") as spark,
        tempfile.TemporaryDirectory() as checkpoint,
    ):
        asyncio.run(_create(broker.bootstrap))
        stop = threading.Event()
        feeder = threading.Thread(target=lambda: asyncio.run(_feed(broker.bootstrap, stop)))
        feeder.start()
        try:
            reader = spark.readStream.format(name).option("subscribe", "tiny")
            frame = reader.option("kafka.bootstrap.servers", broker.bootstrap).load()
            writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writer.start()
            _wait(query)
            times = [
                one["durationMs"]["triggerExecution"] / 1000
                for one in query.recentProgress
                if one["numInputRows"] and one["batchId"] >= BATCHES // 3
            ]
            query.stop()
        finally:
            stop.set()
            feeder.join()
    return times


def _wait(query: StreamingQuery) -> None:
    deadline = time.monotonic() + PATIENCE
    while query.lastProgress is None or query.lastProgress["batchId"] < BATCHES:
        if not query.isActive or time.monotonic() > deadline:
            raise TimeoutError(f"no {BATCHES} batches in {PATIENCE:.0f} s: {query.exception()}")
        time.sleep(0.2)


async def _create(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic("tiny")


async def _feed(bootstrap: str, stop: threading.Event) -> None:
    async with Producer(bootstrap) as producer:
        while not stop.is_set():
            await producer.send("tiny", b"x")
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    print(json.dumps(floor_of(sys.argv[1])))
