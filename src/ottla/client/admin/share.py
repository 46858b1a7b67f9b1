"""Admin calls for share groups.

A share group has no committed offsets. Its share-partitions have a start offset, below which every
record is settled, and a lag: the records that still have to be delivered for good, wherever they
are between the start offset and the end of the log. `list_groups(types=["share"])` lists share
groups, and their settings are those of `alter_configs("group", ...)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client import arguments
from ottla.client.admin.base import by_topic, check_parts, each
from ottla.client.admin.resets import ResetCalls, check_target
from ottla.client.admin.types import ShareGroupDescription, ShareGroupMember, ShareGroupOffset
from ottla.client.cluster.cluster import Coordinator, together
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import check, failure
from ottla.wire.schema.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from ottla.wire.schema.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from ottla.wire.schema.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from ottla.wire.schema.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.client.admin.resets import OffsetMove, ResetTarget
    from ottla.client.errors import KafkaError


class ShareGroupCalls(ResetCalls):
    """Describe and delete share groups; read and set their start offsets."""

    async def describe_share_groups(self, names: Iterable[str]) -> list[ShareGroupDescription]:
        """Describe share groups with their members, in the requested order."""
        return await together(
            self._describe_share_group(name) for name in arguments.texts("names", names)
        )

    async def delete_share_group(self, name: str) -> None:
        """Delete a share group without members, and its state; a group of another type stays."""
        arguments.text("name", name)
        await self._describe_share_group(name)
        await self.delete_group(name)

    async def delete_share_groups(
        self, names: Iterable[str], *, return_errors: bool = False
    ) -> dict[str, KafkaError | None]:
        """Delete several share groups; raises `PartialFailure` if some cannot be deleted.

        With `return_errors` they are returned with their errors instead.
        """
        return await each(
            "delete share groups", names, self.delete_share_group, return_errors=return_errors
        )

    async def list_share_group_offsets(self, group: str) -> list[ShareGroupOffset]:
        """Where a share group is in its partitions, by topic and partition."""
        arguments.text("group", group)
        request = DescribeShareGroupOffsetsRequest(
            [DescribeShareGroupOffsetsRequestGroup(group, topics=None)]
        )
        what = f"read the offsets of share group {group!r}"

        async def attempt() -> list[ShareGroupOffset]:
            answer: DescribeShareGroupOffsetsResponse = await self._client.send(
                request, to=Coordinator(group)
            )
            found = answer.groups[0]
            check(found.error_code, what, found.error_message)
            offsets = []
            for topic in found.topics:
                for one in topic.partitions:
                    key = TopicPartition(topic.topic_name, one.partition_index)
                    check(one.error_code, f"{what} in {key}", one.error_message)
                    offsets.append(
                        ShareGroupOffset(
                            *key,
                            _known(one.start_offset),
                            _known(one.lag),
                            _known(one.in_flight),
                            _known(one.delivery_complete_count),
                        )
                    )
            return sorted(offsets, key=lambda one: (one.topic, one.partition))

        return await self._client.retry(attempt)

    async def alter_share_group_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int]
    ) -> None:
        """Set the start offsets of a share group that has no members at the moment.

        Acknowledgements of later records are dropped. A missing group is created.
        """
        arguments.text("group", group)
        named = arguments.offsets("offsets", offsets)
        request = AlterShareGroupOffsetsRequest(
            group,
            [
                AlterShareGroupOffsetsRequestTopic(
                    topic,
                    [
                        AlterShareGroupOffsetsRequestPartition(
                            number, named[TopicPartition(topic, number)]
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(named).items()
            ],
        )
        what = f"set the start offset of share group {group!r}"

        async def attempt() -> None:
            answer: AlterShareGroupOffsetsResponse = await self._client.send(
                request, to=Coordinator(group)
            )
            check(answer.error_code, what, answer.error_message)
            outcomes = {
                (key := TopicPartition(topic.topic_name, one.partition_index)): failure(
                    one.error_code, f"{what} in {key}", one.error_message
                )
                for topic in answer.responses
                for one in topic.partitions
            }
            check_parts(what, outcomes)

        await self._client.retry(attempt)

    async def delete_share_group_offsets(self, group: str, topics: Iterable[str]) -> None:
        """Forget where a share group without members is in these topics.

        It then starts by its setting share.auto.offset.reset.
        """
        arguments.text("group", group)
        names = arguments.texts("topics", topics)
        request = DeleteShareGroupOffsetsRequest(
            group, [DeleteShareGroupOffsetsRequestTopic(name) for name in names]
        )
        what = f"delete the offsets of share group {group!r}"

        async def attempt() -> None:
            answer: DeleteShareGroupOffsetsResponse = await self._client.send(
                request, to=Coordinator(group)
            )
            check(answer.error_code, what, answer.error_message)
            outcomes = {
                one.topic_name: failure(
                    one.error_code, f"{what} in topic {one.topic_name!r}", one.error_message
                )
                for one in answer.responses
            }
            check_parts(what, outcomes)

        await self._client.retry(attempt, repeatable=False)

    async def plan_share_offset_reset(
        self, group: str, to: ResetTarget, topics: Iterable[str] = ()
    ) -> list[OffsetMove]:
        """As `plan_offset_reset`, for `alter_share_group_offsets`.

        A group that does not exist can be given start offsets, so there is a plan for it too.
        """
        arguments.text("group", group)
        check_target(to)
        topics = arguments.texts("topics", topics)
        known = {one.id for one in await self.list_groups(types=["share"])}
        offsets = await self.list_share_group_offsets(group) if group in known else []
        starts = {
            TopicPartition(one.topic, one.partition): one.start_offset
            for one in offsets
            if one.start_offset is not None
        }
        return await self._moves(group, starts, to, topics)

    async def _describe_share_group(self, name: str) -> ShareGroupDescription:
        async def attempt() -> ShareGroupDescription:
            answer: ShareGroupDescribeResponse = await self._client.send(
                ShareGroupDescribeRequest([name]), to=Coordinator(name)
            )
            group = answer.groups[0]
            check(group.error_code, f"describe share group {name!r}", group.error_message)
            members = [
                ShareGroupMember(
                    one.member_id,
                    one.rack_id,
                    one.member_epoch,
                    one.client_id,
                    one.client_host,
                    list(one.subscribed_topic_names),
                    [
                        TopicPartition(topic.topic_name, number)
                        for topic in one.assignment.topic_partitions
                        for number in topic.partitions
                    ],
                )
                for one in group.members
            ]
            node = await self._client.coordinator_of(Coordinator(name))
            return ShareGroupDescription(
                name,
                group.group_state,
                group.assignor_name,
                group.group_epoch,
                group.assignment_epoch,
                node,
                members,
            )

        return await self._client.retry(attempt)


def _known(number: int) -> int | None:
    """None for -1, which means unknown."""
    return None if number < 0 else number
