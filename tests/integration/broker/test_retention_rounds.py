"""Rounds of retention in a running node."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pytest

from ottla.broker.hosting.retention import SEGMENTS_A_TURN
from ottla.broker.running.node import Node
from ottla.broker.topics import create_topic
from ottla.clock import Clock
from ottla.log.checkpoints import (
    PARTITION_METADATA,
    TopicPartition,
    encode_partition_metadata,
)
from ottla.metadata.changes.configs import SetConfigs
from ottla.metadata.config.broker import load_broker_config
from ottla.metadata.image import ResourceType
from tests.support.log_batches import batch_of, batches_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ottla.broker.hosting.work import LogRequest, Shrunk

HOUR: Final = 3_600_000
PATIENCE: Final = 30.0


NOW: Final = 1_700_000_000_000


class StoppedClock(Clock):
    __slots__ = ("at",)

    def __init__(self, at: int = NOW) -> None:
        self.at = at

    def wall_ms(self) -> int:
        return self.at


async def started(path: Path, clock: Clock, mode: str = "group") -> Node:
    sets = ["listeners=PLAINTEXT://127.0.0.1:0", f"ottla.flush.mode={mode}"]
    config = load_broker_config(sets=sets)
    return await Node.start(config, path, clock=clock)


async def fill(node: Node, name: TopicPartition, segments: int, at: int) -> None:
    hosted = await node.partitions.open(*name, write=True)
    for _ in range(segments):
        hosted.log.append(batch_of(b"v", timestamps=[at]), leader_epoch=0, now_ms=at)
        hosted.log.roll(at)
    hosted.advance(hosted.log.flush())


async def test_closed_logs_shrink_and_stay_closed(tmp_path: Path) -> None:
    clock = StoppedClock()
    old, new = TopicPartition("orders", 0), TopicPartition("orders", 1)
    node = await started(tmp_path, clock)
    await create_topic(
        node.cluster, "orders", partitions=3, configs={"retention.ms": str(10 * HOUR)}
    )
    await fill(node, old, 3 * SEGMENTS_A_TURN, NOW - 5 * HOUR)
    await fill(node, new, 3, NOW)
    await node.stop()

    node = await started(tmp_path, clock)
    await node.jobs._retention().run()
    assert not list(node.partitions)
    clock.at = NOW + 6 * HOUR
    await node.jobs._retention().run()
    assert not list(node.partitions)
    assert len(list((tmp_path / "orders-0").glob("*.log*"))) == 1, "nobody reads a closed log"
    assert len(list((tmp_path / "orders-1").glob("*.log"))) == 4
    assert not node.data.untrusted()
    await node.stop()

    node = await started(tmp_path, clock)
    log = (await node.partitions.open(*old)).log
    assert log.log_start_offset == log.log_end_offset == 3 * SEGMENTS_A_TURN
    assert (await node.partitions.open(*new)).log.log_start_offset == 0
    await node.stop()


async def test_an_altered_setting_counts_for_closed_logs(tmp_path: Path) -> None:
    clock = StoppedClock()
    name = TopicPartition("orders", 0)
    node = await started(tmp_path, clock)
    await create_topic(node.cluster, "orders", configs={"retention.ms": str(10 * HOUR)})
    await fill(node, name, 2, NOW - 5 * HOUR)
    await node.stop()
    node = await started(tmp_path, clock)
    await node.jobs._retention().run()
    assert not list(node.partitions)
    sooner = {"retention.ms": str(HOUR)}
    await node.cluster.change(SetConfigs(ResourceType.TOPIC, "orders", sooner))
    await node.jobs._retention().run()
    assert (await node.partitions.open(*name)).log.log_start_offset == 2
    await node.stop()


@pytest.mark.parametrize("mode", ["group", "journal"])
async def test_the_last_segment_of_a_closed_log_goes_and_offsets_go_on(
    tmp_path: Path, mode: str
) -> None:
    clock = StoppedClock()
    name = TopicPartition("orders", 0)
    node = await started(tmp_path, clock, mode)
    await create_topic(node.cluster, "orders", configs={"retention.ms": str(HOUR)})
    hosted = await node.partitions.open(*name, write=True)
    for age in (5, 2, 2):
        at = NOW - age * HOUR
        hosted.log.append(batch_of(b"v", timestamps=[at]), leader_epoch=age, now_ms=at)
    hosted.advance(hosted.log.flush())
    await node.stop()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()  # older than the log, or lost
    node = await started(tmp_path, clock, mode)
    retention = node.jobs._retention()
    await retention.run()
    assert not list(node.partitions)
    assert [path.name for path in (tmp_path / "orders-0").glob("*.log*")] == [f"{3:020d}.log"]
    looks: list[object] = []
    retention._look = looks.append  # type: ignore[method-assign, assignment]
    await retention.run()
    assert looks == [], "what is left of it is known"
    log = (await node.partitions.open(*name)).log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (3, 3, 3)
    assert log.append(batch_of(b"v"), leader_epoch=5, now_ms=NOW).base_offset == 3
    await node.stop()


async def test_who_asks_for_a_log_that_is_shrinking_gets_it_afterwards(tmp_path: Path) -> None:
    clock = StoppedClock()
    name = TopicPartition("orders", 0)
    node = await started(tmp_path, clock)
    await create_topic(node.cluster, "orders", configs={"retention.ms": str(HOUR)})
    await fill(node, name, 3, NOW - 5 * HOUR)
    await node.stop()
    node = await started(tmp_path, clock)
    shrink = node.data.work.shrink
    reached, go_on = threading.Event(), threading.Event()

    def paused(requests: Sequence[LogRequest], now_ms: int) -> list[Shrunk]:
        reached.set()
        assert go_on.wait(PATIENCE)
        return shrink(requests, now_ms)

    node.data.work.shrink = paused  # type: ignore[method-assign]
    round_ = asyncio.create_task(node.jobs._retention().run())
    assert await asyncio.to_thread(reached.wait, PATIENCE)
    opening = asyncio.create_task(node.partitions.open(*name))
    await asyncio.sleep(0)
    assert name not in node.partitions.open_names
    go_on.set()
    assert (await opening).log.log_start_offset == 3
    await round_
    await node.stop()


async def test_the_directory_of_an_older_topic_is_set_aside_not_shrunk(tmp_path: Path) -> None:
    clock = StoppedClock()
    name = TopicPartition("orders", 0)
    node = await started(tmp_path, clock)
    await create_topic(node.cluster, "orders", configs={"retention.ms": str(HOUR)})
    await fill(node, name, 3, NOW - 5 * HOUR)
    await node.stop()
    metadata = tmp_path / "orders-0" / PARTITION_METADATA
    metadata.write_bytes(encode_partition_metadata(uuid4()))
    node = await started(tmp_path, clock)
    await node.jobs._retention().run()
    kept = [path.parent.name for path in sorted(tmp_path.glob("*/*.log"))]  # noqa: ASYNC240
    assert len(kept) == 4
    assert all(name.endswith("-stray") for name in kept)
    assert not node.data.has(name)
    await node.stop()


@pytest.mark.parametrize("looked_up", [False, True])
async def test_a_log_that_was_opened_for_compaction_is_closed_when_that_is_over(
    tmp_path: Path, *, looked_up: bool
) -> None:
    clock = StoppedClock()
    name = TopicPartition("orders", 0)
    node = await started(tmp_path, clock)
    settings = {"cleanup.policy": "compact", "file.delete.delay.ms": "60000"}
    await create_topic(node.cluster, "orders", configs=settings)
    await fill(node, name, 4, NOW)
    await node.stop()
    node = await started(tmp_path, clock)
    retention, cleaner = node.jobs._retention(), node.jobs._cleaner()
    await retention.run()
    assert name in node.partitions.open_names
    await retention.run()
    assert name in node.partitions.open_names, "it has not been compacted yet"
    assert await cleaner.compact_dirtiest()
    await retention.run()
    assert name in node.partitions.open_names, "files wait to be unlinked"
    if looked_up:
        node.partitions.find(*name)
    clock.at += 60_000
    await retention.run()
    assert (name in node.partitions.open_names) == looked_up
    log = (await node.partitions.open(*name)).log
    assert len(log.segments) == 2
    found = log.read(0, 10_000, upper_bound_offset=log.high_watermark, min_one_message=True)
    assert [batch.base_offset for batch in batches_in(found)] == [3]
    await node.stop()


async def test_who_asks_while_a_log_is_opened_for_compaction_keeps_it(tmp_path: Path) -> None:
    clock = StoppedClock()
    name = TopicPartition("orders", 0)
    node = await started(tmp_path, clock)
    await create_topic(node.cluster, "orders", configs={"cleanup.policy": "compact"})
    await fill(node, name, 2, NOW)
    await node.stop()
    node = await started(tmp_path, clock)
    visit = node.partitions.visiting([name])
    opening = node.partitions.opening([name])
    assert visit is not None
    assert opening is not None
    await visit
    (hosted,) = node.partitions
    node.partitions.leave([hosted])
    await opening
    assert node.partitions.find(*name) is hosted
    await node.stop()
