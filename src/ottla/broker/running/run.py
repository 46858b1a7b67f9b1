"""Run a node as a process: event loop, signals, and the ready line."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.broker.running.garbage import Freezer
from ottla.broker.running.node import Node

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.metadata.config.broker import BrokerConfig


# Of the open files that the system grants, so many are kept from connections.
RESERVED_FILES: Final = 1_024
# Ten thousand connections and as many logs; costs the kernel 256 KiB.
FILE_TABLE: Final = 32_768


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed: it writes a fetch answer's parts without joining them."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def raise_file_limit() -> int | None:
    """Take all the open files the system grants: each open log and each connection is one.

    The usual soft limit of 1,024 is there for programs that use select(); this one does not.
    Returns how many these are, if there is a limit.
    """
    try:
        import resource
    except ImportError:  # not a POSIX system
        return None
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    _grow_file_table(min(hard, FILE_TABLE) if hard > 0 else FILE_TABLE)
    return hard if hard > 0 else None


def _grow_file_table(size: int) -> None:
    """Let the kernel make room for `size` open files now, while the process has one thread.

    It doubles the table whenever it is full, and in a process with several threads `accept` and
    `open` then wait for all processors: up to a tenth of a second each time, on the event loop.
    """
    import fcntl

    with Path(os.devnull).open("rb") as file:
        os.close(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, size - 1))


def run_broker(
    config: BrokerConfig,
    data_dir: Path | None,
    on_ready: Callable[[Node], None],
) -> None:
    """Serve until SIGTERM or SIGINT. No directory means a temporary one that is removed."""
    files = raise_file_limit()
    with asyncio.Runner(loop_factory=new_event_loop) as runner, ExitStack() as stack:
        path = data_dir
        if path is None:
            import tempfile

            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-")))
        start = Node.start(config, path, ephemeral=data_dir is None)

        async def begin(node: Node, _: asyncio.Event) -> None:
            on_ready(node)

        runner.run(serve(start, begin, files))


async def serve(
    start: Awaitable[Node],
    begin: Callable[[Node, asyncio.Event], Awaitable[None]],
    files: int | None,
) -> None:
    """Call `begin` once the node serves; stop when a signal comes or the event is set."""
    # What is made at the start stays: looking at 100,000 ACLs time and again takes a second.
    gc.disable()
    try:
        node = await start
    finally:
        gc.enable()
    gc.freeze()
    if files is not None:
        node.dispatcher.connections.most = max(files - RESERVED_FILES, files // 2)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, node.entrance.look_again)
    gc.callbacks.append(Freezer())
    await begin(node, stop)
    await stop.wait()
    await node.stop()
