"""Share groups as an administrator sees them, and among groups of other types."""

from __future__ import annotations

from ottla.coordination.groups.config import GroupConfig
from ottla.coordination.groups.messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResponse,
    DeleteGroup,
    DeleteGroupResponse,
    DescribeConsumerGroup,
    DescribeConsumerGroupResponse,
    DescribeGroup,
    DescribeGroupResponse,
    FetchedOffset,
    JoinGroupResponse,
    ListedGroup,
    ListGroups,
    ListGroupsResponse,
    OffsetCommit,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
)
from ottla.coordination.groups.share_effects import DeleteShareState, InitializeShareState
from ottla.coordination.groups.share_messages import (
    AlteredPartition,
    AlterShareOffsets,
    AlterShareOffsetsResponse,
    DeletedTopic,
    DeleteShareOffsets,
    DeleteShareOffsetsResponse,
    DescribeShareGroup,
    DescribeShareGroupResponse,
    DescribeShareOffsets,
    DescribeShareOffsetsResponse,
    ShareMember,
    SharePartition,
    ShareStart,
)
from ottla.wire.error_codes import ErrorCode
from tests.support.groups_consumer import of, topic_id, topics_image
from tests.support.share_group import Member, ShareWorld

IMAGE = topics_image(t=2)
T = topic_id("t")


def used(world: ShareWorld, *, empty: bool = True) -> Member:
    """A group that has read t, and left it if `empty`."""
    member = Member(world, "a", "t")
    member.join()
    world.perform()
    world.settle(member)
    if empty:
        member.leave()
    return member


def delete(world: ShareWorld) -> int:
    return world.driver.send(DeleteGroup("g", IMAGE))


def deleted(world: ShareWorld, token: int) -> ErrorCode:
    return world.driver.answer(token, DeleteGroupResponse).error


def delete_offsets(world: ShareWorld, *names: str) -> int:
    return world.driver.send(DeleteShareOffsets("g", IMAGE, names))


def alter(world: ShareWorld, *starts: tuple[str, int, int]) -> int:
    asked = tuple(ShareStart(*start) for start in starts)
    return world.driver.send(AlterShareOffsets("g", IMAGE, asked))


# Deleting a group


def test_52_a_group_with_members_is_not_deleted() -> None:
    world = ShareWorld()
    used(world, empty=False)
    assert deleted(world, delete(world)) is ErrorCode.NON_EMPTY_GROUP
    assert world.driver.effects == []


def test_52_state_goes_before_the_group() -> None:
    world = ShareWorld()
    used(world)
    token = delete(world)
    assert token not in world.driver.answers
    (effect,) = world.driver.effects
    assert isinstance(effect, DeleteShareState)
    assert effect.partitions == of("t", 0, 1)
    assert world.group.states.deleting == {T}
    world.perform()
    assert deleted(world, token) is ErrorCode.NONE
    assert world.kept == {}
    assert "g" not in world.driver.machine.groups
    assert "g" not in world.driver.replayed().groups
    again = used(world, empty=False)
    assert again.told == of("t", 0, 1)
    assert world.kept["g", (T, 0)][0] == 1, "a new group, counted from the start"


def test_52_a_failure_leaves_the_group_and_a_retry_goes_on() -> None:
    world = ShareWorld()
    used(world)
    token = delete(world)
    world.perform_next(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert deleted(world, token) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.group.states.deleting == {T}
    world.driver.restart()
    token = delete(world)
    world.perform()
    assert deleted(world, token) is ErrorCode.NONE
    assert world.kept == {}


def test_a_group_that_never_had_state_is_deleted_at_once() -> None:
    world = ShareWorld()
    member = Member(world, "a", "nowhere")
    member.join()
    member.leave()
    assert deleted(world, delete(world)) is ErrorCode.NONE
    assert deleted(world, delete(world)) is ErrorCode.GROUP_ID_NOT_FOUND


def test_two_deletions_at_once() -> None:
    world = ShareWorld()
    used(world)
    tokens = [delete(world), delete(world)]
    world.perform()
    errors = [deleted(world, token) for token in tokens]
    assert errors == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]


def test_a_member_that_joins_meanwhile_saves_the_group() -> None:
    world = ShareWorld()
    used(world)
    token = delete(world)
    member = Member(world, "b", "t")
    assert member.join().assignment == frozenset()
    assert world.group.states.deleting == frozenset()
    world.perform()
    assert deleted(world, token) is ErrorCode.NON_EMPTY_GROUP
    world.settle(member)
    assert member.told == of("t", 0, 1)
    assert len(world.kept) == 2


def test_an_initialisation_that_failed_after_the_deed_leaves_nothing_behind() -> None:
    world = ShareWorld()
    member = Member(world, "a", "t")
    member.join()
    world.perform_next(ErrorCode.REQUEST_TIMED_OUT, done=True)
    member.leave()
    token = delete(world)
    world.perform()
    assert deleted(world, token) is ErrorCode.NONE
    assert world.kept == {}


def test_an_initialisation_under_way_is_deleted_after_it() -> None:
    world = ShareWorld()
    member = Member(world, "a", "t")
    member.join()
    member.leave()
    token = delete(world)
    world.perform()
    assert deleted(world, token) is ErrorCode.NONE
    assert world.kept == {}


def test_an_empty_share_group_is_kept_for_good() -> None:
    world = ShareWorld()
    used(world)
    world.driver.advance(30 * GroupConfig().offsets_retention_ms)
    assert world.group.state == "Empty"


# Offsets


def test_deleting_offsets() -> None:
    world = ShareWorld()
    assert world.driver.ask(
        DeleteShareOffsets("g", IMAGE, ("t",)), DeleteShareOffsetsResponse
    ) == DeleteShareOffsetsResponse(ErrorCode.GROUP_ID_NOT_FOUND)
    member = used(world, empty=False)
    assert world.driver.answer(
        delete_offsets(world, "t"), DeleteShareOffsetsResponse
    ) == DeleteShareOffsetsResponse(ErrorCode.NON_EMPTY_GROUP)
    member.leave()
    token = delete_offsets(world, "t", "nowhere")
    assert token not in world.driver.answers
    world.perform()
    assert world.driver.answer(token, DeleteShareOffsetsResponse).topics == (
        DeletedTopic("t", T, ErrorCode.NONE),
        DeletedTopic("nowhere", None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    )
    assert world.kept == {}
    assert world.group.states.names == {}
    (result,) = world.driver.answer(delete_offsets(world, "t"), DeleteShareOffsetsResponse).topics
    assert result.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is none any more"
    member.join()
    world.perform()
    assert {start for _, start in world.kept.values()} == {-1}


def test_deleting_offsets_that_fails_can_be_repeated() -> None:
    world = ShareWorld()
    used(world)
    token = delete_offsets(world, "t")
    world.perform_next(ErrorCode.NOT_COORDINATOR)
    (result,) = world.driver.answer(token, DeleteShareOffsetsResponse).topics
    assert result.error is ErrorCode.NOT_COORDINATOR
    token = delete_offsets(world, "t")
    world.perform()
    (result,) = world.driver.answer(token, DeleteShareOffsetsResponse).topics
    assert result.error is ErrorCode.NONE
    assert world.kept == {}


def test_an_older_deletion_is_no_news_of_a_later_one() -> None:
    world = ShareWorld()
    used(world)
    delete_offsets(world, "t")
    member = Member(world, "b", "t")
    member.join()
    member.leave()
    delete_offsets(world, "t")
    world.perform_next()
    world.perform_next()
    assert world.kept
    world.driver.effects.clear()
    world.driver.restart()
    token = delete(world)
    world.perform()
    assert deleted(world, token) is ErrorCode.NONE
    assert world.kept == {}


def test_49_altering_offsets_starts_a_new_epoch() -> None:
    world = ShareWorld()
    used(world)
    epoch = world.group.epoch
    token = alter(world, ("t", 1, 40), ("t", 2, 5), ("nowhere", 0, 5), ("t", 0, -2))
    (effect,) = world.driver.effects
    assert isinstance(effect, InitializeShareState)
    assert (effect.state_epoch, effect.starts) == (epoch + 1, {(T, 1): 40})
    world.perform()
    assert world.driver.answer(token, AlterShareOffsetsResponse) == AlterShareOffsetsResponse(
        ErrorCode.NONE,
        (
            AlteredPartition("t", T, 1, ErrorCode.NONE),
            AlteredPartition("t", T, 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            AlteredPartition("nowhere", None, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            AlteredPartition("t", T, 0, ErrorCode.INVALID_REQUEST),
        ),
    )
    assert world.kept["g", (T, 1)] == (epoch + 1, 40)


def test_altering_makes_the_group_and_joining_keeps_the_offset() -> None:
    world = ShareWorld()
    token = alter(world, ("t", 0, 7))
    world.perform()
    (result,) = world.driver.answer(token, AlterShareOffsetsResponse).partitions
    assert result.error is ErrorCode.NONE
    assert world.group.state == "Empty"
    member = used(world, empty=False)
    assert member.told == of("t", 0, 1)
    assert world.kept["g", (T, 0)] == (1, 7)


def test_altering_nothing_makes_no_group() -> None:
    world = ShareWorld()
    token = alter(world, ("nowhere", 0, 7))
    (result,) = world.driver.answer(token, AlterShareOffsetsResponse).partitions
    assert result.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.driver.machine.groups == {}


def test_altering_needs_an_empty_share_group() -> None:
    world = ShareWorld()
    used(world, empty=False)
    answer = world.driver.answer(alter(world, ("t", 0, 7)), AlterShareOffsetsResponse)
    assert answer == AlterShareOffsetsResponse(ErrorCode.NON_EMPTY_GROUP)
    other = ShareWorld()
    other.driver.join_as("0")
    answer = other.driver.answer(alter(other, ("t", 0, 7)), AlterShareOffsetsResponse)
    assert answer == AlterShareOffsetsResponse(ErrorCode.GROUP_ID_NOT_FOUND)


def test_altering_that_fails_leaves_old_state_in_place() -> None:
    world = ShareWorld()
    member = used(world)
    before = dict(world.kept)
    token = alter(world, ("t", 0, 7))
    world.perform_next(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    (result,) = world.driver.answer(token, AlterShareOffsetsResponse).partitions
    assert result.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert member.join().assignment == of("t", 0, 1)
    world.perform()
    assert world.kept == before


def test_which_offsets_to_describe() -> None:
    world = ShareWorld()
    ask = DescribeShareOffsets("g", IMAGE)
    kind = DescribeShareOffsetsResponse
    assert world.driver.ask(ask, kind) == kind(ErrorCode.GROUP_ID_NOT_FOUND)
    used(world)
    assert world.driver.ask(ask, kind).partitions == (
        SharePartition("t", T, 0, has_state=True),
        SharePartition("t", T, 1, has_state=True),
    )
    wanted = (("t", (1, 5)), ("nowhere", (0,)))
    assert world.driver.ask(DescribeShareOffsets("g", IMAGE, wanted), kind).partitions == (
        SharePartition("t", T, 1, has_state=True),
        SharePartition("t", T, 5, has_state=False),
        SharePartition("nowhere", None, 0, has_state=False),
    )


# Descriptions, and groups of other types


def test_describe() -> None:
    world = ShareWorld()
    kind = DescribeShareGroupResponse
    assert world.driver.ask(DescribeShareGroup("g"), kind) == kind(ErrorCode.GROUP_ID_NOT_FOUND)
    used(world, empty=False)
    member = ShareMember("a", None, 2, "c", "/h", ("t",), of("t", 0, 1))
    expected = kind(ErrorCode.NONE, "Stable", 2, 2, "simple", (member,))
    assert world.driver.ask(DescribeShareGroup("g"), kind) == expected


def test_list() -> None:
    world = ShareWorld()
    member = used(world, empty=False)
    stable = (ListedGroup("g", "share", "Stable", "share"),)
    for types in ({"Share"}, set[str]()):
        asked = ListGroups(types=frozenset(types))
        assert world.driver.ask(asked, ListGroupsResponse).groups == stable
    assert world.driver.ask(ListGroups(frozenset({"empty"})), ListGroupsResponse).groups == ()
    member.leave()
    asked = ListGroups(frozenset({"empty"}), frozenset({"share"}))
    assert world.driver.ask(asked, ListGroupsResponse).groups == (
        ListedGroup("g", "share", "Empty", "share"),
    )


def test_a_share_group_is_nothing_else() -> None:
    world = ShareWorld()
    driver = world.driver
    used(world)
    gone = ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.ask(DescribeGroup("g"), DescribeGroupResponse).error is gone
    described = driver.ask(DescribeConsumerGroup("g"), DescribeConsumerGroupResponse)
    assert described.error is gone
    assert driver.commit(OffsetCommit("g", (OffsetToCommit("t", 0, 1),))) == [gone]
    fetched = driver.ask(OffsetFetch("g", (("t", (0,)),)), OffsetFetchResponse)
    assert fetched == OffsetFetchResponse(gone)
    asked = OffsetDelete("g", (("t", 0),))
    assert driver.ask(asked, OffsetDeleteResponse) == OffsetDeleteResponse(gone)
    joined = driver.ask(driver.join_request(), JoinGroupResponse)
    assert joined.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    consumer = ConsumerHeartbeat("g", "b", 0, IMAGE, rebalance_timeout_ms=1, topic_names=("t",))
    assert driver.ask(consumer, ConsumerHeartbeatResponse).error is gone
    assert driver.beat("a", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.group.states.initialized == of("t", 0, 1)


def test_08_nothing_else_becomes_a_share_group() -> None:
    world = ShareWorld()
    driver = world.driver
    assert driver.commit(OffsetCommit("g", (OffsetToCommit("t", 0, 1),))) == [ErrorCode.NONE]
    assert Member(world, "a", "t").join().error is ErrorCode.GROUP_ID_NOT_FOUND
    fetched = driver.ask(OffsetFetch("g", None), OffsetFetchResponse)
    assert fetched.offsets == (FetchedOffset("t", 0, 1),)
    classic = ShareWorld()
    (member,), _ = classic.driver.stable_group(1)
    assert Member(classic, "a", "t").join().error is ErrorCode.GROUP_ID_NOT_FOUND
    classic.driver.leave((member, None))
    assert Member(classic, "a", "t").join().error is ErrorCode.GROUP_ID_NOT_FOUND
