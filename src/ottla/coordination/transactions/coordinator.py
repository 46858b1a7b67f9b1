"""The transaction coordinator: producers of transactional ids, and the end of transactions.

Rules:

- Only the last assigned identity (producer id, epoch) may write. Another id gets 49, another epoch
  90.
- InitProducerId gives out the next identity. A request that names an identity must name the current
  one, or the previous one as long as the current one is unused (its response was lost).
- InitProducerId during a transaction, and a transaction older than its timeout, abort it under an
  epoch that was never given out, so that its producer is fenced. The client retries (51).
- An end is decided when Prepare* is committed, and answered then. Until all markers are written
  (Complete*) the id is busy: valid requests get 51, a request for the opposite end gets 48.
- Markers are requested once, and again only after a reload, by a tick. A report counts only for the
  open request. Without partitions to mark the transaction completes at once.
- EndTxn may be repeated: in the first version with the same epoch; in the second with the previous
  epoch, and the response has the missed identity. A fenced producer cannot repeat (see `state`).
- An id without a transaction and unused for `id_expiration_ms` is forgotten.

Volatile: the previous identity, the requested markers, the deadlines, and the number of timed-out
transactions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.coordination.machine import Decision, Refused
from ottla.coordination.timers import Timers
from ottla.coordination.transactions.messages import (
    NO_PRODUCER_ID,
    AddPartitions,
    AddPartitionsResponse,
    DescribeTransaction,
    EndTransaction,
    EndTransactionResponse,
    InitProducerId,
    InitProducerIdResponse,
    ListedTransaction,
    ListTransactions,
    ListTransactionsResponse,
    MarkersWritten,
    Noted,
    TransactionDescription,
    TransactionState,
    WriteMarkers,
)
from ottla.coordination.transactions.records import TransactionRecord, decode
from ottla.coordination.transactions.state import (
    FIRST_VERSION,
    PREPARED,
    VERSION_2,
    Identity,
    bumped,
    completed,
    current,
    fenced,
    initialized,
    is_commit,
    is_repeated_end,
    joined,
    prepared,
    prepared_version_2,
    stored,
)
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Now
    from ottla.coordination.machine import Token
    from ottla.coordination.transactions.messages import Request, Response
    from ottla.coordination.transactions.records import Transaction

_Decision: TypeAlias = "Decision[TransactionRecord, Response]"

IDS_PER_TICK: Final = 128
"""A tick is one append, and after a long stop more ids may be due than fit into it."""


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Each field is followed by Kafka's name for it."""

    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms"""
    id_expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms"""


class TransactionCoordinator:
    """The state machine of one partition of `__transaction_state`."""

    def __init__(self, config: TransactionConfig) -> None:
        self.config = config
        self.transactions: dict[str, Transaction] = {}
        self.timed_out = 0
        self._before: dict[str, Identity] = {}
        self._markers: dict[str, WriteMarkers] = {}
        # Separate timers, because a deadline that moves earlier leaves its old entry behind.
        self._open: Timers[str] = Timers()
        self._idle: Timers[str] = Timers()
        self._handlers: dict[type, tuple[Callable[..., Response], Callable[..., Response]]] = {
            InitProducerId: (self._init, InitProducerIdResponse),
            AddPartitions: (self._add, AddPartitionsResponse),
            EndTransaction: (self._end, EndTransactionResponse),
            MarkersWritten: (self._written, Noted),
            DescribeTransaction: (self._describe, TransactionDescription),
            ListTransactions: (self._list, ListTransactionsResponse),
        }

    # Called by the runtime

    def replay(self, key: bytes, value: bytes | None) -> None:
        if (record := decode(key, value)) is not None:
            self.apply(record)

    def loaded(self, now: Now) -> None:
        """Deadlines after a replay.

        An open transaction gets its whole timeout again, as members of a group get their session.
        Its record has only the wall time of its start, and the clock may have been set since: that
        age could end the transaction of a live producer too early. Unused ids expire after days, so
        wall time is good enough; a time in the future counts as now.
        """
        for transactional_id, txn in self.transactions.items():
            if txn.state in PREPARED:
                self._open.set(transactional_id, now.ms)
            elif txn.state is TransactionState.ONGOING:
                self._arm(transactional_id, now, age_ms=0)
            else:
                age_ms = max(0, now.wall_ms - txn.last_update_ms)
                self._arm(transactional_id, now, age_ms)

    def decide(self, request: Request, token: Token, now: Now) -> _Decision:
        decision: _Decision = Decision()
        handler, answer = self._handlers[type(request)]
        try:
            response = handler(request, now, decision)
        except Refused as refusal:
            response = answer(refusal.error)
        decision.reply(token, response)
        return decision

    def tick(self, now: Now) -> _Decision:
        decision: _Decision = Decision()
        for _ in range(IDS_PER_TICK):
            transactional_id = self._open.pop_due(now.ms) or self._idle.pop_due(now.ms)
            if transactional_id is None:
                break
            txn = self.transactions[transactional_id]
            if txn.state in PREPARED:
                self._mark(transactional_id, decision, now)
            elif txn.state is TransactionState.ONGOING:
                self.timed_out += 1
                self._fence(transactional_id, decision, now)
            else:
                self._emit(transactional_id, None, decision, now)
        return decision

    def next_deadline(self) -> int | None:
        deadlines = (self._open.next_deadline(), self._idle.next_deadline())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        return record.encode()

    def apply(self, record: TransactionRecord) -> None:
        transactional_id, txn = record
        if txn is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = txn

    # Steps that all requests take

    def _emit(
        self,
        transactional_id: str,
        txn: Transaction | None,
        decision: _Decision,
        now: Now,
        before: Identity | None = None,
    ) -> None:
        """`before` is the previous identity, which may repeat the request for the new one."""
        old = self.transactions.get(transactional_id)
        record = TransactionRecord(transactional_id, txn)
        self.apply(record)
        decision.records.append(record)
        self._markers.pop(transactional_id, None)
        if before is None:
            self._before.pop(transactional_id, None)
        else:
            self._before[transactional_id] = before
        if not _goes_on(old, txn):
            self._arm(transactional_id, now, age_ms=0)

    def _arm(self, transactional_id: str, now: Now, age_ms: int) -> None:
        """`age_ms` is the idle time of an idle id; 0 for a transaction."""
        self._open.cancel(transactional_id)
        self._idle.cancel(transactional_id)
        txn = self.transactions.get(transactional_id)
        if txn is None or txn.state in PREPARED:
            return
        if txn.state is TransactionState.ONGOING:
            self._open.set(transactional_id, now.ms + txn.timeout_ms)
        else:
            left_ms = max(0, self.config.id_expiration_ms - age_ms)
            self._idle.set(transactional_id, now.ms + left_ms)

    def _fence(self, transactional_id: str, decision: _Decision, now: Now) -> None:
        txn = fenced(self.transactions[transactional_id], now.wall_ms)
        self._emit(transactional_id, txn, decision, now)
        self._mark(transactional_id, decision, now)

    def _mark(self, transactional_id: str, decision: _Decision, now: Now) -> None:
        """Request the markers of a decided end in all partitions of the transaction."""
        txn = self.transactions[transactional_id]
        if not txn.partitions:
            self._complete(transactional_id, decision, now)
            return
        producer_id, epoch = stored(txn)
        markers = WriteMarkers(transactional_id, producer_id, epoch, is_commit(txn), txn.partitions)
        self._markers[transactional_id] = markers
        decision.effects.append(markers)

    def _complete(self, transactional_id: str, decision: _Decision, now: Now) -> None:
        txn = completed(self.transactions[transactional_id], now.wall_ms)
        self._emit(transactional_id, txn, decision, now, self._before.get(transactional_id))

    def _known(self, transactional_id: str) -> Transaction:
        if not transactional_id:
            raise Refused(ErrorCode.INVALID_REQUEST)
        if (txn := self.transactions.get(transactional_id)) is None:
            raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return txn

    # InitProducerId

    def _init(self, request: InitProducerId, now: Now, decision: _Decision) -> Response:
        transactional_id = request.transactional_id
        if not transactional_id:
            raise Refused(ErrorCode.INVALID_REQUEST)
        if not 0 < request.timeout_ms <= self.config.max_timeout_ms:
            raise Refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if (txn := self.transactions.get(transactional_id)) is None:
            return self._give(request, Identity(request.fresh_producer_id, 0), now, decision)
        asked = _asked(request) if request.producer_id != NO_PRODUCER_ID else None
        before = self._before.get(transactional_id)
        if asked not in (None, current(txn), before):
            raise Refused(ErrorCode.PRODUCER_FENCED)
        if txn.state in PREPARED:
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        if txn.state is TransactionState.ONGOING:
            self._fence(transactional_id, decision, now)
            return InitProducerIdResponse(ErrorCode.CONCURRENT_TRANSACTIONS)
        if asked is not None and asked == before:
            return self._give(request, current(txn), now, decision, asked)
        identity = bumped(txn, request.fresh_producer_id)
        return self._give(request, identity, now, decision, asked)

    def _give(
        self,
        request: InitProducerId,
        identity: Identity,
        now: Now,
        decision: _Decision,
        before: Identity | None = None,
    ) -> Response:
        old = self.transactions.get(request.transactional_id)
        txn = initialized(old, identity, request.timeout_ms, now.wall_ms)
        self._emit(request.transactional_id, txn, decision, now, before)
        return InitProducerIdResponse(ErrorCode.NONE, *identity)

    # AddPartitionsToTxn, AddOffsetsToTxn and verification by leaders

    def _add(self, request: AddPartitions, now: Now, decision: _Decision) -> Response:
        txn = self._known(request.transactional_id)
        _check(txn, _asked(request))
        if txn.state in PREPARED:
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        missing = request.partitions - txn.partitions
        if request.verify_only:
            return AddPartitionsResponse(ErrorCode.NONE, missing)
        if missing or txn.state is not TransactionState.ONGOING:
            version = VERSION_2 if request.version_2 else FIRST_VERSION
            joining = joined(txn, request.partitions, version, now.wall_ms)
            self._emit(request.transactional_id, joining, decision, now)
        return AddPartitionsResponse(ErrorCode.NONE)

    # EndTxn

    def _end(self, request: EndTransaction, now: Now, decision: _Decision) -> Response:
        txn = self._known(request.transactional_id)
        if request.version_2:
            return self._end_version_2(request, txn, now, decision)
        asked = _asked(request)
        _check(txn, asked)
        if txn.state is TransactionState.ONGOING:
            ending = prepared(txn, request.commit, now.wall_ms)
            self._emit(request.transactional_id, ending, decision, now)
            self._mark(request.transactional_id, decision, now)
        else:
            _check_repeated(txn, request.commit)
        return EndTransactionResponse(ErrorCode.NONE, *asked)

    def _end_version_2(
        self, request: EndTransaction, txn: Transaction, now: Now, decision: _Decision
    ) -> Response:
        asked = _asked(request)
        if is_repeated_end(txn, asked):
            _check_repeated(txn, request.commit)
            return EndTransactionResponse(ErrorCode.NONE, *current(txn))
        _check(txn, asked)
        if txn.state in PREPARED:
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        if request.commit and txn.state is not TransactionState.ONGOING:
            raise Refused(ErrorCode.INVALID_TXN_STATE)
        ending = prepared_version_2(txn, request.commit, request.fresh_producer_id, now.wall_ms)
        self._emit(request.transactional_id, ending, decision, now, asked)
        self._mark(request.transactional_id, decision, now)
        return EndTransactionResponse(ErrorCode.NONE, *current(ending))

    def _written(self, request: MarkersWritten, now: Now, decision: _Decision) -> Response:
        transactional_id = request.markers.transactional_id
        if self._markers.get(transactional_id) is request.markers:
            self._complete(transactional_id, decision, now)
        return Noted()

    # ListTransactions and DescribeTransactions

    def _describe(self, request: DescribeTransaction, _now: Now, _decision: _Decision) -> Response:
        if not request.transactional_id:
            raise Refused(ErrorCode.INVALID_REQUEST)
        if (txn := self.transactions.get(request.transactional_id)) is None:
            raise Refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return TransactionDescription(
            ErrorCode.NONE,
            txn.state,
            txn.timeout_ms,
            txn.start_ms,
            txn.producer_id,
            txn.producer_epoch,
            txn.partitions,
        )

    def _list(self, request: ListTransactions, now: Now, _decision: _Decision) -> Response:
        longer_than_ms = request.running_longer_than_ms
        return ListTransactionsResponse(
            [
                ListedTransaction(transactional_id, txn.producer_id, txn.state)
                for transactional_id, txn in self.transactions.items()
                if (not request.states or txn.state in request.states)
                and (not request.producer_ids or txn.producer_id in request.producer_ids)
                and (longer_than_ms < 0 or now.wall_ms - txn.start_ms > longer_than_ms)
            ]
        )


def _goes_on(old: Transaction | None, new: Transaction | None) -> bool:
    """Whether the open transaction is still open, so that its deadline stays."""
    ongoing = TransactionState.ONGOING
    return old is not None and new is not None and old.state is new.state is ongoing


def _asked(request: InitProducerId | AddPartitions | EndTransaction) -> Identity:
    return Identity(request.producer_id, request.producer_epoch)


def _check(txn: Transaction, asked: Identity) -> None:
    producer_id, epoch = current(txn)
    if asked.producer_id != producer_id:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if asked.epoch != epoch:
        raise Refused(ErrorCode.PRODUCER_FENCED)


def _check_repeated(txn: Transaction, commit: bool) -> None:
    """Whether a repeated EndTxn asks for the outcome that the transaction already has."""
    if txn.state is TransactionState.EMPTY or is_commit(txn) != commit:
        raise Refused(ErrorCode.INVALID_TXN_STATE)
    if txn.state in PREPARED:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
