"""The transaction coordinator driven by hand: requests in short, its log as bytes, its effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from ottla.clock import Now
from ottla.coordination.transactions.coordinator import TransactionConfig, TransactionCoordinator
from ottla.coordination.transactions.messages import (
    AddPartitions,
    AddPartitionsResponse,
    DescribeTransaction,
    EndTransaction,
    EndTransactionResponse,
    InitProducerId,
    InitProducerIdResponse,
    MarkersWritten,
    Noted,
    TransactionDescription,
    TransactionState,
    WriteMarkers,
)
from ottla.coordination.transactions.records import Transaction, TransactionRecord
from ottla.coordination.transactions.state import Identity
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.coordination.machine import Decision
    from ottla.coordination.transactions.messages import Partition, Request, Response

ResponseT = TypeVar("ResponseT")

ID: Final = "payments"
START_MS: Final = 1_700_000_000_000
TIMEOUT_MS: Final = 60_000
PARTITIONS: Final[frozenset[Partition]] = frozenset({("t", 0), ("t", 1)})
FIRST_FRESH_ID: Final = 1000

DONE: Final = ErrorCode.NONE
BUSY: Final = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED: Final = ErrorCode.PRODUCER_FENCED
OTHER_PRODUCER: Final = ErrorCode.INVALID_PRODUCER_ID_MAPPING
WRONG_STATE: Final = ErrorCode.INVALID_TXN_STATE


def refused(error: ErrorCode) -> EndTransactionResponse:
    return EndTransactionResponse(error)


class TransactionDriver:
    """`log` is what the machine has emitted, as bytes; `effects` what it wants and has not got."""

    def __init__(
        self,
        config: TransactionConfig | None = None,
        log: Iterable[tuple[bytes, bytes | None]] = (),
    ) -> None:
        self.config = config or TransactionConfig()
        self.now = START_MS
        self.ahead_ms = 0
        self.log = list(log)
        self.records: list[TransactionRecord] = []
        self.effects: list[WriteMarkers] = []
        self.fresh = FIRST_FRESH_ID
        self.machine = self.replayed()

    # Time and restarts

    @property
    def time(self) -> Now:
        """Monotonic time begins where wall time is; a test steps the latter by `ahead_ms`."""
        return Now(self.now, self.now + self.ahead_ms)

    def replayed(self) -> TransactionCoordinator:
        """What a restart at this moment would come up with."""
        machine = TransactionCoordinator(self.config)
        for key, value in self.log:
            machine.replay(key, value)
        machine.loaded(self.time)
        return machine

    def restart(self) -> list[WriteMarkers]:
        """Returns the effects that were open, and are lost to the new machine."""
        lost, self.effects = self.effects, []
        self.machine = self.replayed()
        return lost

    def advance(self, ms: int) -> None:
        end = self.now + ms
        while (deadline := self.machine.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.take(self.machine.tick(self.time))
        self.now = end

    # Requests

    def take(self, decision: Decision[TransactionRecord, Response]) -> None:
        self.records += decision.records
        self.log += [self.machine.encode(record) for record in decision.records]
        for effect in decision.effects:
            assert isinstance(effect, WriteMarkers)
            self.effects.append(effect)

    def ask(self, request: Request, kind: type[ResponseT]) -> ResponseT:
        decision = self.machine.decide(request, 7, self.time)
        self.take(decision)
        (reply,) = decision.replies
        assert reply.token == 7
        assert isinstance(reply.response, kind)
        return reply.response

    def fresh_id(self) -> int:
        self.fresh += 1
        return self.fresh

    def init(
        self,
        asked: Identity | None = None,
        *,
        transactional_id: str = ID,
        timeout_ms: int = TIMEOUT_MS,
    ) -> InitProducerIdResponse:
        request = InitProducerId(transactional_id, timeout_ms, self.fresh_id(), *(asked or ()))
        return self.ask(request, InitProducerIdResponse)

    def given(self, asked: Identity | None = None, *, transactional_id: str = ID) -> Identity:
        """The identity that InitProducerId gives, which it must."""
        answer = self.init(asked, transactional_id=transactional_id)
        assert answer.error == 0
        return Identity(answer.producer_id, answer.producer_epoch)

    def add(
        self,
        who: Identity,
        partitions: frozenset[Partition] = PARTITIONS,
        *,
        transactional_id: str = ID,
        version_2: bool = False,
    ) -> ErrorCode:
        request = AddPartitions(transactional_id, *who, partitions, version_2=version_2)
        return self.ask(request, AddPartitionsResponse).error

    def verify(
        self, who: Identity, partitions: frozenset[Partition] = PARTITIONS
    ) -> AddPartitionsResponse:
        return self.ask(
            AddPartitions(ID, *who, partitions, verify_only=True), AddPartitionsResponse
        )

    def end(
        self, who: Identity, commit: bool, *, transactional_id: str = ID, version_2: bool = False
    ) -> EndTransactionResponse:
        fresh = self.fresh_id() if version_2 else -1
        request = EndTransaction(transactional_id, *who, commit, version_2, fresh)
        return self.ask(request, EndTransactionResponse)

    def mark(self, markers: WriteMarkers | None = None) -> None:
        """The markers that were asked for, by default the oldest, are all written."""
        if markers is None:
            markers = self.effects[0]
        self.effects = [effect for effect in self.effects if effect is not markers]
        assert self.ask(MarkersWritten(markers), Noted) == Noted()

    def describe(self, transactional_id: str = ID) -> TransactionDescription:
        return self.ask(DescribeTransaction(transactional_id), TransactionDescription)

    def state(self) -> TransactionState:
        return self.machine.transactions[ID].state


def at_epoch(
    epoch: int,
    state: TransactionState = TransactionState.EMPTY,
    config: TransactionConfig | None = None,
) -> TransactionDriver:
    """A coordinator that found the id in its log, as of producer 5 in this epoch."""
    start = -1 if state is TransactionState.EMPTY else START_MS
    txn = Transaction(5, epoch, TIMEOUT_MS, state, frozenset(), START_MS, start, 5)
    return TransactionDriver(config, [TransactionRecord(ID, txn).encode()])
