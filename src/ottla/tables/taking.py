"""Records from the log into the files of a round, up to a position or a limit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.client.reader.reader import Reader
from ottla.schemas.model import FRAMED
from ottla.tables.names import topic_id_bytes

if TYPE_CHECKING:
    from ottla.client.security import Security
    from ottla.tables.format import Offsets
    from ottla.tables.parquet_files import RoundFiles
    from ottla.tables.rounds import Take
    from ottla.tables.settings import TopicSettings

NEEDED: Final = ("key", "value", "partition", "offset", "timestamp", "timestampType")
"""What rows need of records; headers if they are kept, or may name a schema."""
MIB: Final = 1024 * 1024
ROUND_BYTES: Final = 256 * MIB
"""Input of one round. Being behind, rounds of this size follow each other, and make large files."""
CHUNK_ROWS: Final = 32_768
CHUNK_BYTES: Final = 8 * MIB
"""What is converted at once; a single larger record is a chunk of its own."""


def needs_headers(settings: TopicSettings) -> bool:
    """Whether rows need the headers of records: a header may name a schema."""
    is_framed = settings.value_format in FRAMED or settings.key_format == "registry"
    return settings.headers or is_framed


async def take(
    bootstrap: str, security: Security, settings: TopicSettings, what: Take, files: RoundFiles
) -> Offsets:
    """Read committed records into `files`; returns the next offset of each partition."""
    reader = Reader(
        bootstrap,
        settings.topic,
        start={one: what.start[one] for one in what.stop},
        stop=dict(what.stop),
        columns=(*NEEDED, "headers") if needs_headers(settings) else NEEDED,
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
            if taken >= ROUND_BYTES:
                break
        return reader.positions
