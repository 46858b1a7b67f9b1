"""DeleteRecords (21): move the log start of partitions forward.

Offset -1 means the high watermark. Past it is error 1; a topic whose records only compaction may
remove is error 44. The answer is the new log start, and readers below it get error 1 at once; the
file space goes with the next retention round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.errors import ApiError
from ottla.log.errors import LogError
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
    from ottla.broker.hosting.data import Data
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.serving.context import RequestContext

HIGH_WATERMARK = -1


def delete_records(
    context: RequestContext,
    request: DeleteRecordsRequest,
    cluster: Cluster,
    partitions: Partitions,
    data: Data,
) -> DeleteRecordsResponse:
    def delete(topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        return _delete(cluster, partitions, data, topic, asked)

    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name, [delete(topic.name, asked) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _delete(
    cluster: Cluster,
    partitions: Partitions,
    data: Data,
    topic: str,
    asked: DeleteRecordsPartition,
) -> DeleteRecordsPartitionResult:
    try:
        partition = partitions.find(topic, asked.partition_index)
        if cluster.image.topics_by_name[topic].internal:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        log = partition.log
        offset = log.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
        log.delete_records_before(offset)
        data.log_start_moved(topic, asked.partition_index, log.log_start_offset)
    except (ApiError, LogError) as error:
        return DeleteRecordsPartitionResult(asked.partition_index, -1, error.code)
    partition.wake()
    return DeleteRecordsPartitionResult(asked.partition_index, log.log_start_offset)
