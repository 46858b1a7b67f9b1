"""The group coordinators of this node: which partition a group is on, and how to ask it.

`__consumer_offsets` is made when the first group asks for its coordinator. A partition of it is
loaded when it is first asked, or at start when it has been used before.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.coordinator_log import InternalTopicLog
from ottla.broker.errors import ApiError
from ottla.broker.regex import matching_topics
from ottla.broker.topics import create_topic
from ottla.coordination.groups.config import GroupConfig
from ottla.coordination.groups.coordinator import GroupCoordinator
from ottla.coordination.groups.messages import ListGroups, ListGroupsResponse
from ottla.coordination.groups.partitioner import partition_for
from ottla.coordination.groups.topics import Topic, TopicsImage
from ottla.coordination.runtime import CoordinatorError, CoordinatorRuntime
from ottla.metadata.names import CONSUMER_OFFSETS_TOPIC
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.coordination.groups.messages import ListedGroup, Request, Response
    from ottla.coordination.groups.records import Record
    from ottla.metadata.image import MetadataImage

ResponseT = TypeVar("ResponseT")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class GroupService:
    """Asks the coordinator of a group; errors are `ApiError`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._config = _group_config(node)
        self.topics_changed(node.image)
        self._runtime: CoordinatorRuntime[Request, Record, Response] = CoordinatorRuntime(
            InternalTopicLog(node, CONSUMER_OFFSETS_TOPIC), self._machine, now_ms
        )

    def start(self) -> None:
        """Load what has been used before."""
        for index in self._node.data.partitions_on_disk(CONSUMER_OFFSETS_TOPIC):
            self._load(index)

    async def close(self) -> None:
        for load in self._loads.values():
            load.cancel()
        await self._runtime.close()

    def topics_changed(self, image: MetadataImage) -> None:
        """Groups see topics come and go."""
        self.topics = TopicsImage(
            {
                topic.name: Topic(topic.topic_id, topic.name, len(topic.partitions))
                for topic in image.topics_by_name.values()
            },
            image.version,
        )

    def coordinator_of(self, group_id: str) -> int:
        """The node that coordinates the group; makes the internal topic if need be."""
        topic = self._node.image.topic(CONSUMER_OFFSETS_TOPIC)
        if topic is None:
            topic = create_topic(
                self._node,
                CONSUMER_OFFSETS_TOPIC,
                partitions=self._node.config.get_int("offsets.topic.num.partitions"),
                configs={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(self._node.config.get_int("offsets.topic.segment.bytes")),
                },
            )
        return topic.partitions[partition_for(group_id, len(topic.partitions))].leader

    async def ask(self, group_id: str, request: Request, expect: type[ResponseT]) -> ResponseT:
        """The group's coordinator decides; the answer comes when it is committed."""
        topic = self._node.image.topic(CONSUMER_OFFSETS_TOPIC)
        if topic is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        index = partition_for(group_id, len(topic.partitions))
        if topic.partitions[index].leader != self._node.node_id:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        await asyncio.shield(self._load(index))
        return await self._submit(index, request, expect)

    async def list_groups(self, request: ListGroups) -> list[ListedGroup]:
        """The groups of all partitions that have any."""
        found: list[ListedGroup] = []
        for index, load in sorted(self._loads.items()):
            await asyncio.shield(load)
            answer = await self._submit(index, request, ListGroupsResponse)
            found += answer.groups
        return found

    async def _submit(self, index: int, request: Request, expect: type[ResponseT]) -> ResponseT:
        try:
            response = await self._runtime.submit(index, request)
        except CoordinatorError as error:
            raise ApiError(ErrorCode(error.error_code)) from error
        assert isinstance(response, expect)
        return response

    def _load(self, index: int) -> asyncio.Task[None]:
        load = self._loads.get(index)
        if load is None or (load.done() and (load.cancelled() or load.exception() is not None)):
            load = self._loads[index] = asyncio.ensure_future(self._runtime.load(index))
        return load

    def _machine(self, index: int) -> GroupCoordinator:
        return GroupCoordinator(self._config, matching_topics)


def _group_config(node: Node) -> GroupConfig:
    config = node.config
    return GroupConfig(
        min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
        max_size=config.get_int("group.max.size"),
        consumer_session_timeout_ms=config.get_int("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=config.get_int("group.consumer.heartbeat.interval.ms"),
        consumer_max_size=config.get_int("group.consumer.max.size"),
        offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
        offsets_retention_ms=config.get_int("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
    )
