"""Rounds of retention in a running node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.hosting.retention import SEGMENTS_A_TURN
from ottla.broker.running.node import Node
from ottla.broker.topics import create_topic
from ottla.clock import Clock
from ottla.log.checkpoints import TopicPartition
from ottla.metadata.changes.configs import SetConfigs
from ottla.metadata.config.broker import load_broker_config
from ottla.metadata.image import ResourceType
from tests.support.log_batches import batch_of

if TYPE_CHECKING:
    from pathlib import Path

HOUR: Final = 3_600_000


NOW: Final = 1_700_000_000_000


class StoppedClock(Clock):
    __slots__ = ("at",)

    def __init__(self, at: int = NOW) -> None:
        self.at = at

    def wall_ms(self) -> int:
        return self.at


async def started(path: Path, clock: Clock) -> Node:
    config = load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"])
    return await Node.start(config, path, clock=clock)


async def fill(node: Node, name: TopicPartition, segments: int, at: int) -> None:
    hosted = await node.partitions.open(*name, write=True)
    for _ in range(segments):
        hosted.log.append(batch_of(b"v", timestamps=[at]), leader_epoch=0, now_ms=at)
        hosted.log.roll(at)
    hosted.advance(hosted.log.flush())


async def test_only_what_is_due_is_opened_and_its_start_is_durable(tmp_path: Path) -> None:
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
    (opened,) = node.partitions
    assert opened.name == old
    assert opened.log.log_start_offset == 3 * SEGMENTS_A_TURN
    assert len(opened.log.segments) == 1
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
    assert node.partitions.find(*name).log.log_start_offset == 2
    await node.stop()
