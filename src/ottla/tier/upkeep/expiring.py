"""What may go: remote segments by retention, orphans, unknown objects, local segments. Pure.

Remote retention looks at the epochs of the log's lineage in order, at the segments of each by start
offset, and stops at the first that must stay:

(a) the segment ends before the log starts, and only has epochs up to the lineage's first;
(b) it is of the lineage, and its newest record is older than retention.ms;
(c) it is of the lineage, and what is over retention.bytes is at least its size.

A segment that is being copied here stops everything. One whose deletion has begun is finished when
its grace is over, whatever retention says by then. Segments all of whose epochs are below the
lineage go as well: an unclean election left them. What is not in the lineage is passed over.

The caller moves the log start first, publishes DELETE_SEGMENT_STARTED for `start`, and removes the
objects of `finish`. If it crashes in between, the next leader deletes the rest by rule (a).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ottla.tier.catalogue.segments import SegmentState
from ottla.tier.store.layout import segment_id_of
from ottla.tier.upkeep.copying import highest_copied
from ottla.tier.upkeep.validity import is_within_lineage, with_records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from uuid import UUID

    from ottla.log.retention import Hold
    from ottla.objects.store import ObjectInfo
    from ottla.tier.catalogue.lineage import RemoteLogMetadataCache
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata
    from ottla.tier.upkeep.copying import LocalSegment


class LogView(NamedTuple):
    """The log under retention. `highest_remote` is -1 if it is unknown."""

    lineage: Sequence[tuple[int, int]]
    log_start: int
    high_watermark: int
    log_end: int
    highest_remote: int
    local: Sequence[LocalSegment]


class Retention(NamedTuple):
    """Settings; a negative limit is none."""

    retention_ms: int
    retention_bytes: int
    grace_ms: int
    hold: Hold | None = None
    """What waits for somebody, and is kept beyond the limits."""


class Expiration(NamedTuple):
    """`log_start` is where the log begins once `start` is carried out."""

    start: list[RemoteLogSegmentMetadata]
    finish: list[RemoteLogSegmentMetadata]
    log_start: int


def decide_expiration(
    cache: RemoteLogMetadataCache,
    log: LogView,
    retention: Retention,
    *,
    in_flight: Collection[UUID],
    now_ms: int,
) -> Expiration:
    """Decide one run of the expiration task."""
    decider = _Decider(cache, log, retention, now_ms)
    decider.scan(in_flight)
    decider.leftovers(in_flight)
    log_start = max(log.log_start, min(decider.reached, log.high_watermark))
    return Expiration(list(decider.start.values()), list(decider.finish.values()), log_start)


def over_size(cache: RemoteLogMetadataCache, log: LogView, retention_bytes: int) -> int:
    """Bytes above the limit, of local-only segments and remote ones of the lineage."""
    if retention_bytes < 0:
        return 0
    # Unseeded, every local byte would count twice, and live data would go.
    highest = max(log.highest_remote, highest_copied(log.lineage, cache.highest_offset))
    local = sum(one.size for one in log.local if one.base_offset >= highest)
    finished = SegmentState.COPY_SEGMENT_FINISHED
    remote = sum(
        one.segment_size
        for one in cache.segments.values()
        if one.state is finished and is_within_lineage(one, log.lineage, log.log_end)
    )
    return max(0, local + remote - retention_bytes)


class _Decider:
    def __init__(
        self, cache: RemoteLogMetadataCache, log: LogView, retention: Retention, now_ms: int
    ) -> None:
        self.start: dict[UUID, RemoteLogSegmentMetadata] = {}
        self.finish: dict[UUID, RemoteLogSegmentMetadata] = {}
        self.reached = -1
        self._cache = cache
        self._log = log
        self._retention = retention
        self._now_ms = now_ms
        self._over = over_size(cache, log, retention.retention_bytes)
        self._left = 0 if retention.hold is None else over_size(cache, log, 0)
        self._first_epoch = log.lineage[0][0] if log.lineage else 0

    def scan(self, in_flight: Collection[UUID]) -> None:
        for epoch, _ in with_records(self._log.lineage):
            for one in self._cache.list_epoch(epoch):
                if one.id.id in in_flight:
                    return
                if not self._look_at(one):
                    return

    def _look_at(self, one: RemoteLogSegmentMetadata) -> bool:
        """Whether to go on to the next."""
        if one.state is SegmentState.DELETE_SEGMENT_STARTED:
            if self._now_ms - one.event_timestamp_ms >= self._retention.grace_ms:
                self.finish[one.id.id] = one
            return True
        # Copies that were never finished are the orphan sweep's.
        if one.id.id in self.start or one.state is SegmentState.COPY_SEGMENT_STARTED:
            return True
        if self._is_before_log(one):
            self.start[one.id.id] = one
            return True
        if not is_within_lineage(one, self._log.lineage, self._log.log_end):
            return True
        hold = self._retention.hold
        if hold is not None and hold.keeps(one.end_offset + 1, self._left):
            return False
        self._left -= one.segment_size
        if self._is_too_old(one):
            self._over = max(0, self._over - one.segment_size)
        elif 0 < one.segment_size <= self._over:
            self._over -= one.segment_size
        else:
            return False
        self.start[one.id.id] = one
        self.reached = max(self.reached, one.end_offset + 1)
        return True

    def _is_before_log(self, one: RemoteLogSegmentMetadata) -> bool:
        return one.end_offset < self._log.log_start and all(
            epoch <= self._first_epoch for epoch, _ in one.leader_epochs
        )

    def _is_too_old(self, one: RemoteLogSegmentMetadata) -> bool:
        limit = self._retention.retention_ms
        return limit >= 0 and one.max_timestamp_ms < self._now_ms - limit

    def leftovers(self, in_flight: Collection[UUID]) -> None:
        """Segments of epochs that the log has left behind."""
        for one in self._cache.segments.values():
            if one.leader_epochs[-1].epoch < self._first_epoch and one.id.id not in in_flight:
                self._look_at_leftover(one)

    def _look_at_leftover(self, one: RemoteLogSegmentMetadata) -> None:
        if one.state is SegmentState.COPY_SEGMENT_FINISHED:
            self.start[one.id.id] = one
        elif (
            one.state is SegmentState.DELETE_SEGMENT_STARTED
            and self._now_ms - one.event_timestamp_ms >= self._retention.grace_ms
        ):
            self.finish[one.id.id] = one


def orphans(
    cache: RemoteLogMetadataCache, *, in_flight: Collection[UUID], now_ms: int, age_ms: int
) -> list[RemoteLogSegmentMetadata]:
    """Unfinished copies, and finished ones that other segments cover completely."""
    referenced = cache.referenced()
    found = []
    for one in cache.segments.values():
        if one.id.id in in_flight or now_ms - one.event_timestamp_ms <= age_ms:
            continue
        superseded = (
            one.state is SegmentState.COPY_SEGMENT_FINISHED
            and one.id.id not in referenced
            and _is_covered(cache, one)
        )
        if superseded or one.state is SegmentState.COPY_SEGMENT_STARTED:
            found.append(one)
    return found


def _is_covered(cache: RemoteLogMetadataCache, one: RemoteLogSegmentMetadata) -> bool:
    for epoch, first, last in one.epoch_ranges():
        offset = first
        while offset <= last:
            other = cache.find(epoch, offset)
            if other is None:
                return False
            offset = next(end for number, _, end in other.epoch_ranges() if number == epoch) + 1
    return True


def unknown_objects(
    objects: Iterable[ObjectInfo], known: Collection[UUID], *, now_ms: int, age_ms: int
) -> list[str]:
    """Keys of old objects without a catalogue entry: leftovers of failed copies.

    To be called only if the catalogue is ready for every partition of the topic listed.
    """
    return [
        one.key
        for one in objects
        if now_ms - one.modified_ms > age_ms
        and (segment := segment_id_of(one.key)) is not None
        and segment not in known
    ]


class LocalRetention(NamedTuple):
    """How many of the oldest local segments may go, and whether the active one should be rolled."""

    segments: int
    roll_active: bool


def decide_local_retention(
    log: LogView, *, retention_ms: int, retention_bytes: int, now_ms: int
) -> LocalRetention:
    """Apply local.retention.*: local segments that are in the store, or before the log start."""
    total = sum(one.size for one in log.local)
    count = 0
    for segment, successor in pairwise(log.local):
        end = successor.base_offset
        passed = end <= log.log_start
        stays = log.high_watermark < end or not (passed or end - 1 <= log.highest_remote)
        if stays or not (
            passed or _breaches(segment, total, retention_ms, retention_bytes, now_ms)
        ):
            return LocalRetention(count, roll_active=False)
        total -= segment.size
        count += 1
    active = log.local[-1]
    over = _breaches(active, total, retention_ms, retention_bytes, now_ms)
    return LocalRetention(count, roll_active=over and active.size > 0)


def _breaches(
    segment: LocalSegment, total: int, retention_ms: int, retention_bytes: int, now_ms: int
) -> bool:
    newest = segment.max_timestamp_ms if segment.max_timestamp_ms >= 0 else segment.last_modified_ms
    too_old = retention_ms >= 0 and newest < now_ms - retention_ms
    return too_old or 0 <= retention_bytes <= total - segment.size
