"""No connection outlives the node that accepted it."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from ottla.broker.running.node import Node
from ottla.broker.running.run import new_event_loop
from ottla.metadata.config.broker import load_broker_config

if TYPE_CHECKING:
    from pathlib import Path

CLIENTS = 5


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("turns", range(4))
def test_a_connection_that_was_just_accepted_ends_with_the_node(
    tmp_path: Path, is_killed: bool, turns: int
) -> None:
    """Fault: it was served on by a node that was dead, whose metadata grew old."""

    async def run() -> None:
        config = load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"])
        node = await Node.start(config, tmp_path, ephemeral=True)
        loop = asyncio.get_running_loop()
        address = node.addresses["PLAINTEXT"]
        clients = [socket.create_connection(address) for _ in range(CLIENTS)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await (node.kill() if is_killed else node.stop())
        for client in clients:
            client.setblocking(False)
            try:
                assert await asyncio.wait_for(loop.sock_recv(client, 1), 10) == b""
            except ConnectionResetError:
                pass
            finally:
                client.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())
