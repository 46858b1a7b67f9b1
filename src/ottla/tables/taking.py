"""Records from the log into the files of a round, up to a position or a limit.

Records that only the tier has come from its store, if it is known and they are many (`tiered`): a
round is then about one such range alone, and the next round goes on.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.client.reader.reader import Reader
from ottla.objects.errors import RemoteStorageError
from ottla.schemas.model import FRAMED
from ottla.tables.names import topic_id_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.security import Security
    from ottla.tables.format import Offsets
    from ottla.tables.parquet_files import RoundFiles
    from ottla.tables.rounds import Take
    from ottla.tables.settings import TopicSettings
    from ottla.tables.tiered import Tier

NEEDED: Final = ("key", "value", "partition", "offset", "timestamp", "timestampType")
"""What rows need of records; headers if they are kept, or may name a schema."""
MIB: Final = 1024 * 1024
ROUND_BYTES: Final = 256 * MIB
"""Input of one round. Being behind, rounds of this size follow each other, and make large files."""
LEAST_ROUND_BYTES: Final = MIB
"""A round is not made smaller than this if the disk of the spool is full."""
CHUNK_ROWS: Final = 32_768
CHUNK_BYTES: Final = 8 * MIB
"""What is converted at once; a single larger record is a chunk of its own."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Remote:
    """The store of tiered segments, and where the local log of each partition begins."""

    tier: Tier
    local: Offsets


def needs_headers(settings: TopicSettings) -> bool:
    """Whether rows need the headers of records: a header may name a schema."""
    is_framed = settings.value_format in FRAMED or settings.key_format == "registry"
    return settings.headers or is_framed


async def take(
    bootstrap: str,
    security: Security,
    settings: TopicSettings,
    what: Take,
    files: RoundFiles,
    most_bytes: int,
    remote: Remote | None = None,
) -> Offsets:
    """Read committed records into `files`; returns the next offset of each partition."""
    columns = (*NEEDED, "headers") if needs_headers(settings) else NEEDED
    if remote is not None:
        found = await _from_store(remote, columns, settings, what, files, most_bytes)
        if found:
            return found
    reader = Reader(
        bootstrap,
        settings.topic,
        start={one: what.start[one] for one in what.stop},
        stop=dict(what.stop),
        columns=columns,
        isolation_level="read_committed",
        topic_id=topic_id_bytes(what.state.topic_id),
        max_batch_rows=CHUNK_ROWS,
        max_batch_bytes=CHUNK_BYTES,
        security=security,
        client_id="ottla-table",
    )
    taken = 0
    async with reader:
        async for batch in reader:
            count = await asyncio.to_thread(files.add, batch)
            if count < batch.num_rows:
                number = batch.column("partition")[0].as_py()
                return {**reader.positions, number: batch.column("offset")[count].as_py()}
            taken += batch.nbytes
            if taken >= most_bytes:
                break
        return reader.positions


async def _from_store(
    remote: Remote,
    columns: Sequence[str],
    settings: TopicSettings,
    what: Take,
    files: RoundFiles,
    most_bytes: int,
) -> dict[int, int]:
    """The next offset of the first partition that has a long range in the store; else empty."""
    for number, stop in sorted(what.stop.items()):
        start, end = what.start[number], min(stop, remote.local.get(number, 0))
        if start >= end:
            continue
        topic_id = what.state.topic_id
        plan = await remote.tier.plan(settings.topic, topic_id, number, start, end)
        if plan is None:
            continue
        taken, reached = 0, start
        try:
            async for batch in remote.tier.read(plan, columns, CHUNK_ROWS):
                count = await asyncio.to_thread(files.add, batch)
                if count < batch.num_rows:
                    return {number: batch.column("offset")[count].as_py()}
                reached = batch.column("offset")[-1].as_py() + 1
                taken += batch.nbytes
                if taken >= most_bytes:
                    return {number: reached}
        except RemoteStorageError as error:
            logger.warning("%s: the rest is read from the broker: %s", plan.tip, error)
            if reached == start:
                continue
            return {number: reached}
        return {number: plan.end_offset}
    return {}
