"""One partition led by this node: its log, leader epoch, and waiting readers."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.errors import ApiError
from ottla.log.checkpoints import TopicPartition
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.coordinators.admission import Verification
    from ottla.broker.serving.fetch_sessions import Watcher
    from ottla.log.partition import PartitionLog
    from ottla.metadata.image import Topic


class NotOpen(ApiError):
    """The log is on disk and closed; clients take the code for a leader that is not ready yet."""

    def __init__(self, name: TopicPartition) -> None:
        super().__init__(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name.topic}-{name.partition} is not open yet."
        )
        self.name = name


@lru_cache(maxsize=4096)
def topic_uuid(topic_id: bytes) -> UUID:
    """A topic id of the protocol as UUID; cached."""
    return UUID(bytes=topic_id)


class HostedPartition:
    """One partition led by this node."""

    __slots__ = (
        "__weakref__",
        "dirty_since",
        "gone",
        "index",
        "internal",
        "is_visit",
        "leader_epoch",
        "leaving",
        "log",
        "topic",
        "topic_id",
        "verifications",
        "waiters",
        "watchers",
    )

    def __init__(self, topic: Topic, index: int, log: PartitionLog) -> None:
        self.topic = topic.name
        self.internal = topic.internal
        self.topic_id = topic.topic_id.bytes
        self.index = index
        self.leader_epoch = topic.partitions[index].leader_epoch
        self.log = log
        self.is_visit = False  # opened for background work, and not looked up since
        self.gone = False  # deleted, or led by another node now: the log is closed
        # Led by another node now: nothing is appended any more, but what was is made durable.
        self.leaving = False
        self.waiters: set[Callable[[], None]] = set()
        self.watchers: set[Watcher] = set()  # told of all news, until they leave
        self.dirty_since: float | None = None
        # Running verifications of transactions that have no records here yet, by producer id.
        self.verifications: dict[int, Verification] = {}

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.index}>"

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Raise if the client has another leader epoch; -1: not checked."""
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
        """Move the high watermark to `offset`, and wake waiting readers."""
        before = self.log.high_watermark
        if self.log.advance_high_watermark(offset) != before:
            self.wake()

    def wake(self) -> None:
        """Wake all waiters; later ones go into a new set."""
        if self.waiters:
            waiters, self.waiters = self.waiters, set()
            for waiter in waiters:
                waiter()
        if self.watchers:
            for watcher in tuple(self.watchers):
                watcher.news(self)
