"""The newest values of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.reader.reader import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ottla.client.admin.admin import Admin
    from ottla.client.security import Security

BATCH_BYTES = 8 * 1024 * 1024


async def newest_values(
    bootstrap: str, admin: Admin, topic: str, most: int, *, security: Security
) -> AsyncIterator[bytes | None]:
    """Values of committed records, about as many from the end of each partition."""
    ends = await admin.list_offsets([topic], "latest", isolation_level="read_committed")
    starts = await admin.list_offsets([topic], "earliest")
    share = -(-most // max(len(ends), 1))
    begin = {
        one.partition: max(starts[one].offset, found.offset - share)
        for one, found in ends.items()
        if found.offset > starts[one].offset
    }
    if not begin:
        return
    reader = Reader(
        bootstrap,
        topic,
        start=begin,
        stop={one.partition: ends[one].offset for one in ends if one.partition in begin},
        columns=("value",),
        isolation_level="read_committed",
        max_batch_bytes=BATCH_BYTES,
        security=security,
        client_id="ottla-table",
    )
    left = most
    async with reader:
        async for batch in reader:
            for value in batch.column("value").to_pylist():
                yield value
                left -= 1
                if not left:
                    return
