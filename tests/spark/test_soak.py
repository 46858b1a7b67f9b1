"""An hour of four flows under a steady load, with something killed every two minutes.

`OTTLA_SOAK_MINUTES` and `OTTLA_SOAK_KILL_SECONDS` make it shorter, `OTTLA_TEST_SEED` repeats a
choice of kills. On disk it takes about 90 bytes for each record, 6 GB in an hour: nothing is
deleted on the way, since a flow that lags must lose nothing, and there has to be twice that much
room.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from ottla.client.admin.admin import Admin
from ottla.spark.offsets import from_json
from ottla.spark.pipelines.checkpoints import read_checkpoint
from tests.support.faults_broker import BrokerProcess
from tests.support.processes import watching
from tests.support.spark_share import lags
from tests.support.spark_soak import (
    COPIED,
    FLOWS,
    GROUP,
    NUMBERS,
    VICTIMS,
    WORKED,
    SoakPipeline,
)
from tests.support.spark_soak_counts import (
    Batch,
    Input,
    batches_of,
    last_windows,
    position_counts,
    read_input,
    table_counts,
    topic_counts,
)
from tests.support.spark_soak_load import PARTITIONS, Load
from tests.support.spark_soak_memory import Memory

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.soak("takes an hour")

MINUTES: Final = float(os.environ.get("OTTLA_SOAK_MINUTES", "60"))
KILL_SECONDS: Final = float(os.environ.get("OTTLA_SOAK_KILL_SECONDS", "120"))
RATE: Final = 20_000  # records a second
BYTES_ON_DISK: Final = 200  # for each record: twice what it takes
MAX_DOWN_SECONDS: Final = 10.0  # a broker
LOOK_SECONDS: Final = 3.0
MB: Final = 1_000_000
SOURCE_LIMIT: Final = 200 * MB
SOURCE_GROWTH: Final = 16 * MB
DRAIN_PATIENCE: Final = 3600.0
BROKER_CONFIG: Final = {
    # A broker that was killed reads again what it had not flushed: the open segments.
    "log.segment.bytes": str(64 * 1024 * 1024),
    "group.share.max.partition.max.record.locks": "1000000",
}
GROUP_CONFIG: Final = {
    "share.auto.offset.reset": "earliest",
    "share.partition.max.record.locks": "100000",
    "share.session.grace.ms": "30000",
}


# What it checks is a promise of our own: one failure is the finding.
@pytest.mark.flaky(reruns=0)
def test_case_56_four_flows_for_an_hour(tmp_path: Path) -> None:
    seed = int(os.environ.get("OTTLA_TEST_SEED", "0")) or random.randrange(1, 2**32)
    say(f"OTTLA_TEST_SEED={seed}, {MINUTES:g} minutes, {RATE:,} records a second")
    chance = random.Random(seed)
    needed = int(MINUTES * 60 * RATE * BYTES_ON_DISK)
    free = shutil.disk_usage(tmp_path).free
    assert free > needed, f"{needed / 1e9:.0f} GB of disk are needed and {free / 1e9:.0f} are free"
    with BrokerProcess(tmp_path, config=BROKER_CONFIG) as broker:
        asyncio.run(prepare(broker.bootstrap))
        pipeline = SoakPipeline(tmp_path, broker.bootstrap)
        load = Load(broker.bootstrap, RATE)
        memory = Memory(pipeline, lambda: broker.process.pid if broker.alive else 0)
        try:
            pipeline.start()
            load.start()
            with watching(memory.look, LOOK_SECONDS):
                killed = kill_now_and_then(pipeline, broker, load, chance)
                load.stop()
                drained = drain(pipeline, broker.bootstrap)
            assert pipeline.stop() == 0, pipeline.log()[-3000:]
        finally:
            pipeline.end()
        say(
            f"{load.sent:,} records in {load.seconds:.0f} s: {load.sent / load.seconds:,.0f} a "
            f"second, the longest send {load.longest:.1f} s; drained {drained:.0f} s later; "
            f"{sum(killed.values())} kills: {dict(killed)}; {pipeline.starts} starts of the "
            f"driver, {len(pipeline.failures)} failures of flows and sessions"
        )
        for failure, times in Counter(pipeline.failures).most_common():
            say(f"failed {times} times: {failure}")
        is_flat = tell_memory(memory)
        compare(pipeline, broker.bootstrap, load.sent)
    assert is_flat


def say(text: str) -> None:
    """Whoever watches an hour wants to see it go on."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


async def prepare(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(NUMBERS, partitions=PARTITIONS)
        await admin.alter_configs("group", GROUP, GROUP_CONFIG)


def kill_now_and_then(
    pipeline: SoakPipeline, broker: BrokerProcess, load: Load, chance: random.Random
) -> Counter[str]:
    """Until the time is up; each kind in turn, in another order each time."""
    ends = time.monotonic() + MINUTES * 60
    killed: Counter[str] = Counter()
    victims: list[str] = []
    while True:
        due = time.monotonic() + KILL_SECONDS * chance.uniform(0.75, 1.25)
        while time.monotonic() < min(due, ends):
            pipeline.keep_running()
            assert load.error is None, load.error
            time.sleep(0.5)
        if time.monotonic() >= ends:
            return killed
        if not victims:
            victims = chance.sample(VICTIMS, len(VICTIMS))
        victim = victims.pop()
        if victim == "broker":
            kill_broker(pipeline, broker, chance.uniform(0, MAX_DOWN_SECONDS))
        else:
            pipeline.kill(victim, chance)
        killed[victim] += 1
        say(f"killed: {victim}; {load.sent:,} records sent")


def kill_broker(pipeline: SoakPipeline, broker: BrokerProcess, down: float) -> None:
    before = time.time()
    broker.kill()
    time.sleep(down)
    broker.start()
    pipeline.moments.append((before, time.time()))


def drain(pipeline: SoakPipeline, bootstrap: str) -> float:
    """Until all flows have done everything; how many seconds that took."""
    began = time.monotonic()
    ends = asyncio.run(log_ends(bootstrap))

    def is_done(flow: str) -> bool:
        if flow == "work":
            return set(lags(bootstrap, GROUP).values()) == {0}
        found = read_checkpoint(pipeline.state / "checkpoints" / flow)
        return (
            bool(found.offsets)
            and {place.partition: offset for place, offset in from_json(found.offsets[0]).items()}
            == ends
        )

    while not all(is_done(flow) for flow in FLOWS):
        assert time.monotonic() < began + DRAIN_PATIENCE, pipeline.log()[-3000:]
        pipeline.keep_running()
        time.sleep(1)
    return time.monotonic() - began


async def log_ends(bootstrap: str) -> dict[int, int]:
    async with Admin(bootstrap) as admin:
        found = await admin.list_offsets([NUMBERS], "latest")
        return {place.partition: one.offset for place, one in found.items()}


def tell_memory(memory: Memory) -> bool:
    """Whether source processes stayed small, and as they were."""
    for kind in memory.samples:
        first, last = memory.thirds(kind)
        say(
            f"memory of a {kind}: {first / MB:.0f} MB in the first third, {last / MB:.0f} MB in "
            f"the last, {memory.peaks[kind] / MB:.0f} MB at most "
            f"({len(memory.samples[kind]):,} samples)"
        )
    first, last = memory.thirds("source")
    return memory.peaks["source"] < SOURCE_LIMIT and last <= first + SOURCE_GROWTH


def compare(pipeline: SoakPipeline, bootstrap: str, total: int) -> None:
    """All flows with what went in; every line is printed before the first of them can fail."""
    source = read_input(bootstrap, total)
    say(f"input: {total:,} records, {lost(source.counts):,} lost, {more(source.counts):,} twice")
    found = {
        "copy": topic_counts(bootstrap, COPIED, total),
        "work": topic_counts(bootstrap, WORKED, total),
    }
    wrong = [] if (source.counts == 1).all() else ["input"]
    for flow, counts in found.items():
        batches = batches_of(pipeline.state / "checkpoints" / flow)
        wrong += [flow] * (not tell_topic(flow, counts, source, batches, pipeline))
    archived, files, others = table_counts(pipeline.state / "tables" / "archive", total)
    say(
        f"archive: {int(archived.sum()):,} records in {files:,} files, {lost(archived):,} lost, "
        f"{more(archived):,} twice; {others} files of batches that were not finished"
    )
    wrong += ["archive"] * (not (archived == 1).all())
    windows = last_windows(bootstrap)
    differ = {
        one for one in windows | source.windows if windows.get(one) != source.windows.get(one)
    }
    say(
        f"sums: {len(windows):,} windows of {sum(records for records, _ in windows.values()):,} "
        f"records, {len(differ)} differ"
    )
    wrong += ["sums"] * bool(differ)
    assert not wrong


def tell_topic(
    flow: str, counts: np.ndarray, source: Input, batches: list[Batch], pipeline: SoakPipeline
) -> bool:
    """At least once, and more often only if a batch was repeated; in one batch each."""
    repeated = [one for one in batches if one.ran_at(pipeline.moments)]
    may_be_twice = position_counts(source, repeated) > 0
    planned = position_counts(source, batches)
    astray = int(np.count_nonzero((counts > 1) & ~may_be_twice))
    say(
        f"{flow}: {int(counts.sum(dtype=np.int64)):,} records, {lost(counts):,} lost, "
        f"{more(counts):,} more than once (at most {counts.max()} times), {astray:,} of them not "
        f"in one of the {len(repeated)} batches that ran when something was killed or failed; "
        f"{len(batches):,} batches, {lost(planned):,} records in none of them, "
        f"{more(planned):,} in several"
    )
    return bool((counts > 0).all() and not astray and (planned == 1).all())


def lost(counts: np.ndarray) -> int:
    return int(np.count_nonzero(counts == 0))


def more(counts: np.ndarray) -> int:
    return int(np.count_nonzero(counts > 1))
