"""The nodes of an `EmbeddedBroker` as processes below a supervisor: `processes=True`.

They are those of `ottla broker --nodes`. The test's process looks at their metadata and changes it
as any of them does, and sends signals to them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.broker.access.listeners import REGISTRY, endpoint_url
from ottla.broker.cluster import Cluster
from ottla.broker.errors import BrokerNotRunning
from ottla.broker.hosting.data import METADATA_FILE
from ottla.broker.membership.news import News
from ottla.broker.membership.places import node_path, node_paths
from ottla.client.errors import BadArgument
from ottla.cluster.layout import HANDOVER, handover_name
from ottla.log.directory import LOCK_FILE, partition_name
from ottla.metadata.metadata import Metadata
from ottla.metadata.stores.sqlite import SqliteMetadataStore
from ottla.testing.nodes import LOOK_SECONDS, SETTLE_SECONDS, moved

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.metadata.config.broker import BrokerConfig
    from ottla.metadata.image import Broker, Topic

MODULE: Final = "ottla.testing.supervised"
NOBODY: Final = 0  # nodes have ids from 1 on; this one only changes metadata and tells them


class Processes:
    """A supervisor and its nodes, by their ids from 1 on."""

    def __init__(self, config: BrokerConfig, path: Path, *, count: int, ephemeral: bool) -> None:
        self._config = config
        self._path = path
        self._count = count
        self._ephemeral = ephemeral
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._metadata: Metadata | None = None
        self._news: News | None = None
        self._killed: dict[int, int] = {}
        """Nodes that were killed, and the epoch of the life that ended so."""

    @property
    def cluster(self) -> Cluster:
        return Cluster(self._opened, self._config)

    @property
    def _opened(self) -> Metadata:
        assert self._metadata is not None
        return self._metadata

    @property
    def addresses(self) -> dict[int, str]:
        return {broker.node_id: "{}:{}".format(*_address(broker)) for broker in self._up}

    @property
    def registry_url(self) -> str | None:
        endpoints = (broker.listeners.get(REGISTRY) for broker in self._up)
        return next((endpoint_url(one) for one in endpoints if one is not None), None)

    @property
    def _up(self) -> list[Broker]:
        return [
            broker
            for broker in sorted(self._opened.image.brokers.values(), key=_node_id)
            if not broker.fenced and broker.node_id not in self._killed
        ]

    async def start_all(self) -> None:
        refused = await asyncio.to_thread(self._start)
        if refused is not None:
            raise BrokerNotRunning(f"the nodes were not started: {refused}")
        self._metadata = await Metadata.open(
            lambda: SqliteMetadataStore(self._path / METADATA_FILE, durable=not self._ephemeral)
        )
        self._news = News(self._path, NOBODY, lambda: None)
        self._metadata.proposed = self._tell

    def _start(self) -> str | None:
        """Why the nodes do not serve; None if they do. Blocks."""
        supervisor = self._supervisor = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for the test, which stops it
        )
        assert supervisor.stdin is not None
        assert supervisor.stdout is not None
        given = {
            "config": dict(self._config.static),
            "path": str(self._path),
            "nodes": self._count,
            "ephemeral": self._ephemeral,
        }
        with suppress(BrokenPipeError):  # then it says why, or nothing
            supervisor.stdin.write(json.dumps(given).encode() + b"\n")
            supervisor.stdin.flush()
        answer = supervisor.stdout.readline()
        refused: str | None = json.loads(answer).get("refused") if answer else "see its log lines"
        return refused

    async def changed(self) -> None:
        """Nothing says when a process has read the change that it was told of."""

    def _tell(self) -> None:
        if self._news is not None:
            self._news.tell(self._opened.image.brokers)

    async def stop_all(self) -> None:
        if self._news is not None:
            self._news.close()
        if self._metadata is not None:
            await self._metadata.close()
        supervisor = self._supervisor
        if supervisor is not None:
            for pipe in (supervisor.stdin, supervisor.stdout):
                assert pipe is not None
                with suppress(OSError):
                    pipe.close()
            await asyncio.to_thread(supervisor.wait)

    # -- one of them ------------------------------------------------------------------------------

    def check(self, node_id: int) -> None:
        if not 1 <= node_id <= self._count:
            raise BadArgument(f"node {node_id!r:.20}: expected 1 to {self._count}")

    async def kill(self, node_id: int) -> None:
        """The supervisor starts it again at once; `start` waits for that."""
        await self._opened.poll()
        broker = self._opened.image.brokers.get(node_id)
        pid = self._pid(node_id)
        if broker is None or pid is None:
            return
        self._killed[node_id] = broker.epoch
        os.kill(pid, signal.SIGKILL)
        await self._until(lambda: self._pid(node_id) != pid)

    async def start(self, node_id: int) -> None:
        """Return when a node that was killed serves again."""
        if node_id not in self._killed:
            return

        def is_registered() -> bool:
            broker = self._opened.image.brokers.get(node_id)
            return broker is not None and broker.epoch > self._killed[node_id] and not broker.fenced

        await self._until(is_registered)
        while not await _answers(self._opened.image.brokers[node_id]):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)
        del self._killed[node_id]

    async def stop(self, node_id: int) -> None:
        raise BadArgument(
            f"node {node_id}: the supervisor starts every node again; kill it, or leave out "
            "processes=True"
        )

    async def move(self, topic: str, partition: int, node_id: int) -> None:
        """Return when that node has the log."""
        await self._opened.poll()
        image = self._opened.image
        change = moved(image, image.alive, topic, partition, node_id)
        await self._opened.change(change)
        found = image.topics_by_name[topic]
        await self._until(lambda: not self._is_elsewhere(found, partition, node_id))

    def _is_elsewhere(self, topic: Topic, partition: int, node_id: int) -> bool:
        own, name = node_path(self._path, node_id), partition_name(topic.name, partition)
        on_its_way = handover_name(topic.name, partition, topic.topic_id)
        return (self._path / HANDOVER / on_its_way).is_dir() or any(
            path != own and (path / name).is_dir() for path in node_paths(self._path).values()
        )

    async def _until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(SETTLE_SECONDS):
            while not done():
                await asyncio.sleep(LOOK_SECONDS)
                await self._opened.poll()

    def _pid(self, node_id: int) -> int | None:
        """The process of the node that has its directory; None if there is none now."""
        try:
            pid = int((node_path(self._path, node_id) / LOCK_FILE).read_text())
        except (OSError, ValueError):
            return None
        assert self._supervisor is not None
        # The number in the file of a node that died may be that of any other process.
        return pid if _parent(pid) == self._supervisor.pid else None


def _node_id(broker: Broker) -> int:
    return broker.node_id


def _address(broker: Broker) -> tuple[str, int]:
    endpoint = next(iter(broker.listeners.values()))
    return endpoint.host, endpoint.port


async def _answers(broker: Broker) -> bool:
    try:
        _, writer = await asyncio.open_connection(*_address(broker))
    except OSError:
        return False
    writer.close()
    return True


def _parent(pid: int) -> int | None:
    """None if the process has ended."""
    if not Path("/proc/self/stat").exists():  # not Linux
        asked = ["ps", "-o", "ppid=", "-p", str(pid)]
        found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        return int(found) if found else None
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else int(parent)
