"""ListOffsets (2) and OffsetForLeaderEpoch (23).

Timestamps that mean something else: -1 latest (the high watermark, or the last stable offset with
isolation 1), -2 earliest, -3 the record with the largest timestamp, -4 earliest local, -5 latest
tiered and -6 earliest pending upload (both -1 while nothing is tiered). Any other asks for the
first record at or after that time; if there is none the answer is -1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.errors import ApiError
from ottla.log.errors import LogError
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
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
    from ottla.broker.context import RequestContext
    from ottla.log.partition import PartitionLog

READ_COMMITTED = 1
NOT_FOUND = (-1, -1)


def list_offsets(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name,
                [
                    _partition(context, topic.name, asked, request.isolation_level)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(
    context: RequestContext, topic: str, asked: ListOffsetsPartition, isolation_level: int
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    try:
        partition = context.node.partitions.find(topic, index)
        partition.check_epoch(asked.current_leader_epoch)
        log = partition.log
        end = log.last_stable_offset if isolation_level == READ_COMMITTED else log.high_watermark
        timestamp, offset = _find(log, asked.timestamp, end)
    except (ApiError, LogError) as error:
        return ListOffsetsPartitionResponse(index, error.code)
    if offset < 0:
        return ListOffsetsPartitionResponse(index)
    epoch = log.epochs.epoch_at(offset) if offset < end else partition.leader_epoch
    return ListOffsetsPartitionResponse(index, ErrorCode.NONE, timestamp, offset, epoch)


def _find(log: PartitionLog, timestamp: int, end: int) -> tuple[int, int]:
    """Timestamp and offset of what was asked for."""
    match timestamp:
        case -1:
            return -1, end
        case -2 | -4:
            return -1, log.log_start_offset
        case -5 | -6:
            return NOT_FOUND
        case -3:
            found = log.max_timestamp_offset()
        case _ if timestamp < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"No offset has the name {timestamp}.")
        case _:
            found = log.offset_for_timestamp(timestamp)
    if found is None or found.offset >= end:
        return NOT_FOUND
    return found.timestamp, found.offset


def offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic, [_epoch_end(context, topic.topic, asked) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _epoch_end(
    context: RequestContext, topic: str, asked: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        partition = context.node.partitions.find(topic, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
        found = partition.log.end_offset_for_epoch(asked.leader_epoch)
    except (ApiError, LogError) as error:
        return EpochEndOffset(error.code, asked.partition)
    if found is None:
        return EpochEndOffset(ErrorCode.NONE, asked.partition)
    epoch, end_offset = found
    return EpochEndOffset(ErrorCode.NONE, asked.partition, epoch, end_offset)
