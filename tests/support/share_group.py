"""Share groups for tests: members, and a share coordinator that can be told to fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordination.groups.config import GroupConfig, ShareSettings
from ottla.coordination.groups.share_effects import (
    DeleteShareState,
    InitializeShareState,
    ShareStateDeleted,
    ShareStateInitialized,
)
from ottla.coordination.groups.share_group import ShareGroup
from ottla.coordination.groups.share_messages import (
    Noted,
    ShareHeartbeat,
    ShareHeartbeatResponse,
)
from ottla.wire.error_codes import ErrorCode
from tests.support.groups_consumer import topics_image
from tests.support.groups_driver import Driver

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.coordination.groups.partitions import Partitions, TopicPartition

AT_ONCE = GroupConfig(initial_rebalance_delay_ms=0, share=ShareSettings(assignment_interval_ms=0))
MAX_ROUNDS = 50
"""Far more than any request needs; beyond that it goes round in circles."""


class ShareWorld:
    """A coordinator and the state it keeps elsewhere: epoch and start offset per partition."""

    def __init__(self, config: GroupConfig = AT_ONCE) -> None:
        self.driver = Driver(config)
        self.kept: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
        self.gone: set[UUID] = set()
        """Topics that were deleted."""
        self.failing: ErrorCode | None = None

    @property
    def group(self) -> ShareGroup:
        group = self.driver.machine.groups["g"]
        assert isinstance(group, ShareGroup)
        return group

    def perform(self) -> None:
        """Carries out what was asked for, in order, also what the reports lead to."""
        for _ in range(MAX_ROUNDS):
            if not self.driver.effects:
                return
            self.perform_next()
        raise AssertionError("effects go on for ever")

    def perform_next(self, failing: ErrorCode | None = None, *, done: bool = False) -> None:
        """Carries out one effect; a failure may come to light after it was `done`."""
        effect = self.driver.effects.pop(0)
        failing = failing or self.failing
        done = done or failing is None
        if isinstance(effect, InitializeShareState):
            outcome = {
                partition: self._initialize(effect, partition) if done else ErrorCode.NONE
                for partition in effect.starts
            }
            outcome = {p: failing or error for p, error in outcome.items()}
            self.driver.ask(ShareStateInitialized(effect, outcome), Noted)
        else:
            assert isinstance(effect, DeleteShareState)
            for partition in effect.partitions if done else ():
                self.kept.pop((effect.group_id, partition), None)
            deleted = dict.fromkeys(effect.partitions, failing or ErrorCode.NONE)
            self.driver.ask(ShareStateDeleted(effect, deleted), Noted)

    def _initialize(self, effect: InitializeShareState, partition: TopicPartition) -> ErrorCode:
        key = (effect.group_id, partition)
        if partition[0] in self.gone:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if key in self.kept and self.kept[key][0] > effect.state_epoch:
            return ErrorCode.FENCED_STATE_EPOCH
        self.kept[key] = (effect.state_epoch, effect.starts[partition])
        return ErrorCode.NONE

    def settle(self, *members: Member, rounds: int = 2) -> None:
        for _ in range(rounds):
            for member in members:
                member.beat()
            self.perform()


class Member:
    """Does what a share consumer does."""

    def __init__(self, world: ShareWorld, member_id: str, *topics: str) -> None:
        self.world = world
        self.member_id = member_id
        self.topics = topics
        self.epoch = 0
        self.told: Partitions = frozenset()
        self.image = topics_image(t=2)

    def send(
        self,
        epoch: int,
        *,
        topics: tuple[str, ...] | None = None,
        member_id: str | None = None,
        group_id: str = "g",
        rack: str | None = None,
        settings: ShareSettings | None = None,
    ) -> ShareHeartbeatResponse:
        request = ShareHeartbeat(
            group_id,
            self.member_id if member_id is None else member_id,
            epoch,
            self.image,
            fresh_id="fresh",
            rack_id=rack,
            topic_names=topics,
            client_id="c",
            client_host="/h",
            settings=settings,
        )
        return self.world.driver.ask(request, ShareHeartbeatResponse)

    def join(self) -> ShareHeartbeatResponse:
        self.told = frozenset()
        return self.take(self.send(0, topics=self.topics))

    def beat(self) -> ShareHeartbeatResponse:
        return self.take(self.send(self.epoch))

    def leave(self) -> ShareHeartbeatResponse:
        self.told = frozenset()
        return self.send(-1)

    def take(self, answer: ShareHeartbeatResponse) -> ShareHeartbeatResponse:
        """Hears an answer."""
        if answer.error is ErrorCode.NONE:
            assert answer.member_id is not None
            self.member_id = answer.member_id
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.told = answer.assignment
        return answer
