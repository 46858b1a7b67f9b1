"""Topics whose segments are in an object store, as a broker would have put them there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.client.admin.admin import Admin
from ottla.client.security import PLAINTEXT, Security
from ottla.log.config import LogConfig
from ottla.log.directory import parse_partition_name
from ottla.log.partition import PartitionLog
from ottla.log.segment import LOG
from ottla.objects.location import open_store, parse_location
from ottla.tier.catalogue.segments import TopicIdPartition
from ottla.tier.store.storage_manager import RemoteStorageManager
from ottla.wire.batch import iter_batches
from tests.support.tier_logs import NOW_MS, rolled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ottla.testing.embedded import EmbeddedBroker

SEGMENT_BYTES: Final = 2000


def upload_log(
    log: PartitionLog,
    tip: TopicIdPartition,
    config: Mapping[str, str],
    *,
    first_number: int = 1000,
) -> int:
    """Copy all rolled segments of a log to a store; the offset after the last of them."""
    location = parse_location(config)
    storage = RemoteStorageManager(open_store(location), location.prefix, "cluster")

    async def copy() -> int:
        end = 0
        for metadata, data in rolled(log, tip=tip, first_number=first_number):
            await storage.copy_log_segment_data(metadata, data)
            end = metadata.end_offset + 1
        return end

    return asyncio.run(copy())


def smaller_segments(directory: Path, copy: Path) -> PartitionLog:
    """The batches of a log in another, in segments that no broker would make so small."""
    copy.mkdir()
    config = LogConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=100)
    log = PartitionLog.open(copy, config, now_ms=NOW_MS)
    for path in sorted(directory.glob(f"*{LOG}")):
        for batch in iter_batches(memoryview(bytearray(path.read_bytes()))):
            log.append(batch, leader_epoch=0, now_ms=NOW_MS)
    log.flush()
    log.advance_high_watermark(log.log_end_offset)
    return log


def upload_topic(
    broker: EmbeddedBroker,
    data: Path,
    topic: str,
    url: str,
    scratch: Path,
    security: Security = PLAINTEXT,
) -> dict[int, int]:
    """Copy what a broker with this data directory has rolled; where the tier ends, by partition."""

    async def topic_id() -> UUID:
        async with Admin(broker.bootstrap, security=security) as admin:
            (found,) = await admin.describe_topics([topic])
            return UUID(bytes=found.id)

    identity = asyncio.run(topic_id())
    ends = {}
    for directory in sorted(data.rglob(f"{topic}-*")):
        place = parse_partition_name(directory.name)
        if place is None or place.topic != topic:
            continue
        log = smaller_segments(directory, scratch / directory.name)
        tip = TopicIdPartition(identity, *place)
        ends[place.partition] = upload_log(log, tip, {"rsm.config.url": url})
        log.close()
    return ends
