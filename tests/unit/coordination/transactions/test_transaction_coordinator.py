"""The coordinator's answers, state by state; cases 48, 50, 51 and 54 as far as the machine goes."""

from __future__ import annotations

import pytest

from ottla.coordination.transactions.messages import (
    AddPartitionsResponse,
    EndTransactionResponse,
    InitProducerIdResponse,
    TransactionDescription,
    TransactionState,
    WriteMarkers,
)
from ottla.coordination.transactions.state import LAST_EPOCH, MAX_EPOCH, Identity
from ottla.wire.error_codes import ErrorCode
from ottla.wire.spec import MAX_STRING_BYTES
from tests.support.transactions import (
    BUSY,
    DONE,
    FENCED,
    ID,
    OTHER_PRODUCER,
    PARTITIONS,
    START_MS,
    TIMEOUT_MS,
    WRONG_STATE,
    TransactionDriver,
    at_epoch,
    refused,
)

versions = pytest.mark.parametrize("version_2", [False, True], ids=["v1", "v2"])
results = pytest.mark.parametrize("commit", [False, True], ids=["abort", "commit"])


# InitProducerId


def test_case_48_a_second_producer_fences_the_first() -> None:
    driver = TransactionDriver()
    first = driver.given()
    assert first.epoch == 0
    second = driver.given()
    assert second == Identity(first.producer_id, 1)
    assert driver.add(first) is FENCED
    assert driver.end(first, commit=True) == refused(FENCED)
    assert driver.init(first) == InitProducerIdResponse(FENCED)
    assert driver.add(second) is DONE


def test_case_48_ids_are_fresh() -> None:
    driver = TransactionDriver()
    one, two = driver.given(), driver.given(transactional_id="b")
    assert one.producer_id != two.producer_id


@versions
def test_case_48_during_a_transaction(version_2: bool) -> None:
    driver = TransactionDriver()
    first = driver.given()
    driver.add(first, version_2=version_2)
    assert driver.init() == InitProducerIdResponse(BUSY)
    assert driver.effects == [WriteMarkers(ID, first.producer_id, 1, False, PARTITIONS)]
    for commit in (True, False):
        assert driver.end(first, commit, version_2=version_2) == refused(FENCED)
    assert driver.init() == InitProducerIdResponse(BUSY)
    driver.mark()
    assert driver.state() is TransactionState.COMPLETE_ABORT
    for commit in (True, False):
        assert driver.end(first, commit, version_2=version_2) == refused(FENCED)
    assert driver.init(first) == InitProducerIdResponse(FENCED)
    assert driver.given() == Identity(first.producer_id, 2)
    assert driver.add(first) is FENCED


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_a_timeout_out_of_range(timeout_ms: int) -> None:
    driver = TransactionDriver()
    answer = driver.init(timeout_ms=timeout_ms)
    assert answer == InitProducerIdResponse(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    assert driver.log == []
    assert driver.init(timeout_ms=900_000).error is DONE


def test_an_empty_id() -> None:
    driver = TransactionDriver()
    answer = driver.init(transactional_id="")
    assert answer == InitProducerIdResponse(ErrorCode.INVALID_REQUEST)


def test_the_longest_id() -> None:
    driver = TransactionDriver()
    driver.given(transactional_id="i" * MAX_STRING_BYTES)
    assert driver.replayed().transactions == driver.machine.transactions


def test_an_unknown_id_takes_whoever_comes() -> None:
    """A producer whose id has expired goes on under another producer id."""
    driver = TransactionDriver()
    assert driver.given(Identity(5, 3)).epoch == 0


def test_a_producer_that_names_itself() -> None:
    """KIP-360: it may do so again until it uses what it got, but nobody else may."""
    driver = TransactionDriver()
    first = driver.given()
    second = driver.given(first)
    assert second == Identity(first.producer_id, 1)
    assert driver.given(first) == second
    assert driver.init(Identity(first.producer_id + 1, 1)) == InitProducerIdResponse(FENCED)
    assert driver.add(second) is DONE
    assert driver.init(first) == InitProducerIdResponse(FENCED)
    assert driver.state() is TransactionState.ONGOING


def test_a_producer_that_names_itself_is_fenced_by_a_new_one() -> None:
    driver = TransactionDriver()
    first = driver.given()
    second = driver.given(first)
    third = driver.given()
    for old in (first, second):
        assert driver.init(old) == InitProducerIdResponse(FENCED)
    assert driver.add(third) is DONE


def test_a_restart_forgets_the_identity_before() -> None:
    driver = TransactionDriver()
    first = driver.given()
    second = driver.given(first)
    driver.restart()
    assert driver.init(first) == InitProducerIdResponse(FENCED)
    assert driver.given(second) == Identity(first.producer_id, 2)


def test_a_zombie_does_not_abort_its_successors_transaction() -> None:
    driver = TransactionDriver()
    zombie, alive = driver.given(), driver.given()
    driver.add(alive)
    assert driver.init(zombie) == InitProducerIdResponse(FENCED)
    assert driver.end(alive, commit=True).error is DONE


def test_used_up_epochs_rotate_the_producer_id() -> None:
    driver = at_epoch(LAST_EPOCH - 1)
    last = driver.given()
    assert last == Identity(5, LAST_EPOCH)
    rotated = driver.given(last)
    assert rotated.producer_id != 5
    assert rotated.epoch == 0
    assert driver.given(last) == rotated
    assert driver.add(last) is OTHER_PRODUCER
    assert driver.add(rotated) is DONE


def test_the_last_epoch_can_be_fenced() -> None:
    driver = at_epoch(LAST_EPOCH)
    driver.add(Identity(5, LAST_EPOCH))
    assert driver.init().error is BUSY
    assert driver.effects[0].producer_epoch == MAX_EPOCH
    driver.mark()
    assert driver.given().epoch == 0


@pytest.mark.parametrize("version_2", [False, True])
def test_an_epoch_that_was_never_given_out_does_no_harm(version_2: bool) -> None:
    """The highest epoch is for fencing; whoever guesses it finds no epoch above it."""
    driver = at_epoch(MAX_EPOCH, TransactionState.COMPLETE_ABORT)
    guess = Identity(5, MAX_EPOCH)
    driver.add(guess)
    driver.advance(TIMEOUT_MS)
    driver.mark()
    driver.add(guess)
    assert driver.end(guess, commit=True, version_2=version_2).error is DONE
    driver.mark()
    assert driver.given().producer_id != 5


# AddPartitionsToTxn


def test_partitions_join() -> None:
    driver = TransactionDriver()
    who = driver.given()
    assert driver.add(who, frozenset({("t", 0)})) is DONE
    driver.advance(5)
    assert driver.add(who, frozenset({("u", 3)})) is DONE
    both = frozenset({("t", 0), ("u", 3)})
    assert driver.describe() == TransactionDescription(
        DONE, TransactionState.ONGOING, TIMEOUT_MS, START_MS, *who, both
    )
    known = len(driver.log)
    assert driver.add(who, frozenset({("u", 3)})) is DONE
    assert len(driver.log) == known


def test_who_may_not_add() -> None:
    driver = TransactionDriver()
    who = driver.given()
    assert driver.add(Identity(who.producer_id + 1, 0)) is OTHER_PRODUCER
    assert driver.add(Identity(who.producer_id, 1)) is FENCED
    assert driver.add(who, transactional_id="nobody") is OTHER_PRODUCER
    assert driver.add(who, transactional_id="") is ErrorCode.INVALID_REQUEST


@results
def test_nothing_joins_while_markers_are_written(commit: bool) -> None:
    driver = TransactionDriver()
    who = driver.given()
    driver.add(who)
    driver.end(who, commit)
    assert driver.add(who) is BUSY
    assert driver.verify(who) == AddPartitionsResponse(BUSY)
    driver.mark()
    driver.advance(1)
    assert driver.add(who) is DONE
    assert driver.describe().start_ms == START_MS + 1


@results
def test_a_transaction_has_its_own_partitions_only(commit: bool) -> None:
    driver = TransactionDriver()
    who = driver.given()
    driver.add(who)
    driver.end(who, commit)
    driver.mark()
    assert driver.describe().partitions == frozenset()
    assert driver.verify(who) == AddPartitionsResponse(DONE, PARTITIONS)
    driver.add(who, frozenset({("u", 0)}))
    driver.end(who, commit)
    assert driver.effects[0].partitions == {("u", 0)}


def test_verification_changes_nothing() -> None:
    driver = TransactionDriver()
    who = driver.given()
    assert driver.verify(who) == AddPartitionsResponse(DONE, PARTITIONS)
    driver.add(who)
    known = len(driver.log)
    more = PARTITIONS | {("t", 9)}
    assert driver.verify(who, more) == AddPartitionsResponse(DONE, frozenset({("t", 9)}))
    assert driver.verify(Identity(who.producer_id, 7)) == AddPartitionsResponse(FENCED)
    assert driver.verify(Identity(7, 0)) == AddPartitionsResponse(OTHER_PRODUCER)
    assert len(driver.log) == known


# EndTxn


@results
def test_an_end_of_the_first_version(commit: bool) -> None:
    driver = TransactionDriver()
    who = driver.given()
    assert driver.end(who, commit) == refused(WRONG_STATE)
    driver.add(who)
    answer = EndTransactionResponse(DONE, *who)
    assert driver.end(who, commit) == answer
    assert driver.effects == [WriteMarkers(ID, *who, commit, PARTITIONS)]
    assert driver.end(who, commit) == refused(BUSY)
    assert driver.end(who, not commit) == refused(WRONG_STATE)
    driver.mark()
    assert driver.end(who, commit) == answer
    assert driver.end(who, not commit) == refused(WRONG_STATE)
    assert driver.effects == []


@results
def test_case_54_an_end_of_version_2(commit: bool) -> None:
    driver = TransactionDriver()
    who = driver.given()
    driver.add(who, version_2=True)
    following = Identity(who.producer_id, 1)
    answer = EndTransactionResponse(DONE, *following)
    assert driver.end(who, commit, version_2=True) == answer
    assert driver.effects == [WriteMarkers(ID, *following, commit, PARTITIONS)]
    assert driver.end(who, commit, version_2=True) == refused(BUSY)
    assert driver.end(who, not commit, version_2=True) == refused(WRONG_STATE)
    assert driver.end(following, commit=False, version_2=True) == refused(BUSY)
    driver.mark()
    assert driver.end(who, commit, version_2=True) == answer
    assert driver.end(who, not commit, version_2=True) == refused(WRONG_STATE)
    driver.restart()
    assert driver.end(who, commit, version_2=True) == answer
    assert driver.add(who) is FENCED
    assert driver.add(following) is DONE
    assert driver.end(who, commit, version_2=True) == refused(FENCED)


def test_case_54_used_up_epochs_rotate_the_producer_id() -> None:
    driver = at_epoch(LAST_EPOCH)
    who = Identity(5, LAST_EPOCH)
    driver.add(who, version_2=True)
    answer = driver.end(who, commit=True, version_2=True)
    rotated = Identity(driver.fresh, 0)
    assert answer == EndTransactionResponse(DONE, *rotated)
    assert driver.effects == [WriteMarkers(ID, 5, MAX_EPOCH, True, PARTITIONS)]
    assert driver.end(who, commit=True, version_2=True) == refused(BUSY)
    assert driver.add(rotated) is BUSY
    assert driver.init(rotated).error is BUSY
    driver.restart()
    driver.advance(0)
    driver.mark()
    assert driver.end(who, commit=True, version_2=True) == answer
    assert driver.add(who) is OTHER_PRODUCER
    assert driver.add(rotated, version_2=True) is DONE
    assert driver.end(who, commit=True, version_2=True) == refused(OTHER_PRODUCER)
    assert driver.end(rotated, commit=True, version_2=True).producer_epoch == 1


@pytest.mark.parametrize(
    "before",
    [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT],
    ids=lambda before: before.label,
)
def test_case_54_an_abort_without_a_transaction(before: TransactionState) -> None:
    driver = at_epoch(3, before)
    who = Identity(5, 3)
    assert driver.end(who, commit=True, version_2=True) == refused(WRONG_STATE)
    answer = EndTransactionResponse(DONE, 5, 4)
    assert driver.end(who, commit=False, version_2=True) == answer
    assert driver.effects == []
    assert [record.value.state for record in driver.records if record.value] == [
        TransactionState.PREPARE_ABORT,
        TransactionState.COMPLETE_ABORT,
    ]
    assert driver.end(who, commit=False, version_2=True) == answer
    assert driver.add(Identity(5, 4)) is DONE


def test_a_producer_of_version_2_that_missed_its_answer_may_begin_anew() -> None:
    driver = TransactionDriver()
    who = driver.given()
    driver.add(who, version_2=True)
    driver.end(who, commit=True, version_2=True)
    assert driver.init(who).error is BUSY
    driver.mark()
    assert driver.given(who) == Identity(who.producer_id, 1)
    assert driver.end(who, commit=True, version_2=True) == refused(FENCED)


@versions
def test_who_may_not_end(version_2: bool) -> None:
    driver = TransactionDriver()
    old, who = driver.given(), driver.given()
    driver.add(who)
    for commit in (True, False):
        assert driver.end(old, commit, version_2=version_2) == refused(FENCED)
        other = Identity(who.producer_id + 1, who.epoch)
        assert driver.end(other, commit, version_2=version_2) == refused(OTHER_PRODUCER)
        later = Identity(who.producer_id, who.epoch + 1)
        assert driver.end(later, commit, version_2=version_2) == refused(FENCED)
    answer = driver.end(who, commit=True, transactional_id="nobody", version_2=version_2)
    assert answer == refused(OTHER_PRODUCER)
    answer = driver.end(who, commit=True, transactional_id="", version_2=version_2)
    assert answer == refused(ErrorCode.INVALID_REQUEST)
    assert driver.state() is TransactionState.ONGOING
