"""The classic protocol, told as the exchanges clients have with a coordinator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.coordination.groups.config import GroupConfig
from ottla.coordination.groups.messages import (
    DescribeGroup,
    DescribeGroupResponse,
    JoinGroupResponse,
    JoinProtocol,
    OffsetCommit,
    OffsetToCommit,
    SyncGroup,
    SyncGroupResponse,
)
from ottla.wire.error_codes import ErrorCode
from tests.support.groups_driver import REBALANCE_MS, SESSION_MS, Driver

OK = ErrorCode.NONE
ROUND_ROBIN = (JoinProtocol("roundrobin", b"s"),)


def state_of(driver: Driver) -> str:
    return driver.ask(DescribeGroup("g"), DescribeGroupResponse).state


def test_an_unknown_member_is_given_an_id_first() -> None:
    driver = Driver()
    first = driver.ask(driver.join_request(known=True), JoinGroupResponse)
    assert (first.error, first.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "c-1")
    second = driver.ask(driver.join_request("c-1", known=True), JoinGroupResponse)
    assert (second.error, second.generation, second.leader) == (OK, 1, "c-1")


def test_a_handed_out_id_expires_and_leaves_nothing_behind() -> None:
    driver = Driver()
    driver.send(driver.join_request(known=True))
    driver.advance(SESSION_MS)
    late = driver.ask(driver.join_request("c-1", known=True), JoinGroupResponse)
    assert late.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.machine.groups == {}
    assert driver.records == []


def test_a_round_waits_for_a_handed_out_id() -> None:
    driver = Driver()
    (leader,), _ = driver.stable_group(1)
    driver.send(driver.join_request(fresh="2", known=True))
    rejoin = driver.send(driver.join_request(leader))
    assert rejoin not in driver.answers
    driver.send(driver.join_request("c-2", known=True))
    assert driver.answer(rejoin, JoinGroupResponse).generation == 2


def test_ids_on_the_way_are_bounded() -> None:
    driver = Driver(GroupConfig(max_pending_members=2))
    errors = [
        driver.ask(driver.join_request(fresh=str(n), known=True), JoinGroupResponse).error
        for n in range(3)
    ]
    assert errors[2] is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_only_the_leader_sees_the_members_and_each_gets_its_share() -> None:
    driver = Driver()
    members, generation = driver.stable_group(3)
    assert generation == 2
    joins = [a for a in driver.answers.values() if isinstance(a, JoinGroupResponse)]
    lists = {a.member_id: len(a.members) for a in joins if a.generation == 2}
    assert lists == {members[0]: 3, members[1]: 0, members[2]: 0}
    syncs = [a for a in driver.answers.values() if isinstance(a, SyncGroupResponse)]
    assert {a.assignment for a in syncs} == {member.encode() for member in members}


def test_the_generation_grows_by_one_per_round() -> None:
    driver = Driver()
    members, generation = driver.stable_group(2)
    for expected in range(generation + 1, generation + 5):
        tokens = [driver.send(driver.join_request(member)) for member in members]
        assert {driver.answer(t, JoinGroupResponse).generation for t in tokens} == {expected}
        driver.synced(members[0], expected)


def test_the_first_round_waits_and_is_extended_by_newcomers() -> None:
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=3000))
    first = driver.send(driver.join_request(fresh="1"))
    driver.advance(2000)
    second = driver.send(driver.join_request(fresh="2"))
    driver.advance(1000)
    assert first not in driver.answers
    driver.advance(3000)
    assert driver.answer(first, JoinGroupResponse).generation == 1
    assert driver.answer(second, JoinGroupResponse).generation == 1


def test_the_first_round_never_outlasts_the_rebalance_timeout() -> None:
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=3000))
    first = driver.send(driver.join_request(fresh="first"))
    for n in range(REBALANCE_MS // 1000):
        driver.send(driver.join_request(fresh=str(n)))
        driver.advance(1000)
    assert driver.answer(first, JoinGroupResponse).generation == 1


def test_members_that_miss_the_round_are_dropped() -> None:
    driver = Driver()
    members, generation = driver.stable_group(3)
    waiting = driver.send(driver.join_request(members[0]))
    for _ in range(REBALANCE_MS // 5000):
        assert driver.beat(members[1], generation) is ErrorCode.REBALANCE_IN_PROGRESS
        driver.advance(5000)
    answer = driver.answer(waiting, JoinGroupResponse)
    assert [member.member_id for member in answer.members] == [members[0]]
    assert driver.beat(members[1], generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_never_sync_are_dropped() -> None:
    driver = Driver()
    members, generation = driver.stable_group(2)
    for member in members:
        driver.send(driver.join_request(member))
    stuck = driver.sync(members[1], generation + 1)
    for _ in range(REBALANCE_MS // 5000):
        driver.beat(members[0], generation + 1)
        driver.advance(5000)
    assert driver.answer(stuck, SyncGroupResponse).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.beat(members[0], generation + 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.beat(members[1], generation + 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_waiting_in_join_does_not_lose_its_session() -> None:
    driver = Driver()
    members, generation = driver.stable_group(2)
    waiting = driver.send(driver.join_request(members[0]))
    for _ in range(4):
        driver.advance(SESSION_MS // 2)
        driver.beat(members[1], generation)
    assert waiting not in driver.answers
    driver.send(driver.join_request(members[1]))
    assert driver.answer(waiting, JoinGroupResponse).error is OK


def test_a_silent_member_is_dropped_and_the_others_rebalance() -> None:
    driver = Driver()
    members, generation = driver.stable_group(2)
    driver.advance(SESSION_MS - 1)
    assert driver.beat(members[0], generation) is OK
    driver.advance(1)
    assert driver.beat(members[0], generation) is ErrorCode.REBALANCE_IN_PROGRESS
    answer = driver.ask(driver.join_request(members[0]), JoinGroupResponse)
    assert [member.member_id for member in answer.members] == [members[0]]


def test_the_last_one_to_leave_empties_the_group() -> None:
    driver = Driver()
    members, generation = driver.stable_group(1)
    assert driver.leave((members[0], None)) == [OK]
    assert state_of(driver) == "Empty"
    assert driver.join_as("9").generation == generation + 2


def test_leave_answers_every_entry() -> None:
    driver = Driver()
    static = driver.join_as("1", instance="i")
    entries = (("nobody", None), ("", "nothing"), ("other", "i"), (static.member_id, "i"))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.leave(*entries) == [unknown, unknown, ErrorCode.FENCED_INSTANCE_ID, OK]
    assert driver.leave(("x", None)) == [unknown]


def test_an_admin_removes_a_static_member_by_instance_alone() -> None:
    driver = Driver()
    driver.join_as("1", instance="i")
    assert driver.leave(("", "i")) == [OK]
    assert state_of(driver) == "Empty"


def test_leaving_with_an_unused_id_is_fine() -> None:
    driver = Driver()
    driver.send(driver.join_request(known=True))
    assert driver.leave(("c-1", None)) == [OK]
    driver.advance(SESSION_MS)
    assert driver.machine.groups == {}


@pytest.mark.parametrize(
    ("session_ms", "group", "member", "error"),
    [
        (5_999, "g", "", ErrorCode.INVALID_SESSION_TIMEOUT),
        (1_800_001, "g", "", ErrorCode.INVALID_SESSION_TIMEOUT),
        (SESSION_MS, "", "", ErrorCode.INVALID_GROUP_ID),
        (SESSION_MS, "g", "who", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_refused_joins(session_ms: int, group: str, member: str, error: ErrorCode) -> None:
    driver = Driver()
    request = replace(driver.join_request(member, group=group), session_timeout_ms=session_ms)
    assert driver.ask(request, JoinGroupResponse).error is error
    assert driver.machine.groups == {}


def test_protocols_must_have_something_in_common() -> None:
    driver = Driver()
    driver.stable_group(1)
    refused = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for request in (
        driver.join_request(fresh="2", protocols=ROUND_ROBIN),
        driver.join_request(fresh="2", protocol_type="connect"),
        driver.join_request(fresh="2", protocols=()),
        driver.join_request(fresh="2", protocol_type=""),
    ):
        assert driver.ask(request, JoinGroupResponse).error is refused


def test_the_protocol_with_most_first_votes_wins() -> None:
    a, b, c = (JoinProtocol(name, name.encode()) for name in "abc")
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=100))
    tokens = [
        driver.send(driver.join_request(fresh=str(n), protocols=protocols))
        for n, protocols in enumerate([(a, b), (b, a), (c, b, a)])
    ]
    driver.advance(100)
    driver.advance(100)
    answers = [driver.answer(token, JoinGroupResponse) for token in tokens]
    assert {answer.protocol for answer in answers} == {"b"}
    assert {member.metadata for member in answers[0].members} == {b"b"}


def test_a_full_group_takes_no_one_in() -> None:
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=0, max_size=2))
    members, _ = driver.stable_group(2)
    full = driver.ask(driver.join_request(fresh="9"), JoinGroupResponse)
    assert full.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    driver.send(driver.join_request(members[0]))
    assert driver.send(driver.join_request(members[1])) in driver.answers


def test_a_lost_join_answer_is_given_again() -> None:
    driver = Driver()
    members, generation = driver.stable_group(2)
    again = driver.ask(driver.join_request(members[1]), JoinGroupResponse)
    assert (again.error, again.generation) == (OK, generation)


def test_a_leader_that_joins_again_starts_a_round_even_unchanged() -> None:
    driver = Driver()
    members, generation = driver.stable_group(2)
    driver.send(driver.join_request(members[0]))
    assert driver.beat(members[1], generation) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_changed_subscription_starts_a_round() -> None:
    driver = Driver()
    members, generation = driver.stable_group(2)
    changed = (JoinProtocol("range", b"other"),)
    driver.send(driver.join_request(members[1], protocols=changed))
    assert driver.beat(members[0], generation) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_join_in_the_middle_of_a_sync_sends_the_others_back() -> None:
    driver = Driver()
    members, generation = driver.stable_group(2)
    for member in members:
        driver.send(driver.join_request(member))
    waiting = driver.sync(members[1], generation + 1)
    driver.send(driver.join_request(fresh="9"))
    assert driver.answer(waiting, SyncGroupResponse).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_sync_names_the_protocol_it_expects() -> None:
    driver = Driver()
    (member,), generation = driver.stable_group(1)
    for wrong in (
        SyncGroup("g", member, generation, None, "connect", "range"),
        SyncGroup("g", member, generation, None, "consumer", "sticky"),
    ):
        answer = driver.ask(wrong, SyncGroupResponse)
        assert answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    right = SyncGroup("g", member, generation, None, "consumer", "range")
    assert driver.ask(right, SyncGroupResponse).assignment == member.encode()


# Static members (KIP-345)


def stable_static(driver: Driver) -> tuple[JoinGroupResponse, JoinGroupResponse]:
    """A leader and a follower with instance ids, Stable."""
    lone = driver.join_as("1", instance="lead")
    follow = driver.send(driver.join_request(fresh="2", instance="follow"))
    lead = driver.send(driver.join_request(lone.member_id, instance="lead"))
    first = driver.answer(lead, JoinGroupResponse)
    second = driver.answer(follow, JoinGroupResponse)
    driver.sync(second.member_id, second.generation)
    shares = {first.member_id: b"1", second.member_id: b"2"}
    driver.synced(first.member_id, first.generation, shares)
    return first, second


def test_a_static_member_restarts_without_a_round() -> None:
    driver = Driver()
    first, second = stable_static(driver)
    back = driver.ask(driver.join_request(fresh="3", instance="follow"), JoinGroupResponse)
    assert (back.error, back.generation, back.member_id) == (OK, second.generation, "follow-3")
    assert driver.beat(first.member_id, first.generation, "lead") is OK
    assert driver.synced("follow-3", back.generation).assignment == b"2"
    fenced = driver.beat(second.member_id, second.generation, "follow")
    assert fenced is ErrorCode.FENCED_INSTANCE_ID
    driver.restart()
    assert driver.beat("follow-3", back.generation, "follow") is OK


@pytest.mark.parametrize("skip", [True, False])
def test_a_static_leader_restarts_and_does_not_assign_again(skip: bool) -> None:
    driver = Driver()
    first, _ = stable_static(driver)
    request = driver.join_request(fresh="3", instance="lead", skip=skip)
    back = driver.ask(request, JoinGroupResponse)
    assert back.generation == first.generation
    assert back.skip_assignment is skip
    assert back.leader == ("lead-3" if skip else first.member_id)
    assert len(back.members) == (2 if skip else 0)
    assert driver.synced("lead-3", back.generation).assignment == b"1"


def test_a_static_member_with_a_new_subscription_starts_a_round() -> None:
    driver = Driver()
    first, _ = stable_static(driver)
    changed = (JoinProtocol("range", b"other"),)
    request = driver.join_request(fresh="3", instance="follow", protocols=changed)
    assert driver.send(request) not in driver.answers
    beat = driver.beat(first.member_id, first.generation, "lead")
    assert beat is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_taken_over_while_it_waits_is_fenced() -> None:
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=1000))
    waiting = driver.send(driver.join_request(fresh="1", instance="i"))
    second = driver.send(driver.join_request(fresh="2", instance="i"))
    assert driver.answer(waiting, JoinGroupResponse).error is ErrorCode.FENCED_INSTANCE_ID
    driver.advance(1000)
    assert driver.answer(second, JoinGroupResponse).member_id == "i-2"


def test_an_absent_static_member_outlives_rounds_but_not_its_session() -> None:
    driver = Driver()
    first, second = stable_static(driver)
    waiting = driver.send(driver.join_request(first.member_id, instance="lead"))
    driver.advance(SESSION_MS)
    answer = driver.answer(waiting, JoinGroupResponse)
    assert [member.instance_id for member in answer.members] == ["lead"]
    gone = driver.beat(second.member_id, second.generation, "follow")
    assert gone is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_round_that_times_out_drops_dynamic_members_and_keeps_static_ones() -> None:
    driver = Driver()
    long_session = 3 * REBALANCE_MS

    def join(member_id: str, fresh: str, instance: str | None) -> int:
        request = driver.join_request(member_id, fresh=fresh, instance=instance)
        return driver.send(replace(request, session_timeout_ms=long_session))

    first = driver.answer(join("", "1", None), JoinGroupResponse).member_id
    join("", "2", "i")
    join("", "3", None)
    generation = driver.answer(join(first, "", None), JoinGroupResponse).generation
    assert driver.synced(first, generation).error is OK
    driver.synced("i-2", generation)
    driver.synced("c-3", generation)
    waiting = join(first, "", None)
    driver.advance(REBALANCE_MS)
    answer = driver.answer(waiting, JoinGroupResponse)
    assert [member.member_id for member in answer.members] == [first, "i-2"]
    driver.synced(first, answer.generation, {"i-2": b"kept"})
    driver.advance(REBALANCE_MS)
    back = driver.answer(join("", "4", "i"), JoinGroupResponse)
    assert driver.synced(back.member_id, back.generation).assignment == b"kept"


def test_a_round_nobody_comes_back_to_waits_for_the_sessions_of_static_members() -> None:
    driver = Driver()
    first, second = stable_static(driver)
    newcomer = driver.send(driver.join_request(fresh="3"))
    assert driver.leave(("c-3", None)) == [OK]
    left = driver.answer(newcomer, JoinGroupResponse)
    assert left.error is ErrorCode.UNKNOWN_MEMBER_ID
    for _ in range(2 * REBALANCE_MS // 5000):
        driver.advance(5000)
        for name, joined in (("lead", first), ("follow", second)):
            beat = driver.beat(joined.member_id, joined.generation, name)
            assert beat is ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(SESSION_MS)
    assert state_of(driver) == "Empty"


# Errors by state (22, 25, 27, 82)


def in_state(name: str) -> tuple[Driver, str, int]:
    """A group in the state, with a member id and generation that are current in it."""
    driver = Driver()
    members, generation = driver.stable_group(2)
    if name == "Empty":
        driver.leave(*((member, None) for member in members))
        generation += 1
    elif name == "PreparingRebalance":
        driver.send(driver.join_request(members[0]))
    elif name == "CompletingRebalance":
        for member in members:
            driver.send(driver.join_request(member))
        generation += 1
    assert state_of(driver) == name
    return driver, members[1], generation


MATRIX = [
    # state, heartbeat, sync (None: waits), commit
    ("Empty", 25, 25, 25),
    ("PreparingRebalance", 27, 27, 0),
    ("CompletingRebalance", 0, None, 27),
    ("Stable", 0, 0, 0),
]


@pytest.mark.parametrize(("state", "beat", "sync", "commit"), MATRIX)
def test_errors_by_state(state: str, beat: int, sync: int | None, commit: int) -> None:
    driver, member, generation = in_state(state)
    offsets = (OffsetToCommit("t", 0, 1),)
    assert driver.beat(member, generation) == beat
    assert driver.commit(OffsetCommit("g", offsets, member, generation)) == [commit]
    token = driver.sync(member, generation)
    if sync is None:
        assert token not in driver.answers
    else:
        assert driver.answer(token, SyncGroupResponse).error == sync


@pytest.mark.parametrize("state", [row[0] for row in MATRIX])
@pytest.mark.parametrize(
    ("member", "generation", "instance", "error"),
    [
        ("nobody", 0, None, 25),
        (None, -1, None, 22),
        (None, 1, None, 22),
        (None, 0, "no-such-instance", 25),
    ],
)
def test_errors_by_sender(
    state: str, member: str | None, generation: int, instance: str | None, error: int
) -> None:
    driver, current, current_generation = in_state(state)
    if state == "Empty":
        error = 25
    sender, number = member or current, current_generation + generation
    offsets = (OffsetToCommit("t", 0, 1),)
    commit = OffsetCommit("g", offsets, sender, number, instance)
    sync = SyncGroup("g", sender, number, instance)
    assert driver.beat(sender, number, instance) == error
    assert driver.commit(commit) == [error]
    assert driver.ask(sync, SyncGroupResponse).error == error


def test_a_group_that_is_not_there_knows_no_members() -> None:
    driver = Driver()
    assert driver.synced("m", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.beat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restart_keeps_the_stable_generation() -> None:
    driver = Driver()
    members, generation = driver.stable_group(2)
    driver.restart()
    assert [driver.beat(member, generation) for member in members] == [OK, OK]
    assert driver.synced(members[1], generation).assignment == members[1].encode()
    driver.advance(SESSION_MS)
    assert driver.beat(members[0], generation) is ErrorCode.UNKNOWN_MEMBER_ID
