"""Admin calls on the directories of brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.admin.base import AdminBase
from ottla.client.admin.types import LogDirDescription
from ottla.client.cluster.cluster import together
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import check, failure
from ottla.wire.schema.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class LogDirCalls(AdminBase):
    """Describe the directories of brokers."""

    async def describe_log_dirs(self) -> list[LogDirDescription]:
        """The directories of all live brokers, with free space and the size of each partition.

        No log is opened for it. A partition that is being moved to another directory counts there,
        too.

        >>> from ottla import Admin
        >>> async with Admin("127.0.0.1:9092") as admin:
        ...     [found] = await admin.describe_log_dirs()
        ...     print(found.sizes["orders", 0] > 0, found.error)
        True None
        """

        async def of(broker: int) -> list[LogDirDescription]:
            answer: DescribeLogDirsResponse = await self._client.send(
                DescribeLogDirsRequest(topics=None), to=broker
            )
            check(answer.error_code, f"describe the log directories of broker {broker}")
            return [_described(broker, one) for one in answer.results]

        async def attempt() -> list[LogDirDescription]:
            view = await self._client.refresh(())
            found: Sequence[list[LogDirDescription]] = await together(map(of, view.brokers))
            return sorted(
                (one for some in found for one in some), key=lambda one: (one.broker_id, one.path)
            )

        return await self._client.retry(attempt)


def _described(broker: int, found: DescribeLogDirsResult) -> LogDirDescription:
    sizes: dict[TopicPartition, int] = {}
    for topic in found.topics:
        for one in topic.partitions:
            key = TopicPartition(topic.name, one.partition_index)
            sizes[key] = sizes.get(key, 0) + one.partition_size
    error = failure(found.error_code, f"use {found.log_dir!r}")
    return LogDirDescription(
        broker,
        found.log_dir,
        None if found.total_bytes < 0 else found.total_bytes,
        None if found.usable_bytes < 0 else found.usable_bytes,
        sizes,
        None if error is None else str(error),
    )
