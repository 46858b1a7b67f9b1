"""What becomes of share groups and their state: restarts, administration, deletion, pruning."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest

from ottla.coordination.share_state.records import ShareKey
from ottla.metadata.names import SHARE_GROUP_STATE_TOPIC
from ottla.testing.embedded import EmbeddedBroker
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema import alter_share_group_offsets as alter
from ottla.wire.schema import delete_share_group_state as delete
from ottla.wire.schema import read_share_group_state as read
from ottla.wire.schema import read_share_group_state_summary as summary
from ottla.wire.schema.delete_groups import DeleteGroupsRequest
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.list_groups import ListGroupsRequest
from ottla.wire.schema.share_group_describe import ShareGroupDescribeRequest
from tests.support.faults_broker import BrokerProcess
from tests.support.raw_client import EARLIEST, RawClient
from tests.support.share_member import (
    ACCEPT,
    RELEASE,
    SHARE_CONFIG,
    WAIT_MS,
    ShareMember,
    described_offsets,
    partitions_of,
    set_group_configs,
)
from tests.support.share_queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE: Final = 30.0
SHARE_KEY: Final = 2


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """One for each test: they look at everything there is."""
    with EmbeddedBroker(config=SHARE_CONFIG) as broker:
        yield broker


@pytest.fixture
def queue(broker: EmbeddedBroker) -> Iterator[Queue]:
    queue = Queue(broker.bootstrap)
    yield queue
    queue.close()


def wait_for(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def described(client: RawClient, group: str) -> Any:
    (found,) = client.ask("share_group_describe", 1, ShareGroupDescribeRequest([group])).groups
    return found


def delete_group(queue: Queue) -> int:
    answer = queue.client.ask("delete_groups", 2, DeleteGroupsRequest([queue.group]))
    code: int = answer.results[0].error_code
    return code


def alter_start(queue: Queue, offset: int) -> Any:
    start = alter.AlterShareGroupOffsetsRequestPartition(0, offset)
    topic = alter.AlterShareGroupOffsetsRequestTopic(queue.topic, [start])
    request = alter.AlterShareGroupOffsetsRequest(queue.group, [topic])
    return queue.client.ask("alter_share_group_offsets", 0, request)


# -- restarts and sessions ------------------------------------------------------------------------


def test_13_46_a_killed_broker_remembers_what_was_written(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, config=SHARE_CONFIG) as broker:
        queue = Queue(broker.bootstrap)
        queue.produce(6)
        member = queue.member()
        assert member.first().ranges == [(0, 5, 1)]
        assert member.ack(0, 0, ACCEPT) == 0
        assert member.ack(1, 1, RELEASE) == 0
        before = described(queue.client, queue.group)
        broker.kill()
        queue.close()
        broker.start()
        with ShareMember(broker.bootstrap, queue.group, queue.topic) as later:
            wait_for(lambda: described(later.client, queue.group).error_code == 0)
            assert described(later.client, queue.group) == before
            assert before.members[0].member_id == member.member_id
            # Deliveries that never ended are forgotten, those that did are counted.
            assert later.first().ranges == [(1, 1, 2), (2, 5, 1)]


def test_06_45_an_expired_member_keeps_what_it_holds(queue: Queue) -> None:
    set_group_configs(queue.client, queue.group, share_session_timeout_ms="500")
    queue.produce(1)
    with queue.member() as member:
        assert member.first().offsets == [0]
        wait_for(lambda: not described(queue.client, queue.group).members)
        assert member.heartbeat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert member.ack(0, 0, ACCEPT) == 0
        assert member.join().error_code == 0


# -- administration -------------------------------------------------------------------------------


def test_groups_are_listed_and_described(queue: Queue) -> None:
    with queue.member() as member:
        listed = queue.client.ask("list_groups", 5, ListGroupsRequest([], ["Share"])).groups
        assert [tuple(group) for group in listed] == [(queue.group, "share", "Stable", "share")]
        assert not queue.client.ask("list_groups", 5, ListGroupsRequest([], ["consumer"])).groups
        found = described(queue.client, queue.group)
        assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "simple")
        (row,) = found.members
        assert (row.member_id, row.client_id, row.client_host) == (
            member.member_id,
            "raw",
            "/127.0.0.1",
        )
        assert row.assignment.topic_partitions == ((member.topic_id, queue.topic, (0,)),)
        member.leave()
        assert described(queue.client, queue.group).group_state == "Empty"
    unknown = described(queue.client, "nobody")
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_49_new_offsets_fence_what_was_read_before(queue: Queue) -> None:
    queue.produce(5)
    with queue.member() as member:
        assert member.first().offsets == [0, 1, 2, 3, 4]
        assert alter_start(queue, 3).error_code == ErrorCode.NON_EMPTY_GROUP
        member.leave()
        assert alter_start(queue, 3).responses[0].partitions[0].error_code == 0
        # Its session is still open, but what it holds is nothing any more.
        assert member.ack(0, 4, ACCEPT) != 0
        assert member.acquire(max_wait_ms=WAIT_MS).ranges == [(3, 4, 1)]


def test_51_a_deleted_topic_takes_its_state_along(broker: EmbeddedBroker, queue: Queue) -> None:
    queue.produce(3)
    with queue.member() as member:
        assert member.first().offsets == [0, 1, 2]
        assert member.ack(0, 1, ACCEPT) == 0
        member.client.send("share_fetch", 2, member.fetch_request(max_wait_ms=60_000))
        broker.delete_topic(queue.topic)
        # Who waits is told at once, not after a minute.
        row = partitions_of(member.fetched())[0]
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert member.ack(2, 2, ACCEPT) == ErrorCode.UNKNOWN_TOPIC_ID
    wait_for(lambda: not described_offsets(queue.client, queue.group))
    queue.create_topic()
    queue.produce(2)
    with queue.member() as member:
        assert member.first().ranges == [(0, 1, 1)]


def test_52_a_deleted_group_starts_anew(queue: Queue) -> None:
    queue.produce(2)
    with queue.member() as member:
        assert delete_group(queue) == ErrorCode.NON_EMPTY_GROUP
        assert member.first().offsets == [0, 1]
        assert member.ack(0, 1, ACCEPT) == 0
        topic_id = member.topic_id
        member.leave()
    assert summed_up(queue, topic_id).start_offset == 0
    assert delete_group(queue) == 0
    assert summed_up(queue, topic_id).start_offset == -1
    assert not queue.client.ask("list_groups", 5, ListGroupsRequest()).groups
    assert delete_group(queue) == ErrorCode.GROUP_ID_NOT_FOUND
    with queue.member() as member:
        assert member.first().ranges == [(0, 1, 1)]


def test_52_what_is_held_of_state_that_is_deleted_elsewhere_is_let_go(queue: Queue) -> None:
    queue.produce(2)
    with queue.member() as member:
        assert member.first().offsets == [0, 1]
        data = delete.DeleteStateData(member.topic_id, [delete.PartitionData(0)])
        request = delete.DeleteShareGroupStateRequest(queue.group, [data])
        queue.client.ask("delete_share_group_state", 0, request)
        # Nothing can be written any more, and the share-partition is given up.
        assert member.ack(0, 0, ACCEPT) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert member.ack(0, 0, ACCEPT) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- state ----------------------------------------------------------------------------------------


def summed_up(queue: Queue, topic_id: bytes) -> summary.PartitionResult:
    data = summary.ReadStateSummaryData(topic_id, [summary.PartitionData(0, -1)])
    request = summary.ReadShareGroupStateSummaryRequest(queue.group, [data])
    answer = queue.client.ask("read_share_group_state_summary", 1, request)
    found: summary.PartitionResult = answer.results[0].partitions[0]
    assert found.error_code == 0
    return found


def topic_id(queue: Queue) -> UUID:
    return UUID(bytes=queue.client.topic(queue.topic).topic_id)


def test_53_the_state_topic_is_made_when_it_is_needed(queue: Queue) -> None:
    missing = queue.client.topic(SHARE_GROUP_STATE_TOPIC)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    key = str(ShareKey(queue.group, topic_id(queue), 0))
    asked = FindCoordinatorRequest("", SHARE_KEY, [key, "no key"])
    good, bad = queue.client.ask("find_coordinator", 6, asked).coordinators
    assert (good.error_code, good.node_id) == (0, 1)
    assert bad.error_code == ErrorCode.INVALID_REQUEST
    too_old = queue.client.ask("find_coordinator", 5, asked).coordinators[0]
    assert too_old.error_code == ErrorCode.INVALID_REQUEST
    found = queue.client.topic(SHARE_GROUP_STATE_TOPIC)
    assert (found.error_code, found.is_internal, len(found.partitions)) == (0, True, 50)


def test_58_a_key_without_state(queue: Queue) -> None:
    key = topic_id(queue)
    queue.client.ask(
        "find_coordinator",
        6,
        FindCoordinatorRequest("", SHARE_KEY, [f"{queue.group}:{'A' * 22}:0"]),
    )
    reading = read.ReadStateData(key.bytes, [read.PartitionData(0, 0)])
    answer = queue.client.ask(
        "read_share_group_state", 0, read.ReadShareGroupStateRequest(queue.group, [reading])
    )
    assert answer.results[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    found = summed_up(queue, key.bytes)
    assert (found.start_offset, found.delivery_complete_count) == (-1, -1)
    deleting = delete.DeleteStateData(key.bytes, [delete.PartitionData(0)])
    answer = queue.client.ask(
        "delete_share_group_state", 0, delete.DeleteShareGroupStateRequest(queue.group, [deleting])
    )
    assert answer.results[0].partitions[0].error_code == 0


def test_59_lag_counts_what_is_not_done(queue: Queue) -> None:
    queue.produce(100)
    with queue.member() as member:
        assert member.first().offsets == list(range(100))
        assert member.ack(0, 39, ACCEPT) == 0
        assert member.ack(50, 59, ACCEPT) == 0
    row = described_offsets(queue.client, queue.group)[queue.topic, 0]
    assert (row.start_offset, row.lag) == (40, 50)
    old = described_offsets(queue.client, queue.group, version=0)[queue.topic, 0]
    assert (old.start_offset, old.lag) == (40, type(old)().lag)


def test_57_the_state_log_is_pruned() -> None:
    config = {
        **SHARE_CONFIG,
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.snapshot.update.records.per.snapshot": "0",
        "share.coordinator.state.topic.prune.interval.ms": "50",
    }
    with EmbeddedBroker(config=config) as broker:
        queue = Queue(broker.bootstrap)
        queue.produce(5)
        with queue.member() as member:
            assert member.first().offsets == [0, 1, 2, 3, 4]
            for offset in range(5):
                assert member.ack(offset, offset, ACCEPT) == 0
            wait_for(lambda: queue.client.offset(SHARE_GROUP_STATE_TOPIC, EARLIEST).offset >= 5)
        assert described_offsets(queue.client, queue.group)[queue.topic, 0].lag == 0
        queue.close()
