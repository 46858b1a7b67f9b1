"""What time and restarts do to transactions, and how they are listed; cases 50 and 51."""

from __future__ import annotations

import pytest

from ottla.coordination.transactions.coordinator import (
    IDS_PER_TICK,
    TransactionConfig,
)
from ottla.coordination.transactions.messages import (
    InitProducerIdResponse,
    ListedTransaction,
    ListTransactions,
    ListTransactionsResponse,
    TransactionDescription,
    TransactionState,
    WriteMarkers,
)
from ottla.coordination.transactions.records import TransactionRecord
from ottla.coordination.transactions.state import Identity
from ottla.wire.error_codes import ErrorCode
from tests.support.transactions import (
    DONE,
    FENCED,
    ID,
    OTHER_PRODUCER,
    PARTITIONS,
    TIMEOUT_MS,
    TransactionDriver,
    refused,
)

versions = pytest.mark.parametrize("version_2", [False, True], ids=["v1", "v2"])
results = pytest.mark.parametrize("commit", [False, True], ids=["abort", "commit"])


# Timeouts and expiry


@versions
def test_case_50_a_timeout_aborts_and_fences(version_2: bool) -> None:
    driver = TransactionDriver()
    who = driver.given()
    driver.advance(10)
    driver.add(who, version_2=version_2)
    driver.advance(TIMEOUT_MS - 1)
    assert driver.state() is TransactionState.ONGOING
    driver.add(who, frozenset({("t", 7)}), version_2=version_2)
    driver.advance(1)
    marked = PARTITIONS | {("t", 7)}
    assert driver.effects == [WriteMarkers(ID, who.producer_id, 1, False, marked)]
    for _ in range(2):
        for commit in (True, False):
            assert driver.end(who, commit, version_2=version_2) == refused(FENCED)
        assert driver.add(who) is FENCED
        if driver.effects:
            driver.mark()
    assert driver.init(who) == InitProducerIdResponse(FENCED)
    assert driver.given() == Identity(who.producer_id, 2)


@pytest.mark.parametrize("step_ms", [-3_600_000, 0, 3_600_000])
def test_case_50_a_reload_gives_an_open_transaction_its_whole_timeout(step_ms: int) -> None:
    """However the wall clock was set meanwhile: it aborted a transaction that was in time."""
    driver = TransactionDriver()
    driver.add(driver.given())
    driver.advance(10)
    driver.ahead_ms = step_ms
    driver.restart()
    driver.advance(TIMEOUT_MS - 1)
    assert driver.state() is TransactionState.ONGOING
    assert not driver.effects
    driver.advance(1)
    assert driver.state() is TransactionState.PREPARE_ABORT
    assert len(driver.effects) == 1


def test_a_decided_transaction_does_not_time_out() -> None:
    driver = TransactionDriver()
    who = driver.given()
    driver.add(who)
    driver.end(who, commit=True)
    driver.advance(TIMEOUT_MS * 10)
    assert driver.state() is TransactionState.PREPARE_COMMIT
    assert len(driver.effects) == 1


def test_an_unused_id_expires() -> None:
    config = TransactionConfig(id_expiration_ms=100_000)
    driver = TransactionDriver(config)
    driver.given(transactional_id="unused")
    who = driver.given()
    driver.add(who)
    driver.advance(50_000)
    driver.end(who, commit=True)
    driver.advance(200_000)
    assert list(driver.machine.transactions) == [ID]
    driver.mark()
    driver.advance(99_999)
    assert list(driver.machine.transactions) == [ID]
    driver.advance(1)
    assert driver.records[-1] == TransactionRecord(ID, None)
    assert driver.replayed().transactions == {}
    assert driver.machine.next_deadline() is None
    assert driver.add(who) is OTHER_PRODUCER


def test_what_is_due_at_once_is_done_in_steps() -> None:
    driver = TransactionDriver(TransactionConfig(id_expiration_ms=1000))
    for index in range(IDS_PER_TICK + 1):
        driver.given(transactional_id=f"i{index}")
    driver.now += 1000
    driver.restart()
    assert len(driver.machine.tick(driver.time).records) == IDS_PER_TICK
    assert driver.machine.next_deadline() == driver.now
    assert len(driver.machine.tick(driver.time).records) == 1
    assert driver.machine.next_deadline() is None


def test_deadlines_take_bounded_room() -> None:
    """A producer that goes on for long does not leave an entry for each of its transactions."""
    driver = TransactionDriver()
    who = driver.given()
    for _ in range(50):
        driver.add(who)
        driver.end(who, commit=True)
        driver.mark()
        driver.advance(TIMEOUT_MS + 1)
    timers = (driver.machine._open, driver.machine._idle)
    assert sum(len(timer._heap) for timer in timers) <= 2


# Restarts


@results
@versions
def test_case_51_markers_are_asked_for_again_after_a_restart(commit: bool, version_2: bool) -> None:
    driver = TransactionDriver()
    who = driver.given()
    driver.add(who, version_2=version_2)
    answer = driver.end(who, commit, version_2=version_2)
    (lost,) = driver.restart()
    assert driver.machine.next_deadline() == driver.now
    driver.advance(0)
    assert driver.effects == [lost]
    driver.advance(TIMEOUT_MS)
    assert driver.effects == [lost]
    driver.mark()
    ended = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    assert driver.state() is ended
    assert driver.end(who, commit, version_2=version_2) == answer
    assert driver.replayed().transactions == driver.machine.transactions


def test_case_51_a_fence_survives_a_restart() -> None:
    driver = TransactionDriver()
    who = driver.given()
    driver.add(who, version_2=True)
    driver.init()
    driver.restart()
    driver.advance(0)
    driver.mark()
    assert driver.end(who, commit=False, version_2=True) == refused(FENCED)
    assert driver.given().epoch == 2


def test_case_51_a_report_from_before_a_restart_ends_nothing() -> None:
    """The next transaction of a producer of the first version asks for equal markers."""
    driver = TransactionDriver()
    who = driver.given()
    driver.add(who)
    driver.end(who, commit=True)
    (lost,) = driver.restart()
    driver.mark(lost)
    assert driver.state() is TransactionState.PREPARE_COMMIT
    driver.advance(0)
    driver.mark()
    driver.add(who)
    driver.end(who, commit=True)
    assert driver.effects == [lost]
    driver.mark(lost)
    assert driver.state() is TransactionState.PREPARE_COMMIT
    driver.mark()
    assert driver.state() is TransactionState.COMPLETE_COMMIT


def test_a_report_that_comes_twice_changes_nothing() -> None:
    driver = TransactionDriver()
    who = driver.given()
    driver.add(who)
    driver.end(who, commit=True)
    markers = driver.effects[0]
    driver.mark(markers)
    known = len(driver.log)
    driver.mark(markers)
    assert len(driver.log) == known


# ListTransactions and DescribeTransactions


def listed(driver: TransactionDriver, request: ListTransactions) -> list[str]:
    answer = driver.ask(request, ListTransactionsResponse)
    return [transaction.transactional_id for transaction in answer.transactions]


def test_transactions_are_listed() -> None:
    driver = TransactionDriver()
    idle = driver.given(transactional_id="idle")
    busy = driver.given(transactional_id="busy")
    driver.add(busy, transactional_id="busy")
    assert driver.ask(ListTransactions(), ListTransactionsResponse) == ListTransactionsResponse(
        [
            ListedTransaction("idle", idle.producer_id, TransactionState.EMPTY),
            ListedTransaction("busy", busy.producer_id, TransactionState.ONGOING),
        ]
    )
    ongoing = frozenset({TransactionState.ONGOING, TransactionState.DEAD})
    assert listed(driver, ListTransactions(states=ongoing)) == ["busy"]
    assert listed(driver, ListTransactions(producer_ids=frozenset({idle.producer_id}))) == ["idle"]
    assert listed(driver, ListTransactions(frozenset(), frozenset({1}))) == []


def test_long_transactions_are_listed() -> None:
    """Ids that never had one count as long, as they do in Apache Kafka."""
    driver = TransactionDriver()
    driver.given(transactional_id="idle")
    driver.add(driver.given())
    driver.advance(500)
    assert listed(driver, ListTransactions(running_longer_than_ms=499)) == ["idle", ID]
    assert listed(driver, ListTransactions(running_longer_than_ms=500)) == ["idle"]
    assert listed(driver, ListTransactions(running_longer_than_ms=-1)) == ["idle", ID]


def test_only_known_transactions_are_described() -> None:
    driver = TransactionDriver()
    not_found = TransactionDescription(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    assert driver.describe() == not_found
    assert driver.describe("") == TransactionDescription(ErrorCode.INVALID_REQUEST)
    who = driver.given()
    assert driver.describe() == TransactionDescription(
        DONE, TransactionState.EMPTY, TIMEOUT_MS, -1, *who
    )


@pytest.mark.parametrize(
    ("txn_state", "label"),
    [
        (TransactionState.EMPTY, "Empty"),
        (TransactionState.PREPARE_EPOCH_FENCE, "PrepareEpochFence"),
        (TransactionState.COMPLETE_COMMIT, "CompleteCommit"),
    ],
)
def test_states_have_kafkas_names(txn_state: TransactionState, label: str) -> None:
    assert txn_state.label == label
