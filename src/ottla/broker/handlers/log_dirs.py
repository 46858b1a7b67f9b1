"""DescribeLogDirs (35): the data directory, its free space, and the size of each partition.

Null asks for everything. A partition that was never written has no files, and size 0. The response
always contains the directory, even with no topic: Java clients take an empty list for a missing
permission. Thousands of partitions are looked at in several turns of the event loop. Needs describe
on the cluster.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.errors import ApiError
from ottla.broker.serving.context import Large
from ottla.log.checkpoints import TopicPartition
from ottla.log.errors import LogError
from ottla.metadata.security.acls import Operation
from ottla.wire.schema.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.broker.cluster import Cluster
    from ottla.broker.hosting.data import Data
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.serving.context import RequestContext
    from ottla.broker.workers import Workers
    from ottla.metadata.image import MetadataImage

MEASURED_AT_ONCE: Final = 4_000  # partitions in one turn of the loop: some milliseconds


async def describe_log_dirs(
    context: RequestContext,
    request: DescribeLogDirsRequest,
    cluster: Cluster,
    data: Data,
    partitions: Partitions,
    workers: Workers,
) -> Large[DescribeLogDirsResponse]:
    try:
        context.require_cluster(Operation.DESCRIBE)
    except ApiError as error:
        # Before v3 an empty list means that.
        return Large(DescribeLogDirsResponse(error_code=error.code))
    names = await workers.run(
        partial(_names, cluster.image, cluster.node_id, data.all_on_disk(), request)
    )
    # A closed log stays closed: the sizes of its files are enough.
    closed: list[TopicPartition] = []
    for start in range(0, len(names), MEASURED_AT_ONCE):
        part = names[start : start + MEASURED_AT_ONCE]
        closed += [n for n in part if data.has(n) and n not in partitions.open_names]
        await asyncio.sleep(0)
    sizes = await workers.run(partial(data.sizes, closed))
    usage = await workers.run(partial(shutil.disk_usage, data.path))
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for number, name in enumerate(names, 1):
        if number % MEASURED_AT_ONCE == 0:
            await asyncio.sleep(0)
        size = sizes.get(name) if data.has(name) else 0
        if size is None:
            with suppress(ApiError, LogError):
                size = partitions.find(*name).log.size_bytes
        if size is not None:
            topics.setdefault(name.topic, []).append(DescribeLogDirsPartition(name.partition, size))
    result = DescribeLogDirsResult(
        log_dir=str(data.path),
        topics=[DescribeLogDirsTopic(name, found) for name, found in topics.items()],
        total_bytes=usage.total,
        usable_bytes=usage.free,
    )
    return Large(DescribeLogDirsResponse(results=[result]))


def _names(
    image: MetadataImage,
    node_id: int,
    on_disk: Iterable[TopicPartition],
    request: DescribeLogDirsRequest,
) -> list[TopicPartition]:
    """The requested partitions of this node, in order. Runs in a worker thread."""
    led = (
        TopicPartition(topic.name, index)
        for topic in image.topics_by_name.values()
        for index, partition in enumerate(topic.partitions)
        if partition.leader == node_id
    )
    names = {*led, *on_disk}
    if request.topics is not None:
        names &= {
            TopicPartition(topic.topic, index)
            for topic in request.topics
            for index in topic.partitions
        }
    return sorted(names)
