"""The loop of a node that starts and serves stays responsive."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final

import pytest

from ottla.broker.running.node import Node
from ottla.broker.topics import create_topic
from ottla.metadata.config.broker import load_broker_config
from tests.support import loop_monitor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE_SECONDS: Final = 10.0

pytestmark = pytest.mark.skipif(not loop_monitor.is_possible, reason="no schedstat on this system")


async def test_a_node_that_starts_and_serves_keeps_its_beat(
    tmp_path: Path, watch_loop: Callable[[asyncio.AbstractEventLoop], None]
) -> None:
    config = load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"])
    node = await Node.start(config, tmp_path, ephemeral=True)
    watch_loop(asyncio.get_running_loop())
    await create_topic(node.cluster, "orders", partitions=100)
    await asyncio.sleep(0)
    await node.stop()


async def test_the_loop_goes_on_while_the_threads_of_a_node_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were joined on the loop, which may serve other nodes."""
    config = load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"])
    node = await Node.start(config, tmp_path, ephemeral=True)
    closing, release = threading.Event(), threading.Event()
    close = node.workers.close

    def noting() -> None:
        closing.set()
        close()

    monkeypatch.setattr(node.workers, "close", noting)
    busy = node.workers.executor.submit(release.wait, PATIENCE_SECONDS)
    stopping = asyncio.create_task(node.stop())
    await asyncio.to_thread(closing.wait)
    release.set()
    await stopping
    assert busy.result(), "the loop had to wait until the thread gave up"
