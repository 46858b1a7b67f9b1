"""The wall clock is set an hour forward or back: no session, lock or timeout notices."""

from __future__ import annotations

import pytest

from ottla.coordination.groups.config import GroupConfig
from ottla.coordination.groups.messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResponse,
    OffsetCommit,
    OffsetToCommit,
)
from ottla.coordination.groups.records import OffsetValue
from ottla.coordination.groups.share_messages import ShareHeartbeat, ShareHeartbeatResponse
from ottla.coordination.share_state.messages import InitializeState, StateResponse
from ottla.coordination.transactions.messages import TransactionState
from ottla.sharing.partition import SharePartition
from ottla.sharing.values import DeliverySettings, FetchTurn, LogBatch, PersistedState
from tests.support.clocks import HOUR_MS
from tests.support.groups_consumer import topics_image
from tests.support.groups_driver import SESSION_MS, Driver
from tests.support.share_state import IMAGE as STATE_IMAGE
from tests.support.share_state import KEY, StateDriver
from tests.support.transactions import PARTITIONS, TIMEOUT_MS, TransactionDriver

IMAGE = topics_image(t=2)

steps = pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])


@steps
def test_a_dead_classic_member_leaves_on_time(step_ms: int) -> None:
    driver = Driver()
    (member_id,), _ = driver.stable_group(1)
    driver.ahead_ms += step_ms
    driver.advance(SESSION_MS - 1)
    assert member_id in driver.machine.groups["g"].members
    driver.advance(1)
    assert not driver.machine.groups["g"].members


@steps
def test_a_dead_consumer_member_leaves_on_time(step_ms: int) -> None:
    driver = Driver()
    join = ConsumerHeartbeat(
        "g", "a", 0, IMAGE, topic_names=("t",), rebalance_timeout_ms=1, owned=frozenset()
    )
    assert driver.ask(join, ConsumerHeartbeatResponse).error == 0
    driver.ahead_ms += step_ms
    driver.advance(driver.config.consumer.session_timeout_ms - 1)
    assert driver.machine.groups["g"].members
    driver.advance(1)
    assert not driver.machine.groups["g"].members


@steps
def test_a_dead_share_member_leaves_on_time(step_ms: int) -> None:
    driver = Driver()
    join = ShareHeartbeat("g", "a", 0, IMAGE, topic_names=("t",))
    assert driver.ask(join, ShareHeartbeatResponse).error == 0
    driver.ahead_ms += step_ms
    driver.advance(driver.config.share.session_timeout_ms - 1)
    assert driver.machine.groups["g"].members
    driver.advance(1)
    assert not driver.machine.groups["g"].members


@steps
def test_a_restart_in_between_gives_members_a_session(step_ms: int) -> None:
    driver = Driver()
    driver.stable_group(1)
    driver.ahead_ms += step_ms
    driver.restart()
    driver.advance(SESSION_MS - 1)
    assert driver.machine.groups["g"].members
    driver.advance(1)
    assert not driver.machine.groups["g"].members


@steps
def test_a_regular_expression_is_matched_again_on_time(step_ms: int) -> None:
    driver = Driver(GroupConfig(regex_refresh_interval_ms=1000))
    join = ConsumerHeartbeat(
        "g", "a", 0, IMAGE, regex="t.*", rebalance_timeout_ms=1, owned=frozenset()
    )
    first = driver.ask(join, ConsumerHeartbeatResponse)
    driver.ahead_ms += step_ms
    newer = type(IMAGE)(IMAGE.topics_by_name, IMAGE.version + 1)
    beat = ConsumerHeartbeat("g", "a", first.member_epoch, newer)
    group = driver.machine.groups["g"]
    for ms, version in ((999, IMAGE.version), (1, newer.version)):
        driver.advance(ms)
        driver.ask(beat, ConsumerHeartbeatResponse)
        assert {value.version for value in group.regexes.values()} == {version}  # type: ignore[union-attr]


@steps
def test_offsets_are_stamped_with_wall_time(step_ms: int) -> None:
    driver = Driver()
    driver.advance(500)
    driver.ahead_ms += step_ms
    driver.commit(OffsetCommit("g", (OffsetToCommit("t", 0, 5),)))
    (record,) = driver.records
    assert isinstance(record.value, OffsetValue)
    assert record.value.commit_ms == 500 + step_ms


@steps
@pytest.mark.parametrize("restarts", [False, True])
def test_a_transaction_times_out_on_time(step_ms: int, *, restarts: bool) -> None:
    driver = TransactionDriver()
    who = driver.given()
    assert driver.add(who) == 0
    if restarts:
        driver.restart()
    driver.ahead_ms += step_ms
    driver.advance(TIMEOUT_MS // 2)
    driver.add(who, PARTITIONS | {("t", 2)})
    driver.advance(TIMEOUT_MS // 2 - 1)
    assert driver.state() is TransactionState.ONGOING
    driver.advance(1)
    assert driver.state() is TransactionState.PREPARE_ABORT


def test_a_transaction_from_the_future_gets_its_timeout_at_most() -> None:
    driver = TransactionDriver()
    assert driver.add(driver.given()) == 0
    driver.ahead_ms -= HOUR_MS
    driver.restart()
    driver.advance(TIMEOUT_MS - 1)
    assert driver.state() is TransactionState.ONGOING
    driver.advance(1)
    assert driver.state() is TransactionState.PREPARE_ABORT


@steps
def test_old_share_state_is_written_again_on_time(step_ms: int) -> None:
    driver = StateDriver()
    driver.ask(InitializeState(KEY, STATE_IMAGE, 1, 0), StateResponse)
    driver.ahead_ms += step_ms
    driver.advance(driver.config.cold_snapshot_interval_ms)
    assert len(driver.records) == 2


def test_share_locks_are_told_no_wall_time() -> None:
    """The share partition has one time, which its shell takes from the monotonic clock."""
    partition = SharePartition(DeliverySettings(lock_duration_ms=1000), PersistedState(1, 0, ()))
    partition.acquire(FetchTurn("a", 10, 10), 0, [LogBatch(0, 9, has_data=True)], 5)
    assert partition.next_deadline() == 1005
    assert partition.tick(1004) is None
    assert partition.tick(1005) is not None
