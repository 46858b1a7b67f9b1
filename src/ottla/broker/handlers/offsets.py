"""OffsetCommit (8), OffsetFetch (9), TxnOffsetCommit (28) and OffsetDelete (47).

- OffsetCommit: missing topics are refused one by one with error 3, the others go to the group's
  coordinator. Null metadata is returned as "", as Kafka does.
- TxnOffsetCommit: the same inside a producer's transaction. The offsets take effect when it
  commits; a fenced producer or member is refused.
- OffsetFetch: one group up to v7, several from v8; null topics ask for all offsets of the group. A
  partition without a committed offset is -1, not an error. If the client requires stable offsets
  (from v7 on), it gets error 88 (retry) while a transaction may replace the offset.
- OffsetDelete has a result for every requested partition.
- Permissions: to commit, read on the group and on each topic, in a transaction also write on the
  transactional id; to fetch, describe on both; to delete, delete on the group and read on the
  topics.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from ottla.broker.coordinators.offset_admission import OffsetAdmission
from ottla.broker.errors import ApiError
from ottla.coordination.groups import messages as m
from ottla.coordination.machine import Transactional
from ottla.metadata.security.acls import Operation, Resource
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
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ottla.broker.cluster import Cluster
    from ottla.broker.coordinators.groups import GroupService
    from ottla.broker.coordinators.transactions import TransactionService
    from ottla.broker.running.services import Lazy
    from ottla.broker.running.settings import Settings
    from ottla.broker.serving.context import RequestContext
    from ottla.wire.schema.offset_commit import OffsetCommitRequestTopic
    from ottla.wire.schema.txn_offset_commit import TxnOffsetCommitRequestTopic

FIRST_VERSION_WITH_ERROR = 2
FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_LOADING = 2  # of TxnOffsetCommit; older producers treat this code as fatal
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
HIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED
DESCRIBE, READ = Operation.DESCRIBE, Operation.READ
GROUP, TOPIC = Resource.GROUP, Resource.TOPIC
Topics: TypeAlias = "Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic]"


async def offset_commit(
    context: RequestContext,
    request: OffsetCommitRequest,
    cluster: Cluster,
    groups: Lazy[GroupService],
) -> OffsetCommitResponse:
    refused = _refused(context, request.group_id, request.topics)
    offsets = _known_offsets(cluster, request.topics, refused)
    commit = m.OffsetCommit(
        group_id=request.group_id,
        offsets=offsets,
        member_id=request.member_id,
        epoch=request.generation_id_or_member_epoch,
        instance_id=request.group_instance_id,
        retention_ms=request.retention_time_ms,
    )
    results = {}
    if offsets or (not request.topics and context.may(READ, GROUP, request.group_id)):
        answer = groups().ask(request.group_id, commit, m.OffsetCommitResponse)
        results = await _results(offsets, answer)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        p.partition_index,
                        refused.get(topic.name)
                        or results.get((topic.name, p.partition_index), UNKNOWN),
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
    if context.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        refused = _refused(context, request.group_id, request.topics)
    else:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        refused = {topic.name: code for topic in request.topics}
    offsets = _known_offsets(cluster, request.topics, refused)
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
                        p.partition_index,
                        refused.get(topic.name)
                        or results.get((topic.name, p.partition_index), UNKNOWN),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _refused(context: RequestContext, group_id: str, topics: Topics) -> dict[str, ErrorCode]:
    """The errors of topics for which the client may not commit offsets."""
    if not context.may(READ, GROUP, group_id):
        return {topic.name: ErrorCode.GROUP_AUTHORIZATION_FAILED for topic in topics}
    return {topic.name: HIDDEN for topic in topics if not context.may(READ, TOPIC, topic.name)}


def _known_offsets(
    cluster: Cluster, topics: Topics, refused: Mapping[str, ErrorCode]
) -> tuple[m.OffsetToCommit, ...]:
    """The offsets of existing partitions, without refused topics."""
    image = cluster.image
    return tuple(
        m.OffsetToCommit(topic.name, *partition)
        for topic in topics
        if topic.name not in refused
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
                context,
                groups,
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
        context,
        groups,
        m.OffsetFetch(request.group_id, single, require_stable=request.require_stable),
    )
    in_rows = single if context.version < FIRST_VERSION_WITH_ERROR else None
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name,
                [OffsetFetchResponsePartition(*o[1:]) for o in found],
            )
            for name, found in _by_topic(answer, in_rows).items()
        ],
        error_code=answer.error,
    )


async def _fetch(
    context: RequestContext, groups: Lazy[GroupService], request: m.OffsetFetch
) -> m.OffsetFetchResponse:
    """Topics that the client may not describe are left out, or refused if it named them."""
    asked = request.topics or ()
    hidden = [topic for topic in asked if not context.may(DESCRIBE, TOPIC, topic[0])]
    if hidden:
        shown = tuple(topic for topic in asked if topic not in hidden)
        request = dataclasses.replace(request, topics=shown)
    try:
        context.require(DESCRIBE, GROUP, request.group_id)
        answer = await groups().ask(request.group_id, request, m.OffsetFetchResponse)
    except ApiError as error:
        return m.OffsetFetchResponse(error.code)
    if answer.error != ErrorCode.NONE:
        return answer
    offsets = answer.offsets
    if request.topics is None:
        offsets = tuple(offset for offset in offsets if context.sees(TOPIC, offset.topic))
    refused = [
        m.FetchedOffset(topic, partition, error=HIDDEN)
        for topic, partitions in hidden
        for partition in partitions
    ]
    return m.OffsetFetchResponse(answer.error, (*offsets, *refused))


def _by_topic(
    answer: m.OffsetFetchResponse,
    asked: tuple[tuple[str, tuple[int, ...]], ...] | None = None,
) -> dict[str, list[m.FetchedOffset]]:
    """Offsets by topic. v1 can report an error only in each requested partition."""
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
    refused = {t.name for t in request.topics if not context.may(READ, TOPIC, t.name)}
    asked = tuple(
        (t.name, p.partition_index)
        for t in request.topics
        if t.name not in refused
        for p in t.partitions
    )
    try:
        context.require(Operation.DELETE, GROUP, request.group_id)
        answer = await groups().ask(
            request.group_id, m.OffsetDelete(request.group_id, asked), m.OffsetDeleteResponse
        )
    except ApiError as error:
        return OffsetDeleteResponse(error.code)
    topics: dict[str, list[OffsetDeleteResponsePartition]] = defaultdict(list)
    for topic, partition, error_code in answer.partitions:
        topics[topic].append(OffsetDeleteResponsePartition(partition, error_code))
    if answer.error == ErrorCode.NONE:
        for t in request.topics:
            if t.name in refused:
                topics[t.name] = [
                    OffsetDeleteResponsePartition(p.partition_index, HIDDEN) for p in t.partitions
                ]
    return OffsetDeleteResponse(
        answer.error,
        topics=[OffsetDeleteResponseTopic(name, found) for name, found in topics.items()],
    )
