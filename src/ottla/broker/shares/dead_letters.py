"""Writes dead letters to the topic that a share group names (KIP-1191).

The letters of a write are durable before the write that gives their records up begins. A broker
that dies in between delivers those records once more, so letters may come twice and are not lost.

A letter goes to the partition with the number of its origin, modulo the topic's partitions; if
another node leads that, by Produce. What cannot be written after some attempts (the topic is
missing, does not allow it, or its leader is away) is logged with its offsets and counted, and the
records are given up anyway: a broken dead-letter topic must not stop a queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.errors import ApiError
from ottla.broker.running.peers import PeerUnreachable
from ottla.broker.topics import ensure_topic
from ottla.log.errors import LogError, StorageFailure
from ottla.log.validate import validate_produce
from ottla.metadata.config.values import resolve_topic_config
from ottla.redaction import printable
from ottla.sharing.dead_letters import LetterOrigin, dead_letters, letter_batches
from ottla.wire.batch import iter_batches
from ottla.wire.error_codes import ErrorCode
from ottla.wire.errors import BatchError
from ottla.wire.records import iter_records
from ottla.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ottla.broker.cluster import Cluster
    from ottla.broker.hosting.durability import Durability
    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.running.peers import Peers
    from ottla.broker.running.services import Lazy
    from ottla.broker.shares.settings import DeadLetterTopic
    from ottla.broker.tiering.tiering import Tiering
    from ottla.broker.workers import Workers
    from ottla.clock import Clock
    from ottla.metadata.image import Topic
    from ottla.sharing.values import Archived
    from ottla.wire.batch import RecordBatch
    from ottla.wire.records import Record

ENABLE: Final = "errors.deadletterqueue.group.enable"
ATTEMPTS: Final = 5
FIRST_PAUSE_SECONDS: Final = 0.2
READ_BYTES: Final = 1024 * 1024  # of the log at a time; letters are written before more is read
PRODUCE_VERSION: Final = 9
PRODUCE_TIMEOUT_MS: Final = 5000
TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # its leader does not know a new topic yet
    }
)

logger = logging.getLogger(__name__)


class DeadLetters:
    """Writes dead letters, and counts written and lost ones by group."""

    def __init__(
        self,
        cluster: Cluster,
        partitions: Partitions,
        durability: Durability,
        peers: Lazy[Peers],
        tiering: Lazy[Tiering],
        workers: Workers,
        clock: Clock,
    ) -> None:
        self._workers = workers
        self._clock = clock
        self._cluster = cluster
        self._partitions = partitions
        self._durability = durability
        self._peers = peers
        self._tiering = tiering
        self.written: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()

    async def write(
        self, to: DeadLetterTopic, group: str, source: HostedPartition, archived: Sequence[Archived]
    ) -> None:
        """Returns when the letters are durable, or when there is nothing more to be tried."""
        origin = LetterOrigin(group, source.topic, source.index)
        for one in archived:
            first = one.first_offset
            try:
                async for part, records in self._parts(source, one, copy=to.copy_records):
                    first = part.first_offset
                    for count, batch in letter_batches(
                        dead_letters(origin, part, records),
                        self._max_bytes(to.name),
                        self._clock.wall_ms(),
                    ):
                        await self._append(to.name, source.index, batch)
                        self.written[group] += count
                        first += count
            except (ApiError, LogError) as error:
                self.lost[group] += one.last_offset - first + 1
                logger.error(  # noqa: TRY400  # the sentence says it all
                    "no dead letters in %s for offsets %d..%d of %s-%d, given up by group %s: %s",
                    to.name,
                    first,
                    one.last_offset,
                    origin.topic,
                    origin.partition,
                    printable(group),
                    error,
                )

    async def _parts(
        self, source: HostedPartition, archived: Archived, *, copy: bool
    ) -> AsyncIterator[tuple[Archived, dict[int, Record]]]:
        """The range in parts, each with its records if they are to be copied."""
        log = source.log
        offset = archived.first_offset
        while copy and offset <= archived.last_offset:
            if offset < log.log_start_offset:
                gone = min(log.log_start_offset - 1, archived.last_offset)
                yield archived._replace(first_offset=offset, last_offset=gone), {}
                offset = gone + 1
                continue
            try:
                chunks = await self._read(source, offset)
                batches = [batch for chunk in chunks for batch in iter_batches(memoryview(chunk))]
            except BatchError:
                break  # an unreadable batch: the letters have headers only
            if not batches:
                break
            last = min(batches[-1].last_offset, archived.last_offset)
            records: dict[int, Record] = {}
            for batch in batches:
                if not batch.is_control and batch.base_offset <= last:
                    records |= _records(batch, range(offset, last + 1))
            yield archived._replace(first_offset=offset, last_offset=last), records
            offset = last + 1
        if offset <= archived.last_offset:
            yield archived._replace(first_offset=offset), {}

    async def _read(self, source: HostedPartition, offset: int) -> Sequence[bytes | memoryview]:
        """Batches from an offset on; none if the remote tier, which has them, cannot give them.

        `LogClosed` if the partition has been deleted, or moved, since the records were given up.
        """
        log = source.log
        if offset < log.local_start_offset:
            reads = self._tiering().reads
            read = reads.begin(source, offset, READ_BYTES, at_least_one=True, committed=False)
            if read is None:
                return []
            await reads.wait([read])
            return [] if read.records is None else [read.records.records]
        found = await self._workers.run(
            partial(
                log.read_files,
                offset,
                READ_BYTES,
                upper_bound_offset=log.high_watermark,
                min_one_message=True,
            )
        )
        return found.chunks

    async def _topic(self, name: str) -> Topic:
        """The topic, made if that is allowed, if it takes dead letters."""
        cluster = self._cluster
        topic = cluster.image.topic(name)
        if topic is None:
            if not cluster.config.get_bool("errors.deadletterqueue.auto.create.topics.enable"):
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"create it with {ENABLE}=true, or set "
                    "errors.deadletterqueue.auto.create.topics.enable=true on the broker",
                )
            topic = await ensure_topic(cluster, name, configs={ENABLE: "true"})
        if not resolve_topic_config(cluster.image, name, cluster.config).get_bool(ENABLE):
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"set {ENABLE}=true on it to allow that")
        return topic

    def _max_bytes(self, name: str) -> int:
        cluster = self._cluster
        return resolve_topic_config(cluster.image, name, cluster.config).get_int(
            "max.message.bytes"
        )

    async def _append(self, name: str, origin: int, batch: bytearray) -> None:
        pause = FIRST_PAUSE_SECONDS
        for attempt in range(1, ATTEMPTS + 1):
            partitions = (await self._topic(name)).partitions
            index = origin % len(partitions)
            leader = partitions[index].leader
            try:
                if leader == self._cluster.node_id:
                    await self._append_here(name, index, batch)
                else:
                    await self._append_there(leader, name, index, batch)
            except ApiError as error:
                if attempt == ATTEMPTS or error.code not in TRY_AGAIN:
                    raise
            else:
                return
            await asyncio.sleep(pause)
            pause *= 2

    async def _append_here(self, name: str, index: int, records: bytearray) -> None:
        hosted = await self._partitions.open(name, index, write=True)
        now = self._clock.wall_ms()
        batch = validate_produce(memoryview(records), hosted.log.config, now_ms=now)
        hosted.log.append(batch, leader_epoch=hosted.leader_epoch, now_ms=now)
        if (durable := self._durability.join([hosted])) is not None:
            await durable
        if not hosted.log.online:
            raise StorageFailure(f"{hosted!r} went offline")

    async def _append_there(self, leader: int, name: str, index: int, records: bytearray) -> None:
        data = [PartitionProduceData(index, records)]
        request = ProduceRequest(
            None, -1, PRODUCE_TIMEOUT_MS, [TopicProduceData(name, partition_data=data)]
        )
        try:
            answer = await self._peers().ask(leader, request, PRODUCE_VERSION)
        except PeerUnreachable as error:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, str(error)) from error
        row = answer.responses[0].partition_responses[0]
        if row.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(row.error_code), row.error_message or "")


def _records(batch: RecordBatch, wanted: range) -> dict[int, Record]:
    """The records of the batch by offset; none if it is unreadable."""
    try:
        return {one.offset: one for one in iter_records(batch) if one.offset in wanted}
    except BatchError:
        return {}
