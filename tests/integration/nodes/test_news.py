"""Nodes of one machine hear of every change, whatever they are doing when it is told."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from ottla import Admin
from ottla.broker.membership import leadership as membership
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


async def two_nodes(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Node, Node]:
    """The second takes its time to read a change."""
    first, second = await start(root, 1), await start(root, 2)
    await first.metadata.poll()
    poll = second.metadata.poll

    async def slow() -> MetadataImage:
        await asyncio.sleep(0.1)
        return await poll()

    monkeypatch.setattr(second.metadata, "poll", slow)
    return first, second


async def test_a_change_of_a_user_is_answered_when_other_nodes_have_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: a right that was taken away counted a little longer on other nodes."""
    first, second = await two_nodes(tmp_path, monkeypatch)
    async with Admin("{}:{}".format(*first.addresses["PLAINTEXT"])) as admin:
        await admin.create_user("alice", "a", iterations=4096)
        assert "alice" in second.image.scram
        await admin.alter_quotas({"user": "alice"}, {"producer_byte_rate": 1.0})
        assert second.image.client_quotas
        await asyncio.gather(
            admin.delete_user("alice"), admin.create_user("bob", "b", iterations=4096)
        )
        assert second.image.scram.keys() == {"bob"}
    for node in (first, second):
        await node.stop()


@pytest.mark.parametrize("how", ["silent", "away"])
async def test_a_node_that_does_not_answer_is_waited_for_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    first, second = await two_nodes(tmp_path, monkeypatch)
    assert second.leadership is not None
    monkeypatch.setattr(membership, "SPREAD_SECONDS", 0.3)
    if how == "silent":
        monkeypatch.setattr(second.leadership._news, "_heard", lambda: None)
    else:
        await second.stop()
    began = time.monotonic()
    async with Admin("{}:{}".format(*first.addresses["PLAINTEXT"])) as admin:
        await admin.create_user("alice", "a", iterations=4096)
    assert (time.monotonic() - began >= 0.3) == (how == "silent")
    await first.stop()
    if how == "silent":
        await second.stop()
