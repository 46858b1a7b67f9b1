"""What share requests must look like."""

from __future__ import annotations

import pytest

from ottla.sharing.requests import (
    FENCING,
    acks_by_partition,
    check_member_id,
    check_renewal,
    checked_acks,
    client_error,
    forgotten_partitions,
)
from ottla.sharing.values import Ack, AcknowledgeType, ShareError
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
TOPIC, OTHER = b"\1" * 16, b"\2" * 16


def batch(first: int, last: int, *types: int) -> AcknowledgementBatch:
    return AcknowledgementBatch(first, last, types)


def test_03_member_ids() -> None:
    assert check_member_id("x" * 36) == "x" * 36
    for wrong in ("x" * 37, "", None):
        with pytest.raises(ShareError) as caught:
            check_member_id(wrong)
        assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_35_each_offset_follows_its_own_type() -> None:
    acks = checked_acks(
        [batch(5, 9, 1, 1, 2, 0, 0), batch(10, 1_000_000, 3)], version=1, is_renew_ack=False
    )
    assert acks == [
        Ack(5, 6, ACCEPT),
        Ack(7, 7, RELEASE),
        Ack(8, 9, GAP),
        Ack(10, 1_000_000, REJECT),
    ]


def test_a_batch_may_begin_where_the_last_one_ended() -> None:
    """Kafka lets it through here, and refuses it where the record is in transition."""
    batches = [batch(5, 9, 1), batch(9, 9, 1)]
    assert len(checked_acks(batches, version=1, is_renew_ack=False)) == 2


@pytest.mark.parametrize(
    "batches",
    [
        [batch(5, 4, 1)],
        [batch(-1, 4, 1)],
        [batch(5, 9, 1), batch(8, 12, 1)],
        [batch(5, 9)],
        [batch(5, 9, 1, 1)],
        [batch(5, 5, 1, 1)],
        [batch(5, 5, -1)],
        [batch(5, 5, 4)],
        [batch(5, 6, 1, 9)],
    ],
)
def test_bad_batches(batches: list[AcknowledgementBatch]) -> None:
    with pytest.raises(ShareError) as caught:
        checked_acks(batches, version=1, is_renew_ack=True)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_41_renewing_on_the_wire() -> None:
    assert checked_acks([batch(5, 5, 4)], version=2, is_renew_ack=True) == [Ack(5, 5, RENEW)]
    with pytest.raises(ShareError):
        checked_acks([batch(5, 5, 4)], version=2, is_renew_ack=False)
    with pytest.raises(ShareError):
        checked_acks([batch(5, 5, 5)], version=2, is_renew_ack=True)


def test_41_a_renewal_fetches_nothing() -> None:
    renewal = ShareFetchRequest(is_renew_ack=True, max_bytes=0)
    check_renewal(renewal)
    check_renewal(ShareFetchRequest(max_records=5))
    for wrong in (
        renewal._replace(max_bytes=1),
        renewal._replace(min_bytes=1),
        renewal._replace(max_records=1),
        renewal._replace(max_wait_ms=1),
    ):
        with pytest.raises(ShareError) as caught:
            check_renewal(wrong)
        assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_partitions_named_twice_count_once() -> None:
    one, two = batch(1, 2, 1), batch(3, 4, 1)
    topics = [
        FetchTopic(TOPIC, [FetchPartition(0), FetchPartition(1, [one])]),
        FetchTopic(OTHER, [FetchPartition(0)]),
        FetchTopic(TOPIC, [FetchPartition(0, [one]), FetchPartition(1, [two])]),
    ]
    assert acks_by_partition(topics) == {
        (TOPIC, 0): [one],
        (TOPIC, 1): [one, two],
        (OTHER, 0): [],
    }


def test_forgotten() -> None:
    topics = [ForgottenTopic(TOPIC, [0, 2]), ForgottenTopic(OTHER, [1])]
    assert forgotten_partitions(topics) == [(TOPIC, 0), (TOPIC, 2), (OTHER, 1)]


@pytest.mark.parametrize(
    ("persister", "client", "fences"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, False),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, False),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE, False),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR, False),
    ],
)
def test_48_what_a_persister_error_means(
    persister: ErrorCode, client: ErrorCode, *, fences: bool
) -> None:
    assert client_error(persister) is client
    assert (persister in FENCING) is fences


def test_only_releases_can_be_uncounted() -> None:
    acks = checked_acks(
        [batch(5, 5, 1), batch(6, 9, 2)], version=2, is_renew_ack=False, is_uncounted=True
    )
    assert acks == [Ack(5, 5, ACCEPT), Ack(6, 9, RELEASE, is_uncounted=True)]
