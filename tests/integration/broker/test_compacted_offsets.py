"""Offsets of transactions in a log that is compacted: what counts outlives what decided it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ottla.broker.running.node import Node
from ottla.coordination.groups.messages import (
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
)
from ottla.coordination.machine import Marker, Transactional
from ottla.metadata.config.broker import load_broker_config
from ottla.wire.batch import iter_batches
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ottla.log.partition import PartitionLog

CONFIG = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "1",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.cleaner.delete.retention.ms": "0",
    "log.cleaner.backoff.ms": "3600000",  # the test is the cleaner
}
NUMBERS = range(30)


@asynccontextmanager
async def started(path: Path) -> AsyncIterator[Node]:
    config = load_broker_config(sets=[f"{key}={value}" for key, value in CONFIG.items()])
    node = await Node.start(config, path, ephemeral=False)
    try:
        yield node
    finally:
        await node.stop()


async def commit(node: Node, partition: int, offset: int, producer: Transactional | None) -> None:
    request = OffsetCommit("g", (OffsetToCommit("t", partition, offset),), transaction=producer)
    if producer is None:
        answer = await node.services.groups().ask("g", request, OffsetCommitResponse)
    else:
        answer = await node.services.groups().commit_in(producer, request, lambda: None)
    assert [result.error for result in answer.partitions] == [ErrorCode.NONE]


async def offsets(node: Node) -> list[tuple[ErrorCode, int]]:
    request = OffsetFetch("g", (("t", (0, 1, 2, 3)),), require_stable=True)
    answer = await node.services.groups().ask("g", request, OffsetFetchResponse)
    return [(found.error, found.offset) for found in answer.offsets]


def markers_in(log: PartitionLog) -> int:
    end = log.log_end_offset
    chunks, _ = log.read(0, 1 << 20, upper_bound_offset=end, min_one_message=True)
    return sum(batch.is_control for chunk in chunks for batch in iter_batches(memoryview(chunk)))


async def some_transactions(node: Node) -> None:
    """To partition 0 commits, to 2 aborts, to 3 offsets without any transaction."""
    for number in NUMBERS:
        producer = Transactional(2 + number % 3, 0)
        commits = number % 3 != 1
        await commit(node, 0 if commits else 2, number, producer)
        await commit(node, 3, number, None)
        await node.services.groups().end_transaction(0, Marker(*producer, 0, commits))


async def test_compaction_keeps_what_transactions_decided(tmp_path: Path) -> None:
    ok, unstable = ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT
    async with started(tmp_path) as node:
        await node.services.groups().coordinator_of("g")
        hosted = await node.services.groups().partition_of("g")
        once = Transactional(1, 0)
        await commit(node, 1, 7, once)
        await node.services.groups().end_transaction(0, Marker(*once, 0, commit=True))
        counts = []
        for _ in range(3):  # a marker that decides nothing any more goes one round later
            await some_transactions(node)
            hosted.log.roll(0)
            hosted.log.flush()
            while await node.services.cleaner().compact_dirtiest():
                pass
            counts.append(markers_in(hosted.log))
        assert counts[1] == counts[2] < 2 * len(NUMBERS), "old markers are gone"
        await commit(node, 3, 1_000, once)
        last = NUMBERS[-1]
        expected = [(ok, last), (ok, 7), (ok, -1), (unstable, -1)]
        assert await offsets(node) == expected
    async with started(tmp_path) as node:
        assert await offsets(node) == expected
        await node.services.groups().end_transaction(0, Marker(*once, 0, commit=True))
        assert await offsets(node) == [*expected[:3], (ok, 1_000)]
