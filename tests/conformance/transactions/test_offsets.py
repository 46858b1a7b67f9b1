"""Offsets in transactions request by request, on Ottla and on Apache Kafka: both answer alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from ottla.coordination.partitioner import partition_for
from ottla.metadata.names import CONSUMER_OFFSETS_TOPIC
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from ottla.wire.schema.delete_groups import DeleteGroupsRequest
from ottla.wire.schema.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.schema.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.schema.sync_group import SyncGroupRequest
from ottla.wire.schema.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.group_members import subscription
from tests.support.raw_offsets import RawOffsets
from tests.support.raw_transactions import CONFIG, RawProducer, wait_for

if TYPE_CHECKING:
    from tests.support.raw_client import RawClient

UNSTABLE: Final = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture
def group(raw: RawClient, topic: str) -> RawOffsets:
    return RawOffsets(raw, topic)


def partition_of(group: RawOffsets) -> int:
    return partition_for(group.name, int(CONFIG["offsets.topic.num.partitions"]))


def end(producer: RawProducer, *, commit: bool, version: int = 4) -> None:
    """Up to the markers; from version 5 on the producer goes on as another."""
    if version >= 5:
        assert producer.end_and_go_on(commit=commit).error_code == 0
    else:
        assert producer.end(commit=commit, version=version).error_code == 0
    producer.wait_until("CompleteCommit" if commit else "CompleteAbort")


def mark(group: RawOffsets, producer: RawProducer, epoch: int, coordinator_epoch: int) -> int:
    """An administrator ends the transaction in a commit where the group has its offsets."""
    marker = WritableTxnMarker(
        producer.producer_id,
        epoch,
        True,
        [WritableTxnMarkerTopic(CONSUMER_OFFSETS_TOPIC, [partition_of(group)])],
        coordinator_epoch,
    )
    (result,) = group.raw.ask("write_txn_markers", 1, WriteTxnMarkersRequest([marker])).markers
    return int(result.topics[0].partitions[0].error_code)


@pytest.mark.parametrize(("version", "end_version"), [(0, 0), (3, 3), (4, 4), (5, 5)])
def test_case_52_offsets_are_pending_until_the_end(
    group: RawOffsets, producer: RawProducer, version: int, end_version: int
) -> None:
    assert group.commit(5) == 0
    for commit, then in ((True, 9), (False, 9)):
        if version < 5:
            wait_for(lambda: producer.add_offsets(group.name) == 0)
        group.commit_until_done(producer, then if commit else 20, version)
        before = (0, 5 if commit else 9)
        assert [group.offset(version=v) for v in (1, 6, 7, 8, 9)] == [before] * 5
        assert [group.offset(version=v, stable=True) for v in (7, 8, 9)] == [(UNSTABLE, -1)] * 3
        end(producer, commit=commit, version=end_version)
        assert group.offset(stable=True) == (0, then)


def test_all_offsets_of_a_group_are_those_that_count(
    group: RawOffsets, producer: RawProducer
) -> None:
    assert group.commit_in(producer, 1, version=5) == 0
    assert group.all_offsets(stable=True) == []
    assert group.commit(2) == 0
    assert group.all_offsets(stable=True) == [(UNSTABLE, -1)]
    assert group.all_offsets() == [(0, 2)]
    end(producer, commit=True)
    assert group.all_offsets(stable=True) == [(0, 2)], "what was written later counts"


def test_the_order_of_writing_decides(
    raw: RawClient, group: RawOffsets, producer: RawProducer
) -> None:
    other = RawProducer(raw)
    other.init()
    assert group.commit_in(producer, 1, version=5) == 0
    assert group.commit_in(other, 2, version=5) == 0
    end(other, commit=True)
    assert (group.offset(), group.offset(stable=True)) == ((0, 2), (UNSTABLE, -1))
    end(producer, commit=True)
    assert group.offset(stable=True) == (0, 2)


def test_the_transaction_has_to_know_of_the_offsets(
    group: RawOffsets, producer: RawProducer
) -> None:
    refused = [group.commit_in(producer, 1, version=version) for version in range(5)]
    assert refused == [ErrorCode.INVALID_TXN_STATE] * 4 + [ErrorCode.TRANSACTION_ABORTABLE]
    assert group.commit_in(producer, 1, version=5) == 0
    found = producer.describe()
    assert found.transaction_state == "Ongoing"
    assert [(each.topic, list(each.partitions)) for each in found.topics] == [
        (CONSUMER_OFFSETS_TOPIC, [partition_of(group)])
    ]


def test_t54_the_next_transaction_at_once(group: RawOffsets, producer: RawProducer) -> None:
    """Its offsets may find the one before ending still, which is no reason to give up."""
    wait = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    for offset in range(5):
        while (code := group.commit_in(producer, offset, version=5)) != 0:
            assert code in wait
        assert producer.end_and_go_on(commit=True).error_code == 0
    group.wait_for_offset((0, 4))


def test_who_is_not_the_producer(raw: RawClient, group: RawOffsets, producer: RawProducer) -> None:
    stranger = RawProducer(raw)
    stranger.producer_id, stranger.epoch = 10**9, 0  # an open transaction's would be let through
    codes = [group.commit_in(stranger, 1, version=version) for version in range(6)]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 6
    second = RawProducer(raw, producer.name)
    second.init()
    codes = [group.commit_in(producer, 1, version=version) for version in range(6)]
    assert codes == [ErrorCode.INVALID_PRODUCER_EPOCH] * 6
    assert group.commit_in(second, 1, version=5) == 0


def test_what_cannot_be_committed(group: RawOffsets, producer: RawProducer) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert group.commit_in(producer, 1, topic="no-such-topic", version=5) == unknown
    assert group.commit_in(producer, 1, partition=2, version=5) == unknown
    too_large = group.commit_in(producer, 1, metadata="x" * 4097, version=5)
    assert too_large == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert group.offset(stable=True) == (0, -1)
    group.name = ""
    codes = [group.commit_in(producer, 1, version=version) for version in range(6)]
    assert codes == [ErrorCode.INVALID_GROUP_ID] * 6


def test_case_53_a_zombie_of_a_classic_group(
    raw: RawClient, group: RawOffsets, producer: RawProducer
) -> None:
    late, unknown = ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID

    def commit(*member: Any) -> int:
        return group.commit_in(producer, 1, *member, version=5)

    assert [commit("m", 3), group.commit(1, "m", 3, version=8)] == [late, late]
    assert [commit(), commit("m", -1)] == [0, 0]
    assert [commit("m", 3), group.commit(1, "m", 3, version=8)] == [unknown, unknown]
    protocols = [JoinGroupRequestProtocol("range", subscription([group.topic]))]
    request = JoinGroupRequest(group.name, 30_000, 30_000, "", "i", "consumer", protocols)
    joined = raw.ask("join_group", 9, request)
    assert joined.error_code == 0
    name, generation = joined.member_id, joined.generation_id
    assert group.commit(1, name, generation, version=8) == ErrorCode.REBALANCE_IN_PROGRESS
    assert commit(name, generation) == 0, "a transaction does not wait for a rebalance"
    sync = SyncGroupRequest(group.name, generation, name, "i", "consumer", "range", [])
    assert raw.ask("sync_group", 5, sync).error_code == 0
    assert commit(name, generation, "i") == 0
    assert [commit(name, generation - 1), commit(name, generation + 1)] == [late, late]
    assert commit(name, -1) == late
    assert commit("other", generation) == unknown
    assert commit(name, generation, "other") == unknown
    assert commit("other", generation, "i") == ErrorCode.FENCED_INSTANCE_ID
    assert commit() == 0, "who names nobody is not checked"
    assert group.commit(1) == unknown


def test_case_53_a_zombie_of_a_consumer_group(
    raw: RawClient, group: RawOffsets, producer: RawProducer
) -> None:
    def commit(*member: Any) -> int:
        return group.commit_in(producer, 1, *member, version=5)

    request = ConsumerGroupHeartbeatRequest(
        group.name,
        "m",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[group.topic],
        topic_partitions=[],
    )
    joined = raw.ask("consumer_group_heartbeat", 1, request)
    assert joined.error_code == 0
    epoch = joined.member_epoch
    late = ErrorCode.ILLEGAL_GENERATION
    assert [commit("m", epoch), commit("m", epoch, "i")] == [0, 0]
    assert [commit("m", epoch - 1), commit("m", epoch + 1), commit("m", -1)] == [late] * 3
    assert group.commit(1, "m", epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit("other", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit() == 0


def test_what_is_deleted_does_not_come_back(
    raw: RawClient, group: RawOffsets, producer: RawProducer
) -> None:
    assert group.commit_in(producer, 3, version=5) == 0
    asked = OffsetDeleteRequestTopic(group.topic, [OffsetDeleteRequestPartition(0)])
    answer = raw.ask("offset_delete", 0, OffsetDeleteRequest(group.name, [asked]))
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
    assert group.offset(stable=True) == (0, -1)
    assert group.commit_in(producer, 4, version=5) == 0
    (deleted,) = raw.ask("delete_groups", 2, DeleteGroupsRequest([group.name])).results
    assert deleted.error_code == 0
    assert group.offset(stable=True) == (0, -1)
    end(producer, commit=True)
    assert group.offset(stable=True) == (0, -1)


def test_markers_of_an_administrator(raw: RawClient, topic: str, producer: RawProducer) -> None:
    group = RawOffsets(raw, topic)
    producer.init()
    epoch = producer.epoch
    assert group.commit_in(producer, 1, version=5) == 0
    assert mark(group, producer, epoch - 1, 5) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert group.offset(stable=True) == (UNSTABLE, -1)
    assert mark(group, producer, epoch, 5) == 0
    assert group.offset(stable=True) == (0, 1)
    # The coordinator still says that the partition is in the transaction.
    assert group.commit_in(producer, 2, version=3) == 0
    assert mark(group, producer, epoch, 4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert group.offset(stable=True) == (UNSTABLE, -1)
    assert mark(group, producer, epoch, 5) == 0
    assert group.offset(stable=True) == (0, 2)
