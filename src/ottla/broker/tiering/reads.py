"""Reads from the remote tier, for Fetch, ListOffsets and share groups.

- Readers are bounded, and so are waiting requests; further readers are refused with
  UNKNOWN_SERVER_ERROR. The other partitions of a request are served.
- A read continues after the request that began it has been answered. Its result is kept for a
  while, for the retry: a store slower than remote.fetch.max.wait.ms could otherwise never serve a
  request.
- A fault that may pass is REPLICA_NOT_AVAILABLE (the catalogue is not ready) or
  UNKNOWN_SERVER_ERROR (the store), never OFFSET_OUT_OF_RANGE.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.errors import ApiError
from ottla.broker.tiering.pool import Pool, PoolFull
from ottla.log.errors import LogError, OffsetOutOfRange
from ottla.log.index import CorruptIndex
from ottla.log.reading import TimestampOffset
from ottla.objects.errors import RemoteStorageError
from ottla.tier.catalogue.segments import SegmentState
from ottla.tier.errors import CorruptRemoteData, NotReady, OffsetNotRemote
from ottla.tier.reading.answers import error_of
from ottla.tier.reading.batches import Wanted
from ottla.tier.reading.read_ahead import ReadAhead
from ottla.tier.reading.remote_read import RemoteRecords, read_remote
from ottla.tier.reading.result_cache import ResultCache
from ottla.tier.reading.timestamps import first_at_or_after
from ottla.tier.upkeep.validity import is_within_lineage
from ottla.wire.error_codes import ErrorCode
from ottla.wire.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.tiering.tiering import Tiering
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata

logger = logging.getLogger(__name__)


class ReadKey(NamedTuple):
    """What makes two reads the same."""

    topic_id: bytes
    partition: int
    offset: int
    max_bytes: int
    at_least_one: bool
    committed: bool


class RemoteRead:
    """One read: under way, or ended with records or an error."""

    def __init__(self, key: ReadKey) -> None:
        self.key = key
        self.records: RemoteRecords | None = None
        self.error: ErrorCode | None = None
        self.ended = asyncio.Event()
        self.waiting = 0
        """How many callers wait for the outcome; without any it is kept."""
        self._callbacks: list[Callable[[], None]] = []

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Call this after the end, for a caller that returns for the outcome."""
        if self.ended.is_set():
            asyncio.get_running_loop().call_soon(callback)
        else:
            self._callbacks.append(callback)

    def end(self, result: RemoteRecords | ErrorCode) -> None:
        if isinstance(result, ErrorCode):
            self.error = result
        else:
            self.records = result
        self.ended.set()
        for callback in self._callbacks:
            callback()


class RemoteReads:
    """All remote reads of a node."""

    def __init__(self, tiering: Tiering) -> None:
        self._tiering = tiering
        self.pool = Pool(
            lambda: tiering.setting("remote.log.reader.threads"),
            tiering.cluster.config.get_int("remote.log.reader.max.pending.tasks"),
        )
        self.results: ResultCache[RemoteRecords] = ResultCache(
            tiering.setting("remote.result.cache.bytes")
        )
        self.ahead = ReadAhead(
            tiering.storage,
            tiering.indexes,
            max_bytes=tiering.setting("remote.result.cache.bytes"),
            clock_ms=tiering.clock.monotonic_ms,
        )
        self._under_way: dict[ReadKey, RemoteRead] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # -- records ----------------------------------------------------------------------------------

    def begin(
        self,
        hosted: HostedPartition,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool,
        committed: bool,
    ) -> RemoteRead | None:
        """A read from an offset below the local start; None if the fetch quota is used up.

        The caller must `wait` for it, or return when it has ended.
        """
        key = ReadKey(hosted.topic_id, hosted.index, offset, max_bytes, at_least_one, committed)
        read = self._under_way.get(key)
        if read is not None:
            read.waiting += 1
            return read
        read = RemoteRead(key)
        read.waiting = 1
        kept = self.results.take(key, self._tiering.clock.monotonic_ms())
        if kept is not None:
            read.end(kept)
            return read
        if self._tiering.fetch_quota.is_exceeded(self._tiering.clock.monotonic_ms()):
            self._tiering.count("fetch_throttled", hosted.topic)
            return None
        try:
            task = self.pool.run(lambda: self._run(read, hosted))
        except PoolFull:
            self._tiering.count("fetch_refused", hosted.topic)
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "Too many remote reads are waiting; try again."
            ) from None
        self._under_way[key] = read
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return read

    async def wait(self, reads: Sequence[RemoteRead]) -> None:
        """Until all of them have ended, or as long as a fetch may wait for the store."""
        seconds = self._tiering.setting("remote.fetch.max.wait.ms") / 1000
        waits = [
            asyncio.create_task(read.ended.wait()) for read in reads if not read.ended.is_set()
        ]
        try:
            if waits:
                await asyncio.wait(waits, timeout=seconds)
        finally:
            for one in waits:
                one.cancel()
            for read in reads:
                read.waiting -= 1

    async def _run(self, read: RemoteRead, hosted: HostedPartition) -> None:
        topic = hosted.topic
        self._tiering.count("fetch_requests", topic)
        try:
            records = await self._read(read.key, hosted)
        except (RemoteStorageError, LogError, OSError, WireError, CorruptIndex) as error:
            self._note_failure(hosted, error)
            read.end(code_of(error))
        else:
            self._tiering.read_ended(hosted, None)
            self._tiering.fetch_quota.record(
                len(records.records), self._tiering.clock.monotonic_ms()
            )
            self._tiering.count("fetch_bytes", topic, len(records.records))
            if not read.waiting:
                self.results.put(
                    read.key, records, len(records.records), self._tiering.clock.monotonic_ms()
                )
            read.end(records)
        finally:
            self._under_way.pop(read.key, None)

    async def _read(self, key: ReadKey, hosted: HostedPartition) -> RemoteRecords:
        log = hosted.log
        tiering = self._tiering
        tiered = tiering.find(hosted)
        if not tiered.is_whole:
            raise NotReady(f"{tiered.tip} has not been compared with the store yet; try again")
        # A segment may hold more of an epoch than this log kept of it.
        of_epoch = log.end_offset_for_epoch(log.epochs.epoch_at(key.offset))
        bound = log.last_stable_offset if key.committed else log.high_watermark
        found = await read_remote(
            tiering.catalogue,
            tiering.storage,
            tiering.indexes,
            tiered.tip,
            tuple(log.epochs.entries),
            Wanted(
                key.offset,
                key.max_bytes,
                bound if of_epoch is None else min(bound, of_epoch[1]),
                key.at_least_one,
            ),
            committed=key.committed,
            index_interval=log.config.index_interval_bytes,
            ahead=self.ahead,
            ahead_until=log.local_start_offset,
        )
        if found.aborted_complete:
            return found
        look_up = partial(log.aborted_transactions, key.offset, found.next_offset)
        local = await tiering.workers.run(look_up)
        return found._replace(aborted=found.aborted + local)

    def _note_failure(self, hosted: HostedPartition, error: Exception) -> None:
        if isinstance(error, NotReady):
            return
        topic = hosted.topic
        self._tiering.read_ended(hosted, error)
        self._tiering.count("fetch_errors", topic)
        if isinstance(error, CorruptRemoteData):
            self._tiering.count("corrupt_remote_segments", topic)
        logger.warning("remote read of %s: %s", topic, error)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.ahead.close()

    def resize(self, max_bytes: int) -> None:
        """Change the limits of kept results and read-ahead."""
        self.results.resize(max_bytes)
        self.ahead.resize(max_bytes)

    def expire(self) -> None:
        """Drop results that no retry has used."""
        self.results.expire(self._tiering.clock.monotonic_ms())
        self.ahead.expire()

    @property
    def time_lookup_limit_ms(self) -> int:
        return self._tiering.setting("remote.list.offsets.request.timeout.ms")

    # -- times ------------------------------------------------------------------------------------

    async def offset_for_timestamp(
        self, hosted: HostedPartition, timestamp: int
    ) -> TimestampOffset | None:
        """The first record that is not older, local or remote; `ApiError` if unknown."""
        try:
            for segment in self._remote_only(hosted, timestamp):
                found = await first_at_or_after(
                    self._tiering.storage,
                    segment,
                    timestamp,
                    from_offset=hosted.log.log_start_offset,
                )
                if found is not None:
                    return TimestampOffset(found.timestamp_ms, found.offset, found.leader_epoch)
        except (RemoteStorageError, OSError, WireError, CorruptIndex) as error:
            self._note_failure(hosted, error)
            raise ApiError(code_of(error), str(error)) from error
        return await self._tiering.workers.run(lambda: hosted.log.offset_for_timestamp(timestamp))

    def _remote_only(
        self, hosted: HostedPartition, timestamp: int
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """Readable segments that may have such a record; those on local disk too are left out."""
        log = hosted.log
        cache = self._tiering.find(hosted).cache()
        lineage = tuple(log.epochs.entries)
        for epoch, _ in lineage:
            for one in cache.list_epoch(epoch):
                if (
                    one.state is SegmentState.COPY_SEGMENT_FINISHED
                    and one.max_timestamp_ms >= timestamp
                    and one.end_offset >= log.log_start_offset
                    and one.start_offset < log.local_start_offset
                    and is_within_lineage(one, lineage, log.log_end_offset)
                ):
                    yield one


def code_of(error: Exception) -> ErrorCode:
    """The error code for a failed read."""
    if isinstance(error, OffsetNotRemote | OffsetOutOfRange):
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if isinstance(error, RemoteStorageError):
        return error_of(error)
    return ErrorCode.UNKNOWN_SERVER_ERROR
