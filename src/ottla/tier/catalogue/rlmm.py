"""RemoteLogMetadataManager: the catalogue as the broker sees it.

A mutation returns when its event is durable and visible to the questions below. Questions are
answered from memory, at once, or refused with `NotReady`: "not there" is said only by a manager
that knows. `InMemoryRlmm` keeps nothing; `NotReadyRlmm` refuses everything; `SwappableRlmm` lets a
broker start on the second and go on with a real one. The topic-backed one is in `topic_rlmm`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NoReturn

from ottla.objects.errors import RemoteNotFound
from ottla.tier.catalogue.catalogue import Catalogue
from ottla.tier.catalogue.lineage import Verdict
from ottla.tier.catalogue.segments import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
    TopicIdPartition,
)
from ottla.tier.errors import InvalidAdd, InvalidUpdate, NotReady, StaleSegmentState

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.tier.catalogue.lineage import RemoteLogMetadataCache


def check_event(event: MetadataEvent) -> None:
    """Additions start a copy, updates never do; Kafka's reader stops for good on others."""
    if isinstance(event, RemoteLogSegmentMetadata):
        if event.state is not SegmentState.COPY_SEGMENT_STARTED:
            raise InvalidAdd(f"add {event.id} in state {event.state.name}; update it instead")
    elif (
        isinstance(event, RemoteLogSegmentMetadataUpdate)
        and event.state is SegmentState.COPY_SEGMENT_STARTED
    ):
        raise InvalidUpdate(f"update {event.id} to {event.state.name}; add it instead")


def refuse(verdict: Verdict, event: MetadataEvent) -> None:
    """Raise the error for a verdict other than APPLIED."""
    if verdict is Verdict.UNKNOWN_SEGMENT:
        raise RemoteNotFound(f"the catalogue has no segment or partition for {event}")
    if verdict is Verdict.ILLEGAL_TRANSITION:
        raise StaleSegmentState(f"{event} is not valid in the current state of the catalogue")


class RemoteLogMetadataManager(ABC):
    """Implementations provide `publish`, `catalogue_of` and assignments."""

    @abstractmethod
    async def publish(self, event: MetadataEvent) -> None:
        """Make one event durable and wait until the catalogue shows it."""

    @abstractmethod
    def catalogue_of(self, tip: TopicIdPartition) -> Catalogue:
        """The catalogue that knows the partition, or `NotReady`."""

    @abstractmethod
    def on_partition_leadership_changes(
        self, leaders: Collection[TopicIdPartition], followers: Collection[TopicIdPartition]
    ) -> None:
        """This broker now leads and follows these tiered partitions, besides the ones before."""

    @abstractmethod
    def on_stop_partitions(self, tips: Collection[TopicIdPartition]) -> None:
        """This broker does not host these partitions any more."""

    async def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> None:
        """A copy starts; `InvalidAdd` if the state says otherwise."""
        await self.publish(metadata)

    async def update_remote_log_segment_metadata(
        self, update: RemoteLogSegmentMetadataUpdate
    ) -> None:
        """A segment's next state; the custom metadata is replaced, by nothing if it is None."""
        await self.publish(update)

    async def put_remote_partition_delete_metadata(
        self, delete: RemotePartitionDeleteMetadata
    ) -> None:
        """The next state of a partition's deletion."""
        await self.publish(delete)

    def _cache(self, tip: TopicIdPartition) -> RemoteLogMetadataCache:
        return self.catalogue_of(tip).cache(tip)

    def remote_log_segment_metadata(
        self, tip: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The finished segment that holds this offset of this epoch."""
        return self._cache(tip).find(epoch, offset)

    def highest_offset_for_epoch(self, tip: TopicIdPartition, epoch: int) -> int | None:
        """The last offset of the epoch that was ever finished; deletions do not lower it."""
        return self._cache(tip).highest_offset(epoch)

    def list_remote_log_segments(
        self, tip: TopicIdPartition, epoch: int | None = None
    ) -> list[RemoteLogSegmentMetadata]:
        """All segments that are not deleted, in any state; those of an epoch by start offset."""
        cache = self._cache(tip)
        return list(cache.segments.values()) if epoch is None else cache.list_epoch(epoch)

    def next_segment_with_txn_index(
        self, tip: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The first finished segment at or after the offset that may have aborted transactions."""
        return self._cache(tip).next_with_txn_index(epoch, offset)

    def remote_log_size(self, tip: TopicIdPartition, epoch: int) -> int:
        """Bytes of all segments that the epoch has in the store."""
        return sum(one.segment_size for one in self._cache(tip).list_epoch(epoch))

    def is_ready(self, tip: TopicIdPartition) -> bool:
        """Whether questions about the partition are answered now."""
        try:
            self.catalogue_of(tip)
        except NotReady:
            return False
        return True

    async def close(self) -> None:
        """Stop what runs in the background."""
        return


class InMemoryRlmm(RemoteLogMetadataManager):
    """A catalogue that ends with the process: for one broker, and for tests."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()

    async def publish(self, event: MetadataEvent) -> None:
        check_event(event)
        refuse(self.catalogue.apply(event), event)

    def catalogue_of(self, tip: TopicIdPartition) -> Catalogue:
        del tip
        return self.catalogue

    def on_partition_leadership_changes(
        self, leaders: Collection[TopicIdPartition], followers: Collection[TopicIdPartition]
    ) -> None:
        del leaders, followers

    def on_stop_partitions(self, tips: Collection[TopicIdPartition]) -> None:
        del tips


class NotReadyRlmm(RemoteLogMetadataManager):
    """Fails closed: nothing is copied, or called missing, before there is a catalogue."""

    @staticmethod
    def _refuse() -> NoReturn:
        raise NotReady("the catalogue of remote segments is not loaded yet; try again")

    async def publish(self, event: MetadataEvent) -> None:
        del event
        self._refuse()

    def catalogue_of(self, tip: TopicIdPartition) -> Catalogue:
        del tip
        self._refuse()

    def on_partition_leadership_changes(
        self, leaders: Collection[TopicIdPartition], followers: Collection[TopicIdPartition]
    ) -> None:
        del leaders, followers
        self._refuse()

    def on_stop_partitions(self, tips: Collection[TopicIdPartition]) -> None:
        del tips
        self._refuse()


class SwappableRlmm(RemoteLogMetadataManager):
    """Passes every call to the manager of the moment; a call ends on the one it began with."""

    def __init__(self, target: RemoteLogMetadataManager) -> None:
        self._target = target

    @property
    def target(self) -> RemoteLogMetadataManager:
        return self._target

    def swap(self, target: RemoteLogMetadataManager) -> RemoteLogMetadataManager:
        """Calls from now on go to `target`; the manager before it is returned, to be closed."""
        before, self._target = self._target, target
        return before

    async def publish(self, event: MetadataEvent) -> None:
        await self._target.publish(event)

    def catalogue_of(self, tip: TopicIdPartition) -> Catalogue:
        return self._target.catalogue_of(tip)

    def on_partition_leadership_changes(
        self, leaders: Collection[TopicIdPartition], followers: Collection[TopicIdPartition]
    ) -> None:
        self._target.on_partition_leadership_changes(leaders, followers)

    def on_stop_partitions(self, tips: Collection[TopicIdPartition]) -> None:
        self._target.on_stop_partitions(tips)

    async def close(self) -> None:
        await self._target.close()
