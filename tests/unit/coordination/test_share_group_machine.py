"""Share groups under any order of heartbeats, losses, topic changes, failures, time and restarts.

Held at every step: a replay of the emitted records equals the state; epochs never fall; what the
share coordinator keeps is in the group's books, and what can be assigned is kept there. Held at the
end: when everyone keeps heartbeating, every partition that is read has a member and every member a
partition; and a group that is deleted leaves nothing.
"""

from __future__ import annotations

from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.coordination.groups.config import GroupConfig, ShareSettings
from ottla.coordination.groups.messages import DeleteGroup, DeleteGroupResponse
from ottla.coordination.groups.share_effects import DeleteShareState, InitializeShareState
from ottla.coordination.groups.share_group import ShareGroup
from ottla.coordination.groups.share_messages import (
    AlterShareOffsets,
    DeleteShareOffsets,
    ForgetTopics,
    Noted,
    ShareStart,
)
from ottla.coordination.groups.topics import Topic, TopicsImage
from ottla.wire.error_codes import ErrorCode
from tests.support.groups_snapshot import durable
from tests.support.share_group import Member, ShareWorld

SETTINGS = ShareSettings()
CONFIG = GroupConfig(share_max_size=3)
NAMES = ("a", "b", "c", "d")
members = st.sampled_from(range(len(NAMES)))
subscriptions = st.sampled_from([("t",), ("u",), ("t", "u"), ("nowhere",)])
errors = st.sampled_from([ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT])


class ShareGroups(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.world = ShareWorld(CONFIG)
        self.driver = self.world.driver
        self.members = [Member(self.world, name) for name in NAMES]
        self.epochs: tuple[ShareGroup | None, int, int] = (None, 0, 0)
        self.parked: list[int] = []
        self.topics: dict[str, Topic] = {}
        self.made = 0
        self.version = 0
        self.set_topic("t", 2)

    def set_topic(self, name: str, partitions: int) -> None:
        """0 deletes; a topic that comes again has a new id, and none ever shrinks."""
        old = self.topics.pop(name, None)
        if partitions:
            self.made += 1
            topic_id = UUID(int=self.made) if old is None else old.topic_id
            count = max(partitions, 0 if old is None else old.partitions)
            self.topics[name] = Topic(topic_id, name, count)
        self.version += 1
        self.image = TopicsImage(dict(self.topics), self.version)
        for member in self.members:
            member.image = self.image
        if old is not None and not partitions:
            self.drop(old.topic_id)

    def drop(self, topic_id: UUID) -> None:
        self.world.gone.add(topic_id)
        for key in [key for key in self.world.kept if key[1][0] == topic_id]:
            del self.world.kept[key]
        self.driver.ask(ForgetTopics(frozenset({topic_id})), Noted)

    def group(self) -> ShareGroup | None:
        group = self.driver.machine.groups.get("g")
        assert group is None or isinstance(group, ShareGroup)
        return group

    def is_member(self, member: Member) -> bool:
        group = self.group()
        return group is not None and member.member_id in group.members

    # Members

    @rule(index=members, subscription=subscriptions)
    def join(self, index: int, subscription: tuple[str, ...]) -> None:
        member = self.members[index]
        group = self.group()
        full = group is not None and len(group.members) >= CONFIG.share_max_size
        full = full and not self.is_member(member)
        member.topics = subscription
        answer = member.join()
        if full:
            assert answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
        else:
            assert answer.error is ErrorCode.NONE
            assert answer.assignment is not None
            assert answer.member_epoch > 0

    @rule(index=members)
    def beat(self, index: int) -> None:
        member = self.members[index]
        if member.epoch > 0:
            was = self.is_member(member)
            assert (member.beat().error is ErrorCode.NONE) == was

    @rule(index=members)
    def beat_with_a_lost_answer(self, index: int) -> None:
        member = self.members[index]
        if self.is_member(member) and member.epoch > 0:
            first = member.send(member.epoch)
            if first.error is ErrorCode.NONE:
                second = member.beat()
                assert second.error is ErrorCode.NONE
                group = self.group()
                assert group is not None
                assert member.told == group.current[member.member_id].assigned

    @rule(index=members, subscription=subscriptions)
    def resubscribe(self, index: int, subscription: tuple[str, ...]) -> None:
        member = self.members[index]
        if self.is_member(member) and member.epoch > 0:
            answer = member.take(member.send(member.epoch, topics=subscription))
            member.topics = subscription
            assert answer.error is ErrorCode.NONE

    @rule(index=members)
    def leave(self, index: int) -> None:
        member = self.members[index]
        was = self.is_member(member)
        assert (member.leave().error is ErrorCode.NONE) == was
        member.epoch = 0

    # The world around

    @rule(name=st.sampled_from(["t", "u"]), partitions=st.integers(0, 3))
    def topics_change(self, name: str, partitions: int) -> None:
        self.set_topic(name, partitions)

    @rule(ms=st.sampled_from([1, 1000, 30_000, SETTINGS.session_timeout_ms]))
    def advance(self, ms: int) -> None:
        self.driver.advance(ms)
        for member in self.members:
            if not self.is_member(member):
                member.epoch = 0

    @rule()
    def performed(self) -> None:
        if self.driver.effects:
            self.world.perform_next()

    @rule(error=errors, done=st.booleans())
    def failed(self, error: ErrorCode, done: bool) -> None:
        if self.driver.effects:
            self.world.perform_next(error, done=done)

    @rule()
    def restart(self) -> None:
        """Effects that were not carried out are lost, and so are the requests that wait."""
        self.driver.effects.clear()
        self.driver.restart()
        self.parked.clear()

    # The administrator

    @rule()
    def delete_group(self) -> None:
        self.parked.append(self.driver.send(DeleteGroup("g", self.image)))

    @rule(name=st.sampled_from(["t", "u"]))
    def delete_offsets(self, name: str) -> None:
        self.parked.append(self.driver.send(DeleteShareOffsets("g", self.image, (name,))))

    @rule(name=st.sampled_from(["t", "u"]), partition=st.integers(0, 2), start=st.integers(-2, 5))
    def alter_offsets(self, name: str, partition: int, start: int) -> None:
        starts = (ShareStart(name, partition, start),)
        self.parked.append(self.driver.send(AlterShareOffsets("g", self.image, starts)))

    # What always holds

    @invariant()
    def replay_equals(self) -> None:
        if hasattr(self, "driver"):
            assert durable(self.driver.replayed()) == durable(self.driver.machine)

    @invariant()
    def epochs_never_fall(self) -> None:
        if not hasattr(self, "driver") or (group := self.group()) is None:
            return
        was, epoch, target_epoch = self.epochs
        if was is group:
            assert group.epoch >= epoch
            assert group.target_epoch >= target_epoch
        assert group.target_epoch <= group.epoch
        self.epochs = (group, group.epoch, group.target_epoch)

    @invariant()
    def books_are_right(self) -> None:
        if not hasattr(self, "driver"):
            return
        group = self.group()
        asked = set()
        for effect in self.driver.effects:
            if isinstance(effect, InitializeShareState):
                asked |= {partition[0] for partition in effect.starts}
            elif isinstance(effect, DeleteShareState):
                asked |= {partition[0] for partition in effect.partitions}
        kept = {partition for _, partition in self.world.kept if partition[0] not in asked}
        if group is None:
            assert kept == set()
            return
        states = group.states
        assert not states.initializing & states.initialized
        settled = {p for p in states.initialized if p[0] not in asked}
        assert settled <= kept
        booked = states.initializing | states.initialized
        assert all(p in booked or p[0] in states.deleting for p in kept)

    @invariant()
    def members_are_told_what_exists(self) -> None:
        if not hasattr(self, "driver") or (group := self.group()) is None:
            return
        assert group.current.keys() == group.members.keys()
        assert group.targets.keys() <= group.members.keys()
        assert len(group.members) <= CONFIG.share_max_size

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        if hasattr(self, "driver") and not self.driver.effects:
            assert all(token in self.driver.answers for token in self.parked)

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        self.world.perform()
        live = [member for member in self.members if self.is_member(member)]
        for member in live:
            member.join()
        for _ in range(6):
            self.driver.advance(CONFIG.share_initialize_retry_interval_ms // 4)
            self.world.settle(*live)
        if live:
            self.check_end(live)
        for member in live:
            member.leave()
        token = self.driver.send(DeleteGroup("g", self.image))
        self.world.perform()
        self.driver.answer(token, DeleteGroupResponse)
        assert "g" not in self.driver.machine.groups
        assert self.world.kept == {}

    def check_end(self, live: list[Member]) -> None:
        group = self.group()
        assert group is not None
        assert group.state == "Stable"
        for member in live:
            read = {
                (topic.topic_id, index)
                for name in member.topics
                if (topic := self.topics.get(name)) is not None
                for index in range(topic.partitions)
            }
            assert member.told <= read
            assert bool(member.told) == bool(read)
            others = frozenset().union(*(other.told for other in live))
            assert read <= others


TestShareGroups = ShareGroups.TestCase
