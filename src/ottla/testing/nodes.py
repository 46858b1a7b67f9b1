"""The nodes of an `EmbeddedBroker`, in its event loop: start, stop, kill and move.

One node is one that stands alone. Several share the directory and the metadata, as those of
`ottla broker --nodes` do, but are no processes: to kill one is to close its sockets and files.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.broker.running.children import PORT_STEP
from ottla.broker.running.node import Node
from ottla.client.errors import BadArgument
from ottla.log.checkpoints import TopicPartition
from ottla.log.directory import check_unsupervised
from ottla.metadata.changes.topics import Leadership, SetLeaders

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from pathlib import Path

    from ottla.broker.cluster import Cluster
    from ottla.metadata.config.broker import BrokerConfig
    from ottla.metadata.image import MetadataImage

SETTLE_SECONDS: Final = 30.0  # logs are renamed within milliseconds, unless a disk is stuck
LOOK_SECONDS: Final = 0.001


class Nodes:
    """Those that run, by their ids from 1 on."""

    def __init__(
        self,
        configure: Callable[[int, int], BrokerConfig],
        path: Path,
        *,
        count: int,
        port: int,
        ephemeral: bool,
    ) -> None:
        """`configure(node, port)` is the configuration of a node."""
        self._configure = configure
        self._path = path
        self._is_one = count == 1
        # A node that is started again has the port that clients know.
        self._ports = {
            node_id: port and port + (0 if self._is_one else PORT_STEP * node_id)
            for node_id in range(1, count + 1)
        }
        self._ephemeral = ephemeral
        self.running: dict[int, Node] = {}

    @property
    def any(self) -> Node:
        return next(iter(self.running.values()))

    @property
    def cluster(self) -> Cluster:
        return self.any.cluster

    @property
    def addresses(self) -> dict[int, str]:
        return {
            node_id: "{}:{}".format(*next(iter(node.addresses.values())))
            for node_id, node in sorted(self.running.items())
        }

    @property
    def registry_url(self) -> str | None:
        return self.any.registry_url

    @property
    def console_url(self) -> str | None:
        found = (node.console.url for node in self.running.values() if node.console is not None)
        return next(found, None)

    async def start_all(self) -> None:
        first, *others = self._ports
        if others:
            check_unsupervised(self._path)
        await self._start(first)
        await asyncio.gather(*map(self._start, others))
        if others:
            from ottla.broker.membership.retirement import retire_above

            if max(self.any.image.brokers) > len(self._ports):
                await self.any.metadata.change(retire_above(len(self._ports)))
            await self._settled()

    async def _start(self, node_id: int) -> None:
        node = await Node.start(
            self._configure(node_id, self._ports[node_id]),
            self._path,
            ephemeral=self._ephemeral,
            siblings=not self._is_one,
        )
        self.running[node_id] = node
        if not self._is_one:
            self._ports[node_id] = next(iter(node.addresses.values()))[1]

    async def stop_all(self) -> None:
        for node_id in tuple(self.running):
            await self.running.pop(node_id).stop()

    # -- several ----------------------------------------------------------------------------------

    def check(self, node_id: int) -> None:
        if self._is_one:
            raise BadArgument("this broker has one node; make it with nodes=3")
        if node_id not in self._ports:
            raise BadArgument(f"node {node_id!r:.20}: expected one of {list(self._ports)}")

    async def start(self, node_id: int) -> None:
        """Start it again; partitions for which it comes first return to it."""
        if node_id in self.running:
            return
        await self._start(node_id)
        await self._change_leaders(
            Leadership(topic.topic_id, index, node_id)
            for topic in self.any.image.topics_by_name.values()
            for index, partition in enumerate(topic.partitions)
            if partition.replicas[0] == node_id and partition.leader != node_id
        )
        await self._settled()

    async def kill(self, node_id: int) -> None:
        node = self.running.pop(node_id, None)
        if node is not None:
            await node.kill()

    async def stop(self, node_id: int) -> None:
        """End a node, or give up one that was killed: the others lead its partitions."""
        leaving = self.running.pop(node_id, None)
        if self.running:
            await self._replace(node_id)
            if leaving is not None:
                await _until(lambda: not _others_wait_for(leaving))
        if leaving is not None:
            await leaving.stop()
        await self._settled()

    async def _replace(self, node_id: int) -> None:
        from ottla.broker.membership.retirement import replace_node

        await self.any.metadata.change(replace_node(node_id))

    async def move(self, topic: str, partition: int, node_id: int) -> None:
        """Return when that node serves it."""
        change = moved(self.any.image, self.running, topic, partition, node_id)
        await self.any.metadata.change(change)
        await self._settled()

    async def _change_leaders(self, leaderships: Iterable[Leadership]) -> None:
        new = tuple(leaderships)
        if new:
            await self.any.metadata.change(SetLeaders(new))

    async def changed(self) -> None:
        """Return when every node knows what was changed through one of them."""
        if not self._is_one:
            await self._settled()

    async def _settled(self) -> None:
        """Every node knows what it leads, and has it."""
        if self.running:
            newest = max(node.image.version for node in self.running.values())
            await _until(
                lambda: all(
                    node.image.version >= newest and not any(_missing(node))
                    for node in self.running.values()
                )
            )


def moved(
    image: MetadataImage, running: Container[int], topic: str, partition: int, node_id: int
) -> SetLeaders:
    """The change after which that node leads the partition."""
    if node_id not in running:
        raise BadArgument(f"node {node_id} is not running; start it before it can lead")
    found = image.topic(topic)
    if found is None or not 0 <= partition < len(found.partitions):
        raise BadArgument(f"{topic!r:.60}-{partition} does not exist")
    # It comes first from now on, in place of the one that did.
    before = found.partitions[partition].replicas
    others = before if node_id in before else before[1:]
    replicas = (node_id, *(one for one in others if one != node_id))
    return SetLeaders((Leadership(found.topic_id, partition, node_id, replicas),))


def _missing(node: Node) -> Iterable[TopicPartition]:
    """Logs that it leads, and for which it is still looking."""
    for topic in node.image.topics_by_name.values():
        for index, partition in enumerate(topic.partitions):
            name = TopicPartition(topic.name, index)
            is_here = node.data.has(name) or not node.data.may_have(name)
            if partition.leader == node.node_id and not is_here:
                yield name


def _others_wait_for(node: Node) -> bool:
    """Whether it has logs that other nodes lead."""
    topics = node.image.topics_by_name
    return any(
        topics[name.topic].partitions[name.partition].leader != node.node_id
        for name in node.data.all_on_disk()
        if name.topic in topics
    )


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(SETTLE_SECONDS):
        while not done():  # noqa: ASYNC110 (several nodes get there, by several ways)
            await asyncio.sleep(LOOK_SECONDS)
