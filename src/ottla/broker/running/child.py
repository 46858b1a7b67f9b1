"""A node process of `ottla broker --nodes N`: `python -m ottla.broker.running.child`.

The supervisor starts it and tells it everything through its standard input; see
`ottla.broker.running.children`. It stops cleanly at SIGTERM and when the supervisor has died.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.membership.retirement import replace_node, retire_above
from ottla.broker.running.children import Birth, Lines, line
from ottla.broker.running.logs import set_up_logging
from ottla.broker.running.node import Node
from ottla.broker.running.refusals import refusal_of
from ottla.broker.running.run import new_event_loop, raise_file_limit, serve
from ottla.cluster.supervise import BEAT_SECONDS
from ottla.metadata.changes.topics import SetLeaders
from ottla.metadata.config.broker import BrokerConfig
from ottla.metadata.errors import ChangeRefused, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.metadata.changes.apply import Change, Decision
    from ottla.metadata.image import MetadataImage

READ_BYTES: Final = 64 * 1024
# A store that is locked or full for a moment; the supervisor waits for the answer meanwhile.
RETRY_SECONDS: Final = 0.5

logger = logging.getLogger(__name__)


class Child:
    """The pipes of a node to its supervisor."""

    def __init__(self, birth: Birth, node: Node, output: int, stop: asyncio.Event) -> None:
        self._birth = birth
        self._node = node
        self._output = output
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._lines = Lines()
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        if self._birth.metrics is not None:
            await self._monitor(self._birth.metrics)
        input_ = 0
        os.set_blocking(input_, False)
        os.set_blocking(self._output, False)
        self._loop.add_reader(input_, self._read, input_)
        ports = {name: port for name, (_, port) in self._node.addresses.items()}
        self._send({"ready": {"ports": ports, "problem": await self._problem()}})
        self._beat()

    async def _problem(self) -> str | None:
        """Why the client file that --secure made does not let its user in."""
        if self._birth.secured is None:
            return None
        from ottla.broker.running.secure import admin_problem

        directory = Path(self._birth.secured)
        return await self._node.workers.run(partial(admin_problem, directory, self._node.image))

    async def _monitor(self, path: str) -> None:
        from ottla.broker.running.monitoring import Monitoring

        monitoring, listening = await self._node.workers.run(
            lambda: (Monitoring(self._node), _listening(path))
        )
        await monitoring.start([listening])
        self._node.monitoring = monitoring

    def _beat(self) -> None:
        self._write(b"\n")
        self._loop.call_later(BEAT_SECONDS, self._beat)

    def _send(self, message: dict[str, Any]) -> None:
        self._write(line(message))

    def _write(self, data: bytes) -> None:
        with suppress(OSError):  # a supervisor that has gone, or is stopped
            os.write(self._output, data)

    def _read(self, input_: int) -> None:
        try:
            data = os.read(input_, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(input_)
            logger.warning("the supervisor has gone; this node stops")
            self._stop.set()
            return
        for message in self._lines.feed(data):
            task = self._loop.create_task(self._do(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _do(self, message: dict[str, int]) -> None:
        if (dead := message.get("replace")) is not None:
            await self._change(replace_node(dead))
            self._send({"replaced": dead})
        if (nodes := message.get("settle")) is not None:
            await self._change(retire_above(nodes))
            await self._change(_spread)
            self._send({"settled": nodes})

    async def _change(self, decision: Decision) -> None:
        while True:
            try:
                await self._node.metadata.change(decision)
            except (StoreError, ChangeRefused):
                logger.exception("leaders of partitions cannot be changed; tries again")
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return


def _spread(image: MetadataImage) -> Sequence[Change]:
    """Partitions go to their preferred nodes, and to nodes that have fewer, all at once."""
    from ottla.cluster.balance import History, Limits, decide_balance

    count = sum(len(topic.partitions) for topic in image.topics_by_name.values())
    limits = Limits(moves=count, drain_moves=0, settled_seconds=0.0)
    moves = decide_balance(image, History().looked(image, 0.0), limits, 0.0)
    return [SetLeaders(moves)] if moves else []


def _listening(path: str) -> socket:
    Path(path).unlink(missing_ok=True)  # of a life before
    listening = socket(AF_UNIX, SOCK_STREAM)
    listening.bind(path)
    return listening


def main() -> None:
    # What anything prints goes to stderr: the pipe is for messages.
    output = os.dup(1)
    os.dup2(2, 1)
    with open(0, "rb", buffering=0, closefd=False) as source:  # a descriptor
        birth = Birth.read(source)
    config = BrokerConfig(birth.config)
    set_up_logging(birth.log_format, birth.log_level, config.node_id)
    files = raise_file_limit()
    root = Path(birth.root)
    shared = {
        name: [socket(fileno=fd) for fd in descriptors]
        for name, descriptors in birth.sockets.items()
    }
    start = Node.start(config, root, ephemeral=birth.ephemeral, siblings=True, shared=shared)

    async def begin(node: Node, stop: asyncio.Event) -> None:
        await Child(birth, node, output, stop).begin()

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(serve(start, begin, files))
    except Exception as error:
        refused = refusal_of(error, root)
        if refused is None:
            raise
        print(f"ottla broker: node {config.node_id}: {refused.text}", file=sys.stderr)
        raise SystemExit(refused.status) from None


if __name__ == "__main__":
    main()
