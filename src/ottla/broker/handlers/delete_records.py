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
    from ottla.broker.serving.context import RequestContext

HIGH_WATERMARK = -1


def delete_records(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name, [_delete(context, topic.name, asked) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _delete(
    context: RequestContext, topic: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    try:
        partition = context.node.partitions.find(topic, asked.partition_index)
        if context.node.image.topics_by_name[topic].internal:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        log = partition.log
        offset = log.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
        log.delete_records_before(offset)
        context.node.data.log_start_moved(topic, asked.partition_index, log.log_start_offset)
    except (ApiError, LogError) as error:
        return DeleteRecordsPartitionResult(asked.partition_index, -1, error.code)
    partition.wake()
    return DeleteRecordsPartitionResult(asked.partition_index, log.log_start_offset)
