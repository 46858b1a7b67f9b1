"""A Fetch that waits, and what is written just before it does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.broker.handlers.fetch import fetch
from ottla.broker.running.node import Node
from ottla.broker.serving.context import Peer, RequestContext
from ottla.broker.topics import create_topic
from ottla.metadata.config.broker import load_broker_config
from ottla.wire.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.support.log_batches import batch_of

if TYPE_CHECKING:
    from pathlib import Path

FETCH: Final = 1
VERSION: Final = 12  # the last that names topics
LONG_MS: Final = 600_000
PATIENCE: Final = 60.0


async def test_what_is_written_before_the_wait_begins_is_not_waited_for(tmp_path: Path) -> None:
    """The answer is waited for in a task of its own: others are served before its first step."""
    config = load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"])
    node = await Node.start(config, tmp_path, ephemeral=True)
    try:
        await create_topic(node.cluster, "orders", partitions=1)
        partition = await node.partitions.open("orders", 0, write=True)
        wanted = FetchTopic("orders", partitions=[FetchPartition(partition_max_bytes=1000)])
        request = FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, topics=[wanted])
        peer = Peer("127.0.0.1", "PLAINTEXT")
        answer = fetch(
            RequestContext(peer, FETCH, VERSION, None),
            request,
            node.partitions,
            node.services.tiering,
            node.fetch_sessions,
            node.settings,
            node.clock,
            node.services.answers,
        )
        assert not isinstance(answer, FetchResponse)
        waiting = asyncio.ensure_future(answer)
        partition.log.append(batch_of(b"1"), leader_epoch=partition.leader_epoch, now_ms=0)
        partition.advance(1)
        found = await asyncio.wait_for(waiting, PATIENCE)
        assert found.responses[0].partitions[0].high_watermark == 1
        assert found.responses[0].partitions[0].records
    finally:
        await node.stop()
