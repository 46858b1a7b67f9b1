"""Share groups heartbeat by heartbeat: joining, epochs, sessions, assignment, state."""

from __future__ import annotations

import pytest

from ottla.coordination.groups.config import GroupConfig, ShareSettings
from ottla.coordination.groups.keys import (
    ShareCurrentAssignmentKey,
    ShareGroupKey,
    ShareMemberKey,
    ShareTargetMemberKey,
)
from ottla.coordination.groups.messages import ConsumerHeartbeat, ConsumerHeartbeatResponse
from ottla.coordination.groups.share_effects import InitializeShareState, ShareStateInitialized
from ottla.coordination.groups.share_messages import ForgetTopics, Noted, ShareHeartbeatResponse
from ottla.wire.error_codes import ErrorCode
from tests.support.groups_consumer import of, topic_id, topics_image
from tests.support.groups_snapshot import durable
from tests.support.share_group import AT_ONCE, Member, ShareWorld

SESSION_MS = ShareSettings().session_timeout_ms
RETRY_MS = GroupConfig().share_initialize_retry_interval_ms


def joined(world: ShareWorld, *names: str, partitions: int = 2) -> list[Member]:
    """Members of t with all state in place."""
    members = [Member(world, name, "t") for name in names]
    for member in members:
        member.image = topics_image(t=partitions)
        assert member.join().error is ErrorCode.NONE
        world.perform()
    world.settle(*members)
    return members


def test_01_the_first_join_makes_the_group() -> None:
    world = ShareWorld()
    answer = Member(world, "a", "t").join()
    assert answer.error is ErrorCode.NONE
    assert (answer.member_id, answer.member_epoch) == ("a", 1)
    assert answer.heartbeat_interval_ms == 5000
    assert answer.assignment == frozenset(), "nothing is initialized yet"
    assert (world.group.state, world.group.epoch) == ("Stable", 1)


def test_01_partitions_come_with_the_next_heartbeat() -> None:
    world = ShareWorld()
    member = Member(world, "a", "t")
    member.join()
    (effect,) = world.driver.effects
    assert isinstance(effect, InitializeShareState)
    assert (effect.group_id, effect.state_epoch) == ("g", 1)
    assert effect.starts == dict.fromkeys(of("t", 0, 1), -1)
    assert member.beat().assignment is None
    world.perform()
    answer = member.beat()
    assert (answer.member_epoch, answer.assignment) == (2, of("t", 0, 1))
    assert member.beat() == ShareHeartbeatResponse(
        member_id="a", member_epoch=2, heartbeat_interval_ms=5000
    )


def test_02_a_nameless_member_is_given_an_id() -> None:
    world = ShareWorld()
    member = Member(world, "", "t")
    assert member.join().member_id == "fresh"
    assert member.beat().error is ErrorCode.NONE


def test_02_unless_that_is_switched_off_or_it_is_no_join() -> None:
    world = ShareWorld()
    assert Member(world, "", "t").send(1).error is ErrorCode.INVALID_REQUEST
    assert Member(world, "", "t").leave().error is ErrorCode.INVALID_REQUEST
    strict = ShareWorld(GroupConfig(share_makes_member_ids=False))
    assert Member(strict, "", "t").join().error is ErrorCode.INVALID_REQUEST


def test_03_a_member_id_has_36_characters_at_most() -> None:
    world = ShareWorld()
    assert Member(world, "x" * 37, "t").join().error is ErrorCode.INVALID_REQUEST
    assert Member(world, "x" * 36, "t").join().error is ErrorCode.NONE


@pytest.mark.parametrize("topics", [None, ()])
def test_04_a_join_needs_a_subscription(topics: tuple[str, ...] | None) -> None:
    world = ShareWorld()
    assert Member(world, "a").send(0, topics=topics).error is ErrorCode.INVALID_REQUEST
    assert world.driver.machine.groups == {}


def test_other_faults_of_a_request() -> None:
    world = ShareWorld()
    member = Member(world, "a", "t")
    assert member.send(0, topics=("t",), group_id="").error is ErrorCode.INVALID_REQUEST
    assert member.send(0, topics=("t",), rack="").error is ErrorCode.INVALID_REQUEST
    assert member.send(-2).error is ErrorCode.INVALID_REQUEST
    assert member.send(1).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert member.send(-1).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.driver.machine.groups == {}


def test_05_epochs() -> None:
    world = ShareWorld()
    (member,) = joined(world, "a")
    assert member.epoch == 2
    repeated = member.send(1)
    assert (repeated.error, repeated.member_epoch) == (ErrorCode.NONE, 2)
    assert repeated.assignment == of("t", 0, 1), "it missed the answer that named it"
    assert member.send(3).error is ErrorCode.FENCED_MEMBER_EPOCH
    member.image = topics_image(t=3)
    world.settle(member)
    assert member.epoch == 4
    assert member.send(2).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert member.join().member_epoch == 4


def test_06_an_expired_member_is_unknown_until_it_joins_again() -> None:
    world = ShareWorld()
    (member,) = joined(world, "a")
    world.driver.advance(SESSION_MS)
    assert world.group.state == "Empty"
    assert member.beat().error is ErrorCode.UNKNOWN_MEMBER_ID
    answer = member.join()
    assert (answer.error, answer.assignment) == (ErrorCode.NONE, of("t", 0, 1))


def test_sessions_have_the_groups_own_length() -> None:
    world = ShareWorld()
    member = Member(world, "a", "t")
    own = ShareSettings(session_timeout_ms=100, heartbeat_interval_ms=7, assignment_interval_ms=0)
    assert member.send(0, topics=("t",), settings=own).heartbeat_interval_ms == 7
    world.driver.advance(99)
    assert world.group.members
    world.driver.advance(1)
    assert not world.group.members


def test_07_a_full_group_takes_nobody_else() -> None:
    world = ShareWorld(GroupConfig(share=AT_ONCE.share, share_max_size=2))
    members = joined(world, "a", "b")
    late = Member(world, "c", "t")
    assert late.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert late.send(5).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert late.leave().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert [member.beat().error for member in members] == [ErrorCode.NONE] * 2
    assert members[0].join().error is ErrorCode.NONE


def test_08_a_consumer_group_is_no_share_group() -> None:
    world = ShareWorld()
    consumer = ConsumerHeartbeat(
        "g", "a", 0, topics_image(t=1), rebalance_timeout_ms=1, topic_names=("t",)
    )
    world.driver.ask(consumer, ConsumerHeartbeatResponse)
    assert Member(world, "b", "t").join().error is ErrorCode.GROUP_ID_NOT_FOUND


def test_09_three_members_share_one_partition() -> None:
    world = ShareWorld()
    members = joined(world, "a", "b", "c", partitions=1)
    assert [member.told for member in members] == [of("t", 0)] * 3


def test_10_who_stays_gets_all_within_two_heartbeats() -> None:
    world = ShareWorld()
    first, second = joined(world, "a", "b", partitions=4)
    assert sorted(map(len, (first.told, second.told))) == [2, 2]
    assert second.leave() == ShareHeartbeatResponse(member_id="b", member_epoch=-1)
    first.beat()
    first.beat()
    assert first.told == of("t", 0, 1, 2, 3)


def test_leaving_writes_the_end_of_the_member_then_the_group() -> None:
    world = ShareWorld()
    first, _second = joined(world, "a", "b")
    epoch = world.group.epoch
    seen = len(world.driver.records)
    first.leave()
    keys = [record.key for record in world.driver.records[seen:]]
    assert keys == [
        ShareCurrentAssignmentKey("g", "a"),
        ShareTargetMemberKey("g", "a"),
        ShareMemberKey("g", "a"),
        ShareGroupKey("g"),
    ]
    assert world.group.epoch == epoch + 1


def test_11_heartbeats_survive_a_share_coordinator_that_fails() -> None:
    world = ShareWorld()
    world.failing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    member = Member(world, "a", "t")
    assert member.join().assignment == frozenset()
    world.perform()
    for _ in range(3):
        assert member.beat().error is ErrorCode.NONE
        world.perform()
    assert member.told == frozenset()
    world.failing = None
    world.settle(member)
    assert member.told == of("t", 0, 1)


def test_11_an_answer_that_does_not_come_is_asked_for_again() -> None:
    world = ShareWorld()
    member = Member(world, "a", "t")
    member.join()
    world.driver.effects.clear()
    for _ in range(2):
        world.driver.advance(RETRY_MS // 2 - 1)
        member.beat()
    assert world.driver.effects == []
    world.driver.advance(2)
    member.beat()
    world.perform()
    member.beat()
    assert member.told == of("t", 0, 1)


def test_11_a_late_answer_to_an_older_question_does_not_count() -> None:
    world = ShareWorld()
    member = Member(world, "a", "t")
    member.join()
    (old,) = world.driver.effects
    assert isinstance(old, InitializeShareState)
    world.driver.effects.clear()
    world.driver.advance(RETRY_MS)
    member.beat()
    done = dict.fromkeys(old.starts, ErrorCode.NONE)
    world.driver.ask(ShareStateInitialized(old, done), Noted)
    assert world.group.states.initialized == frozenset()
    world.perform()
    assert world.group.states.initialized == of("t", 0, 1)


def test_11_a_partition_the_answer_leaves_out_has_failed() -> None:
    world = ShareWorld()
    member = Member(world, "a", "t")
    member.join()
    (effect,) = world.driver.effects
    assert isinstance(effect, InitializeShareState)
    outcome = dict.fromkeys(of("t", 1), ErrorCode.NONE)
    world.driver.ask(ShareStateInitialized(effect, outcome), Noted)
    assert member.beat().assignment == of("t", 1)
    last = world.driver.effects[-1]
    assert isinstance(last, InitializeShareState)
    assert set(last.starts) == of("t", 0)


def test_12_only_new_partitions_are_initialized() -> None:
    world = ShareWorld()
    (member,) = joined(world, "a")
    member.image = topics_image(t=4)
    member.beat()
    (effect,) = world.driver.effects
    assert isinstance(effect, InitializeShareState)
    assert set(effect.starts) == of("t", 2, 3)
    assert effect.state_epoch == world.group.epoch
    world.perform()
    member.beat()
    assert member.told == of("t", 0, 1, 2, 3)


def test_13_a_restart_keeps_members_epochs_and_state() -> None:
    world = ShareWorld()
    first, second = joined(world, "a", "b")
    second.image = topics_image(t=3)
    second.beat()
    before = durable(world.driver.machine)
    world.driver.effects.clear()
    world.driver.restart()
    assert durable(world.driver.machine) == before
    assert world.group.states.initializing == of("t", 2)
    first.image = second.image
    assert [m.beat().error for m in (first, second)] == [ErrorCode.NONE] * 2
    (again,) = world.driver.effects
    assert isinstance(again, InitializeShareState)
    assert again.starts.keys() == of("t", 2), "what was asked for before may be lost"
    world.settle(first, second)
    assert first.told | second.told == of("t", 0, 1, 2)


def test_a_topic_nobody_reads_keeps_its_state() -> None:
    world = ShareWorld()
    (member,) = joined(world, "a")
    kept = dict(world.kept)
    member.image = topics_image(t=2, u=1)
    assert member.take(member.send(member.epoch, topics=("u",))).assignment == frozenset()
    world.perform()
    world.settle(member)
    assert member.told == of("u", 0)
    answer = member.take(member.send(member.epoch, topics=("t", "u")))
    assert answer.assignment == of("t", 0, 1) | of("u", 0)
    assert kept.items() <= world.kept.items()
    assert world.driver.effects == []


def test_51_a_deleted_topic_is_forgotten_and_its_successor_starts_anew() -> None:
    world = ShareWorld()
    (member,) = joined(world, "a")
    member.image = topics_image(2)
    assert member.beat().assignment == frozenset()
    assert world.group.states.initialized == of("t", 0, 1)
    world.driver.ask(ForgetTopics(frozenset({topic_id("t")})), Noted)
    assert world.group.states.initialized == frozenset()
    assert world.group.states.names == {}
    member.image = topics_image(3, t=1)
    member.beat()
    world.perform()
    assert member.beat().assignment == of("t", 0)


def test_assignments_keep_their_distance() -> None:
    world = ShareWorld(GroupConfig())
    first, second = Member(world, "a", "t"), Member(world, "b", "t")
    first.join()
    world.perform()
    first.beat()
    assert first.told == of("t", 0, 1), "a target of nothing is not waited for"
    assert second.join().assignment == frozenset()
    world.driver.advance(999)
    assert second.beat().assignment is None
    world.driver.advance(1)
    second.beat()
    first.beat()
    assert (len(first.told), len(second.told)) == (1, 1)


def test_what_is_due_while_waiting_is_counted_once() -> None:
    """Within the interval the group epoch rises for members, not again for every heartbeat."""
    world = ShareWorld(GroupConfig())
    (member,) = joined(world, "a")
    epoch = world.group.epoch
    member.image = topics_image(t=3)
    member.beat()
    assert (world.group.epoch, world.group.target_epoch) == (epoch + 1, epoch)
    world.perform()
    member.beat()
    member.beat()
    assert (world.group.epoch, world.group.target_epoch) == (epoch + 1, epoch)
    world.driver.advance(1000)
    member.beat()
    assert member.told == of("t", 0, 1, 2)


def test_within_an_epoch_only_a_subscription_takes_away() -> None:
    """Both topics go while the next target has to wait; the member hears of it with that."""
    world = ShareWorld(GroupConfig())
    member = Member(world, "a", "t", "u")
    member.image = topics_image(t=1, u=1)
    member.join()
    world.perform()
    member.beat()
    unsubscribed = member.take(member.send(member.epoch, topics=("t",)))
    assert unsubscribed.assignment == of("t", 0)
    member.image = topics_image()
    assert member.beat().assignment is None
    assert world.group.current["a"].assigned == of("t", 0)
    world.driver.advance(1000)
    assert member.beat().assignment == frozenset()


def test_a_change_that_was_counted_is_not_found_again() -> None:
    world = ShareWorld()
    first, second = Member(world, "a", "t"), Member(world, "b", "u")
    for member in (first, second):
        member.image = topics_image(t=1, u=1)
        member.join()
        world.perform()
    world.settle(first, second)
    second.leave()
    epoch = world.group.epoch
    world.settle(first)
    first.image = topics_image(2, t=1, u=2)
    world.settle(first)
    assert world.group.epoch == world.group.target_epoch == epoch


def test_a_member_that_left_has_no_session_to_lose() -> None:
    world = ShareWorld()
    first, second = joined(world, "a", "b")
    first.leave()
    epoch = world.group.epoch
    world.driver.advance(SESSION_MS - 1)
    second.beat()
    world.driver.advance(1)
    assert world.group.members.keys() == {"b"}
    assert world.group.epoch == epoch


def test_sending_the_same_again_changes_nothing() -> None:
    world = ShareWorld()
    (member,) = joined(world, "a")
    seen = len(world.driver.records)
    answer = member.send(member.epoch, topics=("t",))
    assert answer.assignment == of("t", 0, 1)
    assert member.join().member_epoch == member.epoch
    assert len(world.driver.records) == seen
