"""The catalogue of many partitions: the one fold behind every metadata manager.

`apply` never raises for what an event says: replay meets whatever was written. A manager looks at
the verdict, and asks `judge` before it writes. After DELETE_PARTITION_FINISHED, the last event a
partition ever has, its segments are forgotten and no event is legal but that one.

Partitions that come from a snapshot stay bytes (`defer`) until the first event or question: a
broker that restarts with a hundred thousand segments serves at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.tier.catalogue.lineage import RemoteLogMetadataCache, Verdict
from ottla.tier.catalogue.segments import (
    PARTITION_DELETE_TRANSITIONS,
    MetadataEvent,
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    SegmentState,
    TopicIdPartition,
    event_tip,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from uuid import UUID


class Deferred(NamedTuple):
    """A partition in a snapshot, decoded when it is first used."""

    tip: TopicIdPartition
    entries: Sequence[bytes]
    thaw: Callable[[Catalogue, Sequence[bytes]], None]


class Catalogue:
    """Segments and partition deletions, by partition identity."""

    __slots__ = ("_caches", "_deferred", "_deletes", "_tips")

    def __init__(self) -> None:
        self._caches: dict[tuple[UUID, int], RemoteLogMetadataCache] = {}
        self._tips: dict[tuple[UUID, int], TopicIdPartition] = {}
        self._deletes: dict[tuple[UUID, int], RemotePartitionDeleteMetadata] = {}
        self._deferred: dict[tuple[UUID, int], Deferred] = {}

    def apply(self, event: MetadataEvent) -> Verdict:
        """Take in one event of the log."""
        tip = event_tip(event)
        self._thaw(tip)
        if isinstance(event, RemotePartitionDeleteMetadata):
            return self._apply_delete(event)
        if self._is_gone(tip):
            return Verdict.ILLEGAL_TRANSITION
        if isinstance(event, RemoteLogSegmentMetadata):
            return self._cache_for(tip).add(event)
        cache = self._caches.get(tip.identity)
        return Verdict.UNKNOWN_SEGMENT if cache is None else cache.update(event)

    def judge(self, event: MetadataEvent) -> Verdict:
        """The verdict of `apply`, without applying."""
        tip = event_tip(event)
        self._thaw(tip)
        if isinstance(event, RemotePartitionDeleteMetadata):
            return self._judge_delete(event)
        if self._is_gone(tip):
            return Verdict.ILLEGAL_TRANSITION
        cache = self._caches.get(tip.identity) or RemoteLogMetadataCache()
        return cache.judge(event.id.id, event.state)

    def reflects(self, event: MetadataEvent) -> bool:
        """Whether the catalogue has the state that the event sets."""
        tip = event_tip(event)
        if isinstance(event, RemotePartitionDeleteMetadata):
            return self.delete_state(tip) is event.state
        held = self.cache(tip).segments.get(event.id.id)
        if event.state is SegmentState.DELETE_SEGMENT_FINISHED:
            return held is None
        return held is not None and held.state is event.state

    def _is_gone(self, tip: TopicIdPartition) -> bool:
        return self.delete_state(tip) is PartitionDeleteState.DELETE_PARTITION_FINISHED

    def _judge_delete(self, event: RemotePartitionDeleteMetadata) -> Verdict:
        allowed = PARTITION_DELETE_TRANSITIONS[self.delete_state(event.tip)]
        return Verdict.APPLIED if event.state in allowed else Verdict.ILLEGAL_TRANSITION

    def _apply_delete(self, event: RemotePartitionDeleteMetadata) -> Verdict:
        verdict = self._judge_delete(event)
        if verdict is Verdict.APPLIED:
            self.put_delete(event)
        return verdict

    def _cache_for(self, tip: TopicIdPartition) -> RemoteLogMetadataCache:
        self._tips.setdefault(tip.identity, tip)
        return self._caches.setdefault(tip.identity, RemoteLogMetadataCache())

    # From a snapshot: its events were checked before.

    def defer(self, deferred: Deferred) -> None:
        """Take in a partition's entries without reading them yet."""
        self._tips.setdefault(deferred.tip.identity, deferred.tip)
        self._deferred[deferred.tip.identity] = deferred

    def _thaw(self, tip: TopicIdPartition) -> None:
        waiting = self._deferred.pop(tip.identity, None)
        if waiting is not None:
            waiting.thaw(self, waiting.entries)

    def put_segment(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._cache_for(metadata.tip).put(metadata)

    def put_delete(self, event: RemotePartitionDeleteMetadata) -> None:
        self._tips.setdefault(event.tip.identity, event.tip)
        self._deletes[event.tip.identity] = event
        if event.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
            self._caches.pop(event.tip.identity, None)

    def put_highest(self, tip: TopicIdPartition, epoch: int, offset: int) -> None:
        self._cache_for(tip).raise_highest(epoch, offset)

    # Questions

    def cache(self, tip: TopicIdPartition) -> RemoteLogMetadataCache:
        """The partition's segments; an empty cache where there are none."""
        self._thaw(tip)
        return self._caches.get(tip.identity) or RemoteLogMetadataCache()

    def caches(self) -> Iterator[tuple[TopicIdPartition, RemoteLogMetadataCache]]:
        """Every partition that is not deferred."""
        return ((self._tips[key], cache) for key, cache in self._caches.items())

    def deferred(self) -> Iterator[Deferred]:
        return iter(self._deferred.values())

    def deletes(self) -> Iterator[RemotePartitionDeleteMetadata]:
        return iter(self._deletes.values())

    def delete_state(self, tip: TopicIdPartition) -> PartitionDeleteState | None:
        self._thaw(tip)
        found = self._deletes.get(tip.identity)
        return None if found is None else found.state

    def tips(self) -> list[TopicIdPartition]:
        """Every partition with segments or a deletion under way."""
        return [tip for tip in list(self._tips.values()) if not self._is_gone(tip)]
