"""The loop of a node that starts and serves stays responsive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.broker.running.node import Node
from ottla.broker.topics import create_topic
from ottla.metadata.config.broker import load_broker_config
from tests.support import loop_monitor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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
