"""ListOffsets (2) and OffsetForLeaderEpoch (23).

Special timestamps: -1 latest (the high watermark, or the last stable offset with isolation 1), -2
earliest, -3 the record with the largest timestamp on local disk, -4 earliest local, -5 latest
tiered and -6 earliest pending upload (`ottla.tier.reading.answers`). Other timestamps ask for the
first record at or after that time; -1 if there is none. If that part of the log is only in the
remote tier, the response waits for the store, up to the request's time limit.

Permissions: describe on each topic; for OffsetForLeaderEpoch cluster action is enough.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeGuard

from ottla.broker.errors import ApiError
from ottla.broker.serving.context import Large
from ottla.log.errors import LogError
from ottla.metadata.security.acls import CLUSTER_NAME, Operation, Resource
from ottla.tier.reading.answers import EARLIEST_LOCAL, OLDEST_VERSION, Offsets, special_offset
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.wire.schema.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.running.services import Lazy
    from ottla.broker.serving.context import RequestContext
    from ottla.broker.tiering.tiering import Tiering
    from ottla.broker.workers import Workers
    from ottla.log.partition import PartitionLog
    from ottla.log.reading import TimestampOffset

READ_COMMITTED = 1
LARGEST_TIMESTAMP = -3
LOOKED_AT_ONCE: Final = 1_000  # partitions in one turn of the loop: some milliseconds

# The result, or a function that gets it if that takes longer.
Answered: TypeAlias = (
    "ListOffsetsPartitionResponse | Callable[[], Awaitable[ListOffsetsPartitionResponse]]"
)
Look: TypeAlias = "Callable[[str, ListOffsetsPartition], Answered]"


class Place(NamedTuple):
    """The found offset; -1 if there is no such record."""

    timestamp: int
    offset: int


NOT_FOUND = Place(-1, -1)


def list_offsets(
    context: RequestContext,
    request: ListOffsetsRequest,
    partitions: Partitions,
    tiering: Lazy[Tiering],
    workers: Workers,
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse | Large[ListOffsetsResponse]]:
    look = partial(_partition, context, request, partitions, tiering, workers)
    if sum(len(topic.partitions) for topic in request.topics) > LOOKED_AT_ONCE:
        return _in_turns(context, request, partitions, look)
    opening = partitions.opening(_names(context, request.topics))
    if opening is not None:
        return _when_open(request, opening, look)
    rows = _rows(request.topics, look)
    return _response(request, rows) if _all_known(rows) else _when_known(request, rows)


def _names(
    context: RequestContext, topics: Iterable[ListOffsetsTopic]
) -> Iterator[tuple[str, int]]:
    return (
        (topic.name, asked.partition_index)
        for topic in topics
        if context.sees(Resource.TOPIC, topic.name)
        for asked in topic.partitions
    )


def _rows(topics: Iterable[ListOffsetsTopic], look: Look) -> list[list[Answered]]:
    return [[look(topic.name, asked) for asked in topic.partitions] for topic in topics]


async def _in_turns(
    context: RequestContext, request: ListOffsetsRequest, partitions: Partitions, look: Look
) -> Large[ListOffsetsResponse]:
    """Many partitions: other requests are served between the parts."""
    found: list[list[ListOffsetsPartitionResponse]] = []
    left = LOOKED_AT_ONCE
    for topic in request.topics:
        rows: list[ListOffsetsPartitionResponse] = []
        asked = topic.partitions
        while asked:
            part = topic._replace(partitions=asked[:left])
            asked = asked[left:]
            left -= len(part.partitions)
            opening = partitions.opening(_names(context, [part]))
            if opening is not None:
                await opening
            rows += await _settled(_rows([part], look)[0])
            if not left:
                left = LOOKED_AT_ONCE
                await asyncio.sleep(0)
        found.append(rows)
    return Large(_response(request, found))


async def _when_open(
    request: ListOffsetsRequest, opening: Awaitable[None], look: Look
) -> ListOffsetsResponse:
    await opening
    return await _when_known(request, _rows(request.topics, look))


def _all_known(rows: list[list[Answered]]) -> TypeGuard[list[list[ListOffsetsPartitionResponse]]]:
    return all(isinstance(row, ListOffsetsPartitionResponse) for some in rows for row in some)


async def _when_known(
    request: ListOffsetsRequest, rows: list[list[Answered]]
) -> ListOffsetsResponse:
    return _response(request, await asyncio.gather(*map(_settled, rows)))


async def _settled(rows: list[Answered]) -> list[ListOffsetsPartitionResponse]:
    async def settled(row: Answered) -> ListOffsetsPartitionResponse:
        return row if isinstance(row, ListOffsetsPartitionResponse) else await row()

    known = [rows]
    return known[0] if _all_known(known) else await asyncio.gather(*map(settled, rows))


def _response(
    request: ListOffsetsRequest, rows: Sequence[Sequence[ListOffsetsPartitionResponse]]
) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(topic.name, some)
            for topic, some in zip(request.topics, rows, strict=True)
        ]
    )


def _partition(
    context: RequestContext,
    request: ListOffsetsRequest,
    partitions: Partitions,
    tiering: Lazy[Tiering],
    workers: Workers,
    topic: str,
    asked: ListOffsetsPartition,
) -> Answered:
    index, timestamp = asked.partition_index, asked.timestamp
    try:
        context.require(Operation.DESCRIBE, Resource.TOPIC, topic)
        if context.version < OLDEST_VERSION.get(timestamp, 0):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        partition = partitions.find(topic, index)
        partition.check_epoch(asked.current_leader_epoch)
        log = partition.log
        committed = request.isolation_level == READ_COMMITTED
        end = log.last_stable_offset if committed else log.high_watermark
        if timestamp in OLDEST_VERSION:
            at = Place(-1, _special(tiering.made, partition, timestamp))
        elif timestamp >= 0 and log.log_start_offset < log.local_start_offset:
            return partial(_find_remotely, tiering, request, partition, timestamp, end)
        elif timestamp >= 0 or timestamp == LARGEST_TIMESTAMP:
            return partial(_find_in_files, workers, partition, timestamp, end)
        else:
            at = _named(log, timestamp, end)
    except (ApiError, LogError) as error:
        return ListOffsetsPartitionResponse(index, error.code)
    return _row(partition, at, end)


def _row(partition: HostedPartition, at: Place, end: int) -> ListOffsetsPartitionResponse:
    index, offset = partition.index, at.offset
    if offset < 0:
        return ListOffsetsPartitionResponse(index)
    epochs = partition.log.epochs
    epoch = epochs.epoch_at(offset) if offset < end else partition.leader_epoch
    return ListOffsetsPartitionResponse(index, ErrorCode.NONE, at.timestamp, offset, epoch)


def _special(tiering: Tiering | None, partition: HostedPartition, timestamp: int) -> int:
    log = partition.log
    if tiering is None or not log.config.remote_storage_enable:
        offsets = Offsets(log.log_start_offset, log.log_start_offset, -1, log.log_end_offset)
        return special_offset(timestamp, offsets, is_tiered=False)
    offsets = Offsets(log.log_start_offset, log.local_start_offset, -1, log.log_end_offset)
    if timestamp != EARLIEST_LOCAL:
        offsets = offsets._replace(highest_remote=tiering.highest_remote(partition))
    return special_offset(timestamp, offsets, is_tiered=True)


async def _find_remotely(
    tiering: Lazy[Tiering],
    request: ListOffsetsRequest,
    partition: HostedPartition,
    timestamp: int,
    end: int,
) -> ListOffsetsPartitionResponse:
    try:
        reads = tiering().reads
        limit_ms = reads.time_lookup_limit_ms
        if request.timeout_ms > 0:
            limit_ms = request.timeout_ms
        async with asyncio.timeout(limit_ms / 1000):
            found = await reads.offset_for_timestamp(partition, timestamp)
    except TimeoutError:
        return ListOffsetsPartitionResponse(partition.index, ErrorCode.REQUEST_TIMED_OUT)
    except (ApiError, LogError) as error:
        return ListOffsetsPartitionResponse(partition.index, error.code)
    return _row(partition, _place(found, end), end)


async def _find_in_files(
    workers: Workers, partition: HostedPartition, timestamp: int, end: int
) -> ListOffsetsPartitionResponse:
    log = partition.log
    found: TimestampOffset | None = None
    try:
        if log.log_start_offset < end:
            look_up = (
                log.max_timestamp_offset
                if timestamp == LARGEST_TIMESTAMP
                else partial(log.offset_for_timestamp, timestamp)
            )
            found = await workers.run(look_up)
    except (ApiError, LogError) as error:
        return ListOffsetsPartitionResponse(partition.index, error.code)
    return _row(partition, _place(found, end), end)


def _named(log: PartitionLog, timestamp: int, end: int) -> Place:
    match timestamp:
        case -1:
            return Place(-1, end)
        case -2:
            return Place(-1, log.log_start_offset)
        case _:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"No offset has the name {timestamp}.")


def _place(found: TimestampOffset | None, end: int) -> Place:
    if found is None or found.offset >= end:
        return NOT_FOUND
    return Place(found.timestamp, found.offset)


async def offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest, partitions: Partitions
) -> OffsetForLeaderEpochResponse:
    is_node = context.peer.access.may(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)
    allowed = {
        topic.topic
        for topic in request.topics
        if is_node or context.may(Operation.DESCRIBE, Resource.TOPIC, topic.topic)
    }
    opening = partitions.opening(
        (topic.topic, asked.partition)
        for topic in request.topics
        if topic.topic in allowed
        for asked in topic.partitions
    )
    if opening is not None:
        await opening
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic,
                [
                    _epoch_end(partitions, topic.topic, asked)
                    if topic.topic in allowed
                    else EpochEndOffset(ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked.partition)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _epoch_end(
    partitions: Partitions, topic: str, asked: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        partition = partitions.find(topic, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
        found = _end_of(partition, asked.leader_epoch)
    except (ApiError, LogError) as error:
        return EpochEndOffset(error.code, asked.partition)
    if found is None:
        return EpochEndOffset(ErrorCode.NONE, asked.partition)
    epoch, end_offset = found
    return EpochEndOffset(ErrorCode.NONE, asked.partition, epoch, end_offset)


def _end_of(partition: HostedPartition, epoch: int) -> tuple[int, int] | None:
    """The largest epoch not above `epoch` that the partition has had, and its end.

    A log knows the epochs in which something was written. Consumers may ask for a later one: to
    those that begin at the end ListOffsets gives the epoch of the leader.
    """
    log = partition.log
    written = log.epochs.latest
    if not written < epoch <= partition.leader_epoch:
        return log.end_offset_for_epoch(epoch)
    known = epoch if epoch == partition.leader_epoch or written < 0 else written
    return known, log.log_end_offset
