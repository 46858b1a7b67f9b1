"""Clean up segments of deleted topics and unknown objects, in rounds.

- A partition of a deleted topic is deleted from the tier by the node that led it. If that node
  dies, the leader of its metadata partition takes over: at once if the deletion had begun, else
  when the topic has been missing from the image for `ABSENT_MS`.
- A topic that is not tiered any more keeps nothing in the tier. It may be tiered again, so its
  partitions do not get the events that end a partition permanently.
- The scrub, every remote.scrub.interval.ms: objects of no known segment, older than `SCRUB_AGE_MS`,
  of topics whose catalogue is complete.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.broker.tiering.pool import Pool, Work
from ottla.objects.errors import RemoteStorageError
from ottla.tier.catalogue.segments import TopicIdPartition
from ottla.tier.errors import NotReady
from ottla.tier.store.layout import partition_prefix
from ottla.tier.upkeep.expiring import unknown_objects
from ottla.tier.upkeep.partition_delete import delete_partition

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.tiering.tiering import Tiering
    from ottla.metadata.image import Topic
    from ottla.tier.catalogue.catalogue import Catalogue

ABSENT_MS: Final = 5 * 60_000
SCRUB_AGE_MS: Final = 7 * 86_400_000
SCRUB_MARK: Final = "last-scrub"

logger = logging.getLogger(__name__)


class Sweeps:
    """One round at a time; what fails is tried again in the next."""

    def __init__(self, tiering: Tiering) -> None:
        self.work = Work(Pool(lambda: 1), self._round)
        self.error: str | None = None
        self._tiering = tiering
        self._deleted: dict[tuple[UUID, int], TopicIdPartition] = {}
        """Partitions whose topic was deleted while this node led them."""
        self._absent_since: dict[UUID, int] = {}
        self._deleting: TopicIdPartition | None = None

    def topic_deleted(self, topic: Topic) -> None:
        for index, partition in enumerate(topic.partitions):
            if partition.leader == self._tiering.cluster.node_id:
                tip = TopicIdPartition(topic.topic_id, topic.name, index)
                self._deleted[tip.identity] = tip

    def pending(self) -> list[TopicIdPartition]:
        """Partitions of deleted topics that are not deleted here yet."""
        return list(self._deleted.values())

    def is_deleting(self, tip: TopicIdPartition) -> bool:
        """Whether all objects of the partition are being removed: a bad time for new ones."""
        return self._deleting == tip

    async def _round(self) -> None:
        if self._tiering.manager is None:
            return
        try:
            await self._delete_partitions()
            await self._scrub()
            await self._tiering.indexes.expire()
            self._tiering.reads.expire()
        except NotReady:
            return
        except (RemoteStorageError, OSError) as error:
            self.error = str(error)
            logger.warning("sweep of the remote tier: %s", error)
        else:
            self.error = None

    # -- partitions that are gone -----------------------------------------------------------------

    async def _delete_partitions(self) -> None:
        for tip, is_gone in self._to_delete():
            if not is_gone and tip.identity in self._tiering.partitions:
                continue  # tiered again meanwhile
            self._deleting = tip
            try:
                await self._delete_partition(tip, is_gone=is_gone)
            except NotReady:
                continue  # the next round knows more; the others need not wait for that
            finally:
                self._deleting = None
                self._tiering.look_again()

    async def _delete_partition(self, tip: TopicIdPartition, *, is_gone: bool) -> None:
        tiering = self._tiering
        tiering.count("delete_requests", tip.topic)
        segments = [one.id.id for one in self._catalogue_of(tip).cache(tip).segments.values()]
        await delete_partition(
            tiering.catalogue,
            tiering.storage,
            tip,
            broker_id=tiering.cluster.node_id,
            clock_ms=tiering.clock.wall_ms,
            publish_events=is_gone
            and tiering.cluster.config.get_bool("remote.partition.delete.events"),
        )
        await tiering.indexes.evict(segments)
        if self._deleted.pop(tip.identity, None) is not None:
            tiering.catalogue.on_stop_partitions([tip])

    def _catalogue_of(self, tip: TopicIdPartition) -> Catalogue:
        return self._tiering.catalogue.catalogue_of(tip)

    def _to_delete(self) -> list[tuple[TopicIdPartition, bool]]:
        """Each with whether its topic was deleted or is no longer tiered."""
        tiering = self._tiering
        image, now = tiering.cluster.image, tiering.clock.monotonic_ms()
        found = [(tip, True) for tip in self._deleted.values()]
        manager = self._tiering.manager
        catalogues = {} if manager is None else manager.catalogues()
        for catalogue in catalogues.values():
            for tip in catalogue.tips():
                if tip.identity in self._deleted or tip.identity in self._tiering.partitions:
                    continue
                if tip.topic_id in image.topic_names:
                    if catalogue.cache(tip).segments and self._is_mine(tip):
                        found.append((tip, False))
                    continue
                since = self._absent_since.setdefault(tip.topic_id, now)
                if catalogue.delete_state(tip) is not None or now - since >= ABSENT_MS:
                    found.append((tip, True))
        return found

    def _is_mine(self, tip: TopicIdPartition) -> bool:
        """Whether the partition, of a topic that is there and not tiered, is led by this node."""
        topic = self._tiering.cluster.image.topic_by_id(tip.topic_id)
        return (
            topic is not None
            and not self._tiering.is_tiered(topic.name)
            and topic.partitions[tip.partition].leader == self._tiering.cluster.node_id
        )

    # -- objects that nobody knows ----------------------------------------------------------------

    async def _scrub(self) -> None:
        tiering = self._tiering
        storage = tiering.data.storage
        mark = tiering.catalogue_directory / SCRUB_MARK
        try:
            last = storage.mtime_ms(mark)
        except FileNotFoundError:
            last = 0
        if tiering.clock.wall_ms() - last < tiering.setting("remote.scrub.interval.ms"):
            return
        for one in tuple(tiering.partitions.values()):
            if not one.is_whole:
                return
            await self._scrub_partition(one.tip)
        storage.write_file(mark, b"")

    async def _scrub_partition(self, tip: TopicIdPartition) -> None:
        storage = self._tiering.storage
        found = [one async for one in storage.store.list(partition_prefix(storage.prefix, tip))]
        # Asked for after the listing: a copy that began meanwhile is known now.
        known = self._catalogue_of(tip).cache(tip).segments
        now_ms = self._tiering.clock.wall_ms()
        for key in unknown_objects(found, known, now_ms=now_ms, age_ms=SCRUB_AGE_MS):
            await storage.store.delete(key)
            self._tiering.count("unknown_objects_deleted", tip.topic)
