"""The planner's questions as requests of the protocol, and answers as values for the planner.

Fetches are without sessions: a reader asks for all partitions it wants every time, which keeps
each request true by itself, whatever became of the one before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

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
    from collections.abc import Sequence

    from ottla.client.reader.fetching import Fetch, Lookup
    from ottla.client.reader.types import Isolation
    from ottla.wire.schema.fetch import FetchResponse, PartitionData
    from ottla.wire.schema.list_offsets import ListOffsetsResponse

_ISOLATION: Final = {"read_uncommitted": 0, "read_committed": 1}
_MAX_BYTES: Final = 0x7FFF_FFFF

NEWEST_FETCH_BY_NAME: Final = 12  # later ones know topics by id alone
OLDEST_COMMITTED_LOOKUP: Final = 2  # before it the end of a log was the end of open transactions


class Answered(NamedTuple):
    """What a Fetch brought for one partition; `records` may end inside a batch."""

    error_code: int
    records: memoryview
    aborted: Sequence[tuple[int, int]]


def lookup_request(
    topic: str, question: Lookup, isolation: Isolation, timeout_ms: int
) -> ListOffsetsRequest:
    """ListOffsets for the partitions of one leader."""
    partitions = [
        ListOffsetsPartition(number, asked.leader_epoch, asked.at)
        for number, asked in question.asked.items()
    ]
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=_ISOLATION[isolation],
        topics=[ListOffsetsTopic(topic, partitions)],
        timeout_ms=timeout_ms,
    )


def lookup_answer(answer: ListOffsetsResponse) -> dict[int, LookedUp]:
    """What was found, by partition."""
    return {
        one.partition_index: LookedUp(one.error_code, one.offset)
        for topic in answer.topics
        for one in topic.partitions
    }


def fetch_request(
    topic: str, topic_id: bytes | None, question: Fetch, isolation: Isolation, max_wait_ms: int
) -> FetchRequest:
    """Fetch for the partitions of one leader; the first that has data may fill the answer."""
    max_bytes = min(question.max_bytes, _MAX_BYTES)
    partitions = [
        FetchPartition(number, asked.leader_epoch, asked.at, partition_max_bytes=max_bytes)
        for number, asked in question.asked.items()
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=_ISOLATION[isolation],
        topics=[FetchTopic(topic, topic_id or ZERO_UUID, partitions)],
    )


def fetch_answer(topic: str, answer: FetchResponse) -> dict[int, Answered]:
    """What has come, by partition."""
    check(answer.error_code, f"fetch from {topic!r}")
    return {
        one.partition_index: Answered(one.error_code, _records(one), _aborted(one))
        for found in answer.responses
        for one in found.partitions
    }


def _records(one: PartitionData) -> memoryview:
    records = one.records or b""
    # The protocol's reader gives what came off the socket, which is in one piece.
    assert isinstance(records, bytes | bytearray | memoryview)
    return memoryview(records)


def _aborted(one: PartitionData) -> list[tuple[int, int]]:
    return [(entry.producer_id, entry.first_offset) for entry in one.aborted_transactions or ()]
