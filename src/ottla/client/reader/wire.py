"""The planner's questions as requests of the protocol, and answers as values for the planner.

Fetches use no sessions: each request names all partitions the reader wants, so it does not depend
on the requests before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import check
from ottla.client.reader.fetching import LookedUp
from ottla.wire.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.spec import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.client.reader.fetching import Asked
    from ottla.client.reader.types import Isolation
    from ottla.wire.schema.fetch import FetchResponse, PartitionData
    from ottla.wire.schema.list_offsets import ListOffsetsResponse

ISOLATION: Final = {"read_uncommitted": 0, "read_committed": 1}
_MAX_BYTES: Final = 0x7FFF_FFFF

NEWEST_FETCH_BY_NAME: Final = 12  # later ones know topics by id alone
OLDEST_COMMITTED_LOOKUP: Final = 2  # before it the end of a log was the end of open transactions


class Answered(NamedTuple):
    """A Fetch's result for one partition; `records` may end inside a batch."""

    error_code: int
    records: memoryview
    aborted: Sequence[tuple[int, int]]


def lookup_request(
    asked: Mapping[TopicPartition, Asked], isolation: Isolation, timeout_ms: int
) -> ListOffsetsRequest:
    """ListOffsets for the partitions of one leader."""
    topics = [
        ListOffsetsTopic(
            topic,
            [ListOffsetsPartition(number, one.leader_epoch, one.at) for number, one in parts],
        )
        for topic, parts in _by_topic(asked).items()
    ]
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=ISOLATION[isolation],
        topics=topics,
        timeout_ms=timeout_ms,
    )


def lookup_answer(answer: ListOffsetsResponse) -> dict[TopicPartition, LookedUp]:
    """The results by partition."""
    return {
        TopicPartition(topic.name, one.partition_index): LookedUp(one.error_code, one.offset)
        for topic in answer.topics
        for one in topic.partitions
    }


def fetch_request(
    asked: Mapping[TopicPartition, Asked],
    ids: Mapping[str, bytes],
    max_bytes: int,
    isolation: Isolation,
    max_wait_ms: int,
) -> FetchRequest:
    """Fetch for the partitions of one leader; the first that has data may fill the answer."""
    limit = min(max_bytes, _MAX_BYTES)
    topics = [
        FetchTopic(
            topic,
            ids.get(topic, ZERO_UUID),
            [
                FetchPartition(number, one.leader_epoch, one.at, partition_max_bytes=limit)
                for number, one in parts
            ],
        )
        for topic, parts in _by_topic(asked).items()
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=limit,
        isolation_level=ISOLATION[isolation],
        topics=topics,
    )


def fetch_answer(ids: Mapping[str, bytes], answer: FetchResponse) -> dict[TopicPartition, Answered]:
    """The results by partition; newer versions name topics only by id."""
    check(answer.error_code, "fetch")
    names = {topic_id: name for name, topic_id in ids.items()}
    return {
        TopicPartition(found.topic or names[found.topic_id], one.partition_index): Answered(
            one.error_code, _records(one), _aborted(one)
        )
        for found in answer.responses
        if found.topic or found.topic_id in names
        for one in found.partitions
    }


def _by_topic(
    asked: Mapping[TopicPartition, Asked],
) -> dict[str, list[tuple[int, Asked]]]:
    topics: dict[str, list[tuple[int, Asked]]] = {}
    for (topic, number), one in asked.items():
        topics.setdefault(topic, []).append((number, one))
    return topics


def _records(one: PartitionData) -> memoryview:
    records = one.records or b""
    # The protocol's reader returns one contiguous piece of what was read from the socket.
    assert isinstance(records, bytes | bytearray | memoryview)
    return memoryview(records)


def _aborted(one: PartitionData) -> list[tuple[int, int]]:
    return [(entry.producer_id, entry.first_offset) for entry in one.aborted_transactions or ()]
