"""Work of a node for one tiered partition: copy, expire, delete local segments.

Decisions come from the pure functions of `ottla.tier`; this shell reads the log for them and
carries them out. `highest_remote` is the last offset up to which everything from the local start on
can be read from the remote tier: only records up to it may be deleted from the local disk. After
any failure it is computed again from the catalogue, since a write without a response may have
succeeded.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from ottla.broker.errors import ApiError
from ottla.broker.tiering.mending import (
    covered_until,
    finished_segments,
    missing_segments,
)
from ottla.broker.tiering.pool import Work
from ottla.log.epochs import LeaderEpochs
from ottla.log.errors import LogClosed, LogError
from ottla.log.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, segment_name
from ottla.objects.errors import RemoteStorageError, RetriableRemoteError
from ottla.tier.catalogue.segments import random_segment_id
from ottla.tier.errors import NotReady
from ottla.tier.store.storage_manager import LogSegmentData
from ottla.tier.upkeep.copier import (
    CustomMetadataTooLarge,
    SegmentCopy,
    delete_segment,
    finish_delete,
    start_delete,
)
from ottla.tier.upkeep.copying import (
    LocalSegment,
    clip_epochs,
    copy_metadata,
    events_of_copy,
    highest_copied,
    segments_to_copy,
)
from ottla.tier.upkeep.expiring import (
    LogView,
    Retention,
    decide_expiration,
    decide_local_retention,
    orphans,
)

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.tiering.tiering import Tiering
    from ottla.log.partition import PartitionLog
    from ottla.log.segment import Segment
    from ottla.log.storage import Entry
    from ottla.tier.catalogue.lineage import RemoteLogMetadataCache
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata, TopicIdPartition
    from ottla.tier.upkeep.copying import Candidate

QUOTA_CHECK_SECONDS: Final = 1.0
READ_ERROR_MS: Final = 300_000  # without reads for so long, an old error is not shown any more

logger = logging.getLogger(__name__)


class TieredPartition:
    """One partition, from when it is led here until it is not, or not tiered any more."""

    def __init__(self, tiering: Tiering, tip: TopicIdPartition) -> None:
        self.tip = tip
        self.highest_remote = -1
        self.in_flight: set[UUID] = set()
        self._errors: dict[str, str] = {}
        """Why the last rounds of copies and deletions ended early, if they did."""
        self._read_error: tuple[str, int] | None = None
        """The error of the last remote read, and until when to report it."""
        self.copier = Work(tiering.copiers, self._copy_round)
        self.expirer = Work(tiering.expirers, self._expire_round)
        self._tiering = tiering
        self._clock = tiering.clock
        self.is_whole = False
        """Whether the state of all remote-only offsets is known."""
        self._is_seeded = False
        self._is_stopped = False
        """Copies cannot succeed: the store's metadata is larger than allowed."""

    def stop(self) -> None:
        self.copier.stop()
        self.expirer.stop()

    @property
    def error(self) -> str | None:
        found = list(self._errors.values())
        if self._read_error is not None and self._clock.monotonic_ms() < self._read_error[1]:
            found.append(self._read_error[0])
        return "; ".join(found) or None

    def read_ended(self, error: Exception | None) -> None:
        told = (
            None
            if error is None
            else (f"read: {error}", self._clock.monotonic_ms() + READ_ERROR_MS)
        )
        self._read_error = told

    def forget(self) -> None:
        """The catalogue was replaced: read everything again."""
        self._is_seeded = self.is_whole = False

    async def _hosted(self) -> HostedPartition:
        """The partition; `NotReady` if it was deleted or moved."""
        try:
            hosted = await self._tiering.hosted.open(self.tip.topic, self.tip.partition)
        except ApiError as error:
            raise NotReady(f"{self.tip} is not here: {error}") from error
        if hosted.topic_id != self.tip.topic_id.bytes:
            raise NotReady(f"{self.tip.topic} is another topic now")
        return hosted

    def cache(self) -> RemoteLogMetadataCache:
        """The catalogue of the partition, or `NotReady`."""
        return self._tiering.catalogue.catalogue_of(self.tip).cache(self.tip)

    # -- what is where ----------------------------------------------------------------------------

    def seed(self, log: PartitionLog) -> None:
        """Learn from the catalogue how far the log has been copied, if that is not known."""
        if self._is_seeded:
            return
        cache = self.cache()
        lineage = tuple(log.epochs.entries)
        covered = covered_until(cache, log.epochs, log.local_start_offset)
        # After a crash the log may end before the copied records.
        end = min(covered, log.log_end_offset)
        self.highest_remote = min(highest_copied(lineage, cache.highest_offset), end - 1)
        self._is_seeded = True

    def view(self, log: PartitionLog) -> LogView:
        return LogView(
            tuple(log.epochs.entries),
            log.log_start_offset,
            log.high_watermark,
            log.log_end_offset,
            self.highest_remote,
            tuple(map(local_segment, log.segments)),
        )

    def lag(self, log: PartitionLog) -> tuple[int, int]:
        """(segments, bytes) that are rolled and not copied yet."""
        waiting = [one for one in log.segments[:-1] if one.next_offset - 1 > self.highest_remote]
        return len(waiting), sum(one.size for one in waiting)

    async def _mend(self, hosted: HostedPartition) -> None:
        """First: search the store for segments that the catalogue lacks.

        That happens after the metadata topic was lost. Segments that are not in the store either
        are lost; if they are the beginning of the log, the log now begins later.
        """
        log = hosted.log
        if self.is_whole:
            return
        if self._known_until(log) < log.local_start_offset:
            found = await missing_segments(self._tiering, self.tip, log)
            for one in found:
                for event in events_of_copy(one):
                    await self._tiering.catalogue.publish(event)
            start = self._first_known(log)
            logger.warning(
                "%s: %d segments of the store were not in the catalogue; the log starts at %d",
                self.tip,
                len(found),
                start,
            )
            if start > log.log_start_offset:
                log.raise_log_start(start)
                await self._tiering.data.checkpoints.log_starts_durable([hosted])
                hosted.wake()
        self._is_seeded = False
        self.is_whole = True

    def _known_until(self, log: PartitionLog) -> int:
        return covered_until(self.cache(), log.epochs, log.log_start_offset)

    def _first_known(self, log: PartitionLog) -> int:
        """Where the log starts, if the catalogue is right."""
        start = log.log_start_offset
        if self._known_until(log) > start:
            return start
        later = [
            one.start_offset
            for one in finished_segments(self.cache())
            if start < one.start_offset < log.local_start_offset
        ]
        return min(later, default=log.local_start_offset)

    # -- copying ----------------------------------------------------------------------------------

    async def _copy_round(self) -> None:
        try:
            hosted = await self._hosted()
            await self._mend(hosted)
            if self._is_stopped or hosted.log.config.remote_log_copy_disable:
                return
            self.seed(hosted.log)
            for candidate in segments_to_copy(
                self.view(hosted.log).local,
                copied=self.highest_remote,
                log_start=hosted.log.log_start_offset,
                last_stable_offset=hosted.log.last_stable_offset,
            ):
                await self._quota(candidate.segment.size)
                if hosted.log.config.remote_log_copy_disable:
                    break
                if hosted.log.epochs.dirty:
                    # After a crash the local files alone do not tell the epochs of segments that
                    # are in the remote tier only.
                    await self._tiering.workers.run(hosted.log.flush)
                await self._copy(hosted, candidate)
            self._errors.pop("copy", None)
        except (NotReady, LogClosed):
            return  # deleted, moved or stopped meanwhile: this copy is not needed any more
        except (LogError, RemoteStorageError, OSError) as error:
            self._failed("copy", error)
            self._is_stopped |= isinstance(error, CustomMetadataTooLarge)

    async def _quota(self, size: int) -> None:
        """Wait for the quota, one copy after the other."""
        quota = self._tiering.copy_quota
        async with self._tiering.copy_turn:
            while quota.is_exceeded(self._clock.monotonic_ms()):
                self._tiering.count("copy_throttled", self.tip.topic)
                await asyncio.sleep(QUOTA_CHECK_SECONDS)
            quota.record(size, self._clock.monotonic_ms())

    async def _copy(self, hosted: HostedPartition, candidate: Candidate) -> None:
        tiering, log = self._tiering, hosted.log
        lineage = tuple(log.epochs.entries)
        metadata = copy_metadata(
            self.tip,
            candidate,
            lineage,
            segment_id=random_segment_id(),
            broker_id=tiering.cluster.node_id,
            now_ms=self._clock.wall_ms(),
        )
        copy = SegmentCopy(
            tiering.catalogue,
            tiering.storage,
            metadata,
            _files(log, candidate),
            clock_ms=self._clock.wall_ms,
            max_custom_metadata=tiering.cluster.config.get_int(
                "remote.log.metadata.custom.metadata.max.bytes"
            ),
        )
        tiering.count("copy_requests", self.tip.topic)
        self.in_flight.add(metadata.id.id)
        try:
            with tiering.pacer.copying():
                finished = await copy.run()
        finally:
            self.in_flight.discard(metadata.id.id)
        tiering.count("copy_bytes", self.tip.topic, metadata.segment_size)
        self.highest_remote = finished.end_offset

    def _failed(self, what: str, error: Exception) -> None:
        self._is_seeded = False
        self._errors[what] = f"{what}: {error}"
        self._tiering.count(f"{what}_errors", self.tip.topic)
        logger.warning("%s of %s: %s", what, self.tip, error)

    # -- expiring ---------------------------------------------------------------------------------

    async def _expire_round(self) -> None:
        """Apply remote retention, finish deletions, and delete unfinished copies."""
        try:
            hosted = await self._hosted()
            if not self.is_whole:
                return
            self.seed(hosted.log)
            await self._expire(hosted)
            await self._sweep_orphans()
            self._errors.pop("delete", None)
        except NotReady:
            return
        except (LogError, RemoteStorageError, OSError) as error:
            self._failed("delete", error)

    async def _expire(self, hosted: HostedPartition) -> None:
        tiering, log = self._tiering, hosted.log
        hold = None
        if log.config.ottla_table_enable:
            hold = (await tiering.table_hold.ready()).of(hosted.name, log.config)
        decided = decide_expiration(
            self.cache(),
            self.view(log),
            Retention(
                log.config.retention_ms,
                log.config.retention_bytes,
                tiering.setting("remote.delete.grace.ms"),
                hold,
            ),
            in_flight=self.in_flight,
            now_ms=self._clock.wall_ms(),
        )
        if decided.log_start > log.log_start_offset:
            log.raise_log_start(decided.log_start)
            await tiering.data.checkpoints.log_starts_durable([hosted])
            hosted.wake()
        for one in decided.start:
            await start_delete(
                tiering.catalogue,
                one,
                broker_id=tiering.cluster.node_id,
                now_ms=self._clock.wall_ms(),
            )
        for one in decided.finish:
            await self._finish_delete(one)

    async def _finish_delete(self, one: RemoteLogSegmentMetadata) -> None:
        """A failed deletion does not stop the others, unless the store is down."""
        tiering = self._tiering
        tiering.count("delete_requests", self.tip.topic)
        try:
            await finish_delete(
                tiering.catalogue,
                tiering.storage,
                one,
                broker_id=tiering.cluster.node_id,
                now_ms=self._clock.wall_ms(),
            )
        except RetriableRemoteError:
            raise
        except RemoteStorageError as error:
            self._failed("delete", error)
        await tiering.indexes.evict([one.id.id])

    async def _sweep_orphans(self) -> None:
        tiering = self._tiering
        for one in orphans(
            self.cache(),
            in_flight=self.in_flight,
            now_ms=self._clock.wall_ms(),
            age_ms=tiering.setting("remote.orphan.age.ms"),
        ):
            await delete_segment(
                tiering.catalogue,
                tiering.storage,
                one,
                broker_id=tiering.cluster.node_id,
                clock_ms=self._clock.wall_ms,
            )
            tiering.count("orphans_swept", self.tip.topic)

    # -- the local disk ---------------------------------------------------------------------------

    def retain_locally(self, hosted: HostedPartition, at_ms: int) -> bool:
        """Drop what local.retention.* does not keep and the remote tier has; whether any went."""
        log = hosted.log
        self.seed(log)
        retention_ms, retention_bytes = log.config.local_retention
        decided = decide_local_retention(
            self.view(log),
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            now_ms=at_ms,
        )
        gone = log.drop_local_segments(decided.segments, at_ms)
        if decided.roll_active:
            log.roll(at_ms)
        return bool(gone)


def local_segment(segment: Segment) -> LocalSegment:
    newest = segment.max_timestamp
    return LocalSegment(
        segment.base_offset,
        segment.size,
        newest,
        newest if newest >= 0 else segment.storage.mtime_ms(segment.path(LOG)),
        has_aborted=segment.last_abort >= 0,
    )


def _files(log: PartitionLog, candidate: Candidate) -> LogSegmentData:
    base, next_base = candidate.segment.base_offset, candidate.next_base
    lineage = clip_epochs(log.epochs.entries, log.log_start_offset, next_base)

    def path(kind: str) -> Entry:
        return log.files / segment_name(base, kind)

    return LogSegmentData(
        path(LOG),
        path(INDEX),
        path(TIME_INDEX),
        log.files / segment_name(next_base, SNAPSHOT),
        LeaderEpochs([(epoch, start) for epoch, start in lineage]).encode(),
        path(TXN_INDEX) if candidate.segment.has_aborted else None,
        log.lease,
    )
