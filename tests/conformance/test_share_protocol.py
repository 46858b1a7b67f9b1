"""Share groups over the wire: membership, sessions, delivery and acknowledgement.

Tests named by a number are the behaviours of KIP-932 that the whole broker has to show; what the
machines alone can show, their unit tests do, by the same numbers.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from ottla.testing.embedded import EmbeddedBroker
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.schema.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.schema.share_fetch import ForgottenTopic
from tests.support.share_member import (
    ACCEPT,
    LOCK_MS,
    REJECT,
    RELEASE,
    RENEW,
    SHARE_CONFIG,
    WAIT_MS,
    acquired,
    described_offsets,
    partitions_of,
    set_group_configs,
)
from tests.support.share_queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_SESSIONS = 50


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    config = {
        **SHARE_CONFIG,
        "group.share.max.size": str(MAX_SESSIONS),
        "group.share.max.share.sessions": str(MAX_SESSIONS),
    }
    with EmbeddedBroker(config=config) as broker:
        yield broker


@pytest.fixture
def new_queue(broker: EmbeddedBroker) -> Iterator[Callable[..., Queue]]:
    queues: list[Queue] = []

    def make(partitions: int = 1, **configs: str) -> Queue:
        queues.append(Queue(broker.bootstrap, partitions, **configs))
        return queues[-1]

    yield make
    for queue in queues:
        queue.close()


@pytest.fixture
def queue(new_queue: Callable[..., Queue]) -> Queue:
    return new_queue()


def assigned(answer: object) -> list[int]:
    """The partitions of a heartbeat's answer."""
    assignment = getattr(answer, "assignment", None)
    assert assignment is not None
    return sorted(index for topic in assignment.topic_partitions for index in topic.partitions)


# -- membership -----------------------------------------------------------------------------------


def test_01_a_join_makes_the_group_and_brings_partitions(
    new_queue: Callable[..., Queue],
) -> None:
    # The answer waits for the group's state half an interval: enough for any machine.
    queue = new_queue(share_heartbeat_interval_ms="15000")
    with queue.newcomer() as member:
        answer = member.join()
        assert answer.member_epoch >= 1
        assert answer.heartbeat_interval_ms == 15_000
        assert assigned(answer) == [0]


def test_02_a_member_without_an_id_is_given_one(queue: Queue) -> None:
    with queue.newcomer() as member:
        member.member_id = ""
        member.join()
        assert 0 < len(member.member_id) <= 36
        assert member.heartbeat().error_code == 0
        queue.produce(1)
        assert member.first().offsets == [0]


def test_09_three_members_split_one_partition(queue: Queue) -> None:
    members = [queue.member() for _ in range(3)]
    for member in members:
        answer = member.heartbeat(topics=[queue.topic])
        assert assigned(answer) == [0]
    queue.produce(30)
    got = [member.first(max_records=10).offsets for member in members]
    assert sorted(offset for offsets in got for offset in offsets) == list(range(30))
    assert all(len(offsets) == 10 for offsets in got)


def test_10_who_stays_gets_all(new_queue: Callable[..., Queue]) -> None:
    queue = new_queue(partitions=4)
    with queue.member() as stays, queue.member() as leaves:
        assert len(assigned(stays.heartbeat(topics=[queue.topic]))) == 2
        assert leaves.leave().member_epoch == -1
        answers = [stays.heartbeat(), stays.heartbeat()]
        assert [assigned(a) for a in answers if a.assignment is not None][-1] == [0, 1, 2, 3]


def test_12_new_partitions_are_assigned(new_queue: Callable[..., Queue]) -> None:
    queue = new_queue()
    with queue.member() as member:
        queue.produce(1)
        assert member.first().offsets == [0]
        grown = CreatePartitionsRequest([CreatePartitionsTopic(queue.topic, 2, None)], 5000)
        assert queue.client.ask("create_partitions", 3, grown).results[0].error_code == 0
        deadline = time.monotonic() + 20
        while assigned(member.heartbeat(topics=[queue.topic])) != [0, 1]:
            assert time.monotonic() < deadline
        queue.produce(1, partition=1)
        response = member.fetch([1], max_wait_ms=WAIT_MS)
        # The old partition kept its state: what is held there is not delivered again.
        assert {p: len(row.acquired_records) for p, row in partitions_of(response).items()} == {
            1: 1
        }


# -- sessions -------------------------------------------------------------------------------------


def test_14_15_16_epochs_of_both_apis(queue: Queue) -> None:
    queue.produce(3)
    with queue.member() as member:
        not_found = member.fetch([0], epoch=3)
        assert not_found.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert member.acknowledge({0: []}, epoch=1).error_code == not_found.error_code
        assert member.first(max_records=1).offsets == [0]
        assert member.acknowledge({0: []}, epoch=0).error_code == (
            ErrorCode.INVALID_SHARE_SESSION_EPOCH
        )
        refused = member.fetch([], {0: [(0, 0, ACCEPT)]}, epoch=0)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        wrong = member.fetch([], epoch=7)
        assert wrong.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert member.session_epoch == 1
        assert member.ack(0, 0, ACCEPT) == 0
        assert member.acquire().offsets == [1, 2]
        assert member.session_epoch == 3


def test_17_a_full_session_cache_answers_late(queue: Queue) -> None:
    with queue.member() as member, queue.member() as late:
        name = member.member_id
        for number in range(MAX_SESSIONS):
            member.member_id = f"{name[:30]}{number}"
            if member.fetch([0], epoch=0).error_code:
                break
        before = time.monotonic()
        refused = late.fetch([0], epoch=0, max_wait_ms=300)
        assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert time.monotonic() - before >= 0.3
    with queue.member() as member:
        deadline = time.monotonic() + 20
        while member.fetch([0], epoch=0).error_code:
            assert time.monotonic() < deadline, "the sessions of a closed connection stay"


def test_18_the_old_connection_does_not_end_a_reopened_session(queue: Queue) -> None:
    queue.produce(2)
    with queue.member() as old, queue.member() as other:
        assert old.first(max_records=1).offsets == [0]
        with queue.newcomer(member_id=old.member_id) as new:
            assert new.first(max_records=1).offsets == [1]
            old.client.close()
            # Nothing is released, so there is nothing for another member, now or later.
            assert other.first(max_wait_ms=300).offsets == []
            assert new.acknowledge({0: [(0, 1, ACCEPT)]}).error_code == 0
            assert new.session_epoch == 2


def test_19_a_final_acknowledgement_after_leaving(queue: Queue) -> None:
    queue.produce(4)
    with queue.member() as leaves, queue.member() as stays:
        assert leaves.first().offsets == [0, 1, 2, 3]
        assert leaves.leave().error_code == 0
        assert leaves.ack(0, 1, ACCEPT, epoch=-1) == 0
        assert stays.first().ranges == [(2, 3, 2)]


def test_20_forgotten_records_can_be_acknowledged(new_queue: Callable[..., Queue]) -> None:
    queue = new_queue(partitions=2)
    queue.produce(1)
    with queue.member() as member:
        assert member.first([0, 1]).offsets == [0]
        member.fetch([], forgotten_topics_data=[ForgottenTopic(member.topic_id, [0])])
        assert member.ack(0, 0, ACCEPT) == 0


# -- delivery -------------------------------------------------------------------------------------


def test_21_latest_and_earliest(new_queue: Callable[..., Queue]) -> None:
    queue = new_queue(share_auto_offset_reset="latest")
    queue.produce(2)
    with queue.member() as member:
        assert member.first(max_wait_ms=100).offsets == []
        queue.produce(1)
        assert member.acquire(max_wait_ms=WAIT_MS).offsets == [2]
    earliest = new_queue()
    earliest.produce(2)
    with earliest.member() as member:
        assert member.first().offsets == [0, 1]


def test_22_23_44_a_released_record_wakes_who_waits(queue: Queue) -> None:
    queue.produce(1)
    with queue.member() as holder, queue.member() as waiter:
        assert holder.first().ranges == [(0, 0, 1)]
        assert waiter.first(max_wait_ms=100).offsets == []
        waiter.client.send("share_fetch", 2, waiter.fetch_request(max_wait_ms=60_000))
        assert holder.ack(0, 0, RELEASE) == 0
        # Long before a minute is over: the client itself would not wait that long.
        assert acquired(waiter.fetched()).ranges == [(0, 0, 2)]


def test_24_a_rejected_record_is_gone(queue: Queue) -> None:
    queue.produce(2)
    with queue.member() as member, queue.member() as other:
        assert member.first().offsets == [0, 1]
        assert member.ack(0, 0, REJECT) == 0
        assert member.ack(1, 1, RELEASE) == 0
        assert other.first().ranges == [(1, 1, 2)]


def test_25_a_lock_that_ends(new_queue: Callable[..., Queue]) -> None:
    queue = new_queue(share_record_lock_duration_ms=str(LOCK_MS))
    queue.produce(1)
    with queue.member() as slow, queue.member() as other:
        assert slow.first().ranges == [(0, 0, 1)]
        assert other.first().ranges == [(0, 0, 2)]
        assert slow.ack(0, 0, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
        assert other.ack(0, 0, ACCEPT) == 0
        # The window has passed it: acknowledging again does nothing, and is no error.
        assert slow.ack(0, 0, ACCEPT) == 0


def test_27_28_one_bad_range_spoils_its_partition_alone(new_queue: Callable[..., Queue]) -> None:
    queue = new_queue(partitions=2)
    for partition in (0, 1):
        queue.produce(4, partition=partition)
    with queue.member() as member, queue.member() as other:
        # A partition whose state is read later than the other's comes with a later fetch.
        records = len(member.first([0, 1]).offsets)
        while records < 8:
            records += len(member.acquire(max_wait_ms=WAIT_MS).offsets)
        answer = member.acknowledge({0: [(0, 0, ACCEPT), (2, 9, ACCEPT)], 1: [(0, 3, ACCEPT)]})
        rows = {row.partition_index: row.error_code for row in answer.responses[0].partitions}
        assert rows == {0: ErrorCode.INVALID_REQUEST, 1: 0}
        other.first([0, 1], max_wait_ms=0)
        assert other.ack(0, 3, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
        assert member.ack(0, 3, ACCEPT) == 0


def test_33_whole_batches_or_no_more_than_asked_for(queue: Queue) -> None:
    queue.produce(10, together=True)
    with queue.member() as exact, queue.member() as whole:
        assert exact.first(max_records=3, share_acquire_mode=1).ranges == [(0, 2, 1)]
        assert whole.first().ranges == [(3, 9, 1)]
        queue.produce(10, together=True)
        assert whole.acquire(max_records=3, max_wait_ms=WAIT_MS).ranges == [(10, 19, 1)]


def test_40_deleted_records_move_the_start(queue: Queue) -> None:
    queue.produce(10)
    with queue.member() as member:
        assert member.first(max_records=4).offsets == [0, 1, 2, 3]
        partition = DeleteRecordsPartition(0, 8)
        gone = DeleteRecordsRequest([DeleteRecordsTopic(queue.topic, [partition])], 5000)
        assert queue.client.ask("delete_records", 2, gone).topics[0].partitions[0].error_code == 0
        assert member.acquire(max_wait_ms=WAIT_MS).offsets == [8, 9]
        assert member.ack(0, 3, ACCEPT) == 0
        assert member.ack(8, 9, ACCEPT) == 0


def test_41_renewing(new_queue: Callable[..., Queue]) -> None:
    queue = new_queue(share_record_lock_duration_ms=str(2 * LOCK_MS))
    queue.produce(1)
    with queue.member() as member, queue.member() as other, queue.member(version=1) as old:
        assert member.first().ranges == [(0, 0, 1)]
        taken = time.monotonic()
        assert member.ack(0, 0, RENEW) == ErrorCode.INVALID_REQUEST
        refused = member.fetch([], {0: [(0, 0, RENEW)]}, is_renew_ack=True)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        old.first(max_wait_ms=0)
        assert old.ack(0, 0, RENEW) == ErrorCode.INVALID_REQUEST
        time.sleep(max(0.0, taken + 1.3 * LOCK_MS / 1000 - time.monotonic()))
        nothing = {"max_records": 0, "max_bytes": 0, "min_bytes": 0}
        renewal = member.fetch([], {0: [(0, 0, RENEW)]}, is_renew_ack=True, **nothing)
        renewed = time.monotonic()
        assert acquired(renewal).ranges == []
        assert other.first().ranges == [(0, 0, 2)]
        # Measured from the renewal: it cannot have been sooner, however slow the machine is.
        assert time.monotonic() - renewed >= 1.9 * LOCK_MS / 1000
        set_group_configs(queue.client, queue.group, share_renew_acknowledge_enable="false")
        code = other.ack(0, 0, RENEW, is_renew_ack=True)
        assert code == ErrorCode.INVALID_RECORD_STATE


def test_42_43_what_is_not_there(queue: Queue) -> None:
    queue.produce(1)
    with queue.member() as member:
        assert member.first().offsets == [0]
        assert member.ack(0, 5, ACCEPT) == ErrorCode.INVALID_REQUEST
        unknown = member.acknowledge({0: [(0, 0, ACCEPT)]}, topic_id=b"\x07" * 16)
        assert unknown.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        nowhere = partitions_of(member.fetch([5], {0: [(0, 0, ACCEPT)]}))
        assert nowhere[5].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert nowhere[0].acknowledge_error_code == 0


def test_45_a_broken_connection_releases_at_once(queue: Queue) -> None:
    queue.produce(2)
    with queue.member() as other:
        with queue.member() as dies:
            assert dies.first().ranges == [(0, 1, 1)]
            other.client.send("share_fetch", 2, other.fetch_request([0], max_wait_ms=60_000))
        assert acquired(other.fetched()).ranges == [(0, 1, 2)]


def test_45_what_was_asked_last_is_done_although_nobody_hears_of_it(queue: Queue) -> None:
    queue.produce(2)
    with queue.member() as stays:
        assert stays.first(max_records=1).offsets == [0]
        with queue.member() as dies:
            assert dies.first(max_records=1).offsets == [1]
            last = dies.fetch_request([], {0: [(1, 1, ACCEPT)]}, epoch=-1)
            dies.client.send("share_fetch", 2, last)
        assert stays.ack(0, 0, ACCEPT) == 0
        deadline = time.monotonic() + 20
        while described_offsets(queue.client, queue.group)[queue.topic, 0].lag:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_an_unknown_acquire_mode_is_refused(queue: Queue) -> None:
    with queue.member() as member:
        refused = member.fetch([0], share_acquire_mode=9)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
