"""The requests of a transaction: what a producer asks the transaction and group coordinators.

    transactions = TransactionCoordinator(client, "orders-1")
    identity = await transactions.init(60_000)
    await transactions.add_partitions(identity, [TopicPartition("orders", 0)])
    ...                                       # produce, see below
    await transactions.commit_offsets(identity, "billing", {TopicPartition("in", 0): 42})
    identity = await transactions.end(identity, commit=True)

Contract:

- `init` fences every earlier producer of the transactional id, and returns when their open
  transaction is aborted. If you pass the identity that `init` returned before, it raises the epoch
  of that identity, and fails with `ProducerFenced` if another producer was initialised since.
  (Needs Apache Kafka 2.5 or newer.)
- A partition is added before anything is produced to it; adding it again does no harm.
- `end` is retried until there is a response, for up to the client's `api_timeout`, then it raises
  `TransactionUnresolved`; repeating the same end does no harm. It also raises that if a commit is
  refused after one whose response was lost: the lost one may have succeeded before another producer
  took over. Before something was added there is nothing to end (INVALID_TXN_STATE).
- All requests are retried after temporary failures. The type of the error says what is left to do,
  see `types`.
- Several processes may produce in one transaction: one of them calls `init` and hands the identity
  out, each makes `Producer(..., transactional_id=..., identity=...)`, and when all have flushed one
  of them calls `end`. Each partition belongs to one process, since sequences start at 0.

It uses the protocol that every broker since 0.11 supports: partitions are added by
AddPartitionsToTxn, and the epoch stays the same from one transaction to the next. In the newer one
(KIP-890, transaction.version 2) every EndTxn returns a new epoch, which a client that misses the
response has to ask for; and brokers add partitions when they receive the first batch, which saves a
round trip per transaction but delays the first batch. A second protocol would save little and add
many failure cases, so there is only one. Brokers since Kafka 3.6 check the batches of such clients
too, so that none is written to a transaction that has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.client.admin.base import by_topic
from ottla.client.cluster.cluster import Coordinator
from ottla.client.cluster.retry import is_passing
from ottla.client.errors import ClientError, ConnectionLost, RequestTimedOut
from ottla.client.producer.batches import Identity
from ottla.client.transactions.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    TransactionUnresolved,
    check_transaction,
)
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.schema.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.schema.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.schema.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.client.cluster.cluster import Client
    from ottla.client.cluster.view import TopicPartition

TRANSACTION: Final = 1
"""The type of a transactional id in FindCoordinator."""

NO_IDENTITY: Final = Identity(-1, -1)

INIT_WITH_IDENTITY: Final = 3
LAST_OF_ONE_TRANSACTION: Final = 3  # AddPartitionsToTxn: later versions are for brokers
LAST_WITHOUT_EPOCHS: Final = 4  # EndTxn: later versions answer with a new epoch
LAST_THAT_WAS_ADDED: Final = 4  # TxnOffsetCommit: later versions add the group by themselves
WITH_MEMBERS: Final = 3  # TxnOffsetCommit: earlier versions cannot say which member commits


class TransactionCoordinator:
    """The coordinator of one transactional id, wherever in the cluster it is."""

    def __init__(self, client: Client, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._client = client
        self._target = Coordinator(transactional_id, TRANSACTION)
        self._whose = f"transactional id {transactional_id!r}"

    async def init(self, timeout_ms: int, identity: Identity | None = None) -> Identity:
        """An identity that no other producer has; the coordinator aborts after `timeout_ms`."""
        request = InitProducerIdRequest(
            self.transactional_id, timeout_ms, *(identity or NO_IDENTITY)
        )
        low = INIT_WITH_IDENTITY if identity else 0

        async def attempt() -> Identity:
            answer: InitProducerIdResponse = await self._client.send(
                request, to=self._target, min_version=low
            )
            check_transaction(answer.error_code, f"initialise {self._whose}")
            return Identity(answer.producer_id, answer.producer_epoch)

        return await self._client.retry(attempt)

    async def add_partitions(
        self, identity: Identity, partitions: Iterable[TopicPartition]
    ) -> None:
        """Let the transaction write to these partitions; the first ones open it."""
        topics = [AddPartitionsToTxnTopic(*one) for one in by_topic(partitions).items()]
        request = AddPartitionsToTxnRequest(self.transactional_id, *identity, topics)

        async def attempt() -> None:
            answer: AddPartitionsToTxnResponse = await self._client.send(
                request, to=self._target, max_version=LAST_OF_ONE_TRANSACTION
            )
            for topic in answer.results_by_topic_v3_and_below:
                for one in topic.results_by_partition:
                    # Not attempted because of another partition, whose error says more.
                    if one.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                        place = f"{topic.name}-{one.partition_index}"
                        what = f"add {place} to the transaction of {self._whose}"
                        check_transaction(one.partition_error_code, what)

        await self._client.retry(attempt)

    async def commit_offsets(
        self,
        identity: Identity,
        group: str | ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
    ) -> None:
        """Commit offsets of a group when the transaction commits, and not if it aborts.

        Given a member rather than a name, the offsets of one that is no longer in its group are
        refused.
        """
        member = ConsumerGroupMetadata(group) if isinstance(group, str) else group
        add = AddOffsetsToTxnRequest(self.transactional_id, *identity, member.group_id)
        whose = f"group {member.group_id!r}"

        async def attempt() -> None:
            answer: AddOffsetsToTxnResponse = await self._client.send(add, to=self._target)
            check_transaction(
                answer.error_code, f"add offsets of {whose} to the transaction of {self._whose}"
            )

        await self._client.retry(attempt)
        await self._commit(_offset_request(self.transactional_id, identity, member, offsets))

    async def _commit(self, request: TxnOffsetCommitRequest) -> None:
        is_member = request.generation_id >= 0 or bool(request.member_id)

        async def attempt() -> None:
            answer: TxnOffsetCommitResponse = await self._client.send(
                request,
                to=Coordinator(request.group_id),
                min_version=WITH_MEMBERS if is_member else 0,
                max_version=LAST_THAT_WAS_ADDED,
            )
            for topic in answer.topics:
                for one in topic.partitions:
                    place = f"{topic.name}-{one.partition_index}"
                    what = f"commit the offset of group {request.group_id!r} in {place}"
                    check_transaction(one.error_code, what)

        await self._client.retry(attempt)

    async def end(self, identity: Identity, *, commit: bool) -> Identity:
        """Commit or abort; the identity of the next transaction."""
        request = EndTxnRequest(self.transactional_id, *identity, commit)
        what = f"{'commit' if commit else 'abort'} the transaction of {self._whose}"
        may_be_committed = False

        async def attempt() -> None:
            nonlocal may_be_committed
            try:
                answer: EndTxnResponse = await self._client.send(
                    request, to=self._target, max_version=LAST_WITHOUT_EPOCHS
                )
                check_transaction(answer.error_code, what)
            except ClientError as error:
                may_be_committed = may_be_committed or (commit and _says_nothing(error))
                raise

        try:
            await self._client.retry(attempt)
        except ClientError as error:
            if may_be_committed or _says_nothing(error):
                raise TransactionUnresolved(
                    f"{what}: no answer in time, and perhaps it took place; "
                    f"make a new producer, or ask for the same once more ({error})"
                ) from error
            raise
        return identity


def _says_nothing(error: ClientError) -> bool:
    """Whether the request may have been carried out."""
    return isinstance(error, ConnectionLost | RequestTimedOut) or is_passing(error)


def _offset_request(
    transactional_id: str,
    identity: Identity,
    member: ConsumerGroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> TxnOffsetCommitRequest:
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, partition), given in offsets.items():
        offset, metadata, epoch = OffsetAndMetadata(given) if isinstance(given, int) else given
        topics.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(partition, offset, epoch, metadata)
        )
    return TxnOffsetCommitRequest(
        transactional_id,
        member.group_id,
        *identity,
        member.generation_id,
        member.member_id,
        member.group_instance_id,
        [TxnOffsetCommitRequestTopic(*one) for one in topics.items()],
    )
