"""KIP-848, told as heartbeats."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.coordination.groups.config import ConsumerSettings, GroupConfig
from ottla.coordination.groups.consumer_state import ConsumerGroup
from ottla.coordination.groups.keys import (
    ClassicGroupKey,
    ConsumerGroupKey,
    CurrentAssignmentKey,
    RegexKey,
)
from ottla.coordination.groups.messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResponse,
    DeleteGroup,
    DeleteGroupResponse,
    DescribeConsumerGroup,
    DescribeConsumerGroupResponse,
    DescribeGroup,
    DescribeGroupResponse,
    JoinGroupResponse,
    ListGroups,
    ListGroupsResponse,
    OffsetCommit,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
)
from ottla.coordination.groups.records import CurrentAssignmentValue, Record, RegexValue
from ottla.coordination.machine import Batch
from ottla.wire.error_codes import ErrorCode
from tests.support.groups_consumer import (
    REBALANCE_MS,
    Client,
    of,
    settle_all,
    topics_image,
)
from tests.support.groups_driver import Driver

OK = ErrorCode.NONE
SESSION_MS = GroupConfig().consumer.session_timeout_ms
T4 = topics_image(t=4)


def member(driver: Driver, name: str, *topics: str, **kw: str) -> Client:
    client = Client(driver, name, *(topics or ("t",)), **kw)
    client.image = T4
    return client


def group_of(driver: Driver) -> ConsumerGroup:
    group = driver.machine.groups["g"]
    assert isinstance(group, ConsumerGroup)
    return group


def test_one_member_gets_everything_at_once() -> None:
    driver = Driver()
    a = member(driver, "a")
    answer = a.join()
    assert (answer.error, answer.member_id, answer.member_epoch) == (OK, "a", 1)
    assert answer.assignment == of("t", 0, 1, 2, 3)
    assert answer.heartbeat_interval_ms == 5000
    again = a.beat()
    assert (again.member_epoch, again.assignment) == (1, None)
    assert group_of(driver).state == "Stable"


def test_a_member_without_an_id_is_given_one() -> None:
    driver = Driver()
    answer = member(driver, "").send(0, owned=frozenset(), full=True)
    assert answer.member_id == "fresh"


def test_partitions_are_revoked_before_they_are_granted() -> None:
    driver = Driver()
    a, b = member(driver, "a"), member(driver, "b")
    a.join()
    assert b.join().assignment == frozenset()
    assert b.epoch == 2
    revoke = a.beat()
    assert revoke.member_epoch == 1
    assert revoke.assignment is not None
    assert len(revoke.assignment) == 2
    assert b.beat().assignment is None
    assert a.beat().member_epoch == 1
    assert a.settle().member_epoch == 2
    granted = b.beat()
    assert granted.assignment == of("t", 0, 1, 2, 3) - a.owned
    assert group_of(driver).state == "Stable"


def test_a_member_that_does_not_give_back_is_fenced() -> None:
    driver = Driver()
    a, b = member(driver, "a"), member(driver, "b")
    a.join()
    b.join()
    a.beat()
    driver.advance(REBALANCE_MS - 1)
    assert a.beat().error is OK
    b.beat()
    driver.advance(1)
    assert a.beat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.beat().assignment == of("t", 0, 1, 2, 3)
    assert a.join().error is OK


def test_a_silent_member_is_fenced() -> None:
    driver = Driver()
    a, b = member(driver, "a"), member(driver, "b")
    a.join()
    b.join()
    settle_all(a, b)
    driver.advance(SESSION_MS - 1)
    b.beat()
    driver.advance(1)
    assert a.beat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.beat().assignment == of("t", 0, 1, 2, 3)


def test_a_group_may_have_settings_of_its_own() -> None:
    driver = Driver()
    a = member(driver, "a")
    a.settings = ConsumerSettings(session_timeout_ms=50_000, heartbeat_interval_ms=7000)
    assert a.join().heartbeat_interval_ms == 7000
    driver.advance(49_999)
    assert a.beat().error is OK
    driver.advance(50_000)
    assert a.beat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_leave_gives_everything_back() -> None:
    driver = Driver()
    a, b = member(driver, "a"), member(driver, "b")
    a.join()
    b.join()
    settle_all(a, b)
    left = a.leave()
    assert (left.error, left.member_epoch, left.assignment) == (OK, -1, None)
    assert b.beat().assignment == of("t", 0, 1, 2, 3)
    assert a.leave().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_unchanged_fields_do_not_bump_the_epoch() -> None:
    driver = Driver()
    a = member(driver, "a")
    a.join()
    records = len(driver.records)
    for _ in range(3):
        answer = a.send(a.epoch, owned=a.owned, full=True)
        assert (answer.error, answer.member_epoch) == (OK, 1)
        assert answer.assignment == a.owned
    assert len(driver.records) == records


def test_a_new_subscription_bumps_the_epoch() -> None:
    driver = Driver()
    a = member(driver, "a")
    a.image = topics_image(t=2, u=1)
    a.join()
    a.topics = ("u", "t", "u")
    answer = a.send(a.epoch, owned=a.owned, full=True)
    assert answer.member_epoch == 2
    assert answer.assignment == of("t", 0, 1) | of("u", 0)


def test_new_partitions_and_topics_bump_the_epoch() -> None:
    driver = Driver()
    a = member(driver, "a", "t", "later")
    a.join()
    a.image = topics_image(version=2, t=5, other=3)
    answer = a.beat()
    assert (answer.member_epoch, answer.assignment) == (2, of("t", 0, 1, 2, 3, 4))
    a.image = topics_image(version=3, t=5, other=4)
    assert a.beat().member_epoch == 2
    a.image = topics_image(version=4, t=5, later=1)
    assert a.beat().assignment == of("t", 0, 1, 2, 3, 4) | of("later", 0)


def test_a_deleted_topic_is_taken_back() -> None:
    driver = Driver()
    a = member(driver, "a")
    a.join()
    a.image = topics_image(version=2)
    assert a.beat().assignment == frozenset()
    assert a.settle().member_epoch == 2


def test_topics_seen_again_after_a_restart_bump_nothing() -> None:
    driver = Driver()
    a = member(driver, "a")
    a.join()
    driver.restart()
    assert a.beat().member_epoch == 1


def test_a_lost_answer_is_given_again() -> None:
    driver = Driver()
    a = member(driver, "a")
    a.join()
    a.image = topics_image(version=2, t=5)
    lost = a.send(1, owned=a.owned)
    assert lost.member_epoch == 2
    retry = a.send(1, owned=a.owned)
    assert (retry.error, retry.member_epoch, retry.assignment) == (OK, 2, lost.assignment)
    fenced = ErrorCode.FENCED_MEMBER_EPOCH
    assert a.send(1).error is fenced
    assert a.send(1, owned=of("t", 9)).error is fenced
    assert a.send(3).error is fenced


def test_a_join_answer_that_was_lost_is_given_again() -> None:
    driver = Driver()
    a = member(driver, "a")
    first, second = a.join(), a.join()
    assert first == second


def test_joining_again_gives_up_what_was_pending() -> None:
    driver = Driver()
    a, b = member(driver, "a"), member(driver, "b")
    a.join()
    b.join()
    a.beat()
    rejoined = a.join()
    assert rejoined.member_epoch == 2
    assert b.beat().assignment == of("t", 0, 1, 2, 3) - (rejoined.assignment or frozenset())


# Static members


def test_a_static_member_keeps_its_partitions_while_it_is_away() -> None:
    driver = Driver()
    a, b = member(driver, "a", instance="i"), member(driver, "b")
    a.join()
    b.join()
    settle_all(a, b)
    before, epoch = a.owned, group_of(driver).epoch
    assert a.leave(-2).member_epoch == -2
    assert b.beat().assignment is None
    back = member(driver, "a2", instance="i")
    answer = back.join()
    assert (answer.error, answer.assignment) == (OK, before)
    assert group_of(driver).epoch == epoch
    assert a.send(1).error is ErrorCode.FENCED_INSTANCE_ID
    driver.restart()
    assert back.beat().error is OK


def test_a_static_member_that_stays_away_is_dropped() -> None:
    driver = Driver()
    a = member(driver, "a", instance="i")
    a.join()
    a.leave(-2)
    driver.advance(SESSION_MS)
    assert group_of(driver).state == "Empty"


def test_an_instance_in_use_is_not_taken_over() -> None:
    driver = Driver()
    member(driver, "a", instance="i").join()
    assert member(driver, "b", instance="i").join().error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert member(driver, "b", instance="j").send(1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_left_for_now_cannot_go_on() -> None:
    driver = Driver()
    a = member(driver, "a", instance="i")
    a.join()
    epoch, owned = a.epoch, a.owned
    a.leave(-2)
    assert a.send(epoch, owned=owned).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert a.join().error is OK


def test_a_static_member_may_leave_for_good() -> None:
    driver = Driver()
    a = member(driver, "a", instance="i")
    a.join()
    a.leave(-1)
    assert group_of(driver).static == {}


# Regular expressions


def test_a_regular_expression_is_matched_by_the_broker() -> None:
    driver = Driver()
    a = Client(driver, "a", regex="t.*")
    a.image = topics_image(t1=1, t2=1, u=1)
    assert a.join().assignment == of("t1", 0) | of("t2", 0)
    a.image = topics_image(version=2, t1=1, t2=1, t3=1, u=1)
    assert a.beat().assignment is None, "matched again too soon"
    driver.advance(10_000)
    assert a.beat().assignment == of("t1", 0) | of("t2", 0) | of("t3", 0)
    driver.restart()
    assert a.beat().assignment is None
    a.topics, a.regex = ("u",), ""
    assert a.send(a.epoch, owned=frozenset(), full=True).assignment == of("u", 0)
    assert group_of(driver).regexes == {}


def test_a_bad_expression_is_refused_and_costs_nothing() -> None:
    driver = Driver()
    members, _ = driver.stable_group(1)
    driver.leave((members[0], None))
    records = len(driver.records)
    answer = Client(driver, "a", regex="t[").join()
    assert answer.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.message == "missing closing ]"
    assert len(driver.records) == records


def test_the_expression_goes_with_its_last_member() -> None:
    driver = Driver()
    a, b = Client(driver, "a", regex="t.*"), Client(driver, "b", regex="t.*")
    for client in (a, b):
        client.image = topics_image(t=2)
        client.join()
    a.leave()
    assert set(group_of(driver).regexes) == {"t.*"}
    b.leave()
    assert group_of(driver).regexes == {}


def test_an_expression_that_matches_less_for_one_member_moves_its_partitions() -> None:
    """Also when another member's expression matches the topic as before."""
    driver = Driver()
    seen = {"alice": {"t1"}, "bob": {"t1", "t2"}}
    driver.machine._resolve = lambda regex, _: frozenset(seen[regex])
    a, b = Client(driver, "a", regex="alice"), Client(driver, "b", regex="bob")
    for client in (a, b):
        client.image = topics_image(t1=1, t2=1)
        client.join()
    settle_all(a, b)
    assert (a.owned, b.owned) == (of("t1", 0), of("t2", 0))
    seen["alice"] = set()
    driver.advance(10_000)
    a.image = b.image = topics_image(version=2, t1=1, t2=1)
    settle_all(a, b)
    assert (a.owned, b.owned) == (frozenset(), of("t1", 0) | of("t2", 0))


# Refusals

JOIN = ConsumerHeartbeat(
    "g", "m", 0, T4, "f", rebalance_timeout_ms=1000, topic_names=("t",), owned=frozenset()
)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (replace(JOIN, group_id=""), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, member_id="", fresh_id=""), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, instance_id=""), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, rack_id=""), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, member_epoch=-3), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, member_epoch=-2), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, rebalance_timeout_ms=-1), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, topic_names=None), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, owned=of("t", 0)), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, assignor="magic"), ErrorCode.UNSUPPORTED_ASSIGNOR),
        (replace(JOIN, member_epoch=1), ErrorCode.GROUP_ID_NOT_FOUND),
        (replace(JOIN, member_epoch=-1), ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_refused_heartbeats_leave_no_trace(request_: ConsumerHeartbeat, error: ErrorCode) -> None:
    driver = Driver()
    answer = driver.ask(request_, ConsumerHeartbeatResponse)
    assert answer.error is error
    assert answer.message
    assert driver.machine.groups == {}
    assert driver.records == []


def test_a_full_group_takes_no_one_in() -> None:
    driver = Driver(GroupConfig(consumer_max_size=1))
    a, b = member(driver, "a"), member(driver, "b")
    a.join()
    assert b.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.join().error is OK


# Offsets


def test_offsets_carry_the_member_epoch() -> None:
    driver = Driver()
    a = member(driver, "a")
    a.join()
    offsets = (OffsetToCommit("t", 0, 7),)
    stale, unknown = ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.commit(OffsetCommit("g", offsets, "a", 1)) == [OK]
    assert driver.commit(OffsetCommit("g", offsets, "a", 0)) == [stale]
    assert driver.commit(OffsetCommit("g", offsets, "b", 1)) == [unknown]
    assert driver.commit(OffsetCommit("g", offsets)) == [unknown]

    def fetch(member_id: str | None, epoch: int) -> ErrorCode:
        request = OffsetFetch("g", None, member_id, epoch)
        return driver.ask(request, OffsetFetchResponse).error

    assert [fetch("a", 1), fetch("a", 2), fetch("b", 1)] == [OK, stale, unknown]
    assert fetch(None, -1) is OK
    a.leave()
    assert driver.commit(OffsetCommit("g", offsets)) == [OK]


def test_offsets_of_topics_that_are_read_are_not_deleted() -> None:
    driver = Driver()
    a = member(driver, "a")
    a.join()
    request = OffsetDelete("g", (("t", 0), ("u", 0)))
    answer = driver.ask(request, OffsetDeleteResponse)
    assert [entry.error for entry in answer.partitions] == [86, 0]


# Administration and change of protocol


def test_describe_and_list() -> None:
    driver = Driver()
    a = member(driver, "a", assignor="range")
    a.join()
    described = driver.ask(DescribeConsumerGroup("g"), DescribeConsumerGroupResponse)
    assert (described.state, described.group_epoch, described.assignment_epoch) == ("Stable", 1, 1)
    assert described.assignor == "range"
    (shown,) = described.members
    assert (shown.member_id, shown.member_epoch, shown.topic_names) == ("a", 1, ("t",))
    assert shown.assignment == shown.target == of("t", 0, 1, 2, 3)
    (entry,) = driver.ask(ListGroups(types=frozenset({"Consumer"})), ListGroupsResponse).groups
    assert entry == ("g", "consumer", "Stable", "consumer")
    classic = driver.ask(DescribeGroup("g"), DescribeGroupResponse)
    assert classic.error is ErrorCode.GROUP_ID_NOT_FOUND
    missing = driver.ask(DescribeConsumerGroup("x"), DescribeConsumerGroupResponse)
    assert missing.error is ErrorCode.GROUP_ID_NOT_FOUND


def test_states_of_the_group() -> None:
    driver = Driver()
    a, b = member(driver, "a"), member(driver, "b")
    a.join()
    b.join()
    assert group_of(driver).state == "Reconciling"
    b.leave()
    assert group_of(driver).state == "Assigning"
    a.leave()
    assert group_of(driver).state == "Empty"


def test_delete_leaves_nothing_to_replay() -> None:
    driver = Driver()
    a = member(driver, "a")
    a.join()

    def delete() -> ErrorCode:
        return driver.ask(DeleteGroup("g"), DeleteGroupResponse).error

    driver.commit(OffsetCommit("g", (OffsetToCommit("t", 0, 7),), "a", 1))
    assert delete() is ErrorCode.NON_EMPTY_GROUP
    a.leave()
    assert delete() is OK
    assert driver.replayed().groups == {}
    assert driver.replayed().offsets.groups == {}
    left = {key: value for key, value in driver.log if value is not None}
    assert left.keys() <= {key for key, value in driver.log if value is None}


def test_an_empty_group_changes_its_protocol_both_ways() -> None:
    driver = Driver()
    members, _ = driver.stable_group(1)
    a = member(driver, "a")
    assert a.join().error is ErrorCode.GROUP_ID_NOT_FOUND
    driver.leave((members[0], None))
    assert a.join().error is OK
    assert Record(ClassicGroupKey("g"), None) in driver.records
    refused = driver.ask(driver.join_request(), JoinGroupResponse)
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    a.leave()
    lost = driver.ask(driver.join_request("c-0"), JoinGroupResponse)
    assert lost.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.ask(driver.join_request(), JoinGroupResponse).error is OK
    assert Record(ConsumerGroupKey("g"), None) in driver.records


def test_a_log_that_is_half_compacted_replays_to_the_same_owners() -> None:
    """The hand-over from a to b was compacted away; a's later record frees nothing of b's."""
    driver = Driver()
    p = of("t", 0)
    for member_id, assigned in (("a", p), ("b", p), ("a", frozenset())):
        value = CurrentAssignmentValue(2, 1, 0, assigned, frozenset())
        driver.machine.apply(Record(CurrentAssignmentKey("g", member_id), value))
    assert group_of(driver).owners == dict.fromkeys(p, "b")


def test_records_without_a_group_are_no_group() -> None:
    driver = Driver()
    for group_id in ("x", "y"):
        regex = Record(RegexKey(group_id, "t.*"), RegexValue(("t",), 1, 1))
        driver.batches.append(Batch([regex.encode()]))
    assert driver.replayed().groups == {}


def test_a_restart_forgets_nothing_but_deadlines() -> None:
    driver = Driver()
    a, b = member(driver, "a"), member(driver, "b")
    a.join()
    b.join()
    a.beat()
    driver.restart()
    driver.advance(REBALANCE_MS)
    assert a.beat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.beat().assignment == of("t", 0, 1, 2, 3)
