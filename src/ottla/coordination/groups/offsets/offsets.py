"""Committed offsets of groups, and their expiry.

Rules: metadata longer than the limit is refused for that partition alone (12); null metadata is ""
from then on, as in Kafka. An offset expires `offsets_retention_ms` after its commit or after its
group became Empty, whichever is later, unless the group still reads the topic; a commit with its
own retention time expires by that alone. All times are wall time, as in the records. Deletion and
expiry are tombstones. While a transaction has an offset pending for a partition, the partition's
committed offset does not expire, and requests for a stable offset get error 88 (retry).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.coordination.groups.keys import OffsetKey
from ottla.coordination.groups.messages import FetchedOffset, PartitionResult
from ottla.coordination.groups.offsets.pending import PendingOffsets
from ottla.coordination.groups.records import OffsetValue
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.coordination.groups.config import GroupConfig
    from ottla.coordination.groups.messages import OffsetCommit, OffsetFetch, OffsetToCommit
    from ottla.coordination.groups.turn import Turn

MAX_TIME_MS: Final = 2**63 - 1  # limit of a record; a client may request any retention


class Offsets:
    """All committed offsets of one partition of `__consumer_offsets`."""

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self.groups: dict[str, dict[tuple[str, int], OffsetValue]] = {}
        self.pending = PendingOffsets()

    def has(self, group_id: str) -> bool:
        return group_id in self.groups or group_id in self.pending.groups

    def group_ids(self) -> set[str]:
        return self.groups.keys() | self.pending.groups.keys()

    def apply(self, key: OffsetKey, value: OffsetValue | None, producer_id: int | None) -> None:
        if value is None:
            self.pending.drop(key)
            self._remove(key)
        elif producer_id is None:
            self.pending.overtake(key)
            self._put(key, value)
        else:
            self.pending.add(producer_id, key, value)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        for key, value in self.pending.end(producer_id, commit=commit):
            self._put(key, value)

    def _put(self, key: OffsetKey, value: OffsetValue) -> None:
        self.groups.setdefault(key.group_id, {})[key.topic, key.partition] = value

    def _remove(self, key: OffsetKey) -> None:
        if (offsets := self.groups.get(key.group_id)) is not None:
            offsets.pop((key.topic, key.partition), None)
            if not offsets:
                del self.groups[key.group_id]

    def commit(self, request: OffsetCommit, turn: Turn) -> tuple[PartitionResult, ...]:
        expire_ms = -1
        if request.retention_ms >= 0:
            expire_ms = min(turn.wall_ms + request.retention_ms, MAX_TIME_MS)
        return tuple(
            PartitionResult(
                item.topic, item.partition, self._commit(request.group_id, item, expire_ms, turn)
            )
            for item in request.offsets
        )

    def _commit(self, group_id: str, item: OffsetToCommit, expire_ms: int, turn: Turn) -> ErrorCode:
        metadata = item.metadata or ""
        if len(metadata.encode()) > self._config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        value = OffsetValue(item.offset, item.leader_epoch, metadata, turn.wall_ms, expire_ms)
        turn.emit(OffsetKey(group_id, item.topic, item.partition), value)
        return ErrorCode.NONE

    def fetch(self, request: OffsetFetch) -> tuple[FetchedOffset, ...]:
        """One entry per requested partition; offset -1 without a commit."""
        stored = self.groups.get(request.group_id, {})
        if request.topics is None:
            wanted = sorted(stored)
        else:
            wanted = [(topic, index) for topic, indexes in request.topics for index in indexes]
        unstable = self._unstable(request.group_id) if request.require_stable else ()
        return tuple(
            FetchedOffset(*pair, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if pair in unstable
            else FetchedOffset(*pair)
            if (value := stored.get(pair)) is None
            else FetchedOffset(*pair, value.offset, value.leader_epoch, value.metadata)
            for pair in wanted
        )

    def _unstable(self, group_id: str) -> Collection[tuple[str, int]]:
        return self.pending.groups.get(group_id, {}).keys()

    def partitions_of(self, group_id: str) -> list[tuple[str, int]]:
        """The partitions with a committed or pending offset."""
        return sorted({*self.groups.get(group_id, ()), *self._unstable(group_id)})

    def delete(self, group_id: str, topic: str, partition: int, turn: Turn) -> None:
        stored = self.groups.get(group_id, {})
        if (topic, partition) in stored or (topic, partition) in self._unstable(group_id):
            turn.emit(OffsetKey(group_id, topic, partition), None)

    def delete_topics(self, topics: frozenset[str], turn: Turn) -> None:
        for group_id in sorted(self.group_ids()):
            for topic, partition in self.partitions_of(group_id):
                if topic in topics:
                    turn.emit(OffsetKey(group_id, topic, partition), None)

    def delete_all(self, group_id: str, turn: Turn) -> None:
        for topic, partition in self.partitions_of(group_id):
            turn.emit(OffsetKey(group_id, topic, partition), None)

    def expire(
        self, group_id: str, read_topics: frozenset[str] | None, since_ms: int, turn: Turn
    ) -> None:
        """Delete expired offsets, but not of `read_topics` (None: of no topic)."""
        unstable = self._unstable(group_id)
        for (topic, partition), value in sorted(
            self.groups.get(group_id, {}).items(), key=lambda item: item[0]
        ):
            if read_topics is None or topic in read_topics or (topic, partition) in unstable:
                continue
            if value.expire_ms != -1:
                expires = value.expire_ms
            else:
                expires = max(since_ms, value.commit_ms) + self._config.offsets_retention_ms
            if turn.wall_ms >= expires:
                turn.emit(OffsetKey(group_id, topic, partition), None)
