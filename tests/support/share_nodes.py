"""Nodes 1 and 2 over one metadata file, in one event loop with a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from inspect import isawaitable
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.running.node import Node
from ottla.broker.topics import create_topic
from ottla.coordination.partitioner import partition_for
from ottla.coordination.share_state.records import ShareKey
from ottla.metadata.changes.topics import Leadership, SetLeaders
from ottla.metadata.config.broker import load_broker_config
from ottla.metadata.image import NO_LEADER
from ottla.metadata.names import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC
from tests.support.share_member import SHARE_CONFIG

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping
    from pathlib import Path
    from uuid import UUID

TOPIC: Final = "queue"
PATIENCE: Final = 30.0
# The counts of partitions differ because Java's hash modulo 2 is a mere sum: with 2 of both, some
# topics would have no such group.
CONFIG: Final = {
    **SHARE_CONFIG,
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "3",
    "listeners": "PLAINTEXT://127.0.0.1:0",
}


class Nodes:
    """To be started and stopped by number; `path` has a directory for each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.running: dict[int, Node] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._names = count(1)

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def do(self, work: Callable[[], Any]) -> Any:
        async def run() -> Any:
            result = work()
            return await result if isawaitable(result) else result

        return self.call(run())

    def start(self, node_id: int, settings: Mapping[str, str] | None = None) -> None:
        chosen = {**CONFIG, **(settings or {}), "node.id": str(node_id)}
        config = load_broker_config(sets=[f"{k}={v}" for k, v in chosen.items()])
        self.running[node_id] = self.call(Node.start(config, self.path, siblings=True))

    def stop(self, node_id: int) -> None:
        self.call(self.running.pop(node_id).stop())

    def close(self) -> None:
        for node_id in tuple(self.running):
            self.stop(node_id)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def bootstrap(self, node_id: int = 1) -> str:
        host, port = self.running[node_id].addresses["PLAINTEXT"]
        return f"{host}:{port}"

    @property
    def topic_id(self) -> UUID:
        return self.running[1].image.topics_by_name[TOPIC].topic_id

    def new_group(self, state_partition: int = 1) -> str:
        """One that node 1 coordinates; its share state belongs on node 2, or on 1 if that is 0."""
        while True:
            group = f"readers-{next(self._names)}"
            key = ShareKey(group, self.topic_id, 0)
            if partition_for(group, 2) == 0 and key.state_partition(3) == state_partition:
                return group

    def make_topics(self) -> None:
        """TOPIC on node 1; partitions 0, 1, ... of the internal topics on nodes 1 and 2 in turn."""
        cluster = self.running[1].cluster
        for topic, policy, partitions in (
            (CONSUMER_OFFSETS_TOPIC, "compact", 2),
            (SHARE_GROUP_STATE_TOPIC, "delete", 3),
            (TOPIC, "delete", 1),
        ):
            assignments = {index: (1 + index % 2,) for index in range(partitions)}
            configs = {"cleanup.policy": policy, "retention.ms": "-1"}
            self.call(create_topic(cluster, topic, assignments=assignments, configs=configs))

    def set_leader(self, topic: str, partition: int, leader: int, *, by: int) -> None:
        """Proposed by one node; the other one does not know yet."""
        metadata = self.running[by].metadata
        replicas = None if leader == NO_LEADER else (leader,)
        topic_id = metadata.image.topics_by_name[topic].topic_id
        change = SetLeaders((Leadership(topic_id, partition, leader, replicas),))
        self.do(lambda: metadata.change(change))


@contextmanager
def three_nodes(path: Path) -> Iterator[Nodes]:
    """Nodes 1 to 3, each of which knows the others."""
    nodes = Nodes(path)
    try:
        for node in (1, 2, 3):
            nodes.start(node)
        wait_for(lambda: all(len(one.image.alive) == 3 for one in nodes.running.values()))
        yield nodes
    finally:
        nodes.close()


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)
