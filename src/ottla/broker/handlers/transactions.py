"""AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), WriteTxnMarkers (27),
DescribeTransactions (65) and ListTransactions (66).

- Clients send AddPartitionsToTxn up to v3. From v4 on leaders of partitions send it, for many
  transactions at once, also to verify that partitions are already in a transaction.
- All partitions of a request join a transaction or none: if one does not exist (3), the others are
  not attempted (55).
- A fenced producer gets 90, or 47 in versions of the request that are older than that code.
- Coordinators on other nodes send WriteTxnMarkers, and administrators to end transactions that no
  coordinator knows. The response has a result for each partition.
- ListTransactions matches patterns of ids (v2) with RE2, the whole id.
- Permissions: producers need write on their transactional id and on the topics that they add, and
  read on the group whose offsets they add. Leaders need cluster action (else 31 for the whole
  request), markers cluster action or alter on the cluster. Clients see transactions that they may
  describe, without topics that they may not describe.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.broker.coordinators.regex import compile_pattern
from ottla.broker.coordinators.transactions import outcome
from ottla.broker.errors import ApiError
from ottla.coordination.groups.consumer import InvalidRegularExpression
from ottla.coordination.machine import Marker
from ottla.coordination.partitioner import partition_for
from ottla.coordination.transactions import messages as m
from ottla.coordination.transactions.state import LAST_EPOCH
from ottla.metadata.names import CONSUMER_OFFSETS_TOPIC
from ottla.metadata.security.acls import CLUSTER_NAME, Operation, Resource
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.schema.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.schema.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from ottla.wire.schema.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.schema.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ottla.wire.schema.list_transactions import TransactionState as ListedState
from ottla.wire.schema.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.broker.cluster import Cluster
    from ottla.broker.coordinators.groups import GroupService
    from ottla.broker.coordinators.markers import MarkerWriter
    from ottla.broker.coordinators.transactions import TransactionService
    from ottla.broker.running.services import Lazy
    from ottla.broker.serving.context import RequestContext

WRITE, TRANSACTIONAL_ID = Operation.WRITE, Resource.TRANSACTIONAL_ID
FIRST_VERSION_OF_BROKERS: Final = 4
FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_2_OF_END: Final = 5
STATES: Final = {state.label: state for state in m.TransactionState}


async def add_partitions_to_txn(
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
    cluster: Cluster,
    transactions: Lazy[TransactionService],
) -> AddPartitionsToTxnResponse:
    if context.version >= FIRST_VERSION_OF_BROKERS:
        if not context.may_cluster(Operation.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        codes = await asyncio.gather(
            *(
                _join(context, cluster, transactions(), transaction)
                for transaction in request.transactions
            )
        )
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(transaction.transactional_id, _joined(results))
                for transaction, results in zip(request.transactions, codes, strict=True)
            ]
        )
    refused = _refused(context, request)
    if refused:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_joined(refused))
    transaction = AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_joined(
            await _join(context, cluster, transactions(), transaction)
        )
    )


def _refused(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> dict[m.Partition, ErrorCode]:
    """The response to a client that may not write to all partitions; empty if it may."""
    topics = request.v3_and_below_topics
    name = request.v3_and_below_transactional_id
    if not context.may(WRITE, TRANSACTIONAL_ID, name):
        return {
            (topic.name, index): ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            for topic in topics
            for index in topic.partitions
        }
    hidden = {t.name for t in topics if not context.may(WRITE, Resource.TOPIC, t.name)}
    if not hidden:
        return {}
    return {
        (topic.name, index): ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic.name in hidden
        else ErrorCode.OPERATION_NOT_ATTEMPTED
        for topic in topics
        for index in topic.partitions
    }


async def _join(
    context: RequestContext,
    cluster: Cluster,
    transactions: TransactionService,
    asked: AddPartitionsToTxnTransaction,
) -> dict[m.Partition, ErrorCode]:
    partitions = frozenset(
        (topic.name, index) for topic in asked.topics for index in topic.partitions
    )
    unknown = {partition for partition in partitions if not _exists(cluster, partition)}
    if unknown:
        return {
            partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition in unknown
            else ErrorCode.OPERATION_NOT_ATTEMPTED
            for partition in partitions
        }
    question = m.AddPartitions(
        asked.transactional_id,
        asked.producer_id,
        asked.producer_epoch,
        partitions,
        asked.verify_only,
        version_2=context.version >= FIRST_VERSION_OF_BROKERS and not asked.verify_only,
    )
    try:
        answer = await transactions.add_partitions(question)
    except ApiError as error:
        return dict.fromkeys(partitions, error.code)
    return {
        partition: _fenced(code, context.version)
        for partition, code in outcome(question, answer).items()
    }


def _fenced(code: ErrorCode, version: int) -> ErrorCode:
    if code == ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _exists(cluster: Cluster, partition: m.Partition) -> bool:
    name, index = partition
    topic = cluster.image.topic(name)
    return topic is not None and 0 <= index < len(topic.partitions)


def _joined(codes: Mapping[m.Partition, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic,
            [AddPartitionsToTxnPartitionResult(index, codes[topic, index]) for index in indexes],
        )
        for topic, indexes in _by_topic(codes).items()
    ]


def _by_topic(partitions: Iterable[m.Partition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


async def add_offsets_to_txn(
    context: RequestContext,
    request: AddOffsetsToTxnRequest,
    cluster: Cluster,
    groups: Lazy[GroupService],
    transactions: Lazy[TransactionService],
) -> AddOffsetsToTxnResponse:
    """Add the group's partition of `__consumer_offsets` to the transaction."""
    try:
        context.require(WRITE, TRANSACTIONAL_ID, request.transactional_id)
        context.require(Operation.READ, Resource.GROUP, request.group_id)
        await groups().coordinator_of(request.group_id)  # creates the topic if it is missing
        count = len(cluster.image.topics_by_name[CONSUMER_OFFSETS_TOPIC].partitions)
        question = m.AddPartitions(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            frozenset({(CONSUMER_OFFSETS_TOPIC, partition_for(request.group_id, count))}),
        )
        code = (await transactions().add_partitions(question)).error
    except ApiError as error:
        code = error.code
    return AddOffsetsToTxnResponse(error_code=_fenced(code, context.version))


async def end_txn(
    context: RequestContext,
    request: EndTxnRequest,
    cluster: Cluster,
    transactions: Lazy[TransactionService],
) -> EndTxnResponse:
    version_2 = context.version >= FIRST_VERSION_2_OF_END
    used_up = version_2 and request.producer_epoch >= LAST_EPOCH
    try:
        context.require(WRITE, TRANSACTIONAL_ID, request.transactional_id)
        question = m.EndTransaction(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            version_2,
            await cluster.next_producer_id() if used_up else m.NO_PRODUCER_ID,
        )
        answer = await transactions().ask(
            request.transactional_id, question, m.EndTransactionResponse
        )
    except ApiError as error:
        return EndTxnResponse(error_code=error.code)
    if answer.error != ErrorCode.NONE:
        code = _fenced(answer.error, context.version)
        return EndTxnResponse(error_code=code)
    return EndTxnResponse(producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)


async def write_txn_markers(
    context: RequestContext,
    request: WriteTxnMarkersRequest,
    transactions: Lazy[TransactionService],
) -> WriteTxnMarkersResponse:
    access = context.peer.access
    allowed = access.may(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME) or context.may_cluster(
        Operation.CLUSTER_ACTION
    )
    markers = transactions().markers if allowed else None
    return WriteTxnMarkersResponse(
        await asyncio.gather(*(_write_markers(markers, marker) for marker in request.markers))
    )


async def _write_markers(
    markers: MarkerWriter | None, asked: WritableTxnMarker
) -> WritableTxnMarkerResult:
    """Without a writer every marker is refused for lack of permission."""
    marker = Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.coordinator_epoch,
        asked.transaction_result,
    )
    partitions = [
        (topic.name, index) for topic in asked.topics for index in topic.partition_indexes
    ]
    if markers is None:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        codes: Mapping[m.Partition, ErrorCode] = dict.fromkeys(partitions, code)
    else:
        codes = await markers.write_here(marker, partitions)
    return WritableTxnMarkerResult(
        asked.producer_id,
        [
            WritableTxnMarkerTopicResult(
                topic,
                [WritableTxnMarkerPartitionResult(index, codes[topic, index]) for index in indexes],
            )
            for topic, indexes in _by_topic(codes).items()
        ],
    )


async def describe_transactions(
    context: RequestContext,
    request: DescribeTransactionsRequest,
    transactions: Lazy[TransactionService],
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            await _describe(context, transactions(), name) for name in request.transactional_ids
        ]
    )


async def _describe(
    context: RequestContext, transactions: TransactionService, name: str
) -> TransactionState:
    try:
        context.require(Operation.DESCRIBE, TRANSACTIONAL_ID, name)
        found = await transactions.ask(name, m.DescribeTransaction(name), m.TransactionDescription)
    except ApiError as error:
        return TransactionState(error.code, name)
    if found.error != ErrorCode.NONE:
        return TransactionState(found.error, name)
    return TransactionState(
        ErrorCode.NONE,
        name,
        found.state.label,
        found.timeout_ms,
        found.start_ms,
        found.producer_id,
        found.producer_epoch,
        [
            TopicData(topic, indexes)
            for topic, indexes in _by_topic(found.partitions).items()
            if context.sees(Resource.TOPIC, topic)
        ],
    )


async def list_transactions(
    context: RequestContext,
    request: ListTransactionsRequest,
    transactions: Lazy[TransactionService],
) -> ListTransactionsResponse:
    unknown = [name for name in request.state_filters if name not in STATES]
    states = frozenset(STATES[name] for name in request.state_filters if name in STATES)
    if request.state_filters and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    question = m.ListTransactions(
        states, frozenset(request.producer_id_filters), request.duration_filter
    )
    try:
        pattern = request.transactional_id_pattern
        matches = compile_pattern(pattern).fullmatch if pattern else bool
        used = transactions.made  # looking loads no service, and one that was not used has none
        found = [] if used is None else await used.list_transactions(question)
    except InvalidRegularExpression:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    except ApiError as error:
        return ListTransactionsResponse(error_code=error.code)
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            ListedState(name, producer_id, state.label)
            for name, producer_id, state in found
            if matches(name) and context.sees(TRANSACTIONAL_ID, name)
        ],
    )
