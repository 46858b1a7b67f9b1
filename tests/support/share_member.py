"""A member of a share group that speaks the protocol and nothing else.

Epochs are kept as a client keeps them; every call can be given another one. `Acquired` is what a
fetch got from one partition. Locks and sessions are short on a broker with `SHARE_CONFIG`.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.wire.schema import share_acknowledge as ack
from ottla.wire.schema import share_fetch as fetch
from ottla.wire.schema.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponsePartition,
)
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.schema.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from ottla.wire.schema.share_fetch import PartitionData, ShareFetchResponse
    from ottla.wire.schema.share_group_heartbeat import ShareGroupHeartbeatResponse

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
GROUP_RESOURCE: Final = 32
SET: Final = 0
WAIT_MS: Final = 10_000  # for what must come; no test waits for it to pass

LOCK_MS: Final = 1000  # the shortest there is
SHARE_CONFIG: Final = {
    "group.share.min.heartbeat.interval.ms": "50",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.session.timeout.ms": "500",
    "group.share.session.timeout.ms": "45000",
    "group.share.min.record.lock.duration.ms": str(LOCK_MS),
    "group.share.min.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
}


class Acquired(NamedTuple):
    """Ranges of offsets with their delivery count."""

    ranges: list[tuple[int, int, int]]

    @property
    def offsets(self) -> list[int]:
        return [offset for first, last, _ in self.ranges for offset in range(first, last + 1)]


class ShareMember:
    """One member with one connection, and one topic that it reads."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, *, version: int = 2, member_id: str = ""
    ) -> None:
        self.client = RawClient(bootstrap)
        self.group, self.topic, self.version = group, topic, version
        self.member_id = member_id or uuid.uuid4().hex
        self.member_epoch = 0
        self.session_epoch = 0
        self.topic_id = self.client.topic(topic).topic_id
        # Finding the coordinator is what makes it.
        self.client.ask("find_coordinator", 4, FindCoordinatorRequest("", 0, [group]))

    def __enter__(self) -> ShareMember:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.client.close()

    # -- membership -------------------------------------------------------------------------------

    def heartbeat(
        self, epoch: int | None = None, *, topics: Sequence[str] | None = None
    ) -> ShareGroupHeartbeatResponse:
        asked = self.member_epoch if epoch is None else epoch
        names = [self.topic] if topics is None and asked == 0 else topics
        request = ShareGroupHeartbeatRequest(self.group, self.member_id, asked, None, names)
        answer: ShareGroupHeartbeatResponse = self.client.ask("share_group_heartbeat", 1, request)
        if answer.error_code == 0:
            self.member_epoch = answer.member_epoch
            self.member_id = answer.member_id or self.member_id
        return answer

    def join(self) -> ShareGroupHeartbeatResponse:
        answer = self.heartbeat(0)
        assert answer.error_code == 0, answer
        return answer

    def leave(self) -> ShareGroupHeartbeatResponse:
        return self.heartbeat(-1)

    # -- records ----------------------------------------------------------------------------------

    def fetch_request(
        self,
        partitions: Sequence[int] = (),
        acks: Mapping[int, Sequence[tuple[int, int, int]]] | None = None,
        *,
        epoch: int | None = None,
        max_wait_ms: int = 0,
        max_records: int = 500,
        **settings: Any,
    ) -> fetch.ShareFetchRequest:
        acks = acks or {}
        named = [
            fetch.FetchPartition(
                index,
                [fetch.AcknowledgementBatch(*r[:2], r[2:]) for r in acks.get(index, ())],
            )
            for index in dict.fromkeys([*partitions, *acks])
        ]
        values = {"max_bytes": 1 << 24, "min_bytes": 1, "batch_size": 500, **settings}
        return fetch.ShareFetchRequest(
            self.group,
            self.member_id,
            self.session_epoch if epoch is None else epoch,
            max_wait_ms=max_wait_ms,
            max_records=max_records,
            topics=[fetch.FetchTopic(self.topic_id, named)] if named else [],
            **values,
        )

    def fetch(self, *args: Any, **settings: Any) -> ShareFetchResponse:
        """One request; the session's epoch moves on unless it was refused."""
        request = self.fetch_request(*args, **settings)
        self.client.send("share_fetch", self.version, request)
        return self.fetched(request.share_session_epoch)

    def fetched(self, epoch: int | None = None) -> ShareFetchResponse:
        """The answer to a request that has been sent."""
        _, answer = self.client.receive("share_fetch", self.version)
        response: ShareFetchResponse = answer
        if response.error_code == 0:
            self.session_epoch = (self.session_epoch if epoch is None else epoch) + 1
        return response

    def acquire(self, *args: Any, **settings: Any) -> Acquired:
        """What one fetch gets of the only partition that gives anything."""
        return acquired(self.fetch(*args, **settings))

    def first(self, partitions: Sequence[int] = (0,), **settings: Any) -> Acquired:
        """Open the session and get the first records."""
        self.session_epoch = 0
        return self.acquire(partitions, **{"max_wait_ms": WAIT_MS, **settings})

    def acknowledge(
        self,
        acks: Mapping[int, Sequence[tuple[int, int, int]]],
        *,
        epoch: int | None = None,
        is_renew_ack: bool = False,
        topic_id: bytes | None = None,
    ) -> ack.ShareAcknowledgeResponse:
        named = [
            ack.AcknowledgePartition(
                index, [ack.AcknowledgementBatch(*r[:2], r[2:]) for r in batches]
            )
            for index, batches in acks.items()
        ]
        asked = self.session_epoch if epoch is None else epoch
        request = ack.ShareAcknowledgeRequest(
            self.group,
            self.member_id,
            asked,
            is_renew_ack,
            [ack.AcknowledgeTopic(topic_id or self.topic_id, named)],
        )
        answer = self.client.ask("share_acknowledge", self.version, request)
        response: ack.ShareAcknowledgeResponse = answer
        if response.error_code == 0:
            self.session_epoch = asked + 1
        return response

    def ack(self, first: int, last: int, kind: int, **settings: Any) -> int:
        """The error code of one range of partition 0."""
        answer = self.acknowledge({0: [(first, last, kind)]}, **settings)
        assert answer.error_code == 0, answer
        code: int = answer.responses[0].partitions[0].error_code
        return code


def partitions_of(response: ShareFetchResponse) -> dict[int, PartitionData]:
    assert response.error_code == 0, response
    return {row.partition_index: row for topic in response.responses for row in topic.partitions}


def acquired(response: ShareFetchResponse) -> Acquired:
    ranges: list[tuple[int, int, int]] = []
    for row in partitions_of(response).values():
        assert row.error_code == 0, row
        assert row.acknowledge_error_code == 0, row
        assert row.records is not None
        assert bool(row.records) == bool(row.acquired_records)
        ranges += [tuple(one) for one in row.acquired_records]  # type: ignore[misc]
    return Acquired(ranges)


def set_group_configs(client: RawClient, group: str, **configs: str) -> None:
    """Underscores stand for dots."""
    entries = [AlterableConfig(k.replace("_", "."), SET, v) for k, v in configs.items()]
    resource = AlterConfigsResource(GROUP_RESOURCE, group, entries)
    answer = client.ask("incremental_alter_configs", 1, IncrementalAlterConfigsRequest([resource]))
    assert answer.responses[0].error_code == 0, answer


def described_offsets(
    client: RawClient, group: str, *, version: int = 1
) -> dict[tuple[str, int], DescribeShareGroupOffsetsResponsePartition]:
    """Start offsets and lags of all share-partitions that have state."""
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, None)])
    answer = client.ask("describe_share_group_offsets", version, request)
    (found,) = answer.groups
    assert found.error_code == 0, found
    return {
        (topic.topic_name, row.partition_index): row
        for topic in found.topics
        for row in topic.partitions
    }
