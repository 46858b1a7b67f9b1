"""The metadata topic of a cluster as an event log.

- The topic is made if it is missing. One that exists is used as it is: its partition count wins
  over the configured one, since other counts would look for events where they are not.
- Writes are idempotent, acknowledged by all replicas, to an explicit partition.
- Each followed partition has a loop and a client of its own, since a fetch that waits for data
  holds up its connection. A loop asks the partition's leader, looks the leader up again after an
  error or a timeout, and never ends. There is no consumer group, and no offset is committed.
- Fetched records wait in one bounded queue; a loop whose records are not taken stops fetching.
- A recreated topic has another id: the log then ends, because all state built from it is invalid.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.client.admin.admin import Admin
from ottla.client.cluster.cluster import Client
from ottla.client.cluster.retry import Backoff, Stale
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import ClientError, KafkaError, check
from ottla.client.producer.producer import Producer
from ottla.client.security import PLAINTEXT, Security
from ottla.objects.errors import RemoteStorageError, RetriableRemoteError
from ottla.randomness import RANDOM
from ottla.tier.catalogue.event_log import (
    LogClosed,
    MetadataEventLog,
    MetadataEventRecord,
    PartitionReset,
    PartitionStart,
    PublishFailed,
    Subscription,
)
from ottla.wire.batch import iter_batches
from ottla.wire.error_codes import ErrorCode
from ottla.wire.errors import WireError
from ottla.wire.records import iter_records
from ottla.wire.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

if TYPE_CHECKING:
    from collections.abc import Iterable

METADATA_TOPIC: Final = "__remote_log_metadata"
_INT32_MAX: Final = 0x7FFF_FFFF
_MAX_MIN_ISR: Final = 2
_BACKOFF_LIMIT: Final = 10.0  # a broker that is back is found within this many seconds
# How long a stop waits for the last event to be stored: its leader may be gone, too. A step
# whose event is lost is done again after the next start.
_CLOSE_SECONDS: Final = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KafkaMetadataEventLogConfig:
    """Where the metadata topic is and how to read it; durations in milliseconds."""

    bootstrap: str
    topic: str = METADATA_TOPIC
    partition_count: int = 50
    replication_factor: int = 3
    client_id_prefix: str = "ottla-tier"
    security: Security = PLAINTEXT
    create_timeout_ms: int = 30_000
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1024 * 1024
    retry_backoff_ms: int = 200
    delivery_queue: int = 1024

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, int) and not 0 < value <= _INT32_MAX:
                raise ValueError(f"{one.name}: expected 1 to {_INT32_MAX}, got {value}")

    def topic_settings(self) -> dict[str, str]:
        """Settings of a topic that is created here."""
        return {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "remote.storage.enable": "false",
            "min.insync.replicas": str(min(_MAX_MIN_ISR, self.replication_factor)),
        }


class KafkaMetadataEventLog(MetadataEventLog):
    """The metadata topic of a cluster as an event log; make one with `open`."""

    def __init__(self, config: KafkaMetadataEventLogConfig, topic_id: UUID, count: int) -> None:
        self.config = config
        self.topic_id = topic_id
        self.partition_count = count
        self.ended: str | None = None
        self._admin = _admin(config)
        self._producer = Producer(
            config.bootstrap,
            client_id=f"{config.client_id_prefix}-writer",
            security=config.security,
        )
        self._subscriptions: list[_Followed] = []

    @classmethod
    async def open(cls, config: KafkaMetadataEventLogConfig) -> KafkaMetadataEventLog:
        """Find or create the topic; `RetriableRemoteError` while the cluster does not answer."""
        asking = _admin(config)
        try:
            async with asking as admin:
                topic_id, count = await _find_or_create(admin, config)
        except ClientError as error:
            raise RetriableRemoteError(f"cannot open {config.topic}: {error}") from error
        if not topic_id.int:
            raise RemoteStorageError(f"{config.topic} has no topic id; upgrade the brokers")
        if count != config.partition_count:
            _log.warning(
                "%s has %d partitions, not the configured %d; they are kept",
                config.topic,
                count,
                config.partition_count,
            )
        return cls(config, topic_id, count)

    async def publish(self, partition: int, payload: bytes) -> int:
        self.check_partition(partition)
        if self.ended is not None:
            raise LogClosed(self.ended)
        try:
            written = await self._producer.send(self.config.topic, payload, partition=partition)
        except ClientError as error:
            raise PublishFailed(f"cannot write to {self.config.topic}: {error}") from error
        if written.offset < 0:
            raise PublishFailed(f"{self.config.topic}-{partition} returned no offset for the event")
        return written.offset

    def subscribe(self, starts: Iterable[PartitionStart] = ()) -> Subscription:
        followed = _Followed(self)
        self._subscriptions.append(followed)
        for start in starts:
            followed.add(start)
        return followed

    async def high_water_marks(self) -> list[int]:
        try:
            found = await self._admin.list_offsets([self.config.topic])
        except ClientError as error:
            raise RetriableRemoteError(f"the ends of {self.config.topic}: {error}") from error
        return [
            found[TopicPartition(self.config.topic, number)].offset
            for number in range(self.partition_count)
        ]

    def end(self, why: str) -> None:
        """Nothing more can come of this log."""
        self.ended = why
        for followed in self._subscriptions:
            followed.wake()

    async def close(self) -> None:
        self.end("the event log is closed")
        for followed in self._subscriptions:
            await followed.close()
        await self._producer.close(_CLOSE_SECONDS)
        await self._admin.close()


def _admin(config: KafkaMetadataEventLogConfig) -> Admin:
    return Admin(
        config.bootstrap,
        client_id=f"{config.client_id_prefix}-admin",
        security=config.security,
        api_timeout=config.create_timeout_ms / 1000,
    )


async def _find_or_create(admin: Admin, config: KafkaMetadataEventLogConfig) -> tuple[UUID, int]:
    try:
        (topic,) = await admin.describe_topics([config.topic])
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        try:
            await admin.create_topic(
                config.topic,
                config.partition_count,
                config.replication_factor,
                config.topic_settings(),
            )
        except KafkaError as refusal:
            # Another broker created it first.
            if refusal.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        (topic,) = await admin.describe_topics([config.topic])
    return UUID(bytes=bytes(topic.id)), len(topic.partitions)


class _Followed(Subscription):
    """One loop per partition; all put records into one queue."""

    def __init__(self, log: KafkaMetadataEventLog) -> None:
        self._log = log
        self._queue: asyncio.Queue[tuple[object, MetadataEventRecord | PartitionReset] | None] = (
            asyncio.Queue(log.config.delivery_queue)
        )
        self._loops: dict[int, asyncio.Task[None]] = {}

    def add(self, start: PartitionStart) -> None:
        self._log.check_partition(start.partition)
        if start.partition not in self._loops:
            follower = _Follower(self._log, start.partition, self._queue)
            self._loops[start.partition] = asyncio.create_task(follower.run(start.start_offset))

    def remove(self, partition: int) -> None:
        loop = self._loops.pop(partition, None)
        if loop is not None:
            loop.cancel()

    def assigned(self) -> set[int]:
        return set(self._loops)

    def wake(self) -> None:
        with suppress(asyncio.QueueFull):
            self._queue.put_nowait(None)

    async def next(self) -> MetadataEventRecord | PartitionReset:
        while True:
            if self._log.ended is not None:
                raise LogClosed(self._log.ended)
            entry = await self._queue.get()
            if entry is not None:
                origin, record = entry
                # A record of a loop that was removed, or replaced by a later one, is void.
                if self._loops.get(record.partition) is origin:
                    return record

    async def close(self) -> None:
        loops = list(self._loops.values())
        self._loops.clear()
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)


class _Follower:
    """Reads one metadata partition from its leader."""

    def __init__(
        self,
        log: KafkaMetadataEventLog,
        partition: int,
        queue: asyncio.Queue[tuple[object, MetadataEventRecord | PartitionReset] | None],
    ) -> None:
        self._log = log
        self._config = log.config
        self._at = TopicPartition(log.config.topic, partition)
        self._queue = queue
        self._client = Client(
            log.config.bootstrap,
            client_id=f"{log.config.client_id_prefix}-reader-{partition}",
            security=log.config.security,
        )

    async def run(self, offset: int) -> None:
        backoff = Backoff(self._config.retry_backoff_ms / 1000, _BACKOFF_LIMIT)
        failures = 0
        try:
            while True:
                try:
                    offset = await self._fetch(offset)
                    failures = 0
                except (ClientError, WireError) as error:
                    failures += 1
                    _log.info("metadata partition %d: %s", self._at.partition, error)
                    self._client.forget(Stale.METADATA)
                    await asyncio.sleep(backoff.delay(failures, RANDOM.random()))
                    await self._check_topic(error)
        finally:
            await self._client.close()

    async def _fetch(self, offset: int) -> int:
        """One long poll; the offset to go on at."""
        asked = FetchPartition(
            self._at.partition,
            fetch_offset=offset,
            partition_max_bytes=self._config.fetch_max_bytes,
        )
        request = FetchRequest(
            max_wait_ms=self._config.fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=self._config.fetch_max_bytes,
            topics=[FetchTopic(self._at.topic, self._log.topic_id.bytes, [asked])],
        )
        answer: FetchResponse = await self._client.send(request, to=self._at)
        check(answer.error_code, f"fetch {self._at}")
        for topic in answer.responses:
            for found in topic.partitions:
                if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    return await self._reset()
                check(found.error_code, f"fetch {self._at}")
                records = found.records or b""
                assert isinstance(records, bytes | bytearray | memoryview)
                offset = await self._deliver(memoryview(records), offset)
        return offset

    async def _deliver(self, records: memoryview, offset: int) -> int:
        task = asyncio.current_task()
        for batch in iter_batches(records, partial_tail=True):
            batch.verify_crc()
            for record in iter_records(batch):
                if record.offset >= offset:
                    # Control records and null values are no events; the reader counts them so.
                    payload = b"" if batch.is_control else record.value or b""
                    found = MetadataEventRecord(self._at.partition, record.offset, payload)
                    await self._queue.put((task, found))
            offset = max(offset, batch.next_offset)
        return offset

    async def _reset(self) -> int:
        async with _admin(self._config) as admin:
            found = await admin.list_offsets([self._at], "earliest")
        earliest = found[self._at].offset
        reset = PartitionReset(self._at.partition, earliest)
        await self._queue.put((asyncio.current_task(), reset))
        return earliest

    async def _check_topic(self, error: ClientError | WireError) -> None:
        """End the log if the name now belongs to another topic."""
        unknown = (
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.INCONSISTENT_TOPIC_ID,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        if not isinstance(error, KafkaError) or error.code not in unknown:
            return
        with suppress(ClientError):
            topic = (await self._client.topics([self._at.topic]))[self._at.topic]
            if bytes(topic.id) != self._log.topic_id.bytes:
                self._log.end(
                    f"{self._at.topic} was recreated; rebuild the catalogue from the "
                    "store's listing"
                )
