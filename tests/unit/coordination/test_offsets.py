"""Committed offsets and group administration."""

from __future__ import annotations

import struct

import pytest

from ottla.coordination.groups import coordinator
from ottla.coordination.groups.config import MINUTE_MS, GroupConfig
from ottla.coordination.groups.keys import ClassicGroupKey, OffsetKey
from ottla.coordination.groups.messages import (
    DeleteGroup,
    DeleteGroupResponse,
    DescribeGroup,
    DescribeGroupResponse,
    FetchedOffset,
    JoinGroupResponse,
    JoinProtocol,
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
from ottla.coordination.groups.records import Record
from ottla.wire.error_codes import ErrorCode
from tests.support.groups_driver import SESSION_MS, Driver

OK = ErrorCode.NONE
RETENTION_MS = GroupConfig().offsets_retention_ms
SWEEP_MS = GroupConfig().offsets_retention_check_interval_ms


def subscription(*topics: str) -> tuple[JoinProtocol, ...]:
    """What a consumer's classic member sends: version, topic names, user data."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return (JoinProtocol("range", struct.pack(">hi", 0, len(topics)) + names + b"\xff" * 4),)


def simple_commit(
    driver: Driver, topic: str = "t", metadata: str | None = "", *, group: str = "g"
) -> list[ErrorCode]:
    return driver.commit(OffsetCommit(group, (OffsetToCommit(topic, 0, 5, 2, metadata),)))


def fetched(driver: Driver, group: str = "g") -> tuple[FetchedOffset, ...]:
    return driver.ask(OffsetFetch(group, None), OffsetFetchResponse).offsets


def listed(
    driver: Driver, *, states: set[str] | None = None, types: set[str] | None = None
) -> tuple[ListedGroup, ...]:
    request = ListGroups(frozenset(states or ()), frozenset(types or ()))
    return driver.ask(request, ListGroupsResponse).groups


@pytest.mark.parametrize("metadata", ["", None, "note", "\u20ac"])
def test_metadata_comes_back_and_null_as_empty_also_after_a_restart(metadata: str | None) -> None:
    driver = Driver()
    assert simple_commit(driver, metadata=metadata) == [OK]
    for _ in range(2):
        assert fetched(driver) == (FetchedOffset("t", 0, 5, 2, metadata or ""),)
        driver.restart()


def test_metadata_over_the_limit_fails_alone() -> None:
    driver = Driver()
    request = OffsetCommit(
        "g",
        (
            OffsetToCommit("a", 0, 1, metadata="x" * 4096),
            OffsetToCommit("b", 0, 1, metadata="x" * 4097),
            OffsetToCommit("c", 0, 1, metadata="\u20ac" * 1366),
        ),
    )
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert driver.commit(request) == [OK, too_large, too_large]
    assert [offset.topic for offset in fetched(driver)] == ["a"]


def test_fetch_echoes_every_partition_asked_for() -> None:
    driver = Driver()
    simple_commit(driver)
    request = OffsetFetch("g", (("t", (0, 1)), ("u", (7,))))
    assert driver.ask(request, OffsetFetchResponse).offsets == (
        FetchedOffset("t", 0, 5, 2, ""),
        FetchedOffset("t", 1, -1, -1, ""),
        FetchedOffset("u", 7, -1, -1, ""),
    )
    assert fetched(driver, "nobody") == ()


def test_commits_without_membership_need_a_group_without_members() -> None:
    driver = Driver()
    lost = OffsetCommit("g", (OffsetToCommit("t", 0, 1),), "m", 3)
    assert driver.commit(lost) == [ErrorCode.ILLEGAL_GENERATION]
    assert simple_commit(driver) == [OK]
    assert driver.commit(lost) == [ErrorCode.UNKNOWN_MEMBER_ID]
    members, _ = driver.stable_group(1)
    assert simple_commit(driver) == [ErrorCode.UNKNOWN_MEMBER_ID]
    driver.leave((members[0], None))
    assert simple_commit(driver) == [OK]


def test_a_commit_is_a_sign_of_life() -> None:
    driver = Driver()
    (member,), generation = driver.stable_group(1)
    for _ in range(4):
        driver.advance(SESSION_MS // 2)
        commit = OffsetCommit("g", (OffsetToCommit("t", 0, 1),), member, generation)
        assert driver.commit(commit) == [OK]


def test_plain_offsets_expire_from_their_commit() -> None:
    driver = Driver()
    simple_commit(driver)
    driver.advance(RETENTION_MS - MINUTE_MS)
    assert len(fetched(driver)) == 1
    driver.advance(MINUTE_MS + SWEEP_MS)
    assert fetched(driver) == ()
    assert driver.records[-1] == Record(OffsetKey("g", "t", 0), None)
    assert listed(driver) == ()
    driver.restart()
    assert fetched(driver) == ()


def test_a_large_sweep_is_spread_over_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "MAX_EXPIRED_PER_TICK", 2)
    driver = Driver()
    for n in range(5):
        simple_commit(driver, group=f"g{n}")
    sizes = []
    while driver.machine.offsets.groups:
        before = len(driver.records)
        deadline = driver.machine.next_deadline()
        assert deadline is not None
        driver.advance(deadline - driver.now)
        sizes.append(len(driver.records) - before)
    assert [size for size in sizes if size] == [2, 2, 1]


def test_a_commit_may_bring_its_own_retention() -> None:
    driver = Driver()
    driver.commit(OffsetCommit("g", (OffsetToCommit("t", 0, 1),), retention_ms=MINUTE_MS))
    driver.restart()
    driver.advance(SWEEP_MS)
    assert fetched(driver) == ()


def test_an_empty_group_expires_from_when_it_became_empty() -> None:
    driver = Driver()
    (member,), generation = driver.stable_group(1)
    driver.commit(OffsetCommit("g", (OffsetToCommit("t", 0, 1),), member, generation))
    for _ in range(100):
        driver.advance(SESSION_MS // 2)
        driver.beat(member, generation)
    driver.leave((member, None))
    left = driver.now
    driver.advance(RETENTION_MS - MINUTE_MS)
    assert len(fetched(driver)) == 1
    driver.advance(left + RETENTION_MS + 2 * SWEEP_MS - driver.now)
    assert driver.records[-2:] == [
        Record(OffsetKey("g", "t", 0), None),
        Record(ClassicGroupKey("g"), None),
    ]
    assert driver.machine.groups == {}
    assert driver.replayed().groups == {}


def test_a_live_group_loses_only_topics_it_no_longer_reads() -> None:
    config = GroupConfig(initial_rebalance_delay_ms=0, offsets_retention_ms=SESSION_MS)
    driver = Driver(config)
    joined = driver.ask(driver.join_request(protocols=subscription("t")), JoinGroupResponse)
    driver.synced(joined.member_id, joined.generation)
    offsets = (OffsetToCommit("t", 0, 1), OffsetToCommit("old", 0, 1))
    driver.commit(OffsetCommit("g", offsets, joined.member_id, joined.generation))
    while driver.now < SWEEP_MS:
        driver.advance(SESSION_MS // 2)
        assert driver.beat(joined.member_id, joined.generation) is OK
    assert [offset.topic for offset in fetched(driver)] == ["t"]


def test_offset_delete_echoes_and_spares_what_is_read() -> None:
    driver = Driver()
    simple_commit(driver, "t")
    simple_commit(driver, "u")
    joined = driver.ask(driver.join_request(protocols=subscription("t")), JoinGroupResponse)
    driver.synced(joined.member_id, joined.generation)
    request = OffsetDelete("g", (("t", 0), ("u", 0), ("v", 9)))
    answer = driver.ask(request, OffsetDeleteResponse)
    assert answer.error is OK
    assert [entry.error for entry in answer.partitions] == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        OK,
        OK,
    ]
    assert [offset.topic for offset in fetched(driver)] == ["t"]
    missing = driver.ask(OffsetDelete("x", ()), OffsetDeleteResponse)
    assert missing.error is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("protocol_type", "metadata"), [("consumer", b"\x00"), ("connect", b"\x00\x00\x00\x00\x00\x00")]
)
def test_offset_delete_in_a_live_group_that_does_not_say_what_it_reads(
    protocol_type: str, metadata: bytes
) -> None:
    driver = Driver()
    offered = (JoinProtocol("range", metadata),)
    driver.send(driver.join_request(protocols=offered, protocol_type=protocol_type))
    answer = driver.ask(OffsetDelete("g", (("t", 0),)), OffsetDeleteResponse)
    assert answer.error is ErrorCode.NON_EMPTY_GROUP


def test_delete_group() -> None:
    driver = Driver()

    def delete() -> ErrorCode:
        return driver.ask(DeleteGroup("g"), DeleteGroupResponse).error

    assert delete() is ErrorCode.GROUP_ID_NOT_FOUND
    simple_commit(driver)
    members, _ = driver.stable_group(1)
    assert delete() is ErrorCode.NON_EMPTY_GROUP
    driver.leave((members[0], None))
    assert delete() is OK
    assert delete() is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.records[-2:] == [
        Record(OffsetKey("g", "t", 0), None),
        Record(ClassicGroupKey("g"), None),
    ]


def test_list_and_describe() -> None:
    driver = Driver()
    driver.stable_group(1)
    simple_commit(driver, group="plain")
    stable = ListedGroup("g", "consumer", "Stable", "classic")
    plain = ListedGroup("plain", "", "Empty", "classic")
    assert listed(driver) == (stable, plain)
    assert listed(driver, states={"stable"}) == (stable,)
    assert listed(driver, states={"Empty", "Dead"}, types={"Classic"}) == (plain,)
    assert listed(driver, types={"share"}) == ()
    described = driver.ask(DescribeGroup("g"), DescribeGroupResponse)
    assert (described.state, described.protocol) == ("Stable", "range")
    assert [m.assignment for m in described.members] == [b"c-0"]
    assert driver.ask(DescribeGroup("plain"), DescribeGroupResponse).state == "Empty"
    missing = driver.ask(DescribeGroup("x"), DescribeGroupResponse)
    assert (missing.error, missing.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
