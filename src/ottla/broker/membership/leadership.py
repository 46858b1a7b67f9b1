"""A node among others on one machine: it brings the logs that it leads, and hears of changes.

Who leads which partition stands in the image, and anybody may change it. A node that learns that
another one leads releases the log (`ottla.broker.hosting.partitions`); the one that leads looks for
it here, as soon as it learns of it, whenever a sibling sends a datagram, and now and then:

- in the directories of its siblings and in `handover/`: see `ottla.broker.membership.handover`;
- in `handover/` also for partitions that were nowhere before, because a node that learns late may
  have written to them;
- what is in `handover/` of a topic that was deleted is removed.

Changes of users, ACLs and quotas are answered when the other nodes have read them (`spread`): a
right that was taken away counts nowhere any more, and a new user can come in anywhere.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.membership.handover import Handover
from ottla.broker.membership.news import News
from ottla.broker.membership.places import Places
from ottla.log.checkpoints import TopicPartition
from ottla.log.errors import NotArrived
from ottla.metadata.delta import delta
from ottla.metadata.errors import StoreError
from ottla.metadata.metadata import at_once

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ottla.broker.hosting.data import Data
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.workers import Workers
    from ottla.metadata.image import MetadataImage, Topic
    from ottla.metadata.metadata import Metadata

LOOK_SECONDS: Final = 0.25  # without news, for what is awaited
REST_SECONDS: Final = 1.0  # without news, for what a node that learned late has released
# For other nodes to read a change; milliseconds, unless one is stopped or about to die.
SPREAD_SECONDS: Final = 1.0
AT_ONCE: Final = 64  # logs that are looked for with one lock of all moves

logger = logging.getLogger(__name__)


class Leadership:
    """What the other nodes of the machine have to do with this one."""

    def __init__(
        self,
        root: Path,
        node_id: int,
        metadata: Metadata,
        data: Data,
        partitions: Partitions,
        workers: Workers,
        *,
        ephemeral: bool,
        accept_loss: bool,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._data = data
        self._partitions = partitions
        self._workers = workers
        self._places = Places(root, node_id, data.storage)
        data.share(Handover(self._places, ephemeral=ephemeral, accept_loss=accept_loss))
        self._news = News(root, node_id, self._heard, self._asked, self._answered)
        metadata.proposed = partitions.released = self._tell
        metadata.spread = self.spread
        self._askers: set[int] = set()  # nodes that want to know when this one has looked
        self._spreading: dict[asyncio.Future[None], tuple[int, set[int]]] = {}
        self._awaited: set[TopicPartition] = set()
        self._looks = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._poll: asyncio.Task[None] | None = None
        self._has_news = False

    @property
    def is_deaf(self) -> bool:
        """Whether siblings cannot tell it of changes."""
        return self._news.is_deaf

    @property
    def awaited(self) -> int:
        """Logs that it leads and is looking for."""
        return len(self._awaited)

    @property
    def adopted(self) -> int:
        """Logs that came from other nodes since the start."""
        return self._partitions.adopted

    @property
    def released(self) -> int:
        """Logs that went to other nodes since the start."""
        return self._partitions.handed_over

    def start(self) -> None:
        """The node is registered: all that it leads may be with others, and the reverse."""
        self._partitions.depart(self._data.all_on_disk())
        for topic in self._metadata.image.topics_by_name.values():
            self._await(topic)
        self._task = asyncio.create_task(self._run())
        self._heard()  # what was changed since this node registered, and was told to nobody here

    async def stop(self) -> None:
        """Bring nothing more; what is on its way stays there."""
        self._metadata.proposed = self._partitions.released = lambda: None
        self._metadata.spread = at_once
        tasks = [task for task in (self._task, self._poll) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._news.close()

    def image_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        changes = delta(before, after)
        for topic in (*changes.created, *(new for _, new in changes.changed)):
            self._await(topic)
        if self._awaited:
            self._looks.set()

    def _await(self, topic: Topic) -> None:
        for index, partition in enumerate(topic.partitions):
            if partition.leader == self._node_id:
                name = TopicPartition(topic.name, index)
                if self._data.may_have(name) and not self._data.has(name):
                    self._awaited.add(name)

    # -- news -------------------------------------------------------------------------------------

    def _tell(self) -> None:
        self._news.tell(self._metadata.image.brokers)

    def _heard(self) -> None:
        if self._task is None:
            return  # the node does not follow the image yet
        self._has_news = True
        if self._poll is None or self._poll.done():
            self._poll = asyncio.create_task(self._look_at_store())
        self._looks.set()

    async def _look_at_store(self) -> None:
        # A change that is told while the store is being read may not be in what was read.
        while self._has_news:
            self._has_news = False
            with suppress(StoreError):  # the regular look reports it
                await self._metadata.poll()
        askers, self._askers = self._askers, set()
        for node_id in askers:
            self._news.answer(node_id, self._metadata.image.version)

    async def spread(self, version: int) -> None:
        """Until all nodes that are up have this version of the metadata, or a second is over."""
        brokers = self._metadata.image.brokers.values()
        missing = self._news.ask(one.node_id for one in brokers if not one.fenced)
        if not missing:
            return
        done = asyncio.get_running_loop().create_future()
        self._spreading[done] = version, missing
        try:
            async with asyncio.timeout(SPREAD_SECONDS):
                await done
        except TimeoutError:
            logger.warning("nodes %s have not read version %d yet", sorted(missing), version)
        finally:
            del self._spreading[done]

    def _asked(self, node_id: int) -> None:
        self._askers.add(node_id)

    def _answered(self, node_id: int, version: int) -> None:
        for done, (wanted, missing) in self._spreading.items():
            if version >= wanted:
                missing.discard(node_id)
                if not missing and not done.done():
                    done.set_result(None)

    # -- looking ----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            pause = LOOK_SECONDS if self._awaited or self.is_deaf else REST_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._looks.wait()
            self._looks.clear()
            try:
                await self.look()
            except Exception:
                logger.exception("looking for partitions of other nodes failed")

    async def look(self) -> None:
        """Bring what can be had now."""
        await self._look_on_the_way()
        self._partitions.depart_again()
        names = sorted(self._awaited)
        for start in range(0, len(names), AT_ONCE):
            await self._bring(names[start : start + AT_ONCE])

    async def _look_on_the_way(self) -> None:
        on_their_way = await self._workers.run(self._places.on_their_way)
        if not on_their_way:
            return
        image = self._metadata.image
        if any(image.topic_by_id(place.topic_id) is None for place in on_their_way):
            image = await self._metadata.poll()  # so that an unknown topic is a deleted one
        deleted = []
        for place, path in on_their_way.items():
            topic = image.topic_by_id(place.topic_id)
            if topic is None:
                deleted.append(path)
            elif topic.partitions[place.partition].leader == self._node_id:
                name = TopicPartition(topic.name, place.partition)
                if not self._data.has(name):
                    self._data.seek_again(name)
                    self._awaited.add(name)
        if deleted:
            await self._workers.run(partial(_remove, deleted))

    async def _bring(self, names: Sequence[TopicPartition]) -> None:
        results = await self._partitions.bring(names)
        for name in names:
            if self._is_settled(name):
                self._awaited.discard(name)
                continue
            error = None if (brought := results.get(name)) is None else brought.error
            if error is not None and not isinstance(error, NotArrived):
                self._partitions.tell(name, error)

    def _is_settled(self, name: TopicPartition) -> bool:
        """Whether it is here, is nowhere, or is not this node's."""
        topic = self._metadata.image.topic(name.topic)
        if topic is None or topic.partitions[name.partition].leader != self._node_id:
            return True
        return self._data.has(name) or not self._data.may_have(name)


def _remove(paths: Iterable[Path]) -> None:
    from shutil import rmtree

    for path in paths:
        rmtree(path, ignore_errors=True)  # what is left is removed by the next look
