"""Requests, replies and effects of the transaction coordinator.

Producer ids come from a durable counter outside the machine, so a request that may need a new id
carries it; an unused id is never assigned again.
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
    """The states, with their numbers in the log; `label` is the name in responses."""

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
    """Add partitions to the transaction; with `verify_only` check that they are in it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[Partition]
    verify_only: bool = False
    version_2: bool = False
    """Whether the producer uses the second version of KIP-890, as from Produce v12 on."""


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
    """Needed with `version_2` if the epochs of the producer are used up."""


@dataclass(frozen=True, slots=True)
class EndTransactionResponse:
    """The producer's new identity; without `version_2` it is unchanged."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """The markers are written to all partitions.

    `markers` must be the requesting object itself: a request from before a reload may be equal to
    that of a later transaction of the same producer, and must not end that transaction.
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
    """Write the marker to every partition, with retries; then report `MarkersWritten`.

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
