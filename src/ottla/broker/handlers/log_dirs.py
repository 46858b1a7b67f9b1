"""DescribeLogDirs (35): the data directory, its room, and the size of each partition in it.

Null asks for everything. The directory is always in the answer, even with no topic: Java takes an
empty list for a lack of permission.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.broker.errors import ApiError
from ottla.log.errors import LogError
from ottla.wire.schema.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from ottla.broker.hosting.data import Data
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.serving.context import RequestContext


def describe_log_dirs(
    context: RequestContext, request: DescribeLogDirsRequest, data: Data, partitions: Partitions
) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for name, index in data.all_on_disk():
        if wanted is None or (name, index) in wanted:
            with suppress(ApiError, LogError):
                size = partitions.find(name, index).log.size_bytes
                topics.setdefault(name, []).append(DescribeLogDirsPartition(index, size))
    usage = shutil.disk_usage(data.path)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=str(data.path),
                topics=[DescribeLogDirsTopic(name, found) for name, found in topics.items()],
                total_bytes=usage.total,
                usable_bytes=usage.free,
            )
        ]
    )
