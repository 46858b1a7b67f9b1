"""Admin calls on groups and their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client import arguments
from ottla.client.admin.base import by_topic, check_parts, each
from ottla.client.admin.offsets import OffsetCalls
from ottla.client.admin.types import GroupDescription, GroupListing, GroupMember, GroupOffset
from ottla.client.cluster.cluster import Coordinator, together
from ottla.client.cluster.retry import is_passing
from ottla.client.cluster.view import TopicPartition
from ottla.client.consumer.protocol import read_assignment
from ottla.client.errors import KafkaError, UnsupportedApi, check, failure, raise_failures
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.wire.schema.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.schema.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.schema.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.schema.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.wire.schema.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# From version 10 on the offset APIs speak of topic ids; these calls speak of names.
_LAST_WITH_NAMES = 9
_FIRST_WITH_GROUPS = 8


class GroupCalls(OffsetCalls):
    """List, describe and delete groups; read and set their offsets."""

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """The groups of all brokers by name, only those in these states or of these types."""
        request = ListGroupsRequest(
            arguments.texts("states", states), arguments.texts("types", types)
        )
        low = 5 if request.types_filter else 4 if request.states_filter else 0

        async def of(broker: int) -> list[GroupListing]:
            answer: ListGroupsResponse = await self._client.send(
                request, to=broker, min_version=low
            )
            check(answer.error_code, f"list the groups of broker {broker}")
            return [
                GroupListing(one.group_id, one.protocol_type, one.group_state, one.group_type)
                for one in answer.groups
            ]

        async def attempt() -> list[GroupListing]:
            view = await self._client.refresh(())
            found = await together(of(broker) for broker in view.brokers)
            return sorted((one for some in found for one in some), key=lambda one: one.id)

        return await self._client.retry(attempt)

    async def describe_groups(self, names: Iterable[str]) -> list[GroupDescription]:
        """Describe classic and consumer groups with their members, in the requested order."""
        return await together(self._describe(name) for name in arguments.texts("names", names))

    async def delete_group(self, name: str) -> None:
        """Delete a group without members, and its offsets."""
        arguments.text("name", name)
        what = f"delete group {name!r}"

        async def attempt() -> None:
            answer: DeleteGroupsResponse = await self._client.send(
                DeleteGroupsRequest([name]), to=Coordinator(name)
            )
            check(answer.results[0].error_code, what)

        await self._once(attempt, what, "list_groups()")

    async def delete_groups(
        self, names: Iterable[str], *, return_errors: bool = False
    ) -> dict[str, KafkaError | None]:
        """Delete several groups; raises `PartialFailure` if some cannot be deleted.

        With `return_errors` they are returned with their errors instead.
        """
        return await each("delete groups", names, self.delete_group, return_errors=return_errors)

    async def list_group_offsets(self, group: str) -> list[GroupOffset]:
        """The committed offsets of a group, with the ends of the logs and the lag."""
        arguments.text("group", group)
        committed = await self._client.retry(lambda: self._committed(group))
        ends = await self._ends(committed)
        return [
            GroupOffset(key.topic, key.partition, offset, metadata, ends.get(key))
            for key, (offset, metadata) in sorted(committed.items())
        ]

    async def list_group_offsets_of(
        self, groups: Iterable[str], *, return_errors: bool = False
    ) -> dict[str, dict[TopicPartition, int] | KafkaError]:
        """The committed offsets of many groups, without the ends of logs; a request a coordinator.

        Raises `PartialFailure` if some cannot be read; with `return_errors` they are returned with
        their errors instead.
        """
        wanted = arguments.texts("groups", groups)
        arguments.flag("return_errors", return_errors)
        found = await self._client.retry(lambda: self._committed_of(wanted))
        if not return_errors:
            raise_failures(
                "read the offsets of groups",
                {key: one if isinstance(one, KafkaError) else None for key, one in found.items()},
            )
        return found

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int], *, metadata: str | None = None
    ) -> None:
        """Set the offsets of a group that has no members at the moment; `metadata` is a note.

        >>> from ottla import Admin
        >>> async with Admin("127.0.0.1:9092") as admin:
        ...     await admin.alter_group_offsets("billing", {("orders", 0): 2})
        ...     [found] = await admin.list_group_offsets("billing")
        ...     print(found.offset, found.lag)
        2 1
        """
        arguments.text("group", group)
        named = arguments.offsets("offsets", offsets)
        note = arguments.optional_text("metadata", metadata, "a note")
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(
                    topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            number,
                            named[TopicPartition(topic, number)],
                            committed_metadata=note or "",
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(named).items()
            ],
        )

        async def attempt() -> None:
            answer: OffsetCommitResponse = await self._client.send(
                request, to=Coordinator(group), max_version=_LAST_WITH_NAMES
            )
            outcomes = {
                (key := TopicPartition(topic.name, one.partition_index)): failure(
                    one.error_code, f"set the offset of group {group!r} in {key}"
                )
                for topic in answer.topics
                for one in topic.partitions
            }
            check_parts(f"set offsets of group {group!r}", outcomes)

        await self._client.retry(attempt)

    async def delete_group_offsets(self, group: str, partitions: Iterable[tuple[str, int]]) -> None:
        """Delete committed offsets of partitions that no member subscribes to."""
        arguments.text("group", group)
        wanted = arguments.partitions("partitions", partitions)
        request = OffsetDeleteRequest(
            group,
            [
                OffsetDeleteRequestTopic(
                    topic, [OffsetDeleteRequestPartition(number) for number in numbers]
                )
                for topic, numbers in by_topic(wanted).items()
            ],
        )

        async def attempt() -> None:
            answer: OffsetDeleteResponse = await self._client.send(request, to=Coordinator(group))
            check(answer.error_code, f"delete offsets of group {group!r}")
            outcomes = {
                (key := TopicPartition(topic.name, one.partition_index)): failure(
                    one.error_code, f"delete the offset of group {group!r} in {key}"
                )
                for topic in answer.topics
                for one in topic.partitions
            }
            check_parts(f"delete offsets of group {group!r}", outcomes)

        await self._client.retry(attempt)

    async def _describe(self, name: str) -> GroupDescription:
        async def attempt() -> GroupDescription:
            try:
                return await self._describe_consumer(name)
            except UnsupportedApi:
                return await self._describe_classic(name)
            except KafkaError as error:
                # This is also the answer for a group that exists and is a classic one.
                if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                return await self._describe_classic(name)

        return await self._client.retry(attempt)

    async def _describe_consumer(self, name: str) -> GroupDescription:
        answer: ConsumerGroupDescribeResponse = await self._client.send(
            ConsumerGroupDescribeRequest([name]), to=Coordinator(name)
        )
        group = answer.groups[0]
        check(group.error_code, f"describe group {name!r}", group.error_message)
        members = [
            GroupMember(
                one.member_id,
                one.instance_id,
                one.client_id,
                one.client_host,
                [
                    TopicPartition(topic.topic_name, number)
                    for topic in one.assignment.topic_partitions
                    for number in topic.partitions
                ],
            )
            for one in group.members
        ]
        node = await self._client.coordinator_of(Coordinator(name))
        return GroupDescription(
            name, "consumer", group.group_state, group.assignor_name, node, members
        )

    async def _describe_classic(self, name: str) -> GroupDescription:
        answer: DescribeGroupsResponse = await self._client.send(
            DescribeGroupsRequest([name]), to=Coordinator(name)
        )
        group = answer.groups[0]
        code = group.error_code
        if code == ErrorCode.NONE and group.group_state == "Dead":
            # The form in which versions before 6 say it.
            code = ErrorCode.GROUP_ID_NOT_FOUND
        check(code, f"describe group {name!r}", group.error_message)
        members = [
            GroupMember(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                read_assignment(one.member_assignment),
            )
            for one in group.members
        ]
        node = await self._client.coordinator_of(Coordinator(name))
        return GroupDescription(
            name, "classic", group.group_state, group.protocol_data, node, members
        )

    async def _committed_of(
        self, groups: Sequence[str]
    ) -> dict[str, dict[TopicPartition, int] | KafkaError]:
        found: dict[str, dict[TopicPartition, int] | KafkaError] = {}
        nodes: dict[int, list[str]] = {}
        for group in groups:
            try:
                node = await self._client.coordinator_of(Coordinator(group))
            except KafkaError as error:
                if is_passing(error):
                    raise
                found[group] = error
            else:
                nodes.setdefault(node, []).append(group)
        for answers in await together(self._committed_at(some) for some in nodes.values()):
            found |= answers
        return {group: found[group] for group in groups}

    async def _committed_at(
        self, groups: Sequence[str]
    ) -> dict[str, dict[TopicPartition, int] | KafkaError]:
        """Of groups that have one coordinator."""
        try:
            answer: OffsetFetchResponse = await self._client.send(
                OffsetFetchRequest(
                    groups=[OffsetFetchRequestGroup(group, topics=None) for group in groups]
                ),
                to=Coordinator(groups[0]),
                min_version=_FIRST_WITH_GROUPS,
                max_version=_LAST_WITH_NAMES,
            )
        except UnsupportedApi:  # an old broker takes one group in a request
            alone = [await self._committed(group) for group in groups]
            return {
                group: {key: offset for key, (offset, _) in one.items()}
                for group, one in zip(groups, alone, strict=True)
            }
        found: dict[str, dict[TopicPartition, int] | KafkaError] = {}
        for group in answer.groups:
            error = failure(group.error_code, f"read the offsets of group {group.group_id!r}")
            if error is not None and is_passing(error):
                raise error
            found[group.group_id] = error or {
                TopicPartition(topic.name, one.partition_index): one.committed_offset
                for topic in group.topics
                for one in topic.partitions
                if not one.error_code and one.committed_offset >= 0
            }
        return found

    async def _committed(self, group: str) -> dict[TopicPartition, tuple[int, str | None]]:
        answer: OffsetFetchResponse = await self._client.send(
            OffsetFetchRequest(
                group_id=group, topics=None, groups=[OffsetFetchRequestGroup(group, topics=None)]
            ),
            to=Coordinator(group),
            min_version=2,
            max_version=_LAST_WITH_NAMES,
        )
        what = f"read the offsets of group {group!r}"
        check(answer.error_code, what)
        found = answer.groups[0] if answer.groups else answer
        check(found.error_code, what)
        committed = {}
        for topic in found.topics:
            for one in topic.partitions:
                key = TopicPartition(topic.name, one.partition_index)
                check(one.error_code, f"{what} in {key}")
                committed[key] = (one.committed_offset, one.metadata)
        return committed
