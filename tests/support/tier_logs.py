"""Real logs on disk, ready to be tiered."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.log.config import LogConfig
from ottla.log.epochs import LeaderEpochs
from ottla.log.partition import PartitionLog
from ottla.log.producer_state import Origin
from ottla.log.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, segment_path
from ottla.tier.store.storage_manager import LogSegmentData
from ottla.tier.upkeep.copying import LocalSegment, copy_metadata, segments_to_copy
from ottla.wire.records import ControlType
from tests.support.log_batches import batch_of, marker
from tests.support.tiering import TIP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata, TopicIdPartition

NOW_MS = 1_700_000_000_000


class Rolled(NamedTuple):
    """A rolled segment: what the catalogue says of it, and its files."""

    metadata: RemoteLogSegmentMetadata
    data: LogSegmentData


def make_log(
    directory: Path,
    *,
    batches: int = 60,
    segment_bytes: int = 4000,
    epochs: int = 1,
    aborts: bool = False,
    seed: int = 0,
) -> PartitionLog:
    """A log of batches of one to five records; with `aborts`, every fourth is a transaction."""
    directory.mkdir(parents=True)
    log = PartitionLog.open(
        directory,
        LogConfig(segment_bytes=segment_bytes, index_interval_bytes=200),
        now_ms=NOW_MS,
    )
    draw = random.Random(seed)
    for number in range(batches):
        epoch = number * epochs // batches
        values = [draw.randbytes(draw.randrange(10, 60)) for _ in range(draw.randrange(1, 6))]
        times = [NOW_MS + number * 1000 + i for i in range(len(values))]
        if not aborts or number % 4:
            batch = batch_of(*values, timestamps=times)
            log.append(batch, leader_epoch=epoch, now_ms=NOW_MS)
            continue
        producer = 7 + number
        batch = batch_of(
            *values, timestamps=times, producer_id=producer, epoch=0, sequence=0, transactional=True
        )
        log.append(batch, leader_epoch=epoch, now_ms=NOW_MS)
        kind = ControlType.ABORT if number % 8 else ControlType.COMMIT
        log.append(
            marker(kind, producer, 0),
            leader_epoch=epoch,
            now_ms=NOW_MS,
            origin=Origin.COORDINATOR,
        )
    log.flush()
    log.advance_high_watermark(log.log_end_offset)
    return log


def local_segments(log: PartitionLog) -> list[LocalSegment]:
    return [
        LocalSegment(one.base_offset, one.size, one.max_timestamp, NOW_MS, bool(one.aborted))
        for one in log.segments
    ]


def rolled(
    log: PartitionLog, *, tip: TopicIdPartition = TIP, first_number: int = 1000
) -> Iterator[Rolled]:
    """Every segment that may be copied; their ids count from `first_number`."""
    candidates = segments_to_copy(
        local_segments(log),
        copied=-1,
        log_start=log.log_start_offset,
        last_stable_offset=log.last_stable_offset,
    )
    for number, candidate in enumerate(candidates, start=first_number):
        base = candidate.segment.base_offset
        metadata = copy_metadata(
            tip,
            candidate,
            log.epochs.entries,
            segment_id=UUID(int=number),
            broker_id=5,
            now_ms=NOW_MS,
        )
        directory = log.directory
        known = [pair for pair in log.epochs.entries if pair[1] < candidate.next_base]
        yield Rolled(
            metadata,
            LogSegmentData(
                segment_path(directory, base, LOG),
                segment_path(directory, base, INDEX),
                segment_path(directory, base, TIME_INDEX),
                segment_path(directory, candidate.next_base, SNAPSHOT),
                LeaderEpochs(known).encode(),
                segment_path(directory, base, TXN_INDEX) if candidate.segment.has_aborted else None,
            ),
        )
