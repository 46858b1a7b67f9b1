"""ListOffsets, leader epochs and DeleteRecords on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla import EmbeddedBroker
from ottla.wire.builder import BatchBuilder
from ottla.wire.compression import Codec
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.schema.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.raw_client import EARLIEST, LATEST, RawClient, batch, batches_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.wire.schema.delete_records import DeleteRecordsPartitionResult

MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -3, -4, -5, -6


@pytest.fixture
def timed(raw: RawClient, new_topic: Callable[..., str]) -> str:
    """Offsets 0-4 at times 100, 200, 400, 300, 500, in two batches, the first compressed."""
    topic = new_topic()
    for times, codec in (((100, 200, 400), Codec.LZ4), ((300, 500), Codec.NONE)):
        builder = BatchBuilder(codec=codec)
        for time in times:
            builder.append(b"at %d" % time, timestamp=time)
        raw.produce(topic, builder.build())
    return topic


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (LATEST, (-1, 5)),
        (EARLIEST, (-1, 0)),
        (MAX_TIMESTAMP, (500, 4)),
        (EARLIEST_LOCAL, (-1, 0)),
        (LATEST_TIERED, (-1, -1)),
        (EARLIEST_PENDING_UPLOAD, (-1, -1)),
        (0, (100, 0)),
        (100, (100, 0)),
        (101, (200, 1)),
        (300, (400, 2)),  # the first that is not older, in the order of the log
        (401, (500, 4)),
        (501, (-1, -1)),
    ],
)
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_offsets_by_name_and_by_time(
    raw: RawClient,
    timed: str,
    timestamp: int,
    expected: tuple[int, int],
    isolation_level: int,
) -> None:
    found = raw.offset(timed, timestamp, isolation_level=isolation_level)
    assert (found.error_code, found.timestamp, found.offset) == (0, *expected)
    epoch = raw.topic(timed).partitions[0].leader_epoch
    assert found.leader_epoch == (epoch if expected[1] >= 0 else -1)


def test_an_unknown_name_or_partition(raw: RawClient, timed: str) -> None:
    assert raw.offset(timed, -7).error_code != 0
    unknown = raw.offset(timed, LATEST, partition=1)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (unknown.offset, unknown.timestamp) == (-1, -1)


def test_an_empty_log(raw: RawClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    assert raw.offset(topic, LATEST).offset == raw.offset(topic, EARLIEST).offset == 0
    assert raw.offset(topic, MAX_TIMESTAMP).offset == -1
    assert raw.offset(topic, 0).offset == -1


def test_old_and_new_leader_epochs(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("t")
        client.produce("t", batch(b"a", b"b"))
        before = client.topic("t").partitions[0].leader_epoch
    with EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        epoch = client.topic("t").partitions[0].leader_epoch
        assert epoch > before  # a restart is a new leadership
        client.produce("t", batch(b"c"))
        for told, error in (
            (-1, ErrorCode.NONE),
            (epoch, ErrorCode.NONE),
            (before, ErrorCode.FENCED_LEADER_EPOCH),
            (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            assert client.fetch_one("t", 0, leader_epoch=told).error_code == error
            assert client.offset("t", LATEST, leader_epoch=told).error_code == error
            assert epoch_end(client, "t", before, told=told)[0] == error
        assert epoch_end(client, "t", before) == (0, before, 2)
        assert epoch_end(client, "t", epoch) == (0, epoch, 3)
        assert client.offset("t", EARLIEST).leader_epoch == before
        assert client.offset("t", LATEST).leader_epoch == epoch


def epoch_end(raw: RawClient, topic: str, epoch: int, *, told: int = -1) -> tuple[int, int, int]:
    asked = [OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0, told, epoch)])]
    answer = raw.ask("offset_for_leader_epoch", 4, OffsetForLeaderEpochRequest(-1, asked))
    (found,) = answer.topics[0].partitions
    return found.error_code, found.leader_epoch, found.end_offset


def test_where_an_epoch_ended(raw: RawClient, timed: str) -> None:
    epoch = raw.topic(timed).partitions[0].leader_epoch
    assert epoch_end(raw, timed, epoch) == (0, epoch, 5)
    assert epoch_end(raw, timed, epoch + 1) == (0, -1, -1)
    assert epoch_end(raw, timed, epoch, told=epoch + 1)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert epoch_end(raw, "nowhere", 0)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def delete_before(raw: RawClient, topic: str, offset: int) -> DeleteRecordsPartitionResult:
    asked = [DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, offset)])]
    answer = raw.ask("delete_records", 2, DeleteRecordsRequest(asked, 1000))
    result: DeleteRecordsPartitionResult = answer.topics[0].partitions[0]
    return result


def test_delete_records_in_the_middle_of_a_batch(raw: RawClient, timed: str) -> None:
    result = delete_before(raw, timed, 1)
    assert (result.error_code, result.low_watermark) == (0, 1)
    assert raw.offset(timed, EARLIEST).offset == 1
    assert raw.offset(timed, 0).offset == 1
    assert raw.fetch_one(timed, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    data = raw.fetch_one(timed, 1)
    assert [b.base_offset for b in batches_of(data)] == [0, 3]
    assert data.log_start_offset == 1
    assert raw.produce(timed, batch(b"more")).log_start_offset == 1


def test_delete_records_to_the_end_and_past_it(raw: RawClient, timed: str) -> None:
    assert delete_before(raw, timed, 6).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_before(raw, timed, -2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    result = delete_before(raw, timed, -1)
    assert (result.error_code, result.low_watermark) == (0, 5)
    assert raw.offset(timed, EARLIEST).offset == raw.offset(timed, LATEST).offset == 5
    assert delete_before(raw, timed, 2).low_watermark == 5  # never goes back


def test_delete_records_of_a_compacted_topic(raw: RawClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(cleanup_policy="compact")
    raw.produce(topic, batch(b"v"))
    assert delete_before(raw, topic, 1).error_code == ErrorCode.POLICY_VIOLATION
