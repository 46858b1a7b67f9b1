"""The partitions this node leads: each a log, a leader epoch, and those who wait for more.

A log is opened when it is first needed. A topic of fifty partitions of which one is used costs
one directory, and a broker with nothing on disk starts without touching any.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.errors import ApiError
from ottla.log.config import LogConfig
from ottla.log.errors import LogError
from ottla.metadata.config.values import resolve_topic_config
from ottla.metadata.delta import delta
from ottla.metadata.image import ResourceType
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from ottla.broker.cluster import Cluster
    from ottla.broker.coordinators.admission import Verification
    from ottla.broker.hosting.data import Data
    from ottla.log.partition import PartitionLog
    from ottla.metadata.image import MetadataImage, Topic

    Appended = Callable[[Sequence["HostedPartition"]], Awaitable[None] | None]
    """Called after appends; gives what to await for their durability, if that is asked for."""

logger = logging.getLogger(__name__)


@lru_cache(maxsize=4096)
def topic_uuid(topic_id: bytes) -> UUID:
    """An id from the wire as the image knows it; the same ones come in request after request."""
    return UUID(bytes=topic_id)


class HostedPartition:
    """One partition led by this node."""

    __slots__ = (
        "__weakref__",
        "dirty_since",
        "gone",
        "index",
        "internal",
        "leader_epoch",
        "log",
        "topic",
        "topic_id",
        "verifications",
        "waiters",
    )

    def __init__(self, topic: Topic, index: int, log: PartitionLog) -> None:
        self.topic = topic.name
        self.internal = topic.internal
        self.topic_id = topic.topic_id.bytes
        self.index = index
        self.leader_epoch = topic.partitions[index].leader_epoch
        self.log = log
        self.gone = False  # deleted, or led by another node now: the log is closed
        self.waiters: set[Callable[[], None]] = set()
        self.dirty_since: float | None = None
        # What is being found out about transactions that have nothing here yet, by producer id.
        self.verifications: dict[int, Verification] = {}

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.index}>"

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client that knows an older or a newer leadership; -1 does not say."""
        if current_leader_epoch in (-1, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def flush_due(self, now: float) -> bool:
        """Whether flush.ms has passed since the first append that is not synced."""
        if not self.log.unflushed:
            self.dirty_since = None
            return False
        if self.dirty_since is None:
            self.dirty_since = now
        return now - self.dirty_since >= self.log.config.flush_ms / 1000

    def advance(self, offset: int) -> None:
        """Let readers see up to `offset`, and wake those who wait for that."""
        before = self.log.high_watermark
        if self.log.advance_high_watermark(offset) != before:
            self.wake()

    def wake(self) -> None:
        """Wake all who wait; whoever waits from now on is in another set."""
        waiters, self.waiters = self.waiters, set()
        for waiter in waiters:
            waiter()


class Partitions:
    """Finds partitions by topic and index, and follows the metadata image."""

    def __init__(self, cluster: Cluster, data: Data) -> None:
        self._cluster = cluster
        self._data = data
        self._hosted: dict[tuple[str, int], HostedPartition] = {}

    def __iter__(self) -> Iterator[HostedPartition]:
        return iter(tuple(self._hosted.values()))

    def find(self, topic: str, index: int) -> HostedPartition:
        """The partition, opened if need be; ApiError or LogError when it cannot be served."""
        hosted = self._hosted.get((topic, index))
        return self._open(topic, index) if hosted is None else hosted

    def find_by_id(self, topic_id: bytes, index: int) -> HostedPartition:
        name = self._cluster.image.topic_names.get(topic_uuid(topic_id))
        if name is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self.find(name, index)

    def _open(self, name: str, index: int) -> HostedPartition:
        image = self._cluster.image
        topic = image.topic(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic.partitions[index].leader != self._cluster.node_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self._data.open_log(name, index, topic.topic_id, self.log_config(name))
        hosted = HostedPartition(topic, index, log)
        self._hosted[name, index] = hosted
        return hosted

    def log_config(self, topic: str) -> LogConfig:
        effective = resolve_topic_config(self._cluster.image, topic, self._cluster.config)
        values = {key: entry.value for key, entry in effective.items()}
        return LogConfig.from_topic_configs(
            {key: value for key, value in values.items() if value is not None}
        )

    def image_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        """Drop what is gone, adopt new leader epochs and settings."""
        changes = delta(before, after)
        for topic in changes.deleted:
            for index in range(len(topic.partitions)):
                self._delete(topic, index)
        for _, topic in changes.changed:
            for index, partition in enumerate(topic.partitions):
                hosted = self._hosted.get((topic.name, index))
                if hosted is not None and partition.leader != self._cluster.node_id:
                    self._give_up(hosted)
                elif hosted is not None:
                    hosted.leader_epoch = partition.leader_epoch
        touched = {name for kind, name in changes.configs if kind is ResourceType.TOPIC}
        everything = any(kind is ResourceType.BROKER for kind, _ in changes.configs)
        for hosted in self:
            if everything or hosted.topic in touched:
                hosted.log.config = self.log_config(hosted.topic)

    def _give_up(self, hosted: HostedPartition) -> None:
        """Another node leads it from now on."""
        del self._hosted[hosted.topic, hosted.index]
        hosted.gone = True
        hosted.log.close(clean=True)
        hosted.wake()

    def _delete(self, topic: Topic, index: int) -> None:
        hosted = self._hosted.pop((topic.name, index), None)
        if hosted is not None:
            hosted.gone = True
        try:
            self._data.delete_log(topic.name, index, hosted.log if hosted else None)
        except (LogError, OSError):
            logger.exception("could not delete the log of %s-%d", topic.name, index)
        if hosted is not None:
            hosted.wake()

    def close(self, *, clean: bool) -> bool:
        """Close every log; whether all of them can be opened without recovery."""
        closed = [hosted.log.close(clean=clean) for hosted in self]
        return all(closed)
