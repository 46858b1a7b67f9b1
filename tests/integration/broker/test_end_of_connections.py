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


@pytest.mark.long
async def test_a_request_that_is_given_up_ends_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: no answer left the connection any more, and its client waited until it timed out."""
    config = load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"])
    node = await Node.start(config, tmp_path, ephemeral=True)
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(node.dispatcher, "dispatch", lambda *_: answer)
    try:
        reader, writer = await asyncio.open_connection(*node.addresses["PLAINTEXT"])
        writer.write(bytes([0, 0, 0, 10]) + bytes(10))
        async with asyncio.timeout(60):
            while not any(one.busy for one in node.dispatcher.connections):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            answer.cancel()
            assert await reader.read() == b""
        writer.close()
    finally:
        await node.stop()
