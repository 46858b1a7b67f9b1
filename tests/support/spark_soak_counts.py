"""What went in and what came out of the soak: counts by number, as columns.

A number is a place in an array, so that tens of millions of them are compared in a few seconds. The
checkpoints, which keep all batches, say which offsets each batch had and when it ran.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from ottla.client.reader.reader import Reader
from ottla.spark.offsets import batch_start, from_json
from tests.support.spark_soak import NUMBERS, WINDOW_MS, WINDOWS
from tests.support.spark_soak_load import decoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

Ranges = list[tuple[int, int, int]]  # partition, first, end


class Input(NamedTuple):
    """The topic as it is: numbers by partition and offset, and how often each is there."""

    partitions: dict[int, np.ndarray]
    counts: np.ndarray
    windows: dict[int, tuple[int, int]]


class Batch(NamedTuple):
    """One batch of a flow, from its first plan to its commit."""

    number: int
    began: float
    ended: float
    ranges: Ranges

    def ran_at(self, moments: Iterable[tuple[float, float]]) -> bool:
        return any(first <= self.ended and self.began <= last for first, last in moments)


def arrow_batches(bootstrap: str, topic: str, columns: Sequence[str]) -> list[pa.RecordBatch]:
    """Columns of all of a topic."""

    async def read() -> list[pa.RecordBatch]:
        async with Reader(bootstrap, topic, stop="latest", columns=columns) as reader:
            return [batch async for batch in reader]

    return asyncio.run(read())


def read_input(bootstrap: str, total: int) -> Input:
    found: dict[int, list[np.ndarray]] = {}
    counts = np.zeros(total, np.uint8)
    windows: dict[int, list[int]] = {}

    async def read() -> None:
        columns = ["value", "partition", "offset", "timestamp"]
        async with Reader(bootstrap, NUMBERS, stop="latest", columns=columns) as reader:
            async for batch in reader:
                numbers = decoded(batch["value"])
                some = found.setdefault(batch["partition"][0].as_py(), [])
                assert batch["offset"][0].as_py() == sum(map(len, some)), "a gap in the log"
                some.append(numbers)
                np.add.at(counts, numbers, 1)
                add_windows(windows, batch["timestamp"].cast("int64").to_numpy(), numbers)

    asyncio.run(read())
    return Input(
        {partition: np.concatenate(some) for partition, some in found.items()},
        counts,
        {start: (records, total) for start, (records, total) in windows.items()},
    )


def add_windows(windows: dict[int, list[int]], micros: np.ndarray, numbers: np.ndarray) -> None:
    """Records and their sum by window; the records of a batch fall into a few of them."""
    starts = micros // (WINDOW_MS * 1000) * WINDOW_MS
    for start in np.unique(starts).tolist():
        chosen = numbers[starts == start]
        one = windows.setdefault(start, [0, 0])
        one[0] += len(chosen)
        one[1] += int(chosen.sum())


def topic_counts(bootstrap: str, topic: str, total: int) -> np.ndarray:
    """How often each number is in a topic."""
    counts = np.zeros(total, np.uint8)

    async def read() -> None:
        async with Reader(bootstrap, topic, stop="latest", columns=["value"]) as reader:
            async for batch in reader:
                np.add.at(counts, decoded(batch["value"]), 1)

    asyncio.run(read())
    return counts


def last_windows(bootstrap: str) -> dict[int, tuple[int, int]]:
    """What was said last of each window: records and their sum."""
    found: dict[int, tuple[int, int]] = {}
    for batch in arrow_batches(bootstrap, WINDOWS, ["value"]):
        for value in batch["value"].to_pylist():
            row = json.loads(value)
            found[row["start"]] = (row["records"], row["total"])
    return found


def table_counts(table: Path, total: int) -> tuple[np.ndarray, int, int]:
    """How often each number is in the files of a table, how many there are, and how many others.

    Spark's sink lists the files of each batch, in lists of its own; what a batch that was not
    finished has left behind is in no list.
    """
    counts = np.zeros(total, np.uint8)
    listed = set(_listed(table / "_spark_metadata"))
    for name in sorted(listed):
        np.add.at(counts, pq.read_table(table / name, columns=["n"])["n"].to_numpy(), 1)
    return counts, len(listed), sum(1 for one in table.glob("*.parquet") if one.name not in listed)


def _listed(log: Path) -> Iterator[str]:
    """The newest compacted list, and what came after it."""
    numbers = {int(one.name.split(".")[0]) for one in log.iterdir() if one.name[0].isdigit()}
    compacted = [number for number in numbers if (log / f"{number}.compact").exists()]
    first = max(compacted, default=0)
    for number in sorted(one for one in numbers if one >= first):
        file = log / (f"{number}.compact" if number in compacted else str(number))
        for line in file.read_text().splitlines()[1:]:
            yield json.loads(line)["path"].rpartition("/")[2]


def batches_of(checkpoint: Path) -> list[Batch]:
    """All batches that were committed."""
    found: list[Batch] = []
    before: dict[str, Any] = {}
    for number in sorted(int(one.name) for one in (checkpoint / "commits").glob("[0-9]*")):
        planned, done = checkpoint / "offsets" / str(number), checkpoint / "commits" / str(number)
        end = json.loads(planned.read_text().splitlines()[-1])
        began, ended = planned.stat().st_mtime, done.stat().st_mtime
        found.append(Batch(number, began, ended, _ranges(before, end)))
        before = end
    assert [one.number for one in found] == list(range(len(found))), "a batch is missing"
    return found


def _ranges(start: dict[str, Any], end: dict[str, Any]) -> Ranges:
    if "ranges" in end:  # of a queue
        return [
            (int(partition), one[0], one[1] + 1)
            for partition, some in end["ranges"].get(NUMBERS, {}).items()
            for one in some
        ]
    first = batch_start(start, end)
    return [(place.partition, first.get(place, 0), last) for place, last in from_json(end).items()]


def position_counts(source: Input, batches: Iterable[Batch]) -> np.ndarray:
    """In how many of these batches each number was, by what was planned."""
    counts = np.zeros(len(source.counts), np.uint8)
    for batch in batches:
        for partition, first, end in batch.ranges:
            np.add.at(counts, source.partitions[partition][first:end], 1)
    return counts
