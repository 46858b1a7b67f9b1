"""Retention waits for tables (`tables.md`, case 66), in a running node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from ottla.broker.running.node import Node
from ottla.broker.topics import create_topic
from ottla.client.producer.producer import Producer
from ottla.clock import Clock
from ottla.log.checkpoints import TopicPartition
from ottla.metadata.config.broker import load_broker_config
from ottla.metadata.image import topic_id_text
from ottla.metadata.names import POINTER_TOPIC
from tests.support.log_batches import batch_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

NOW: Final = 1_700_000_000_000
HOUR: Final = 3_600_000
SEGMENTS: Final = 6
ORDERS: Final = TopicPartition("orders", 0)


class LateClock(Clock):
    """All that is written is older than its retention."""

    __slots__ = ()

    def wall_ms(self) -> int:
        return NOW


async def started(path: Path) -> Node:
    sets = ["listeners=PLAINTEXT://127.0.0.1:0", "ottla.flush.mode=group"]
    return await Node.start(load_broker_config(sets=sets), path, clock=LateClock())


async def fill(node: Node) -> None:
    hosted = await node.partitions.open(*ORDERS, write=True)
    at = NOW - 5 * HOUR
    for _ in range(SEGMENTS):
        hosted.log.append(batch_of(b"v", timestamps=[at]), leader_epoch=0, now_ms=at)
        hosted.log.roll(at)
    hosted.advance(hosted.log.flush())


async def point(node: Node, offset: int, topic_id: str | None = None) -> None:
    """Write a pointer, as the table worker does."""
    [address] = node.addresses.values()
    topic = topic_id or topic_id_text(node.image.topics_by_name["orders"].topic_id)
    value = json.dumps({"version": 1, "topic_id": topic, "position": {"0": offset}})
    async with Producer("{}:{}".format(*address)) as producer:
        await producer.send(POINTER_TOPIC, value.encode(), key=b"orders", timestamp_ms=NOW)


async def start_of(node: Node) -> int:
    await node.jobs._retention().run()
    return (await node.partitions.open(*ORDERS)).log.log_start_offset


async def with_table(path: Path, **configs: str) -> Node:
    node = await started(path)
    keys = {f"ottla.table.{key}".replace("_", "."): one for key, one in configs.items()}
    await create_topic(node.cluster, "orders", configs={"retention.ms": str(HOUR), **keys})
    await fill(node)
    return node


async def test_case_66_untaken_records_stay_until_the_table_has_them(tmp_path: Path) -> None:
    node = await with_table(tmp_path, enable="true")
    assert await start_of(node) == 0, "no pointer yet"
    await create_topic(node.cluster, POINTER_TOPIC, configs={"cleanup.policy": "compact"})
    await point(node, 2)
    await point(node, 3, topic_id="AAAAAAAAAAAAAAAAAAAAAA")
    assert await start_of(node) == 0, "the newest one is another topic's"
    await point(node, 2)
    assert await start_of(node) == 2
    await point(node, 4)
    assert await start_of(node) == 4
    await point(node, SEGMENTS)
    assert await start_of(node) == SEGMENTS
    await node.stop()


async def test_case_66_a_closed_log_waits_for_its_table_too(tmp_path: Path) -> None:
    node = await with_table(tmp_path, enable="true")
    await create_topic(node.cluster, POINTER_TOPIC, configs={"cleanup.policy": "compact"})
    await point(node, 2)
    await node.stop()
    node = await started(tmp_path)
    assert ORDERS not in node.partitions.open_names
    assert await start_of(node) == 2
    await node.stop()


async def test_case_66_no_more_is_held_than_the_setting_says(tmp_path: Path) -> None:
    size = batch_of(b"v").size
    node = await with_table(tmp_path, enable="true", hold_bytes=str(4 * size))
    assert await start_of(node) == SEGMENTS - 4
    await node.stop()


@pytest.mark.parametrize(
    "configs", [{"enable": "false"}, {"enable": "true", "hold_bytes": "0"},
                {"enable": "true", "start": "latest"}],
)  # fmt: skip
async def test_case_66_others_do_not_wait(tmp_path: Path, configs: dict[str, str]) -> None:
    node = await with_table(tmp_path, **configs)
    assert await start_of(node) == SEGMENTS
    assert (node.services.table_hold.made is None) == (configs["enable"] == "false")
    await node.stop()
