"""Whether transactional batches may be appended: KIP-890's answer to hanging transactions.

The coordinator must know every partition of a transaction, or the transaction would never end
there. So before the first batch the broker asks the coordinator: from Produce v12 on to add the
partition, before that whether the client has added it. Meanwhile a marker may end the transaction,
and a batch appended after that would hang. Hence the verification: an object that is put into the
partition before the question, and that every marker of that producer removes. The batch is appended
only if the object is still in place. From v12 on the marker may belong to the previous transaction,
for whose end the coordinator waits; then it is asked again, which is safe there, as each
transaction has an epoch of its own.

A producer that is new to a partition may begin at any sequence. Where several of its requests fail
and succeed in verification, the lowest sequence seen has to come first, or the order is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.errors import ApiError
from ottla.coordination.transactions.messages import AddPartitions
from ottla.log.errors import InvalidTxnState, LogError, OutOfOrderSequence
from ottla.wire.batch import HEADER_SIZE, TRANSACTIONAL, RecordBatch
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.broker.coordinators.transactions import TransactionService
    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.running.services import Lazy
    from ottla.broker.running.settings import Settings
    from ottla.coordination.machine import Transactional
    from ottla.coordination.transactions.messages import Partition
    from ottla.wire.schema.produce import ProduceRequest

FIRST_VERSION_WITH_IDS: Final = 13
FIRST_VERSION_THAT_ADDS: Final = 12
FIRST_VERSION_WITH_ABORTABLE: Final = 11
MAX_QUESTIONS: Final = 3  # one marker may come in between, hardly ever more
# Of a partition, because clients can invent ids; the oldest one is dropped and has to ask again.
MAX_VERIFICATIONS: Final = 10_000

# Errors that a retry may fix. Clients treat some of these as fatal, or look for
# another coordinator; they get a code that they retry.
_TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Verification:
    """A question to the coordinator about a producer in one partition, open or answered."""

    __slots__ = ("epoch", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence


class Admission:
    """The transactional batches of one Produce request."""

    def __init__(
        self,
        version: int,
        request: ProduceRequest,
        partitions: Partitions,
        transactions: Lazy[TransactionService],
        settings: Settings,
    ) -> None:
        self._partitions = partitions
        self._transactions = transactions
        self._verifies = settings.verify_transactions
        self._version = version
        self._errors: dict[Partition, ApiError] = {}
        self._opening: dict[Partition, tuple[HostedPartition, RecordBatch]] = {}
        self._verifications: dict[Partition, Verification] = {}
        self._question: AddPartitions | None = None
        assert request.transactional_id is not None, "refused before, as it authorizes nothing"
        self._prepare(request.transactional_id, request)

    def _prepare(self, transactional_id: str, request: ProduceRequest) -> None:
        adds = self._version >= FIRST_VERSION_THAT_ADDS
        producers = set()
        for partition, batch in self._batches(request):
            producers.add((batch.producer_id, batch.producer_epoch))
            if (adds or self._verifies) and not is_open(partition, batch):
                self._opening[partition.topic, partition.index] = partition, batch
        if len(producers) > 1:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "A request may have batches of only one transactional producer.",
            )
        if self._opening:
            ((producer_id, epoch),) = producers
            self._question = AddPartitions(
                transactional_id,
                producer_id,
                epoch,
                frozenset(self._opening),
                verify_only=not adds,
                version_2=adds,
            )

    def _batches(self, request: ProduceRequest) -> Iterator[tuple[HostedPartition, RecordBatch]]:
        """The transactional batches; unreadable ones are refused when they are appended."""
        partitions = self._partitions
        for topic in request.topic_data:
            for data in topic.partition_data:
                records = data.records
                if not records or len(records) < HEADER_SIZE:
                    continue
                assert isinstance(records, memoryview)
                batch = RecordBatch(records)
                if not batch.attributes & TRANSACTIONAL or batch.producer_id < 0:
                    continue
                try:
                    if self._version >= FIRST_VERSION_WITH_IDS:
                        yield partitions.find_by_id(topic.topic_id, data.index_), batch
                    else:
                        yield partitions.find(topic.name, data.index_), batch
                except (ApiError, LogError):
                    continue

    @property
    def must_wait(self) -> bool:
        """Whether `verify` is to be awaited before anything is appended."""
        return self._question is not None

    async def verify(self) -> None:
        question = self._question
        assert question is not None
        for _ in range(1 if question.verify_only else MAX_QUESTIONS):
            self._begin(question)
            codes = await (await self._transactions.ready()).join(question)
            self._errors = {
                key: refusal(
                    code,
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    knows_abortable=self._version >= FIRST_VERSION_WITH_ABORTABLE,
                    retries_concurrent=self._version >= FIRST_VERSION_THAT_ADDS,
                )
                for key in question.partitions
                if (code := codes.get(key, ErrorCode.NETWORK_EXCEPTION)) != ErrorCode.NONE
            }
            if all(key in self._errors or self._holds(key) for key in self._opening):
                return

    def _begin(self, question: AddPartitions) -> None:
        for key, (partition, batch) in self._opening.items():
            # Where each transaction has an epoch of its own, it has its own sequences too.
            sequence = batch.base_sequence if question.verify_only else 0
            self._verifications[key] = begin_verification(partition, batch, sequence)

    def _holds(self, key: Partition) -> bool:
        """Whether no marker has ended the verification."""
        partition, batch = self._opening[key]
        return (
            is_open(partition, batch)
            or partition.verifications.get(batch.producer_id) is self._verifications[key]
        )

    def check(self, partition: HostedPartition, batch: RecordBatch) -> None:
        """Raise unless the batch may be appended now."""
        key = partition.topic, partition.index
        if (error := self._errors.get(key)) is not None:
            raise error
        if self._question is None or is_open(partition, batch):
            return
        verification = self._verifications.get(key)
        if verification is None or (
            partition.verifications.get(batch.producer_id) is not verification
        ):
            raise InvalidTxnState(
                f"the transaction of producer {batch.producer_id} ended before this batch arrived"
            )
        _check_order(partition, batch, verification)
        del partition.verifications[batch.producer_id]


def is_open(partition: HostedPartition, batch: RecordBatch | Transactional) -> bool:
    """Whether the batch belongs to a transaction that is open in the partition."""
    producer = partition.log.producer(batch.producer_id)
    return (
        producer is not None
        and producer.current_txn_first_offset >= 0
        and producer.epoch == batch.producer_epoch
    )


def begin_verification(
    partition: HostedPartition, batch: RecordBatch | Transactional, sequence: int = 0
) -> Verification:
    known = partition.verifications.get(batch.producer_id)
    if known is not None and known.epoch == batch.producer_epoch:
        known.lowest_sequence = min(known.lowest_sequence, sequence)
        return known
    if len(partition.verifications) >= MAX_VERIFICATIONS:
        del partition.verifications[next(iter(partition.verifications))]
    begun = Verification(batch.producer_epoch, sequence)
    partition.verifications[batch.producer_id] = begun
    return begun


def _check_order(
    partition: HostedPartition, batch: RecordBatch, verification: Verification
) -> None:
    if partition.log.producer(batch.producer_id) is not None:
        return  # the log checks the sequence itself
    if batch.base_sequence != verification.lowest_sequence:
        raise OutOfOrderSequence(
            f"producer {batch.producer_id} sent sequence {batch.base_sequence}, "
            f"expected {verification.lowest_sequence}"
        )


def refusal(
    code: ErrorCode, retried: ErrorCode, *, knows_abortable: bool, retries_concurrent: bool
) -> ApiError:
    """The coordinator's error, as a code that clients retry or act on.

    `retried` is the code that such a client retries. Whether it supports TRANSACTION_ABORTABLE, and
    retries CONCURRENT_TRANSACTIONS, depends on its version.
    """
    said = f"The transaction's coordinator said {code.name}."
    if code == ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code == ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        code = ErrorCode.INVALID_TXN_STATE
    elif code in _TRY_AGAIN or (
        code == ErrorCode.CONCURRENT_TRANSACTIONS and not retries_concurrent
    ):
        code = retried
    return ApiError(code, said)
