"""OffsetCommit (8), OffsetFetch (9), TxnOffsetCommit (28) and OffsetDelete (47).

- OffsetCommit: topics that do not exist are refused one by one with error 3, the others go to the
  group's coordinator. Null metadata is answered as "", as Kafka does.
- TxnOffsetCommit: the same inside a producer's transaction. The offsets count when that commits;
  a producer or a member that has been replaced is refused.
- OffsetFetch: one group up to v7, several from v8; null topics ask for all the group has. A
  partition without a committed offset is answered with -1, not with an error. If the client
  requires stable offsets (from v7 on), it gets error 88 (retry) while a transaction may replace the
  offset.
- OffsetDelete answers every partition it was asked about.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ottla.broker.coordinators.offset_admission import OffsetAdmission
from ottla.broker.errors import ApiError
from ottla.coordination.groups import messages as m
from ottla.coordination.machine import Transactional
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.schema.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.schema.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.wire.schema.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ottla.broker.cluster import Cluster
    from ottla.broker.coordinators.groups import GroupService
    from ottla.broker.coordinators.transactions import TransactionService
    from ottla.broker.running.services import Lazy
    from ottla.broker.running.settings import Settings
    from ottla.broker.serving.context import RequestContext
    from ottla.wire.schema.offset_commit import OffsetCommitRequestTopic
    from ottla.wire.schema.txn_offset_commit import TxnOffsetCommitRequestTopic

FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_LOADING = 2  # of TxnOffsetCommit; older producers treat this code as fatal
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def offset_commit(
    context: RequestContext,
    request: OffsetCommitRequest,
    cluster: Cluster,
    groups: Lazy[GroupService],
) -> OffsetCommitResponse:
    offsets = _known_offsets(cluster, request.topics)
    commit = m.OffsetCommit(
        group_id=request.group_id,
        offsets=offsets,
        member_id=request.member_id,
        epoch=request.generation_id_or_member_epoch,
        instance_id=request.group_instance_id,
        retention_ms=request.retention_time_ms,
    )
    results = {}
    if offsets or not request.topics:
        answer = groups().ask(request.group_id, commit, m.OffsetCommitResponse)
        results = await _results(offsets, answer)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        p.partition_index, results.get((topic.name, p.partition_index), UNKNOWN)
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def txn_offset_commit(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    cluster: Cluster,
    groups: Lazy[GroupService],
    transactions: Lazy[TransactionService],
    settings: Settings,
) -> TxnOffsetCommitResponse:
    producer = Transactional(request.producer_id, request.producer_epoch)
    offsets = _known_offsets(cluster, request.topics)
    commit = m.OffsetCommit(
        group_id=request.group_id,
        offsets=offsets,
        member_id=request.member_id,
        epoch=request.generation_id,
        instance_id=request.group_instance_id,
        transaction=producer,
    )

    async def verify(admission: OffsetAdmission) -> None:
        await admission.verify(request.transactional_id, context.version, transactions, settings)

    results = await _results(offsets, _commit_in(context, request, commit, groups(), verify))
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        p.partition_index, results.get((topic.name, p.partition_index), UNKNOWN)
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _known_offsets(
    cluster: Cluster,
    topics: Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic],
) -> tuple[m.OffsetToCommit, ...]:
    """Those of partitions that exist."""
    image = cluster.image
    return tuple(
        m.OffsetToCommit(topic.name, *partition)
        for topic in topics
        for partition in topic.partitions
        if image.partition(topic.name, partition.partition_index) is not None
    )


async def _commit_in(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    commit: m.OffsetCommit,
    groups: GroupService,
    verify: Callable[[OffsetAdmission], Awaitable[None]],
) -> m.OffsetCommitResponse:
    if not commit.offsets:
        return m.OffsetCommitResponse(())
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    producer = Transactional(request.producer_id, request.producer_epoch)
    admission = OffsetAdmission(await groups.partition_of(request.group_id), producer)
    try:
        await verify(admission)
        return await groups.commit_in(producer, commit, admission.check)
    except ApiError as error:
        if (
            error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            and context.version < FIRST_VERSION_WITH_LOADING
        ):
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
        raise


async def _results(
    offsets: Sequence[m.OffsetToCommit], answer: Awaitable[m.OffsetCommitResponse]
) -> dict[tuple[str, int], int]:
    """An error code for each partition."""
    try:
        partitions = (await answer).partitions
    except ApiError as error:
        return {(offset.topic, offset.partition): error.code for offset in offsets}
    return {(topic, partition): code for topic, partition, code in partitions}


async def offset_fetch(
    context: RequestContext, request: OffsetFetchRequest, groups: Lazy[GroupService]
) -> OffsetFetchResponse:
    if context.version >= FIRST_VERSION_WITH_GROUPS:
        answers = []
        for group in request.groups:
            topics = group.topics
            asked = None
            if topics is not None:
                asked = tuple((t.name, tuple(t.partition_indexes)) for t in topics)
            answer = await _fetch(
                groups(),
                m.OffsetFetch(
                    group.group_id,
                    asked,
                    group.member_id,
                    group.member_epoch,
                    request.require_stable,
                ),
            )
            answers.append(
                OffsetFetchResponseGroup(
                    group.group_id,
                    [
                        OffsetFetchResponseTopics(
                            name, partitions=[OffsetFetchResponsePartitions(*o[1:]) for o in found]
                        )
                        for name, found in _by_topic(answer).items()
                    ],
                    answer.error,
                )
            )
        return OffsetFetchResponse(groups=answers)
    single = None
    if request.topics is not None:
        single = tuple((t.name, tuple(t.partition_indexes)) for t in request.topics)
    answer = await _fetch(
        groups(), m.OffsetFetch(request.group_id, single, require_stable=request.require_stable)
    )
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name,
                [OffsetFetchResponsePartition(*o[1:]) for o in found],
            )
            for name, found in _by_topic(answer, single).items()
        ],
        error_code=answer.error,
    )


async def _fetch(groups: GroupService, request: m.OffsetFetch) -> m.OffsetFetchResponse:
    try:
        return await groups.ask(request.group_id, request, m.OffsetFetchResponse)
    except ApiError as error:
        return m.OffsetFetchResponse(error.code)


def _by_topic(
    answer: m.OffsetFetchResponse,
    asked: tuple[tuple[str, tuple[int, ...]], ...] | None = None,
) -> dict[str, list[m.FetchedOffset]]:
    """Offsets by topic. v1 has no place for an error but each partition asked for."""
    found: dict[str, list[m.FetchedOffset]] = defaultdict(list)
    for offset in answer.offsets:
        found[offset.topic].append(offset)
    if answer.error != ErrorCode.NONE and asked is not None:
        for topic, partitions in asked:
            found[topic] = [
                m.FetchedOffset(topic, partition, error=answer.error) for partition in partitions
            ]
    return found


async def offset_delete(
    context: RequestContext, request: OffsetDeleteRequest, groups: Lazy[GroupService]
) -> OffsetDeleteResponse:
    asked = tuple((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    try:
        answer = await groups().ask(
            request.group_id, m.OffsetDelete(request.group_id, asked), m.OffsetDeleteResponse
        )
    except ApiError as error:
        return OffsetDeleteResponse(error.code)
    topics: dict[str, list[OffsetDeleteResponsePartition]] = defaultdict(list)
    for topic, partition, error_code in answer.partitions:
        topics[topic].append(OffsetDeleteResponsePartition(partition, error_code))
    return OffsetDeleteResponse(
        answer.error,
        topics=[OffsetDeleteResponseTopic(name, found) for name, found in topics.items()],
    )
