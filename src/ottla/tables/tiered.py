"""Records that only the object store of tiered segments has, read from there.

A broker would fetch the same objects and hand them on. So a worker that is far behind, and may read
the store, takes ranges of at least MIN_BYTES itself, and leaves the broker to its clients. What the
local log still has, and everything shorter, comes from the broker: the first byte of an object
takes longer.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.objects.errors import RemoteStorageError
from ottla.objects.location import open_store
from ottla.tables.names import topic_id_bytes
from ottla.tier.reader import ListingSource, RemoteReader, stream_split
from ottla.tier.store.storage_manager import RemoteStorageManager

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import pyarrow as pa

    from ottla.objects.location import StoreLocation
    from ottla.tier.reader import Plan

MIN_BYTES: Final = 64 * 1024 * 1024

logger = logging.getLogger(__name__)


class Tier:
    """The segments of a cluster in one store."""

    def __init__(self, location: StoreLocation) -> None:
        self._storage = RemoteStorageManager(open_store(location), location.prefix, cluster_id="")
        self._reader = RemoteReader(self._storage, ListingSource(self._storage))

    async def plan(
        self, topic: str, topic_id: str, number: int, start: int, end: int
    ) -> Plan | None:
        """Where committed records of [start, end) are; None if the store has too few of them."""
        try:
            plan = await self._reader.plan(
                topic,
                number,
                start_offset=start,
                end_offset=end,
                topic_id=UUID(bytes=topic_id_bytes(topic_id)),
            )
        except RemoteStorageError as error:
            logger.warning("%s-%d is read from the broker: %s", topic, number, error)
            return None
        is_long = sum(one.end - one.start for one in plan.splits) >= MIN_BYTES
        return plan if is_long else None

    async def read(
        self, plan: Plan, columns: Sequence[str], most_rows: int
    ) -> AsyncIterator[pa.RecordBatch]:
        """The records of a plan, in order; `RemoteStorageError` if an object is gone or damaged."""
        for split in plan.splits:
            async for batch in stream_split(self._storage.store, split, columns=columns):
                for first in range(0, batch.num_rows, most_rows):
                    yield batch.slice(first, most_rows)
