"""Running a node as a process: the loop, the signals, the line that says it is ready."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.broker.node import Node

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.metadata.broker_config import BrokerConfig


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed: it writes a fetch answer's parts without joining them."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run_broker(
    config: BrokerConfig, data_dir: Path | None, on_ready: Callable[[Node], None]
) -> None:
    """Serve until SIGTERM or SIGINT. No directory means a temporary one that is removed."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        if data_dir is not None:
            runner.run(_serve(config, data_dir, on_ready, ephemeral=False))
            return
        with tempfile.TemporaryDirectory(prefix="ottla-") as temporary:
            runner.run(_serve(config, Path(temporary), on_ready, ephemeral=True))


async def _serve(
    config: BrokerConfig, data_dir: Path, on_ready: Callable[[Node], None], *, ephemeral: bool
) -> None:
    node = await Node.start(config, data_dir, ephemeral=ephemeral)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    on_ready(node)
    await stop.wait()
    await node.stop()
