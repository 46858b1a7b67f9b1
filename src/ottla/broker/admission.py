"""Whether transactional batches and offsets may be appended: KIP-890 against hanging transactions.

A batch that opens a transaction in a partition must be known to the transaction's coordinator, or
nobody would ever end it. So before the first one the coordinator is asked: from Produce v12 on to
add the partition, before that whether the client has added it. While the coordinator is asked, a
marker may end the transaction; a batch appended after that would hang for ever. Hence the
verification: an object in the partition from before the question on, which every marker of that
producer removes. The batch is appended only if it is there still.

A producer that is new to a partition may begin at any sequence. Where several of its requests fail
and succeed in verification, the lowest sequence seen has to come first, or the order is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.errors import ApiError
from ottla.coordination.transactions.messages import AddPartitions
from ottla.log.errors import InvalidTxnState, LogError, OutOfOrderSequence
from ottla.wire.batch import HEADER_SIZE, NO_SEQUENCE, TRANSACTIONAL, RecordBatch
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.broker.context import RequestContext
    from ottla.broker.node import Node
    from ottla.broker.partitions import HostedPartition
    from ottla.coordination.transactions.messages import Partition
    from ottla.wire.schema.produce import ProduceRequest
    from ottla.wire.schema.txn_offset_commit import TxnOffsetCommitRequest

FIRST_VERSION_WITH_IDS: Final = 13
MAX_VERIFICATIONS: Final = 10_000  # of a partition: ids can be invented; the oldest then asks again


class Words(NamedTuple):
    """What clients of an API understand: from which version on, and what makes them try again."""

    first_that_adds: int
    first_with_abortable: int
    try_again: ErrorCode


PRODUCE: Final = Words(12, 11, ErrorCode.NOT_ENOUGH_REPLICAS)
OFFSETS: Final = Words(5, 4, ErrorCode.COORDINATOR_NOT_AVAILABLE)

# From a node that is not the coordinator, or not yet, a client would take these for its own.
_TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Verification:
    """That the coordinator is, or was, asked about a producer in one partition."""

    __slots__ = ("epoch", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence


class Admission:
    """The transactional batches of one Produce request."""

    def __init__(self, context: RequestContext, request: ProduceRequest) -> None:
        self._node: Node = context.node
        self._version = context.version
        self._errors: dict[Partition, ApiError] = {}
        self._verifications: dict[Partition, Verification] = {}
        self._question: AddPartitions | None = None
        if request.transactional_id is None:
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "A transactional batch needs a transactional id in its request.",
            )
        self._prepare(request.transactional_id, request)

    def _prepare(self, transactional_id: str, request: ProduceRequest) -> None:
        adds = self._version >= PRODUCE.first_that_adds
        verifies = self._node.settings.verify_transactions
        producers = set()
        for partition, batch in self._batches(request):
            producers.add((batch.producer_id, batch.producer_epoch))
            if (adds or verifies) and not _is_open(
                partition, batch.producer_id, batch.producer_epoch
            ):
                key = partition.topic, partition.index
                # With the second version each transaction has an epoch of its own.
                sequence = 0 if adds else batch.base_sequence
                self._verifications[key] = _begin(
                    partition, batch.producer_id, batch.producer_epoch, sequence
                )
        if len(producers) > 1:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "A request is of one transactional producer."
            )
        if self._verifications:
            ((producer_id, epoch),) = producers
            self._question = AddPartitions(
                transactional_id,
                producer_id,
                epoch,
                frozenset(self._verifications),
                verify_only=not adds,
                version_2=adds,
            )

    def _batches(self, request: ProduceRequest) -> Iterator[tuple[HostedPartition, RecordBatch]]:
        """What can be found of the transactional ones; the rest is refused when it is appended."""
        partitions = self._node.partitions
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
        assert self._question is not None
        codes = await self._node.transactions.join(self._question)
        for partition in self._question.partitions:
            code = codes.get(partition, ErrorCode.NETWORK_EXCEPTION)
            if code != ErrorCode.NONE:
                self._errors[partition] = _refusal(code, self._version, PRODUCE)

    def check(self, partition: HostedPartition, batch: RecordBatch) -> None:
        """Raises unless the batch may be appended in this very turn."""
        key = partition.topic, partition.index
        if (error := self._errors.get(key)) is not None:
            raise error
        if self._question is None or _is_open(partition, batch.producer_id, batch.producer_epoch):
            return
        verification = self._verifications.get(key)
        if not _holds(partition, batch.producer_id, verification):
            raise InvalidTxnState(
                f"the transaction of producer {batch.producer_id} ended before this batch came"
            )
        assert verification is not None
        _check_order(partition, batch, verification)
        del partition.verifications[batch.producer_id]


async def admit_offsets(context: RequestContext, request: TxnOffsetCommitRequest) -> None:
    """Raises `ApiError` unless the group's offsets may be appended in this very turn."""
    node, version = context.node, context.version
    producer_id, epoch = request.producer_id, request.producer_epoch
    partition = node.groups.partition_of(request.group_id)
    adds = version >= OFFSETS.first_that_adds
    verifies = adds or node.settings.verify_transactions
    if not verifies or _is_open(partition, producer_id, epoch):
        return
    verification = _begin(partition, producer_id, epoch, NO_SEQUENCE)
    key = partition.topic, partition.index
    question = AddPartitions(
        request.transactional_id,
        producer_id,
        epoch,
        frozenset({key}),
        verify_only=not adds,
        version_2=adds,
    )
    code = (await node.transactions.join(question)).get(key, ErrorCode.NETWORK_EXCEPTION)
    if code != ErrorCode.NONE:
        raise _refusal(code, version, OFFSETS)
    if _is_open(partition, producer_id, epoch):
        return
    if not _holds(partition, producer_id, verification):
        raise ApiError(ErrorCode.INVALID_TXN_STATE)
    del partition.verifications[producer_id]


def _is_open(partition: HostedPartition, producer_id: int, epoch: int) -> bool:
    """Whether there is something of the producer's transaction in the partition."""
    producer = partition.log.producer(producer_id)
    return (
        producer is not None and producer.current_txn_first_offset >= 0 and producer.epoch == epoch
    )


def _begin(partition: HostedPartition, producer_id: int, epoch: int, sequence: int) -> Verification:
    known = partition.verifications.get(producer_id)
    if known is not None and known.epoch == epoch:
        known.lowest_sequence = min(known.lowest_sequence, sequence)
        return known
    if len(partition.verifications) >= MAX_VERIFICATIONS:
        del partition.verifications[next(iter(partition.verifications))]
    begun = partition.verifications[producer_id] = Verification(epoch, sequence)
    return begun


def _holds(partition: HostedPartition, producer_id: int, verification: Verification | None) -> bool:
    """Whether no marker of the producer came since the verification began."""
    return verification is not None and partition.verifications.get(producer_id) is verification


def _check_order(
    partition: HostedPartition, batch: RecordBatch, verification: Verification
) -> None:
    if partition.log.producer(batch.producer_id) is not None:
        return  # the log knows what has to come next
    if batch.base_sequence != verification.lowest_sequence:
        raise OutOfOrderSequence(
            f"producer {batch.producer_id} sent sequence {batch.base_sequence}, "
            f"expected {verification.lowest_sequence}"
        )


def _refusal(code: ErrorCode, version: int, words: Words) -> ApiError:
    """What the coordinator said, in words that clients of that version act on."""
    said = f"The transaction's coordinator said {code.name}."
    if code == ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code == ErrorCode.TRANSACTION_ABORTABLE and version < words.first_with_abortable:
        code = ErrorCode.INVALID_TXN_STATE
    elif code in _TRY_AGAIN or (
        code == ErrorCode.CONCURRENT_TRANSACTIONS and version < words.first_that_adds
    ):
        code = words.try_again
    return ApiError(code, said)
