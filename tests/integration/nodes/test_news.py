"""Nodes of one machine hear of every change, whatever they are doing when it is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.broker.running import jobs
from ottla.broker.running.node import Node
from ottla.broker.topics import create_topic
from ottla.metadata.config.broker import load_broker_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.metadata.image import MetadataImage

pytestmark = pytest.mark.long

PATIENCE = 30.0


@pytest.fixture(autouse=True)
def _seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """No node looks by itself."""
    monkeypatch.setattr(jobs, "METADATA_POLL_SECONDS", 3600.0)


async def start(root: Path, node_id: int) -> Node:
    sets = [f"node.id={node_id}", "listeners=PLAINTEXT://127.0.0.1:0"]
    return await Node.start(load_broker_config(sets=sets), root, siblings=True)


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def test_case_15_a_change_is_told_while_the_store_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: what had just been read lacked it, and it was seen with the next regular look."""
    node = await start(tmp_path, 1)
    leadership = node.leadership
    assert leadership is not None
    looks = 0
    has_read = asyncio.Event()

    async def poll() -> MetadataImage:
        nonlocal looks
        looks += 1
        await has_read.wait()
        return node.image

    monkeypatch.setattr(node.metadata, "poll", poll)
    leadership._heard()
    await until(lambda: looks == 1)
    leadership._heard()
    has_read.set()
    await until(lambda: looks == 2)
    await node.stop()


async def test_case_15_a_change_is_told_while_a_node_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: between its registration and its first look a node heard nothing."""
    first = await start(tmp_path, 1)

    async def change(*_: object) -> None:
        await create_topic(first.cluster, "orders")
        await asyncio.sleep(0.05)  # in which it is told

    monkeypatch.setattr(Node, "_keep_reserve", change)
    second = await start(tmp_path, 2)
    await until(lambda: second.image.topic("orders") is not None)
    await second.stop()
    await first.stop()
