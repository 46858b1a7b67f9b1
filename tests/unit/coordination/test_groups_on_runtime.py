"""The group coordinator on the runtime: a group's life over a log, and its next life after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.clock import SYSTEM
from ottla.coordination.groups.config import GroupConfig
from ottla.coordination.groups.coordinator import GroupCoordinator
from ottla.coordination.groups.messages import (
    FetchedOffset,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    OffsetCommit,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    SyncGroup,
    SyncGroupResponse,
)
from ottla.coordination.partitioner import partition_for
from ottla.coordination.runtime import CoordinatorRuntime
from ottla.wire.error_codes import ErrorCode
from tests.support.groups_driver import resolve_prefix
from tests.support.groups_log import MemoryLog

if TYPE_CHECKING:
    from ottla.coordination.groups.messages import Request, Response
    from ottla.coordination.groups.records import Record

PARTITION = partition_for("g", 50)


async def serve(log: MemoryLog) -> CoordinatorRuntime[Request, Record, Response]:
    config = GroupConfig(initial_rebalance_delay_ms=20)
    runtime = CoordinatorRuntime(
        log,
        lambda _partition: GroupCoordinator(config, resolve_prefix),
        SYSTEM,
    )
    await runtime.load(PARTITION)
    return runtime


def join(name: str) -> JoinGroup:
    protocols = (JoinProtocol("range", b""),)
    return JoinGroup("g", "", name, "consumer", protocols, 6000, 6000, require_known_member=False)


async def test_a_group_lives_on_after_a_restart() -> None:
    log = MemoryLog()
    runtime = await serve(log)
    joins = await asyncio.gather(*(runtime.submit(PARTITION, join(n)) for n in ("1", "2")))
    ids = []
    for answer in joins:
        assert isinstance(answer, JoinGroupResponse)
        assert (answer.error, answer.generation) == (ErrorCode.NONE, 1)
        ids.append(answer.member_id)
    assert log.batches == [], "a round alone is not recorded"
    shares = tuple((name, name.encode()) for name in ids)
    syncs = await asyncio.gather(
        *(runtime.submit(PARTITION, SyncGroup("g", n, 1, assignments=shares)) for n in ids)
    )
    for name, synced in zip(ids, syncs, strict=True):
        assert isinstance(synced, SyncGroupResponse)
        assert synced.assignment == name.encode()
    await runtime.submit(PARTITION, OffsetCommit("g", (OffsetToCommit("t", 0, 9),), ids[0], 1))
    assert [len(batch) for batch in log.batches] == [1, 1]
    await runtime.close()

    runtime = await serve(log)
    beat = await runtime.submit(PARTITION, Heartbeat("g", ids[1], 1))
    assert beat == HeartbeatResponse()
    fetched = await runtime.submit(PARTITION, OffsetFetch("g", None))
    assert fetched == OffsetFetchResponse(ErrorCode.NONE, (FetchedOffset("t", 0, 9),))
    await runtime.close()
