"""DescribeLogDirs (35): the data directory, its room, and the size of each partition in it.

Null asks for everything. A partition that was never written has no files, and size 0. The
directory is always in the answer, even with no topic: Java takes an empty list for a lack of
permission.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.errors import ApiError
from ottla.log.checkpoints import TopicPartition
from ottla.log.errors import LogError
from ottla.wire.schema.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from ottla.broker.cluster import Cluster
    from ottla.broker.hosting.data import Data
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.serving.context import RequestContext
    from ottla.broker.workers import Workers


async def describe_log_dirs(
    context: RequestContext,
    request: DescribeLogDirsRequest,
    cluster: Cluster,
    data: Data,
    partitions: Partitions,
    workers: Workers,
) -> DescribeLogDirsResponse:
    led = [
        TopicPartition(topic.name, index)
        for topic in cluster.image.topics_by_name.values()
        for index, partition in enumerate(topic.partitions)
        if partition.leader == cluster.node_id
    ]
    names = sorted({*led, *data.all_on_disk()})
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        names = [name for name in names if name in wanted]
    # A closed log stays closed: the sizes of its files are enough.
    sizes = await workers.run(
        partial(
            data.sizes,
            [name for name in names if data.has(name) and name not in partitions.open_names],
        )
    )
    usage = await workers.run(partial(shutil.disk_usage, data.path))
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for name in names:
        size = sizes.get(name) if data.has(name) else 0
        if size is None:
            with suppress(ApiError, LogError):
                size = partitions.find(*name).log.size_bytes
        if size is not None:
            topics.setdefault(name.topic, []).append(DescribeLogDirsPartition(name.partition, size))
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
