"""Admin calls on the offsets of partitions: find them, delete the records below them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, get_args

from ottla.client import arguments
from ottla.client.admin.base import AdminBase, by_topic, check_parts
from ottla.client.admin.types import ListedOffset
from ottla.client.arguments import INT64
from ottla.client.cluster.cluster import Beside, together
from ottla.client.cluster.view import NO_LEADER, TopicPartition
from ottla.client.errors import BadArgument, check, failure
from ottla.client.reader.types import Isolation, Timestamp
from ottla.client.reader.wire import ISOLATION, OLDEST_COMMITTED_LOOKUP
from ottla.wire.schema.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.client.admin.types import Position
    from ottla.client.cluster.cluster import Target

# Kafka's numbers for positions that are no times, and the version that first knew each.
_POSITIONS = {
    "latest": (-1, 1),
    "earliest": (-2, 1),
    "max-timestamp": (-3, 7),
    "earliest-local": (-4, 8),
    "latest-tiered": (-5, 9),
    "earliest-pending-upload": (-6, 11),
}


class OffsetCalls(AdminBase):
    """Find offsets by position or time; delete records."""

    async def list_offsets(
        self,
        of: Iterable[str | tuple[str, int]],
        at: Position = "latest",
        *,
        isolation_level: Isolation = "read_uncommitted",
    ) -> dict[TopicPartition, ListedOffset]:
        """The offset at this position in each partition; a topic name means all its partitions.

        The latest position is the end of the log, open transactions included; with
        `read_committed` it is the last stable offset, before the first open transaction.

        >>> from ottla import Admin
        >>> async with Admin("127.0.0.1:9092") as admin:
        ...     for partition, found in (await admin.list_offsets(["orders"])).items():
        ...         print(partition.topic, partition.partition, found.offset)
        orders 0 3
        """
        timestamp, low = _timestamp(at)
        wanted = arguments.places("of", of)
        arguments.choice("isolation_level", isolation_level, get_args(Isolation))
        level = ISOLATION[isolation_level]
        if level:
            low = max(low, OLDEST_COMMITTED_LOOKUP)

        async def attempt() -> dict[TopicPartition, ListedOffset]:
            leaders = await self._by_leader(await self._partitions(wanted))
            found = await together(
                self._list_offsets(leader, partitions, timestamp, low, level)
                for leader, partitions in leaders.items()
            )
            return {key: one[key] for one in found for key in one}

        return dict(sorted((await self._client.retry(attempt)).items()))

    async def delete_records(
        self, before: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, int]:
        """Delete the records below these offsets (-1: all); answers with the new log starts."""
        offsets = arguments.offsets("before", before, least=-1)

        async def attempt() -> dict[TopicPartition, int]:
            leaders = await self._by_leader(offsets)
            found = await together(
                self._delete_records(leader, partitions, offsets)
                for leader, partitions in leaders.items()
            )
            outcomes = {key: one[key] for one in found for key in one}
            errors = {
                key: failure(one.error_code, f"delete records of {key}")
                for key, one in outcomes.items()
            }
            check_parts("delete records", errors)
            return {key: one.low_watermark for key, one in outcomes.items()}

        return await self._client.retry(attempt)

    async def _ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log ends of those of the partitions that exist and have a leader now."""
        wanted = list(partitions)
        names = {one.topic for one in wanted}
        view = await self._client.retry(lambda: self._client.refresh(names))
        led = [
            one
            for one in wanted
            if one.topic in view.topics
            and view.topics[one.topic].leader_of(one.partition) != NO_LEADER
        ]
        return {key: found.offset for key, found in (await self.list_offsets(led)).items()}

    async def _partitions(self, wanted: Iterable[str | TopicPartition]) -> list[TopicPartition]:
        named = [one for one in wanted if not isinstance(one, str)]
        whole = await self._client.topics([one for one in wanted if isinstance(one, str)])
        return named + [
            TopicPartition(topic.name, partition.index)
            for topic in whole.values()
            for partition in topic.partitions
        ]

    async def _list_offsets(
        self, leader: int, partitions: list[TopicPartition], timestamp: int, low: int, level: int
    ) -> dict[TopicPartition, ListedOffset]:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=level,
            topics=[
                ListOffsetsTopic(
                    topic, [ListOffsetsPartition(number, -1, timestamp) for number in numbers]
                )
                for topic, numbers in by_topic(partitions).items()
            ],
            timeout_ms=self._timeout_ms,
        )
        answer: ListOffsetsResponse = await self._client.send(
            request, to=self._target(leader), min_version=low
        )
        found = {}
        for topic in answer.topics:
            for one in topic.partitions:
                key = TopicPartition(topic.name, one.partition_index)
                check(one.error_code, f"find an offset in {key}")
                found[key] = ListedOffset(one.offset, one.timestamp, one.leader_epoch)
        return found

    def _target(self, leader: int) -> Target:
        return leader

    async def _delete_records(
        self, leader: int, partitions: list[TopicPartition], offsets: dict[TopicPartition, int]
    ) -> dict[TopicPartition, DeleteRecordsPartitionResult]:
        request = DeleteRecordsRequest(
            [
                DeleteRecordsTopic(
                    topic,
                    [
                        DeleteRecordsPartition(number, offsets[TopicPartition(topic, number)])
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(partitions).items()
            ],
            self._timeout_ms,
        )
        answer: DeleteRecordsResponse = await self._client.send(request, to=leader)
        return {
            TopicPartition(topic.name, one.partition_index): one
            for topic in answer.topics
            for one in topic.partitions
        }


class OffsetsBesideFetches(OffsetCalls):
    """The same for a client that fetches: no call waits for a fetch that waits for records."""

    def _target(self, leader: int) -> Target:
        return Beside(leader)


def _timestamp(at: Position) -> tuple[int, int]:
    """What ListOffsets calls a position, and the lowest version that knows it."""
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise BadArgument(f"the time {at.isoformat()} needs a zone, such as datetime.UTC")
        return arguments.whole("at", int(at.timestamp() * 1000), 0, INT64), 1
    if isinstance(at, str):
        return _POSITIONS[arguments.choice("at", at, _POSITIONS)]
    if not isinstance(at, Timestamp):
        wanted = f"one of {', '.join(_POSITIONS)}, a datetime or a Timestamp"
        raise arguments.wrong_type("at", wanted, at)
    return arguments.timestamp("at", at.ms), 1
