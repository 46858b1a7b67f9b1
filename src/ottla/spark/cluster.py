"""What the driver asks a cluster: which topics there are, where their logs end, what groups hold.

Calls block, and are waited out by the client's rules. Waiting for records uses a client of its own,
since a fetch that waits for data holds up whatever follows it on its connection.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from ottla.client.admin_groups import GroupCalls
from ottla.client.cluster import NEWEST, Client, together
from ottla.client.cluster_view import NO_LEADER, Topic, TopicPartition
from ottla.client.errors import ClientError, KafkaError, check
from ottla.client.fetching_wire import NEWEST_FETCH_BY_NAME, OLDEST_COMMITTED_LOOKUP
from ottla.spark.background import background
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.spec import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.spark.client_settings import ClientSettings
    from ottla.spark.offsets import Offsets
    from ottla.spark.options import Selection

ISOLATION: Final = {"read_uncommitted": 0, "read_committed": 1}
CLOSE_SECONDS: Final = 2.0


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
        """The topics of a query that exist now, asked for anew."""
        names = selection.names()
        view = self._background.call(self._client.retry(lambda: self._client.refresh(names)))
        self._topics = {
            name: topic for name, topic in view.topics.items() if is_selected(topic, selection)
        }
        return self._topics

    def offsets(self, at: Mapping[TopicPartition, int]) -> Offsets:
        """The offset at a time in milliseconds, or at an end (-1, -2); -1 where there is none."""
        return self._background.call(offsets_at(self._client, self._settings, at))

    def committed(self, group: str) -> Offsets:
        """What a group has committed."""
        found = self._background.call(GroupCalls(self._client).list_group_offsets(group))
        return {TopicPartition(one.topic, one.partition): one.offset for one in found}

    def commit(self, group: str, offsets: Offsets) -> None:
        """Commit for a group without members."""
        named = {(place.topic, place.partition): offset for place, offset in offsets.items()}
        self._background.call(GroupCalls(self._client).alter_group_offsets(group, named))

    def wait_for_more(self, known: Offsets, within: float) -> bool:
        """Wait until a log may have grown beyond what is known of it; False if none has."""
        return self._background.call(self._wait(known, within))

    def close(self) -> None:
        """Close the connections; a broker that does not answer is not waited for."""
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
        """One Fetch from the ends of logs, which the broker answers when there is something."""
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
            # Whoever lists the offsets next meets the trouble too, and knows what to do about it.
            await asyncio.sleep(within)
            return True
        return bool(answer.error_code) or any(
            one.error_code or one.records for topic in answer.responses for one in topic.partitions
        )


async def offsets_at(
    client: Client, settings: ClientSettings, at: Mapping[TopicPartition, int]
) -> Offsets:
    """One ListOffsets for each leader; logs end where readers of the isolation level may read."""

    async def attempt() -> Offsets:
        leaders: dict[int, list[TopicPartition]] = {}
        await client.topics({place.topic for place in at})
        for place in at:
            leaders.setdefault(await client.leader_of(place), []).append(place)
        found = await together(
            _offsets_of(client, settings, leader, {place: at[place] for place in places})
            for leader, places in leaders.items()
        )
        return {place: offset for one in found for place, offset in one.items()}

    return await client.retry(attempt)


async def _offsets_of(
    client: Client, settings: ClientSettings, leader: int, at: Mapping[TopicPartition, int]
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
    low = OLDEST_COMMITTED_LOOKUP if settings.isolation == "read_committed" else 1
    answer: ListOffsetsResponse = await client.send(request, to=leader, min_version=low)
    found = {}
    for topic in answer.topics:
        for one in topic.partitions:
            place = TopicPartition(topic.name, one.partition_index)
            check(one.error_code, f"find an offset in {place}")
            found[place] = one.offset
    return found


def missing_topics(names: Iterable[str]) -> KafkaError:
    """The error for topics that a query names and the cluster does not have."""
    listed = ", ".join(sorted(names))
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"find topic {listed}")


def is_selected(topic: Topic, selection: Selection) -> bool:
    """Whether a query reads this topic; no pattern matches an internal one."""
    names = selection.names()
    if names is not None:
        return topic.name in names
    assert selection.pattern is not None
    return not topic.is_internal and bool(re.fullmatch(selection.pattern, topic.name))
