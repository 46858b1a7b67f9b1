"""The offsets of a group, committed and fetched request by request, in transactions or not."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
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
from ottla.wire.schema.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.raw_transactions import wait_for

if TYPE_CHECKING:
    from ottla.wire.schema.offset_fetch import OffsetFetchResponseGroup
    from tests.support.raw_client import RawClient
    from tests.support.raw_transactions import RawProducer

_numbers = count(1)


class RawOffsets:
    """One group and its offset in one partition of a topic, as a connection sees it."""

    def __init__(self, raw: RawClient, topic: str, group: str | None = None) -> None:
        self.raw = raw
        self.topic = topic
        self.name = group or f"g-{next(_numbers)}"
        found = FindCoordinatorRequest(self.name, 0)
        wait_for(lambda: raw.ask("find_coordinator", 2, found).error_code == 0)
        loading = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        wait_for(lambda: self.fetch_all().error_code not in loading)

    def commit_in(
        self,
        producer: RawProducer,
        offset: int,
        member_id: str = "",
        epoch: int = -1,
        instance: str | None = None,
        *,
        version: int = 3,
        partition: int = 0,
        topic: str | None = None,
        metadata: str = "",
    ) -> int:
        asked = TxnOffsetCommitRequestPartition(partition, offset, -1, metadata)
        request = TxnOffsetCommitRequest(
            producer.name,
            self.name,
            producer.producer_id,
            producer.epoch,
            epoch,
            member_id,
            instance,
            [TxnOffsetCommitRequestTopic(topic or self.topic, [asked])],
        )
        (answer,) = self.raw.ask("txn_offset_commit", version, request).topics
        ((index, code),) = answer.partitions
        assert (answer.name, index) == (topic or self.topic, partition)
        return int(code)

    def commit_until_done(self, producer: RawProducer, offset: int, version: int) -> None:
        """Once the transaction before has ended."""
        wait_for(lambda: self.commit_in(producer, offset, version=version) == 0)

    def commit(self, offset: int, member_id: str = "", epoch: int = -1, *, version: int = 9) -> int:
        asked = OffsetCommitRequestTopic(
            self.topic, partitions=[OffsetCommitRequestPartition(0, offset, -1, "")]
        )
        request = OffsetCommitRequest(self.name, epoch, member_id, topics=[asked])
        answer = self.raw.ask("offset_commit", version, request)
        return int(answer.topics[0].partitions[0].error_code)

    def fetch_all(self, *, stable: bool = False) -> OffsetFetchResponseGroup:
        asked = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(self.name, topics=None)], require_stable=stable
        )
        found: OffsetFetchResponseGroup = self.raw.ask("offset_fetch", 9, asked).groups[0]
        return found

    def all_offsets(self, *, stable: bool = False) -> list[tuple[int, int]]:
        return [
            (partition.error_code, partition.committed_offset)
            for topic in self.fetch_all(stable=stable).topics
            for partition in topic.partitions
        ]

    def offset(self, *, stable: bool = False, version: int = 9) -> tuple[int, int]:
        if version >= 8:
            topics = [OffsetFetchRequestTopics(self.topic, partition_indexes=[0])]
            group = OffsetFetchRequestGroup(self.name, topics=topics)
            asked = OffsetFetchRequest(groups=[group], require_stable=stable)
            (found,) = self.raw.ask("offset_fetch", version, asked).groups
            assert found.error_code == 0
            partition = found.topics[0].partitions[0]
        else:
            asked = OffsetFetchRequest(
                self.name, [OffsetFetchRequestTopic(self.topic, [0])], require_stable=stable
            )
            answer = self.raw.ask("offset_fetch", version, asked)
            assert answer.error_code == 0
            partition = answer.topics[0].partitions[0]
        return partition.error_code, partition.committed_offset

    def wait_for_offset(self, expected: tuple[int, int]) -> None:
        """The error and the offset once it is stable; a transaction ends before its markers."""
        wait_for(lambda: self.offset(stable=True)[0] != ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert self.offset(stable=True) == expected
