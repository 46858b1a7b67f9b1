"""Committed offsets of a group: written and read as one of its members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.client.cluster.view import TopicPartition
from ottla.client.consumer.types import CommitFailed
from ottla.client.errors import kafka_error
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.schema.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ottla.client.cluster.cluster import Client, Coordinator
    from ottla.client.consumer.machine import Member
    from ottla.client.transactions.types import OffsetAndMetadata

NEWEST_BY_NAME: Final = 9  # later versions know topics by id alone
_GONE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


async def commit(
    client: Client,
    coordinator: Coordinator,
    member: Member,
    instance_id: str | None,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> None:
    """Commit as this member; raises if the coordinator refuses."""
    if member.is_lost or member.epoch < 0:
        # Without an identity a commit would count as that of a group without members.
        raise CommitFailed(ErrorCode.UNKNOWN_MEMBER_ID, _what(coordinator))
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, number), one in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(number, one.offset, one.leader_epoch, one.metadata)
        )

    async def attempt() -> None:
        # Built for each attempt: the epoch may have changed meanwhile.
        request = OffsetCommitRequest(
            coordinator.key,
            member.epoch,
            member.member_id,
            group_instance_id=instance_id,
            topics=[
                OffsetCommitRequestTopic(name, partitions=parts) for name, parts in topics.items()
            ],
        )
        answer = await client.send(request, to=coordinator, max_version=NEWEST_BY_NAME)
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code in _GONE:
                    raise CommitFailed(one.error_code, _what(coordinator))
                if one.error_code:
                    raise kafka_error(one.error_code, _what(coordinator))

    await client.retry(attempt)


def _what(coordinator: Coordinator) -> str:
    return f"commit offsets of group {coordinator.key!r}"


async def committed(
    client: Client,
    coordinator: Coordinator,
    member: Member,
    partitions: Collection[TopicPartition],
) -> dict[TopicPartition, int | None]:
    """The committed offsets of the group; None without one."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)

    async def attempt() -> dict[TopicPartition, int | None]:
        request = OffsetFetchRequest(
            coordinator.key,
            [OffsetFetchRequestTopic(name, numbers) for name, numbers in topics.items()],
            [
                OffsetFetchRequestGroup(
                    coordinator.key,
                    member.member_id or None,
                    member.epoch,
                    [
                        OffsetFetchRequestTopics(name, partition_indexes=numbers)
                        for name, numbers in topics.items()
                    ],
                )
            ],
            require_stable=True,
        )
        answer = await client.send(request, to=coordinator, max_version=NEWEST_BY_NAME)
        what = f"find the committed offsets of group {coordinator.key!r}"
        found = answer.groups[0] if answer.groups else answer
        if found.error_code:
            raise kafka_error(found.error_code, what)
        offsets: dict[TopicPartition, int | None] = dict.fromkeys(partitions)
        for topic in found.topics:
            for one in topic.partitions:
                if one.error_code:
                    raise kafka_error(one.error_code, what)
                if one.committed_offset >= 0:
                    offsets[TopicPartition(topic.name, one.partition_index)] = one.committed_offset
        return offsets

    return await client.retry(attempt)
