"""The driver's requests to a cluster: topics, ends of logs, offsets of groups.

Calls block, with the client's timeouts and retries. Waiting for records uses a client of its own,
because a fetch that waits for data delays later requests on its connection.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.client.admin.groups import GroupCalls
from ottla.client.cluster.cluster import NEWEST, Client, together
from ottla.client.cluster.view import NO_LEADER, Topic, TopicPartition
from ottla.client.errors import ClientError, KafkaError, UnsupportedApi, check
from ottla.client.reader.wire import NEWEST_FETCH_BY_NAME, OLDEST_COMMITTED_LOOKUP
from ottla.spark.background import background
from ottla.spark.offsets import EARLIEST, LATEST
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.wire.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.spec import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ottla.spark.client_settings import ClientSettings
    from ottla.spark.offsets import Offsets
    from ottla.spark.options import Selection

ISOLATION: Final = {"read_uncommitted": 0, "read_committed": 1}
CLOSE_SECONDS: Final = 2.0
EARLIEST_LOCAL: Final = -4
OLDEST_EARLIEST_LOCAL: Final = 8  # of ListOffsets


def make_client(settings: ClientSettings) -> Client:
    """A client with the settings of a query."""
    return Client(
        settings.bootstrap,
        client_id=settings.client_id,
        security=settings.security,
        request_timeout=settings.request_timeout,
        api_timeout=settings.api_timeout,
    )


class Cluster:
    """The cluster of one query, for one thread at a time."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._background = background()
        self._client = make_client(settings)
        self._watcher = make_client(settings)
        self._watching: dict[int, asyncio.Task[bool]] = {}
        self._topics: dict[str, Topic] = {}

    def topics(self, selection: Selection) -> dict[str, Topic]:
        """The topics of a query that exist now; not cached."""
        names = selection.names()
        view = self._background.call(self._client.retry(lambda: self._client.refresh(names)))
        self._topics = {
            name: topic for name, topic in view.topics.items() if is_selected(topic, selection)
        }
        return self._topics

    def offsets(self, at: Mapping[TopicPartition, int]) -> Offsets:
        """The offset at a time in milliseconds, or at an end (-1, -2); -1 where there is none."""
        return self._background.call(offsets_at(self._client, self._settings, at))

    def record_sizes(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, float]:
        """Bytes per offset on the leader's disk, for partitions with data."""
        return self._background.call(record_sizes(self._client, self._settings, places))

    def committed(self, group: str) -> Offsets:
        """The committed offsets of a group."""
        found = self._background.call(GroupCalls(self._client).list_group_offsets(group))
        return {TopicPartition(one.topic, one.partition): one.offset for one in found}

    def commit(self, group: str, offsets: Offsets) -> None:
        """Commit for a group without members."""
        named = {(place.topic, place.partition): offset for place, offset in offsets.items()}
        self._background.call(GroupCalls(self._client).alter_group_offsets(group, named))

    def wait_for_more(self, known: Offsets, within: float) -> bool:
        """Wait until a log may have grown; False if none has."""
        return self._background.call(self._wait(known, within))

    def close(self) -> None:
        """Close the connections without waiting for brokers that do not answer."""
        try:
            self._background.call(self._close(), CLOSE_SECONDS)
        except TimeoutError:
            return

    async def _close(self) -> None:
        for task in self._watching.values():
            task.cancel()
        await self._client.close()
        await self._watcher.close()

    async def _wait(self, known: Offsets, within: float) -> bool:
        leaders: dict[int, list[TopicPartition]] = {}
        for place in known:
            topic = self._topics.get(place.topic)
            leader = NO_LEADER if topic is None else topic.leader_of(place.partition)
            if leader != NO_LEADER:
                leaders.setdefault(leader, []).append(place)
        for leader, places in leaders.items():
            if leader not in self._watching:
                watch = self._watch(leader, {place: known[place] for place in places}, within)
                self._watching[leader] = asyncio.create_task(watch)
        grown = False
        pending = set(self._watching.values())
        if not pending:
            await asyncio.sleep(within)
        while pending and not grown:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            grown = any(task.result() for task in done)
        self._watching = {
            leader: task for leader, task in self._watching.items() if not task.done()
        }
        return grown

    async def _watch(self, leader: int, known: Offsets, within: float) -> bool:
        """One Fetch from the ends of logs; the broker answers it when data arrives."""
        topics = [
            FetchTopic(
                name,
                self._topics[name].id,
                [
                    FetchPartition(place.partition, -1, offset, partition_max_bytes=1)
                    for place, offset in known.items()
                    if place.topic == name
                ],
            )
            for name in sorted({place.topic for place in known})
        ]
        request = FetchRequest(
            max_wait_ms=int(within * 1000),
            min_bytes=1,
            max_bytes=1,
            isolation_level=ISOLATION[self._settings.isolation],
            topics=topics,
        )
        by_id = all(one.topic_id != ZERO_UUID for one in topics)
        try:
            answer: FetchResponse = await self._watcher.send(
                request, to=leader, max_version=NEWEST if by_id else NEWEST_FETCH_BY_NAME
            )
        except ClientError:
            # The next ListOffsets fails as well and handles the error.
            await asyncio.sleep(within)
            return True
        return bool(answer.error_code) or any(
            one.error_code or one.records for topic in answer.responses for one in topic.partitions
        )


async def offsets_at(
    client: Client,
    settings: ClientSettings,
    at: Mapping[TopicPartition, int],
    oldest_version: int = 1,
) -> Offsets:
    """One ListOffsets for each leader; logs end where readers of the isolation level may read."""
    low = OLDEST_COMMITTED_LOOKUP if settings.isolation == "read_committed" else 1
    low = max(low, oldest_version)

    async def attempt() -> Offsets:
        leaders = await _by_leader(client, at)
        found = await together(
            _offsets_of(client, settings, leader, {place: at[place] for place in places}, low)
            for leader, places in leaders.items()
        )
        return {place: offset for one in found for place, offset in one.items()}

    return await client.retry(attempt)


async def _by_leader(
    client: Client, places: Collection[TopicPartition]
) -> dict[int, list[TopicPartition]]:
    leaders: dict[int, list[TopicPartition]] = {}
    await client.topics({place.topic for place in places})
    for place in places:
        leaders.setdefault(await client.leader_of(place), []).append(place)
    return leaders


async def _offsets_of(
    client: Client,
    settings: ClientSettings,
    leader: int,
    at: Mapping[TopicPartition, int],
    low: int,
) -> Offsets:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=ISOLATION[settings.isolation],
        topics=[
            ListOffsetsTopic(
                name,
                [
                    ListOffsetsPartition(place.partition, -1, time)
                    for place, time in at.items()
                    if place.topic == name
                ],
            )
            for name in sorted({place.topic for place in at})
        ],
        timeout_ms=int(settings.request_timeout * 1000),
    )
    answer: ListOffsetsResponse = await client.send(request, to=leader, min_version=low)
    found = {}
    for topic in answer.topics:
        for one in topic.partitions:
            place = TopicPartition(topic.name, one.partition_index)
            check(one.error_code, f"find an offset in {place}")
            found[place] = one.offset
    return found


async def record_sizes(
    client: Client, settings: ClientSettings, places: Iterable[TopicPartition]
) -> dict[TopicPartition, float]:
    """The size of the leader's replica divided by its offsets; left out where either is 0."""
    wanted = list(places)
    sizes = await client.retry(lambda: _replica_sizes(client, wanted))
    settings = replace(settings, isolation="read_uncommitted")
    ends = await offsets_at(client, settings, dict.fromkeys(sizes, LATEST))
    try:
        local = dict.fromkeys(sizes, EARLIEST_LOCAL)
        firsts = await offsets_at(client, settings, local, OLDEST_EARLIEST_LOCAL)
    except UnsupportedApi:  # a broker without tiers has all its data here
        firsts = await offsets_at(client, settings, dict.fromkeys(sizes, EARLIEST))
    return {
        place: size / (ends[place] - firsts[place])
        for place, size in sizes.items()
        if size > 0 and ends[place] > firsts[place]
    }


async def _replica_sizes(
    client: Client, places: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    leaders = await _by_leader(client, places)
    found = await together(_sizes_at(client, node, some) for node, some in leaders.items())
    return {place: size for one in found for place, size in one.items()}


async def _sizes_at(
    client: Client, leader: int, places: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    by_topic: dict[str, list[int]] = {}
    for place in places:
        by_topic.setdefault(place.topic, []).append(place.partition)
    topics = [DescribableLogDirTopic(name, numbers) for name, numbers in by_topic.items()]
    answer: DescribeLogDirsResponse = await client.send(DescribeLogDirsRequest(topics), to=leader)
    check(answer.error_code, "ask how large logs are")
    return {
        TopicPartition(topic.name, one.partition_index): one.partition_size
        for directory in answer.results
        for topic in directory.topics
        for one in topic.partitions
        if not one.is_future_key
    }


def missing_topics(names: Iterable[str]) -> KafkaError:
    """The error for topics of a query that the cluster does not have."""
    listed = ", ".join(sorted(names))
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"find topic {listed}")


def is_selected(topic: Topic, selection: Selection) -> bool:
    """Whether a query reads this topic; no pattern matches an internal one."""
    names = selection.names()
    if names is not None:
        return topic.name in names
    assert selection.pattern is not None
    return not topic.is_internal and bool(re.fullmatch(selection.pattern, topic.name))
