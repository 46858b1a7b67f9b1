"""A dead node's logs: what it acknowledged is there, whoever takes over and whatever was lost."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from ottla.broker.membership.places import node_path
from ottla.broker.running.node import Node
from ottla.broker.topics import create_topic
from ottla.log.checkpoints import TopicPartition
from ottla.metadata.changes.topics import Leadership, SetLeaders
from ottla.metadata.config.broker import load_broker_config
from tests.support.cluster_clients import directories
from tests.support.dying_storage import DyingStorage
from tests.support.power import lose_power
from tests.support.raw_client import RawClient, batch

if TYPE_CHECKING:
    from pathlib import Path

NAME = TopicPartition("orders", 0)
PATIENCE = 30.0


async def start(root: Path, node_id: int) -> Node:
    sets = [f"node.id={node_id}", "listeners=PLAINTEXT://127.0.0.1:0", "ottla.flush.mode=journal"]
    return await Node.start(load_broker_config(sets=sets), root, siblings=True)


def bootstrap(node: Node) -> str:
    return "{}:{}".format(*node.addresses["PLAINTEXT"])


async def write(node: Node, *values: bytes) -> None:
    """Acknowledged one after the other: each is a slot of the journal."""

    def produce() -> None:
        with RawClient(bootstrap(node)) as client:
            for value in values:
                assert client.produce("orders", batch(value)).error_code == 0

    await asyncio.to_thread(produce)


async def lead(node: Node, leader: int) -> None:
    topic_id = node.image.topics_by_name["orders"].topic_id
    await node.metadata.change(SetLeaders((Leadership(topic_id, 0, leader),)))


async def end_of(node: Node) -> int:
    """Of the partition at its leader, as soon as that has it."""
    async with asyncio.timeout(PATIENCE):
        while not node.data.has(NAME):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return (await node.partitions.open(*NAME)).log.log_end_offset


async def two(root: Path) -> tuple[Node, Node]:
    first, second = await start(root, 1), await start(root, 2)
    await create_topic(first.cluster, "orders", assignments={0: [2]})
    await second.metadata.poll()
    return first, second


async def test_records_that_only_the_journal_has_are_taken_over(tmp_path: Path) -> None:
    first, second = await two(tmp_path)
    await write(second, *(b"%d" % number for number in range(20)))
    await second.kill()
    assert lose_power(node_path(tmp_path, 2), random.Random(3)) > 0
    await lead(first, 1)
    assert await end_of(first) == 20
    again = await start(tmp_path, 2)  # its journal has batches of a log that is not its own now
    await write(first, b"more")
    await lead(first, 2)
    assert await end_of(again) == 21
    await first.stop()
    await again.stop()


async def test_a_journal_is_not_replayed_into_a_log_that_moved_on(tmp_path: Path) -> None:
    """A log leaves a node, grows elsewhere and returns; then the node dies."""
    first, second = await two(tmp_path)
    await write(second, b"0", b"1")
    await lead(first, 1)
    assert await end_of(first) == 2
    await write(first, b"2", b"3")
    await lead(first, 2)
    assert await end_of(second) == 4
    await write(second, b"4")
    await second.kill()
    lose_power(node_path(tmp_path, 2), random.Random(5))
    again = await start(tmp_path, 2)
    assert await end_of(again) == 5
    await first.kill()
    again_first = await start(tmp_path, 1)
    await lead(again, 1)
    assert await end_of(again_first) == 5
    await again_first.stop()
    await again.stop()


@pytest.mark.parametrize("step", range(7))
async def test_case_10_the_old_leader_dies_while_it_releases(tmp_path: Path, step: int) -> None:
    first, second = await two(tmp_path)
    await write(second, b"0", b"1")
    assert second.leadership is not None
    storage = second.leadership._places.storage = DyingStorage(step)
    await lead(first, 1)
    async with asyncio.timeout(PATIENCE):
        while len(storage.calls) < step or second.partitions._busy:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    await second.kill()
    assert len(directories(tmp_path, "orders", 0)) == 1
    assert await end_of(first) == 2
    await write(first, b"2")
    again = await start(tmp_path, 2)
    assert directories(tmp_path, "orders", 0) == [tmp_path / "orders-0"]
    await first.stop()
    await again.stop()


@pytest.mark.parametrize("step", range(3))
async def test_case_11_the_new_leader_dies_while_it_adopts(tmp_path: Path, step: int) -> None:
    first, second = await two(tmp_path)
    await write(second, b"0", b"1")
    assert first.leadership is not None
    storage = first.leadership._places.storage = DyingStorage(step)
    await lead(first, 1)
    async with asyncio.timeout(PATIENCE):
        while second.data.has(NAME) or len(storage.calls) < step:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    await first.kill()
    assert len(directories(tmp_path, "orders", 0)) == 1
    again = await start(tmp_path, 1)
    assert await end_of(again) == 2
    await write(again, b"2")
    assert directories(tmp_path, "orders", 0) == [tmp_path / "orders-0"]
    await again.stop()
    await second.stop()


@pytest.mark.parametrize("step", range(10))
async def test_case_11_the_new_leader_dies_while_it_takes_over(tmp_path: Path, step: int) -> None:
    """The old one is dead, and some of the records are in its journal alone."""
    first, second = await two(tmp_path)
    await write(second, b"0", b"1")
    await second.kill()
    lose_power(node_path(tmp_path, 2), random.Random(step))
    assert first.leadership is not None
    storage = first.leadership._places.storage = DyingStorage(step)
    await lead(first, 1)
    async with asyncio.timeout(PATIENCE):
        while len(storage.calls) < step and not first.data.has(NAME):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    await first.kill()
    assert len(storage.calls) == step
    assert len(directories(tmp_path, "orders", 0)) == 1
    again = await start(tmp_path, 1)
    assert await end_of(again) == 2
    await write(again, b"2")
    assert directories(tmp_path, "orders", 0) == [tmp_path / "orders-0"]
    await again.stop()


async def test_the_log_start_of_a_handed_over_log_survives_a_death(tmp_path: Path) -> None:
    """The new leader dies before its checkpoint files have what the note says."""
    first, second = await two(tmp_path)
    await write(second, b"0", b"1", b"2")
    hosted = await second.partitions.open(*NAME)
    hosted.log.raise_log_start(2)
    await lead(first, 1)
    assert await end_of(first) == 3
    await first.kill()
    again = await start(tmp_path, 1)
    hosted = await again.partitions.open(*NAME)
    assert (hosted.log.log_start_offset, hosted.log.log_end_offset) == (2, 3)
    await again.stop()
    await second.stop()
