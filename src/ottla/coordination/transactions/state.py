"""The legal steps of a transactional id: pure functions from one `Transaction` to the next.

The coordinator decides which producer may take which step; these functions keep the identity
correct:

- An epoch that is given to a producer is `LAST_EPOCH` at most, so that one is left to fence with.
- Only for a producer of version 2 the end of a transaction raises the epoch. The response has the
  new identity at once; it is valid when the markers are written.
- A fence is stored with the first version, even if the producer uses the second: the version in the
  record distinguishes a repeated EndTxn from a fenced producer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.coordination.transactions.messages import NO_PRODUCER_ID, TransactionState
from ottla.coordination.transactions.records import NO_START, Transaction

if TYPE_CHECKING:
    from ottla.coordination.transactions.messages import Partition

MAX_EPOCH: Final = 2**15 - 1
LAST_EPOCH: Final = MAX_EPOCH - 1

FIRST_VERSION: Final = 0
VERSION_2: Final = 2

PREPARED: Final = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}
"""Decided states, and the final state after all markers are written."""

UNENDED: Final = frozenset({TransactionState.EMPTY, TransactionState.ONGOING})


class Identity(NamedTuple):
    producer_id: int
    epoch: int


def stored(txn: Transaction) -> Identity:
    """The identity in the record, with which the markers are written."""
    return Identity(txn.producer_id, txn.producer_epoch)


def current(txn: Transaction) -> Identity:
    """The identity that the producer got last."""
    if txn.next_producer_id == NO_PRODUCER_ID:
        return stored(txn)
    return Identity(txn.next_producer_id, 0)


def is_commit(txn: Transaction) -> bool:
    """Whether a transaction that has ended, or is ending, is committed."""
    return txn.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


def is_repeated_end(txn: Transaction, asked: Identity) -> bool:
    """Whether this producer ended the last transaction and missed the response."""
    if txn.client_version < VERSION_2 or txn.state in UNENDED:
        return False
    if asked == (txn.producer_id, txn.producer_epoch - 1):
        return True
    rotated = txn.previous_producer_id != txn.producer_id and txn.producer_epoch == 0
    return rotated and asked == (txn.previous_producer_id, LAST_EPOCH)


def initialized(
    old: Transaction | None, identity: Identity, timeout_ms: int, wall_ms: int
) -> Transaction:
    return Transaction(
        identity.producer_id,
        identity.epoch,
        timeout_ms,
        TransactionState.EMPTY,
        frozenset(),
        wall_ms,
        NO_START,
        identity.producer_id if old is None else old.producer_id,
        client_version=FIRST_VERSION if old is None else old.client_version,
    )


def bumped(txn: Transaction, fresh_producer_id: int) -> Identity:
    """The identity after this one."""
    if txn.producer_epoch >= LAST_EPOCH:
        return Identity(fresh_producer_id, 0)
    return Identity(txn.producer_id, txn.producer_epoch + 1)


def joined(
    txn: Transaction, partitions: frozenset[Partition], client_version: int, wall_ms: int
) -> Transaction:
    ongoing = txn.state is TransactionState.ONGOING
    return replace(
        txn,
        state=TransactionState.ONGOING,
        partitions=txn.partitions | partitions,
        last_update_ms=wall_ms,
        start_ms=txn.start_ms if ongoing else wall_ms,
        previous_producer_id=txn.producer_id,
        client_version=client_version,
    )


def prepared(txn: Transaction, commit: bool, wall_ms: int) -> Transaction:
    """End as a producer of the first version does: with its current epoch."""
    state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    return replace(
        txn,
        state=state,
        last_update_ms=wall_ms,
        start_ms=txn.start_ms if txn.state is TransactionState.ONGOING else wall_ms,
        previous_producer_id=txn.producer_id,
        client_version=FIRST_VERSION,
    )


def prepared_version_2(
    txn: Transaction, commit: bool, fresh_producer_id: int, wall_ms: int
) -> Transaction:
    """End as a producer of version 2 does: with the next epoch, which it keeps.

    A producer whose epochs are used up continues as `fresh_producer_id`.
    """
    used_up = txn.producer_epoch >= LAST_EPOCH
    return replace(
        prepared(txn, commit, wall_ms),
        producer_epoch=min(txn.producer_epoch + 1, MAX_EPOCH),
        next_producer_id=fresh_producer_id if used_up else NO_PRODUCER_ID,
        client_version=VERSION_2,
    )


def fenced(txn: Transaction, wall_ms: int) -> Transaction:
    """Abort without the producer: with the next epoch, so the producer is fenced."""
    epoch = min(txn.producer_epoch + 1, MAX_EPOCH)
    return replace(prepared(txn, commit=False, wall_ms=wall_ms), producer_epoch=epoch)


def completed(txn: Transaction, wall_ms: int) -> Transaction:
    producer_id, epoch = current(txn)
    return replace(
        txn,
        producer_id=producer_id,
        producer_epoch=epoch,
        state=PREPARED[txn.state],
        partitions=frozenset(),
        last_update_ms=wall_ms,
        previous_producer_id=txn.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )
