"""Offsets committed inside transactions: who may, what is seen meanwhile, and what ends them."""

from __future__ import annotations

import pytest

from ottla.coordination.groups.config import GroupConfig
from ottla.coordination.groups.keys import OffsetKey
from ottla.coordination.groups.messages import (
    ApplyMarker,
    DeleteGroup,
    DeleteGroupResponse,
    DescribeGroup,
    DescribeGroupResponse,
    FetchedOffset,
    ForgetOffsets,
    ForgetOffsetsResponse,
    JoinGroupResponse,
    ListGroups,
    ListGroupsResponse,
    MarkerApplied,
    OffsetCommit,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
)
from ottla.coordination.groups.records import Record
from ottla.coordination.machine import Marker, Transactional
from ottla.wire.error_codes import ErrorCode
from tests.support.groups_consumer import Client, topics_image
from tests.support.groups_driver import Driver

OK, UNSTABLE = ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT
P = Transactional(7, 0)
Q = Transactional(8, 0)
RETENTION_MS = GroupConfig().offsets_retention_ms
SWEEP_MS = GroupConfig().offsets_retention_check_interval_ms


def commit(
    driver: Driver,
    offset: int,
    producer: Transactional | None = P,
    *,
    group: str = "g",
    topic: str = "t",
    member: str = "",
    epoch: int = -1,
    instance: str | None = None,
    metadata: str = "",
) -> ErrorCode:
    offsets = (OffsetToCommit(topic, 0, offset, metadata=metadata),)
    (error,) = driver.commit(
        OffsetCommit(group, offsets, member, epoch, instance, transaction=producer)
    )
    return error


def end(driver: Driver, producer: Transactional = P, *, commit: bool = True) -> None:
    driver.ask(ApplyMarker(Marker(*producer, 0, commit)), MarkerApplied)


def offset(
    driver: Driver, *, stable: bool = False, group: str = "g", topic: str = "t"
) -> int | ErrorCode:
    request = OffsetFetch(group, ((topic, (0,)),), require_stable=stable)
    (found,) = driver.ask(request, OffsetFetchResponse).offsets
    if found.error is not OK:
        assert found == FetchedOffset(topic, 0, error=found.error)
        return found.error
    return found.offset


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(("commits", "then"), [(True, 9), (False, 5)])
def test_case_52_pending_offsets_are_hidden_until_the_marker(
    commits: bool, then: int, restarts: bool
) -> None:
    driver = Driver()
    assert commit(driver, 5, None) is OK
    assert commit(driver, 9) is OK
    if restarts:
        driver.restart()
    assert (offset(driver), offset(driver, stable=True)) == (5, UNSTABLE)
    assert offset(driver, stable=True, topic="u") == -1
    end(driver, commit=commits)
    if restarts:
        driver.restart()
    assert (offset(driver), offset(driver, stable=True)) == (then, then)


def test_a_marker_that_nobody_waits_for_changes_nothing() -> None:
    driver = Driver()
    commit(driver, 5)
    end(driver, Q)
    assert offset(driver) == -1
    end(driver)
    end(driver, commit=False)
    assert offset(driver) == 5


def test_a_transaction_spans_groups_and_a_producer_goes_on() -> None:
    driver = Driver()
    commit(driver, 1, group="g")
    commit(driver, 2, group="h")
    end(driver)
    commit(driver, 3, group="h")
    end(driver, commit=False)
    assert [offset(driver, stable=True, group=group) for group in "gh"] == [1, 2]


def test_the_last_of_a_transaction_counts() -> None:
    driver = Driver()
    commit(driver, 1)
    commit(driver, 2)
    end(driver)
    assert offset(driver) == 2


def test_a_later_plain_commit_overtakes_a_pending_one() -> None:
    driver = Driver()
    commit(driver, 1)
    commit(driver, 2, None)
    assert (offset(driver), offset(driver, stable=True)) == (2, UNSTABLE)
    end(driver)
    assert offset(driver, stable=True) == 2


def test_the_order_of_writing_decides_not_that_of_the_markers() -> None:
    driver = Driver()
    commit(driver, 1, P)
    commit(driver, 2, Q)
    end(driver, Q)
    assert (offset(driver), offset(driver, stable=True)) == (2, UNSTABLE)
    end(driver, P)
    assert offset(driver) == 2
    commit(driver, 3, Q)
    commit(driver, 4, P)
    end(driver, Q)
    assert offset(driver) == 3
    end(driver, P)
    assert offset(driver) == 4


def test_who_writes_again_is_last() -> None:
    driver = Driver()
    for offset_of, producer in ((1, P), (2, Q), (3, P)):
        commit(driver, offset_of, producer)
    end(driver, Q)
    assert offset(driver) == 2
    end(driver, P)
    assert offset(driver) == 3


def test_all_offsets_are_those_that_count_and_unstable_ones_say_so() -> None:
    driver = Driver()
    commit(driver, 1, None, topic="a")
    commit(driver, 2, None, topic="b")
    commit(driver, 3, topic="b")
    commit(driver, 4, topic="c")
    answer = driver.ask(OffsetFetch("g", None, require_stable=True), OffsetFetchResponse)
    assert answer.offsets == (FetchedOffset("a", 0, 1), FetchedOffset("b", 0, error=UNSTABLE))


def test_metadata_over_the_limit_is_refused() -> None:
    driver = Driver()
    assert commit(driver, 1, metadata="x" * 4097) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert driver.batches == []
    end(driver)
    assert offset(driver) == -1


def test_case_53_a_classic_member_must_be_of_the_current_generation() -> None:
    driver = Driver()
    unknown, late = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION
    assert commit(driver, 1, member="m", epoch=1) is late, "there is no group"
    assert commit(driver, 1) is OK, "a producer that knows of no members"
    joined = driver.join_as("0", instance="i")
    name, generation = joined.member_id, joined.generation
    # A round that is not complete yet holds up other commits only.
    assert commit(driver, 1, None, member=name, epoch=generation) is (
        ErrorCode.REBALANCE_IN_PROGRESS
    )
    assert commit(driver, 1, member=name, epoch=generation) is OK
    driver.synced(name, generation)
    assert commit(driver, 1) is OK, "members are not checked for who names none"
    assert commit(driver, 1, None) is unknown
    assert commit(driver, 1, member=name, epoch=generation, instance="i") is OK
    assert commit(driver, 1, member=name, epoch=generation - 1) is late
    assert commit(driver, 1, member="other", epoch=generation) is unknown
    assert commit(driver, 1, member=name) is late
    assert commit(driver, 1, member="zombie", epoch=generation, instance="i") is (
        ErrorCode.FENCED_INSTANCE_ID
    )


def test_case_53_a_consumer_member_must_be_of_the_current_epoch() -> None:
    driver = Driver()
    a = Client(driver, "a", "t")
    a.image = topics_image(t=1)
    assert a.join().error is OK
    assert commit(driver, 1, member="a", epoch=a.epoch) is OK
    assert commit(driver, 1) is OK
    assert commit(driver, 1, None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(driver, 1, member="b", epoch=a.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(driver, 1, member="a", epoch=a.epoch - 1) is ErrorCode.ILLEGAL_GENERATION
    assert commit(driver, 1, None, member="a", epoch=a.epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
    a.leave()
    assert commit(driver, 1, member="a") is OK


def test_a_pending_offset_makes_a_group_known() -> None:
    driver = Driver()
    commit(driver, 1)
    assert driver.ask(DescribeGroup("g"), DescribeGroupResponse).state == "Empty"
    (listed,) = driver.ask(ListGroups(), ListGroupsResponse).groups
    assert (listed.group_id, listed.state, listed.group_type) == ("g", "Empty", "classic")


def test_deleting_a_group_ends_its_pending_offsets() -> None:
    driver = Driver()
    commit(driver, 1)
    commit(driver, 2, None, topic="u")
    assert driver.ask(DeleteGroup("g"), DeleteGroupResponse).error is OK
    assert driver.records[-2:] == [
        Record(OffsetKey("g", "t", 0), None),
        Record(OffsetKey("g", "u", 0), None),
    ]
    driver.restart()
    end(driver)
    assert driver.ask(DeleteGroup("g"), DeleteGroupResponse).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_deleting_an_offset_or_its_topic_ends_the_pending_one() -> None:
    driver = Driver()
    for topic in ("t", "u", "v"):
        commit(driver, 1, topic=topic)
    assert driver.ask(OffsetDelete("g", (("t", 0),)), OffsetDeleteResponse).error is OK
    driver.ask(ForgetOffsets(frozenset({"u"})), ForgetOffsetsResponse)
    assert [offset(driver, stable=True, topic=topic) for topic in "tuv"] == [-1, -1, UNSTABLE]
    end(driver)
    assert [offset(driver, stable=True, topic=topic) for topic in "tuv"] == [-1, -1, 1]


def test_nothing_expires_under_an_open_transaction() -> None:
    driver = Driver()
    (name,), _ = driver.stable_group(1)
    driver.leave((name, None))
    commit(driver, 1, None)
    commit(driver, 1, None, topic="u")
    commit(driver, 2)
    driver.advance(RETENTION_MS + 2 * SWEEP_MS)
    assert [offset(driver, topic=topic) for topic in "tu"] == [1, -1]
    end(driver, commit=False)
    driver.advance(2 * SWEEP_MS)
    assert offset(driver) == -1
    assert driver.machine.groups == {}
    assert not driver.machine.offsets.group_ids()


def test_a_group_with_nothing_but_a_pending_offset_does_not_end() -> None:
    driver = Driver()
    (name,), _ = driver.stable_group(1)
    driver.leave((name, None))
    commit(driver, 1)
    driver.advance(RETENTION_MS + 2 * SWEEP_MS)
    assert "g" in driver.machine.groups
    end(driver)
    driver.restart()
    assert offset(driver) == 1


def test_a_commit_in_a_transaction_is_a_sign_of_life() -> None:
    driver = Driver()
    (name,), generation = driver.stable_group(1)
    for _ in range(4):
        driver.advance(5_000)
        assert commit(driver, 1, member=name, epoch=generation) is OK


def test_a_member_that_left_is_unknown() -> None:
    driver = Driver()
    joined = driver.ask(driver.join_request(), JoinGroupResponse)
    driver.synced(joined.member_id, joined.generation)
    second = driver.send(driver.join_request(fresh="2"))
    driver.leave((joined.member_id, None))
    assert driver.answer(second, JoinGroupResponse).error is OK
    assert commit(driver, 1, member=joined.member_id, epoch=joined.generation) is (
        ErrorCode.UNKNOWN_MEMBER_ID
    )
