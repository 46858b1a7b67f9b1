"""Requests, replies and effects of the transaction coordinator.

Producer ids come from a durable counter that the machine cannot reach, so a request that may need a
new one carries it; one that is not used is never handed out again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.coordination.machine import Effect

if TYPE_CHECKING:
    from ottla.wire.error_codes import ErrorCode

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1

Partition: TypeAlias = tuple[str, int]


class TransactionState(IntEnum):
    """The states, with the numbers they have in the log; `label` is their name on the wire."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """A producer starts or restarts; `producer_id` and epoch are its current ones, or -1."""

    transactional_id: str
    timeout_ms: int
    fresh_producer_id: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse:
    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Partitions join the transaction; or, with `verify_only`, are asked whether they have."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[Partition]
    verify_only: bool = False
    version_2: bool = False
    """Whether the producer speaks KIP-890's second version, as it does from Produce v12 on."""


@dataclass(frozen=True, slots=True)
class AddPartitionsResponse:
    """One error for all partitions; with `verify_only` one for each."""

    error: ErrorCode
    missing: frozenset[Partition] = frozenset()


@dataclass(frozen=True, slots=True)
class EndTransaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    version_2: bool = False
    fresh_producer_id: int = NO_PRODUCER_ID
    """Needed with `version_2`, by a producer whose epochs are used up."""


@dataclass(frozen=True, slots=True)
class EndTransactionResponse:
    """The producer's new identity; without `version_2` it is unchanged."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """All partitions of `markers` have theirs.

    It has to be the very object that asked for them: one from before a reload may equal what a
    later transaction of the same producer asks for, and must not end that one.
    """

    markers: WriteMarkers


@dataclass(frozen=True, slots=True)
class Noted:
    """The report was processed."""


@dataclass(frozen=True, slots=True)
class DescribeTransaction:
    transactional_id: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    error: ErrorCode
    state: TransactionState = TransactionState.EMPTY
    timeout_ms: int = 0
    start_ms: int = -1
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    partitions: frozenset[Partition] = frozenset()


@dataclass(frozen=True, slots=True)
class ListTransactions:
    """Empty filters and a negative duration match everything."""

    states: frozenset[TransactionState] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    running_longer_than_ms: int = -1


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class ListTransactionsResponse:
    transactions: list[ListedTransaction] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WriteMarkers(Effect):
    """Write the marker to every partition, until each has it; then report `MarkersWritten`.

    A deleted partition counts as written.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: frozenset[Partition]


Request: TypeAlias = (
    InitProducerId
    | AddPartitions
    | EndTransaction
    | MarkersWritten
    | DescribeTransaction
    | ListTransactions
)
Response: TypeAlias = (
    InitProducerIdResponse
    | AddPartitionsResponse
    | EndTransactionResponse
    | Noted
    | TransactionDescription
    | ListTransactionsResponse
)
