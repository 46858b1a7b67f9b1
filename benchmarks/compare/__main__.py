"""Two source trees side by side: processor time per record of streams and clients.

Every load runs in a process of its own, in turns old and new, so that a busy machine slows both.
What counts is the processor time of that process alone: the broker and Redis are other processes,
and both trees talk to the same ones. A ratio below 1 means that the new tree needs less.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks._harness import skipped
from benchmarks._ottla import OttlaProcess
from benchmarks.compare import loads

EXAMPLE: Final = """\
example:
  git worktree add /tmp/before bbc74a5
  python -m benchmarks.compare /tmp/before . --only=file
"""
PAIRS: Final = 9
PATIENCE: Final = 120.0  # seconds for one run, which takes a few
BROKER: Final = {"num.partitions": str(loads.PARTITIONS), "ottla.flush.mode": "os"}

FILE: Final = ("file_write", "file_read")
REDIS: Final = ("streams_redis_next", "streams_redis_rolling")
COUNTS: Final = {
    "file_write": 100_000,
    "file_read": 100_000,
    "streams_kafka": 50_000,
    "streams_redis_next": 20_000,
    "streams_redis_rolling": 20_000,
    "send_arrow": 1_000_000,
    "send_arrow_keyed": 1_000_000,
    "send_one_by_one": 2_000,
    "reader": 1_000_000,
    "consumer_arrow": 1_000_000,
    "consumer_records": 100_000,
    "share_arrow": 1_000_000,
    "share_records": 100_000,
}
FILLED: Final = 1_000_000  # records in the topic that the clients read


class Missing(Exception):
    """A tree does not have the names that a load uses."""


class Compared(NamedTuple):
    """Processor microseconds per record in each run."""

    old: list[float]
    new: list[float]

    def line(self, name: str) -> str:
        ratios = sorted(new / old for old, new in zip(self.old, self.new, strict=True))
        return (
            f"{name:22} {min(self.old):8.2f} {statistics.median(self.old):8.2f}"
            f" {min(self.new):9.2f} {statistics.median(self.new):8.2f}"
            f" {min(self.new) / min(self.old):8.2f}x"
            f" {statistics.median(ratios):7.2f}x  {ratios[0]:.2f}-{ratios[-1]:.2f}"
        )


HEAD: Final = (
    f"{'us CPU per record':22} {'old min':>8} {'median':>8} {'new min':>9} {'median':>8}"
    f" {'of mins':>9} {'median':>8}  range"
)


def main() -> None:
    given = _arguments()
    names = [name for name in loads.LOADS if given.only in name]
    if not names:
        sys.exit(f"no load has {given.only!r} in its name; there are {', '.join(loads.LOADS)}")
    print(HEAD, flush=True)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="compare-")))
        addresses = _addresses(names, directory, given.new, stack)
        for name in names:
            if name not in addresses:
                continue
            try:
                found = _compare(name, addresses[name], given.old, given.new, given.pairs)
            except Missing as missing:
                skipped(name, str(missing))
            else:
                print(found.line(name), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.compare",
        description="Compare the processor time per record of two source trees, run in turns.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("old", type=Path, help="source tree to compare with")
    parser.add_argument("new", type=Path, help="source tree to measure; it also runs the broker")
    parser.add_argument(
        "--pairs", type=int, default=PAIRS, help=f"runs of each tree (default: {PAIRS})"
    )
    parser.add_argument(
        "--only",
        metavar="TEXT",
        default="",
        help=f"run only loads with this in their name: {', '.join(loads.LOADS)}",
    )
    found = parser.parse_args()
    for tree in (found.old, found.new):
        if not (tree / "src" / "ottla").is_dir():
            parser.error(f"{tree} has no src/ottla; give the root of a checkout")
    if found.pairs < 1:
        parser.error(f"--pairs is {found.pairs}; use 1 or more")
    return found


def _addresses(names: list[str], directory: Path, tree: Path, stack: ExitStack) -> dict[str, str]:
    """Where each load finds what it reads, made and started only for the loads that run."""
    found: dict[str, str] = {}
    if any(name in FILE for name in names):
        path = directory / "bench.ss"
        asyncio.run(_fill(f"file://{path}", "bench", COUNTS["file_read"]))
        found |= dict.fromkeys(FILE, str(path))
    if any(name in REDIS for name in names):
        from tests.services import ServerMissing, running_redis

        try:
            server = stack.enter_context(running_redis())
        except ServerMissing as missing:
            skipped("Redis", str(missing))
        else:
            asyncio.run(_fill(server.url, loads.TOPIC, COUNTS["streams_redis_next"]))
            found |= dict.fromkeys(REDIS, server.url)
    rest = [name for name in names if name not in (*FILE, *REDIS)]
    if rest:
        os.environ["PYTHONPATH"] = str(tree.absolute() / "src")  # of the broker's process
        broker = stack.enter_context(OttlaProcess(BROKER))
        asyncio.run(_fill_topic(broker.bootstrap))
        found |= dict.fromkeys(rest, broker.bootstrap)
    return found


async def _fill(url: str, stream: str, count: int) -> None:
    from ottla.streams import ConnectOptions, Create, FileOptions, connect

    options = ConnectOptions(file=FileOptions(create=Create.IF_MISSING))
    async with connect(url, options) as streamer, streamer.producer(stream) as producer:
        for _ in range(count):
            await producer.send(b"x" * loads.SIZE)
        await producer.flush()


async def _fill_topic(bootstrap: str) -> None:
    import pyarrow as pa

    from ottla import Admin, Producer

    keys = [b"key-%04d" % (number % loads.KEYS) for number in range(FILLED)]
    table = pa.table(
        {"key": pa.array(keys, pa.binary()), "value": pa.array([loads.VALUE] * FILLED, pa.binary())}
    )
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topic(loads.TOPIC, partitions=loads.PARTITIONS)
        await producer.send_arrow(loads.TOPIC, table)


def _compare(name: str, address: str, old: Path, new: Path, pairs: int) -> Compared:
    found = Compared([], [])
    for turn in range(pairs):
        for tree, into in ((old, found.old), (new, found.new))[:: -1 if turn % 2 else 1]:
            into.append(_run(name, address, tree) / COUNTS[name] * 1e6)
    return found


def _run(name: str, address: str, tree: Path) -> float:
    """Processor seconds of one run."""
    command = [sys.executable, loads.__file__, name, address, str(COUNTS[name])]
    environment = {**os.environ, "PYTHONPATH": str(tree.absolute() / "src")}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        if "ImportError" in last:
            raise Missing(f"{tree} does not have it: {last}")
        sys.exit(f"{name} failed with {tree}: {last}\n{done.stderr}")
    return float(done.stdout)


if __name__ == "__main__":
    main()
