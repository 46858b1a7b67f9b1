"""DescribeLogDirs (35): the data directory, its room, and the size of each partition in it.

Null asks for everything. The directory is always in the answer, even with no topic: Java takes an
empty list for a lack of permission.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from ottla.wire.schema.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext


def describe_log_dirs(
    context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    node = context.node
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in node.partitions:
        if wanted is None or (partition.topic, partition.index) in wanted:
            entry = DescribeLogDirsPartition(partition.index, partition.log.size_bytes)
            topics.setdefault(partition.topic, []).append(entry)
    usage = shutil.disk_usage(node.data.path)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=str(node.data.path),
                topics=[DescribeLogDirsTopic(name, found) for name, found in topics.items()],
                total_bytes=usage.total,
                usable_bytes=usage.free,
            )
        ]
    )
