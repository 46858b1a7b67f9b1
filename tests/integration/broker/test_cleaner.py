"""The compactor over a real node: damage stays where it is, and a deleted log is left alone."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

import pytest

from ottla.broker.hosting import cleaner as cleaner_module
from ottla.broker.hosting.cleaner import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, Cleaner
from ottla.broker.running.node import Node
from ottla.broker.topics import create_topic, delete_topic, existing
from ottla.log.compaction import run_compaction
from ottla.log.segment import LOG
from ottla.metadata.config.broker import load_broker_config
from tests.support.clocks import ManualClock
from tests.support.log_batches import batch_of, read_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.log.compaction import CompactionPlan, CompactionResult

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
PATIENCE = 30


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    sets = ["listeners=PLAINTEXT://127.0.0.1:0", "log.cleaner.backoff.ms=3600000"]
    node = await Node.start(load_broker_config(sets=sets), tmp_path, ephemeral=True)
    yield node
    await node.stop()


async def topic(node: Node, name: str, *values: bytes) -> HostedPartition:
    """A compacted topic with two closed segments of records of one key."""
    await create_topic(node.cluster, name, configs=COMPACTED)
    hosted = await node.partitions.open(name, 0, write=True)
    for value in values:
        hosted.log.append(batch_of(value), leader_epoch=hosted.leader_epoch, now_ms=0)
        hosted.log.roll(0)
    hosted.advance(hosted.log.flush())
    return hosted


def damage(hosted: HostedPartition) -> None:
    """Overwrite the header of a batch of a closed segment."""
    segment = hosted.log.segments[0]
    path = hosted.log.directory / segment.path(LOG).name
    data = bytearray(path.read_bytes())
    data[16] = 99  # no such magic
    path.write_bytes(data)


async def run(cleaner: Cleaner) -> int:
    rounds = 0
    while await cleaner.compact_dirtiest():
        rounds += 1
        assert rounds < 10, "it starts the same log again and again"
    return rounds


async def test_a_damaged_log_does_not_keep_the_others(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    broken = await topic(node, "a-broken", b"1", b"2", b"3", b"4")
    good = await topic(node, "good", b"1", b"2", b"3")
    damage(broken)
    clock = ManualClock(1_000_000)
    cleaner = Cleaner(node.data, node.partitions, node.workers, clock)
    with caplog.at_level(logging.ERROR, "ottla.broker.hosting.cleaner"):
        await run(cleaner)
        assert len(good.log.segments) == 2
        assert (cleaner.failures, cleaner.uncleanable) == (1, 1)
        pause = FIRST_RETRY_SECONDS
        for failures in range(2, 9):
            clock.advance(int(pause * 1000) - 1)
            assert await run(cleaner) == 0, "before its time"
            clock.advance(1)
            await run(cleaner)
            assert cleaner.failures == failures
            pause = min(2 * pause, LAST_RETRY_SECONDS)
    (logged,) = caplog.records
    assert logged.message == (
        "<a-broken-0> cannot be compacted; trying again in 60 s: "
        "a-broken-0/00000000000000000000.log: no batch at position 0"
    )
    assert not [path for path in broken.log.directory.iterdir() if "cleaned" in path.name]
    assert broken.log.online


async def test_a_log_that_is_whole_again_is_compacted(node: Node) -> None:
    hosted = await topic(node, "t", b"1", b"2", b"3")
    path = hosted.log.directory / hosted.log.segments[0].path(LOG).name
    whole = path.read_bytes()
    damage(hosted)
    clock = ManualClock(1_000_000)
    cleaner = Cleaner(node.data, node.partitions, node.workers, clock)
    await run(cleaner)
    path.write_bytes(whole)
    clock.advance(int(FIRST_RETRY_SECONDS * 1000))
    await run(cleaner)
    assert (len(hosted.log.segments), cleaner.uncleanable) == (2, 0)


@pytest.mark.parametrize("recreated", [False, True])
async def test_a_log_that_is_deleted_meanwhile_is_left_alone(
    node: Node, monkeypatch: pytest.MonkeyPatch, *, recreated: bool
) -> None:
    """The worker has written the compacted segments when the topic goes."""
    reached, go_on = threading.Event(), threading.Event()

    def paused(plan: CompactionPlan) -> CompactionResult:
        result = run_compaction(plan)
        reached.set()
        assert go_on.wait(PATIENCE)
        return result

    monkeypatch.setattr(cleaner_module, "run_compaction", paused)
    await topic(node, "t", b"1", b"2", b"3")
    cleaner = Cleaner(node.data, node.partitions, node.workers, node.clock)
    compaction = asyncio.create_task(cleaner.compact_dirtiest())
    try:
        assert await asyncio.to_thread(reached.wait, PATIENCE)
        await delete_topic(node.cluster, lambda image: existing(image, "t"))
        if recreated:
            new = await topic(node, "t", b"new 1", b"new 2", b"new 3")
            before = {path.name: path.read_bytes() for path in new.log.directory.iterdir()}
            expected = read_all(new.log)
    finally:
        go_on.set()
    assert await compaction
    assert cleaner.failures == 0
    if recreated:
        after = {path.name: path.read_bytes() for path in new.log.directory.iterdir()}
        assert after == before
        assert read_all(new.log) == expected


async def test_logs_that_nobody_opened_stay_closed(tmp_path: Path) -> None:
    sets = ["listeners=PLAINTEXT://127.0.0.1:0", "log.cleaner.backoff.ms=3600000"]
    config = load_broker_config(sets=sets)
    node = await Node.start(config, tmp_path)
    await topic(node, "t", b"1", b"2", b"3")
    await node.stop()
    again = await Node.start(config, tmp_path)
    try:
        cleaner = Cleaner(again.data, again.partitions, again.workers, again.clock)
        assert not await cleaner.compact_dirtiest()
        assert ("t", 0) not in again.partitions.open_names
    finally:
        await again.stop()
