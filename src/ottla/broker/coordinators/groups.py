"""The group coordinators of this node: classic, consumer and share groups.

A share group's coordinator wants state made and deleted at the share coordinator; it says so by
effects. They are carried out one after another for each group, outside of its heartbeats, and every
outcome is reported back to the group. When a topic is deleted, all coordinators drop their state of
it: a recreated topic must be read from its start.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.broker.coordinators.regex import matching_topics
from ottla.broker.coordinators.service import CoordinatorService
from ottla.broker.errors import ApiError
from ottla.coordination.groups.config import ConsumerSettings, GroupConfig, ShareSettings
from ottla.coordination.groups.coordinator import GroupCoordinator
from ottla.coordination.groups.messages import (
    ApplyMarker,
    ForgetOffsets,
    ForgetOffsetsResponse,
    ListGroups,
    ListGroupsResponse,
    MarkerApplied,
    OffsetCommitResponse,
)
from ottla.coordination.groups.share_effects import (
    DeleteShareState,
    InitializeShareState,
    ShareStateDeleted,
    ShareStateInitialized,
)
from ottla.coordination.groups.share_messages import ForgetTopics, Noted
from ottla.coordination.groups.topics import Topic, TopicsImage
from ottla.coordination.partitioner import partition_for
from ottla.coordination.share_state import messages as state_messages
from ottla.coordination.share_state.records import ShareKey
from ottla.metadata.names import CONSUMER_OFFSETS_TOPIC
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from ottla.broker.access.authorizer import Authorizer
    from ottla.broker.coordinators.log import Hosting
    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.running.services import Lazy
    from ottla.broker.shares.partitions import LedSharePartitions
    from ottla.broker.shares.persister import Persister
    from ottla.coordination.groups.messages import ListedGroup, OffsetCommit, Request, Response
    from ottla.coordination.groups.records import Record
    from ottla.coordination.machine import Effect, Marker, Transactional
    from ottla.metadata.config.broker import BrokerConfig
    from ottla.metadata.image import MetadataImage

ResponseT = TypeVar("ResponseT")
_NOT_NOW: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
logger = logging.getLogger(__name__)


class GroupService:
    """Asks the coordinator of a group; refusals are `ApiError`."""

    def __init__(
        self,
        hosting: Hosting,
        persister: Lazy[Persister],
        shares: Lazy[LedSharePartitions],
        authorizer: Authorizer | None,
    ) -> None:
        self._authorizer = authorizer
        self._cluster = hosting.cluster
        self._partitions = hosting.partitions
        self._persister = persister
        self._shares = shares
        self._forgetting: set[asyncio.Task[None]] = set()
        self.topics = TopicsImage()
        self._config = _group_config(hosting.cluster.config)
        self._effects: dict[str, asyncio.Task[None]] = {}
        self._machines: dict[int, GroupCoordinator] = {}
        self._service: CoordinatorService[Request, Record, Response] = CoordinatorService(
            hosting, CONSUMER_OFFSETS_TOPIC, self._machine, self._perform
        )
        self._follow(self._cluster.image)

    @property
    def loading(self) -> int:
        return self._service.loading

    def arrived(self, index: int) -> None:
        """The log of this partition came from another node."""
        self._service.arrived(index)

    def start(self) -> None:
        """Load partitions that have been used before."""
        self._service.start()

    async def stop(self) -> None:
        for task in (*self._effects.values(), *self._forgetting):
            task.cancel()
        await self._service.close()

    def image_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        """Groups see topics come and go, members' rights change, and coordinators move."""
        if before.topics_by_name is not after.topics_by_name or before.acls is not after.acls:
            self._follow(after)

    def _follow(self, image: MetadataImage) -> None:
        self._service.leaders_changed(image)
        before = self.topics.topics_by_name
        self.topics = TopicsImage(
            {
                topic.name: Topic(topic.topic_id, topic.name, len(topic.partitions))
                for topic in image.topics_by_name.values()
            },
            image.version,
        )
        now = self.topics.topics_by_name
        gone = {
            name: topic.topic_id
            for name, topic in before.items()
            if name not in now or now[name].topic_id != topic.topic_id
        }
        if gone:
            task = asyncio.ensure_future(self._forget(frozenset(gone), frozenset(gone.values())))
            self._forgetting.add(task)
            task.add_done_callback(self._forgetting.discard)

    async def _forget(self, names: frozenset[str], topic_ids: frozenset[UUID]) -> None:
        """Drop offsets, share groups and share state of deleted topics."""
        try:
            await self._service.ask_all(ForgetOffsets(names), ForgetOffsetsResponse)
            await self._service.ask_all(ForgetTopics(topic_ids), Noted)
            if self._persister.made is not None:
                await self._persister.made.drop_topics(topic_ids)
        except ApiError as error:
            logger.warning("could not drop group state of deleted topics: %s", error)

    async def coordinator_of(self, group_id: str) -> int:
        """The node that coordinates the group; makes the internal topic if need be."""
        config = self._cluster.config
        topic = await self._service.ensure_topic(
            config.get_int("offsets.topic.num.partitions"),
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.get_int("offsets.topic.segment.bytes")),
            },
        )
        return topic.partitions[partition_for(group_id, len(topic.partitions))].leader

    async def ask(self, group_id: str, request: Request, expect: type[ResponseT]) -> ResponseT:
        """The group's coordinator decides; the answer comes when it is committed."""
        return await self._service.ask(group_id, request, expect)

    async def partition_of(self, group_id: str) -> HostedPartition:
        """Where the group's coordinator, which is here, keeps its records."""
        index = self._service.index_of(group_id)
        return await self._partitions.open(CONSUMER_OFFSETS_TOPIC, index)

    async def commit_in(
        self, producer: Transactional, request: OffsetCommit, admit: Callable[[], None]
    ) -> OffsetCommitResponse:
        """Commit offsets in a transaction; a fenced producer is refused.

        `admit` is called when nothing can come between it and the decision any more.
        """
        index = self._service.index_of(request.group_id)
        return await self._service.ask_in(index, producer, request, OffsetCommitResponse, admit)

    async def end_transaction(self, index: int, marker: Marker) -> None:
        """Write the marker to a partition of the offsets topic that is led here, and apply it.

        Writers of markers know partitions, not coordinators: without an answer it is not the
        leader.
        """
        partition = self._cluster.image.partition(CONSUMER_OFFSETS_TOPIC, index)
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partition.leader != self._cluster.node_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            await self._service.ask_in(index, marker, ApplyMarker(marker), MarkerApplied)
        except ApiError as error:
            if error.code in _NOT_NOW:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from error
            raise

    async def list_groups(self, request: ListGroups) -> list[ListedGroup]:
        """The groups of all partitions that have any."""
        answers = await self._service.ask_all(request, ListGroupsResponse)
        return [group for answer in answers for group in answer.groups]

    def effects_of(self, group_id: str) -> asyncio.Task[None] | None:
        """The running effects of a group."""
        return self._effects.get(group_id)

    def memberships(self) -> Iterator[tuple[str, str, str, int]]:
        """Group, type, state and number of members, in loaded partitions."""
        for index in self._service.loaded:
            for group_id, group in self._machines[index].groups.items():
                yield group_id, group.kind, group.state, len(group.members)

    def _machine(self, index: int) -> GroupCoordinator:
        made = GroupCoordinator(self._config, partial(matching_topics, self._authorizer))
        self._machines[index] = made
        return made

    # -- effects ----------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        assert isinstance(effect, InitializeShareState | DeleteShareState)
        before = self._effects.get(effect.group_id)
        task = asyncio.ensure_future(self._carry_out(effect, before))
        self._effects[effect.group_id] = task
        task.add_done_callback(lambda done: self._carried_out(effect.group_id, done))

    def _carried_out(self, group_id: str, done: asyncio.Task[None]) -> None:
        if self._effects.get(group_id) is done:
            del self._effects[group_id]
        if not done.cancelled():
            done.exception()

    async def _carry_out(
        self, effect: InitializeShareState | DeleteShareState, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        report: ShareStateInitialized | ShareStateDeleted
        if isinstance(effect, InitializeShareState):
            keys = list(effect.starts)
            questions: list[state_messages.KeyedRequest] = [
                state_messages.InitializeState(
                    ShareKey(effect.group_id, *key), self.topics, effect.state_epoch, start
                )
                for key, start in effect.starts.items()
            ]
        else:
            keys = sorted(effect.partitions)
            questions = [
                state_messages.DeleteState(ShareKey(effect.group_id, *key)) for key in keys
            ]
        outcome = dict(zip(keys, await self._ask_persister(questions), strict=True))
        if isinstance(effect, InitializeShareState):
            report = ShareStateInitialized(effect, outcome)
        else:
            report = ShareStateDeleted(effect, outcome)
        if self._shares.made is not None:
            for key in keys:
                self._shares.made.drop(ShareKey(effect.group_id, *key))
        try:
            await self.ask(effect.group_id, report, Noted)
        except ApiError:
            return  # the coordinator moved; the new one starts over

    async def _ask_persister(self, questions: list[state_messages.KeyedRequest]) -> list[ErrorCode]:
        """An error code for each question, also after a failure: the group waits for it."""
        persister = await self._persister.ready()
        answers = await asyncio.gather(
            *(persister.ask(question, state_messages.StateResponse) for question in questions),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                logger.error("share state could not be changed", exc_info=answer)
        return [
            ErrorCode.UNKNOWN_SERVER_ERROR if isinstance(answer, BaseException) else answer.error
            for answer in answers
        ]


def _group_config(config: BrokerConfig) -> GroupConfig:
    return GroupConfig(
        min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
        max_size=config.get_int("group.max.size"),
        consumer=ConsumerSettings(
            config.get_int("group.consumer.session.timeout.ms"),
            config.get_int("group.consumer.heartbeat.interval.ms"),
        ),
        consumer_max_size=config.get_int("group.consumer.max.size"),
        offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
        offsets_retention_ms=config.get_int("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
        share=ShareSettings(
            config.get_int("group.share.session.timeout.ms"),
            config.get_int("group.share.heartbeat.interval.ms"),
            config.get_int("group.share.assignment.interval.ms"),
        ),
        share_max_size=config.get_int("group.share.max.size"),
        share_initialize_retry_interval_ms=config.get_int(
            "group.share.initialize.retry.interval.ms"
        ),
    )
