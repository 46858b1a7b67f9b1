"""The share coordinator request by request: epochs, snapshots, pruning, lag."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.coordination.groups.topics import TopicsImage
from ottla.coordination.share_state.batches import DeliveryState, StateBatch
from ottla.coordination.share_state.coordinator import ShareStateConfig
from ottla.coordination.share_state.index import SnapshotIndex
from ottla.coordination.share_state.messages import (
    DeleteState,
    DropTopics,
    InitializeState,
    ReadState,
    ReadStateResponse,
    ReadStateSummary,
    StateResponse,
    StateSummaryResponse,
    WriteState,
)
from ottla.coordination.share_state.records import ShareKey, Snapshot, StateRecord, Update
from ottla.wire.error_codes import ErrorCode
from tests.support.share_state import IMAGE, KEY, TOPIC, StateDriver

OTHER = ShareKey("g2", TOPIC, 1)
ACKED = StateBatch(12, 14, DeliveryState.ACKNOWLEDGED, 1)


def initialize(
    driver: StateDriver, key: ShareKey = KEY, epoch: int = 1, start: int = -1
) -> ErrorCode:
    return driver.ask(InitializeState(key, IMAGE, epoch, start), StateResponse).error


def read(driver: StateDriver, leader_epoch: int, key: ShareKey = KEY) -> ReadStateResponse:
    return driver.ask(ReadState(key, IMAGE, leader_epoch), ReadStateResponse)


def write(
    driver: StateDriver,
    *batches: StateBatch,
    key: ShareKey = KEY,
    epoch: int = 1,
    leader: int = 0,
    start: int = -1,
    count: int = 0,
) -> ErrorCode:
    request = WriteState(key, IMAGE, epoch, leader, start, batches, count)
    return driver.ask(request, StateResponse).error


def summary(driver: StateDriver, key: ShareKey = KEY) -> StateSummaryResponse:
    return driver.ask(ReadStateSummary(key, IMAGE), StateSummaryResponse)


def test_58_a_key_that_was_never_initialized() -> None:
    driver = StateDriver()
    assert read(driver, 0).error is ErrorCode.INVALID_REQUEST
    assert write(driver, ACKED) is ErrorCode.INVALID_REQUEST
    assert summary(driver) == StateSummaryResponse()
    assert summary(driver).start_offset == -1
    assert driver.ask(DeleteState(KEY), StateResponse).error is ErrorCode.NONE
    assert driver.records == []


def test_initialize_write_read() -> None:
    driver = StateDriver()
    assert initialize(driver, start=10) is ErrorCode.NONE
    assert write(driver, ACKED, count=3) is ErrorCode.NONE
    assert read(driver, -1) == ReadStateResponse(state_epoch=1, start_offset=10, batches=(ACKED,))
    assert summary(driver) == StateSummaryResponse(
        state_epoch=1, leader_epoch=-1, start_offset=10, delivery_complete_count=3
    )
    assert driver.records == [
        StateRecord(KEY, Snapshot(0, 1, -1, 10, driver.now, driver.now, (), 0)),
        StateRecord(KEY, Update(0, -1, -1, (ACKED,), 3)),
    ]


def test_initialize_forgets_what_was_there() -> None:
    driver = StateDriver()
    initialize(driver, start=10)
    write(driver, ACKED)
    assert initialize(driver, epoch=2) is ErrorCode.NONE
    assert read(driver, 3) == ReadStateResponse(state_epoch=2)
    assert driver.machine.states[KEY].snapshot.snapshot_epoch == 1
    assert summary(driver).delivery_complete_count == -1


def test_initialize_that_comes_twice_forgets_nothing() -> None:
    """A group's coordinator that starts over asks again; the first request may come late."""
    driver = StateDriver()
    initialize(driver)
    write(driver, ACKED)
    stored = driver.machine.states[KEY]
    assert initialize(driver) is ErrorCode.NONE
    assert driver.machine.states[KEY] == stored
    assert initialize(driver, start=10) is ErrorCode.NONE  # offsets are altered
    assert driver.machine.states[KEY].snapshot.batches == ()


def test_49_a_lower_state_epoch_is_fenced() -> None:
    driver = StateDriver()
    initialize(driver, epoch=4)
    assert write(driver, ACKED, epoch=4) is ErrorCode.NONE
    assert initialize(driver, epoch=5, start=40) is ErrorCode.NONE
    assert write(driver, ACKED, epoch=4) is ErrorCode.FENCED_STATE_EPOCH
    assert initialize(driver, epoch=4) is ErrorCode.FENCED_STATE_EPOCH
    assert write(driver, epoch=-1) is ErrorCode.NONE
    assert read(driver, 1) == ReadStateResponse(state_epoch=5, start_offset=40)


def test_48_reading_fences_the_leader_before() -> None:
    driver = StateDriver()
    initialize(driver)
    assert read(driver, 3).error is ErrorCode.NONE
    assert read(driver, 5).error is ErrorCode.NONE
    assert write(driver, ACKED, leader=3) is ErrorCode.FENCED_LEADER_EPOCH
    assert read(driver, 3).error is ErrorCode.FENCED_LEADER_EPOCH
    assert write(driver, ACKED, leader=5) is ErrorCode.NONE
    assert read(driver, 5).batches == (ACKED,)
    assert summary(driver).leader_epoch == 5


def test_writing_stores_no_leader_epoch_and_initialize_keeps_the_fence() -> None:
    driver = StateDriver()
    initialize(driver)
    write(driver, leader=9)
    assert summary(driver).leader_epoch == -1
    read(driver, 5)
    initialize(driver, epoch=2)
    assert read(driver, 4).error is ErrorCode.FENCED_LEADER_EPOCH
    assert driver.replayed().states == driver.machine.states


def test_reading_with_the_same_epoch_or_none_writes_nothing() -> None:
    driver = StateDriver()
    initialize(driver)
    read(driver, -1)
    assert len(driver.records) == 1
    read(driver, 2)
    assert driver.records[1:] == [StateRecord(KEY, Update(0, 2, -1, (), -1))]
    read(driver, 2)
    assert len(driver.records) == 2


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (ShareKey("g", UUID(int=0), 0), ErrorCode.INVALID_REQUEST),
        (ShareKey("g", TOPIC, -1), ErrorCode.INVALID_REQUEST),
        (ShareKey("g", TOPIC, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ShareKey("g", UUID(int=1), 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_keys_that_name_no_partition(key: ShareKey, error: ErrorCode) -> None:
    driver = StateDriver()
    assert initialize(driver, key) is error
    assert read(driver, 0, key).error is error
    assert write(driver, key=key) is error
    assert summary(driver, key).error is error
    deleted = driver.ask(DeleteState(key), StateResponse).error
    assert deleted is (error if error is ErrorCode.INVALID_REQUEST else ErrorCode.NONE)


@pytest.mark.parametrize(
    "batch", [(5, 4, 0, 1), (-1, 4, 0, 1), (0, 4, 1, 1), (0, 4, 3, 1), (0, 4, 0, -1)]
)
def test_ranges_that_are_none(batch: tuple[int, int, int, int]) -> None:
    driver = StateDriver()
    initialize(driver)
    assert write(driver, ACKED, StateBatch(*batch)) is ErrorCode.INVALID_REQUEST
    assert len(driver.records) == 1


def test_55_the_501st_write_is_a_snapshot() -> None:
    driver = StateDriver()
    initialize(driver, start=0)
    for offset in range(501):
        driver.now += 1
        write(driver, StateBatch(offset, offset, DeliveryState.ACKNOWLEDGED, 1), count=offset)
    kinds = [type(record.value) for record in driver.records]
    assert kinds == [Snapshot, *[Update] * 500, Snapshot]
    whole = (StateBatch(0, 500, DeliveryState.ACKNOWLEDGED, 1),)
    expected = Snapshot(1, 1, -1, 0, driver.now, driver.now, whole, 500)
    assert driver.records[-1] == StateRecord(KEY, expected)
    write(driver, start=501)
    assert driver.records[-1] == StateRecord(KEY, Update(1, -1, 501, (), 0))
    assert read(driver, -1).batches == ()


def test_without_updates_every_write_is_a_snapshot() -> None:
    driver = StateDriver(ShareStateConfig(updates_per_snapshot=0))
    initialize(driver, start=0)
    write(driver, ACKED)
    read(driver, 6)
    values = [record.value for record in driver.records]
    assert [type(value) for value in values] == [Snapshot] * 3
    assert isinstance(values[2], Snapshot)
    assert (values[2].snapshot_epoch, values[2].leader_epoch, values[2].batches) == (2, 6, (ACKED,))


def test_delete_ends_a_key_and_its_fences() -> None:
    driver = StateDriver()
    initialize(driver, epoch=7)
    read(driver, 7)
    assert driver.ask(DeleteState(KEY), StateResponse).error is ErrorCode.NONE
    assert driver.records[-1] == StateRecord(KEY, None)
    assert summary(driver) == StateSummaryResponse()
    assert initialize(driver, epoch=1) is ErrorCode.NONE
    assert read(driver, 0).error is ErrorCode.NONE


def test_51_a_deleted_topic_takes_its_state_along() -> None:
    driver = StateDriver()
    initialize(driver)
    initialize(driver, OTHER)
    driver.ask(DropTopics(frozenset({UUID(int=1)})), StateResponse)
    assert len(driver.machine.states) == 2
    driver.ask(DropTopics(frozenset({TOPIC})), StateResponse)
    assert driver.machine.states == {}
    assert set(driver.records[2:]) == {StateRecord(KEY, None), StateRecord(OTHER, None)}
    gone = InitializeState(KEY, TopicsImage(), 1)
    assert driver.ask(gone, StateResponse).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_cold_snapshots() -> None:
    driver = StateDriver()
    initialize(driver, start=3)
    write(driver, ACKED)
    created = driver.now
    driver.advance(300_000)
    expected = Snapshot(1, 1, -1, 3, created, driver.now, (ACKED,), 0)
    assert driver.records[2:] == [StateRecord(KEY, expected)]
    driver.advance(600_000)
    assert len(driver.records) == 3, "everything is cold already"
    initialize(driver, OTHER)
    driver.advance(300_000)
    assert [record.key for record in driver.records[4:]] == [KEY, OTHER]


def test_a_young_snapshot_is_not_cold() -> None:
    driver = StateDriver()
    driver.advance(1)
    initialize(driver)
    driver.advance(299_999)
    assert len(driver.records) == 1
    driver.advance(300_000)
    assert len(driver.records) == 2


def test_57_pruning_follows_the_oldest_latest_snapshot() -> None:
    index = SnapshotIndex()
    snapshot = Snapshot(0, 0, 0, 0, 0, 0, ())

    def note(offset: int, key: ShareKey, value: Snapshot | Update | None) -> None:
        index.note(offset, *StateRecord(key, value).encode())

    assert index.needed_from == 0
    note(7, OTHER, snapshot)
    note(8, KEY, snapshot)
    note(9, OTHER, Update(0, 0, 0, ()))
    note(40, KEY, snapshot)
    assert index.needed_from == 7
    note(60, OTHER, snapshot)
    assert index.needed_from == 40
    note(61, KEY, None)
    assert index.needed_from == 60
    note(62, OTHER, None)
    assert index.needed_from == 63
    note(63, KEY, snapshot)
    assert index.needed_from == 63


@pytest.mark.parametrize(
    ("summed", "lag"),
    [
        (StateSummaryResponse(start_offset=40, delivery_complete_count=10), 50),
        (StateSummaryResponse(start_offset=100, delivery_complete_count=0), 0),
        (StateSummaryResponse(start_offset=40), -1),
        (StateSummaryResponse(delivery_complete_count=0), -1),
        (StateSummaryResponse(), -1),
    ],
)
def test_59_lag(summed: StateSummaryResponse, lag: int) -> None:
    assert summed.lag(100) == lag
