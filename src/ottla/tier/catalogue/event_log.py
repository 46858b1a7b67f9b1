"""The log under the catalogue: publish an event, follow the events of some partitions.

What every implementation gives:

- Offsets rise strictly within a partition and are the ones that subscribers see.
- A subscriber gets the records of a partition from its start offset on, in order, each once, first
  those that were there and then those that come.
- After `remove` nothing of that partition comes any more, also nothing that was fetched already; it
  can be added again at any offset.
- A `PartitionReset` says that the requested offset no longer exists: drop the state built from the
  partition; its records follow from `earliest` on.

`InProcessMetadataEventLog` is for tests and tools; several managers on one of them are several
brokers on one cluster. All users of a log share one event loop.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid4

from ottla.objects.errors import RemoteStorageError, RetriableRemoteError

if TYPE_CHECKING:
    from collections.abc import Iterable


class PartitionOutOfRange(RemoteStorageError):
    """The metadata topic has no such partition."""


class PublishFailed(RetriableRemoteError):
    """The event may or may not have been written."""


class LogClosed(RemoteStorageError):
    """The log was closed, or is not the one it was: nothing more comes of it."""


class PartitionStart(NamedTuple):
    """Follow this partition from this offset on."""

    partition: int
    start_offset: int


class MetadataEventRecord(NamedTuple):
    """One record of the log. A null value is an empty payload, which is not an event."""

    partition: int
    offset: int
    payload: bytes


class PartitionReset(NamedTuple):
    """The partition is read again from its earliest offset."""

    partition: int
    earliest: int


class Subscription(ABC):
    """A stream of records, and the partitions it follows."""

    @abstractmethod
    def add(self, start: PartitionStart) -> None:
        """Follow a partition; nothing changes if it is followed already."""

    @abstractmethod
    def remove(self, partition: int) -> None:
        """Stop following a partition, at once; nothing changes if it is not followed."""

    @abstractmethod
    def assigned(self) -> set[int]:
        """The followed partitions."""

    @abstractmethod
    async def next(self) -> MetadataEventRecord | PartitionReset:
        """Wait for the next record; `LogClosed` when there will be none."""

    @abstractmethod
    async def close(self) -> None:
        """Stop following everything."""


class MetadataEventLog(ABC):
    """Where events are kept: the metadata topic, or something like it."""

    partition_count: int
    topic_id: UUID

    def check_partition(self, partition: int) -> None:
        """Raise `PartitionOutOfRange` unless the log has this partition."""
        if not 0 <= partition < self.partition_count:
            raise PartitionOutOfRange(
                f"metadata partition {partition} is not one of {self.partition_count}"
            )

    @abstractmethod
    async def publish(self, partition: int, payload: bytes) -> int:
        """The offset of the record, once it is durable."""

    @abstractmethod
    def subscribe(self, starts: Iterable[PartitionStart] = ()) -> Subscription:
        """Follow these partitions, and those that are added to the subscription later."""

    @abstractmethod
    async def high_water_marks(self) -> list[int]:
        """One past the last offset of every partition; `RetriableRemoteError` if unknown."""

    @abstractmethod
    async def close(self) -> None:
        """End the log and its subscriptions; they raise `LogClosed` from then on."""


class InProcessMetadataEventLog(MetadataEventLog):
    """An event log in memory, for tests and tools; managers that share one are several brokers.

    A subscriber is a cursor per partition, so it misses nothing and sees nothing twice.
    """

    def __init__(self, partition_count: int, topic_id: UUID | None = None) -> None:
        if partition_count <= 0:
            raise ValueError(f"partition_count: expected 1 or more, got {partition_count}")
        self.partition_count = partition_count
        self.topic_id = uuid4() if topic_id is None else topic_id
        self.records: list[list[bytes]] = [[] for _ in range(partition_count)]
        self.is_closed = False
        self.changed = asyncio.Event()

    def wake(self) -> None:
        """Let every subscriber look again."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def publish(self, partition: int, payload: bytes) -> int:
        self.check_partition(partition)
        if self.is_closed:
            raise LogClosed("the event log is closed")
        self.records[partition].append(payload)
        self.wake()
        return len(self.records[partition]) - 1

    def subscribe(self, starts: Iterable[PartitionStart] = ()) -> Subscription:
        subscription = _Cursors(self)
        for start in starts:
            subscription.add(start)
        return subscription

    async def high_water_marks(self) -> list[int]:
        return [len(one) for one in self.records]

    async def close(self) -> None:
        self.is_closed = True
        self.wake()


class _Cursors(Subscription):
    def __init__(self, log: InProcessMetadataEventLog) -> None:
        self._log = log
        self._next: dict[int, int] = {}
        self._is_closed = False

    def add(self, start: PartitionStart) -> None:
        self._log.check_partition(start.partition)
        self._next.setdefault(start.partition, start.start_offset)
        self._log.wake()

    def remove(self, partition: int) -> None:
        self._next.pop(partition, None)

    def assigned(self) -> set[int]:
        return set(self._next)

    async def next(self) -> MetadataEventRecord | PartitionReset:
        while True:
            changed = self._log.changed
            for partition, offset in self._next.items():
                records = self._log.records[partition]
                if offset < len(records):
                    self._next[partition] = offset + 1
                    return MetadataEventRecord(partition, offset, records[offset])
            if self._is_closed or self._log.is_closed:
                raise LogClosed("the event log is closed")
            await changed.wait()

    async def close(self) -> None:
        self._is_closed = True
        self._log.wake()
