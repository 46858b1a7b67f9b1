"""Admin calls for share groups.

A share group has no committed offsets. Its share-partitions have a start offset, below which every
record is settled, and a lag: the records that still have to be delivered for good, wherever they
are between the start offset and the end of the log. `list_groups(types=["share"])` lists share
groups, and their settings are those of `alter_configs("group", ...)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.client import arguments
from ottla.client.admin.base import by_topic, check_parts, each
from ottla.client.admin.configs import ConfigCalls
from ottla.client.admin.resets import ResetCalls, check_target
from ottla.client.admin.types import (
    ShareGroupDescription,
    ShareGroupMember,
    ShareGroupOffset,
    ShareWindow,
    ShareWindowRun,
)
from ottla.client.cluster.cluster import Coordinator, together
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import KafkaError, UnsupportedApi, check, failure
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
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from ottla.wire.schema.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponsePartition as _Described,
)
from ottla.wire.schema.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.client.admin.resets import OffsetMove, ResetTarget


MOST_RUNS: Final = 2_000
"""Of a window: more than a picture can show."""
_SETTINGS: Final = (
    "share.partition.max.record.locks",
    "share.delivery.count.limit",
    "share.record.lock.duration.ms",
)


class ShareGroupCalls(ResetCalls, ConfigCalls):
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

    async def describe_share_windows(
        self,
        group: str,
        topics: Iterable[str] | None = None,
        *,
        max_runs: int = MOST_RUNS,
    ) -> list[ShareWindow]:
        """Which records of a share group are held, by whom and for how long; None: all its topics.

        Only Ottla tells. Partitions from which no member has fetched since their leader started
        have no window. At most 64 partitions are described in a call, with up to 2,000 runs each.
        """
        arguments.text("group", group)
        names = None if topics is None else set(arguments.texts("topics", topics))
        max_runs = arguments.whole("max_runs", max_runs, 1, MOST_RUNS)
        request = DescribeShareGroupOffsetsRequest(
            [DescribeShareGroupOffsetsRequestGroup(group, topics=None)], window_runs=max_runs
        )
        if names is not None:
            asked = await self._client.topics(names)
            request = request._replace(
                groups=[
                    DescribeShareGroupOffsetsRequestGroup(
                        group,
                        [
                            DescribeShareGroupOffsetsRequestTopic(
                                name, [one.index for one in topic.partitions]
                            )
                            for name, topic in asked.items()
                        ],
                    )
                ]
            )
        what = f"describe the windows of share group {group!r}"

        async def attempt() -> list[tuple[TopicPartition, _Described]]:
            answer: DescribeShareGroupOffsetsResponse = await self._client.send(
                request, to=Coordinator(group)
            )
            found = answer.groups[0]
            check(found.error_code, what, found.error_message)
            rows = [
                (TopicPartition(topic.topic_name, one.partition_index), one)
                for topic in found.topics
                for one in topic.partitions
                if not one.error_code and one.start_offset >= 0
            ]
            if rows and all(one.in_flight < 0 for _, one in rows):
                raise UnsupportedApi("the broker does not tell who holds which records")
            return sorted((key, one) for key, one in rows if one.end_offset >= 0)

        described = await self._client.retry(attempt)
        ends = await self._ends(key for key, _ in described)
        settings = await self._window_settings(group) if described else {}
        return [
            _window(key, one, ends.get(key, one.end_offset), settings) for key, one in described
        ]

    async def _window_settings(self, group: str) -> dict[str, int]:
        """The settings that windows depend on, as far as they may be seen."""
        try:
            entries = await self.describe_configs("group", group, _SETTINGS)
        except KafkaError:
            return {}
        return {
            one.name: int(one.value)
            for one in entries
            if one.value is not None and one.value.isdigit()
        }

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

        await self._once(attempt, what, "list_share_group_offsets()")

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


def _window(
    key: TopicPartition, one: _Described, log_end: int, settings: Mapping[str, int]
) -> ShareWindow:
    locks, limit, lock = (settings.get(name, 0) for name in _SETTINGS)
    return ShareWindow(
        topic=key.topic,
        partition=key.partition,
        start=one.window[0].first if one.window else one.end_offset,
        end=one.end_offset,
        log_end=log_end,
        runs=[ShareWindowRun(*run) for run in one.window],
        members=list(one.members),
        max_locks=locks,
        limit=limit,
        lock_ms=lock,
        stalled_ms=max(0, one.stalled_ms),
        cut=one.window_cut,
    )


def _known(number: int) -> int | None:
    """None for -1, which means unknown."""
    return None if number < 0 else number
