"""DeleteRecords (21): move the log start of partitions forward.

Offset -1 means the high watermark. An offset above it is error 1; a topic with compaction alone is
error 44. The response has the new log start and is sent when that is durable; concurrent requests
share one write. Readers below it get error 1 at once; the next retention round frees the space.
Needs delete on each topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.errors import ApiError
from ottla.log.errors import LogError
from ottla.metadata.security.acls import Operation, Resource
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.cluster import Cluster
    from ottla.broker.hosting.checkpoints import Checkpoints
    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.serving.context import RequestContext

HIGH_WATERMARK = -1
HIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def delete_records(
    context: RequestContext,
    request: DeleteRecordsRequest,
    cluster: Cluster,
    partitions: Partitions,
    checkpoints: Checkpoints,
) -> DeleteRecordsResponse:
    allowed = {
        topic.name
        for topic in request.topics
        if context.may(Operation.DELETE, Resource.TOPIC, topic.name)
    }
    opening = partitions.opening(
        (topic.name, asked.partition_index)
        for topic in request.topics
        if topic.name in allowed
        for asked in topic.partitions
    )
    if opening is not None:
        await opening
    moved: list[HostedPartition] = []
    topics = [
        DeleteRecordsTopicResult(
            topic.name,
            [
                _delete(cluster, partitions, topic.name, asked, moved)
                if topic.name in allowed
                else DeleteRecordsPartitionResult(asked.partition_index, -1, HIDDEN)
                for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    for partition in moved:
        partition.wake()
    try:
        await checkpoints.log_starts_durable(moved)
    except LogError as error:
        return DeleteRecordsResponse(topics=[_not_durable(topic, error) for topic in topics])
    return DeleteRecordsResponse(topics=topics)


def _delete(
    cluster: Cluster,
    partitions: Partitions,
    topic: str,
    asked: DeleteRecordsPartition,
    moved: list[HostedPartition],
) -> DeleteRecordsPartitionResult:
    try:
        partition = partitions.find(topic, asked.partition_index)
        if cluster.is_own(cluster.image.topics_by_name[topic]):
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        log = partition.log
        offset = log.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
        log.delete_records_before(offset)
    except (ApiError, LogError) as error:
        return DeleteRecordsPartitionResult(asked.partition_index, -1, error.code)
    moved.append(partition)
    return DeleteRecordsPartitionResult(asked.partition_index, log.log_start_offset)


def _not_durable(topic: DeleteRecordsTopicResult, error: LogError) -> DeleteRecordsTopicResult:
    """The results if the write failed, so that a crash may bring the records back."""
    return topic._replace(
        partitions=[
            row
            if row.error_code
            else DeleteRecordsPartitionResult(row.partition_index, -1, error.code)
            for row in topic.partitions
        ]
    )
