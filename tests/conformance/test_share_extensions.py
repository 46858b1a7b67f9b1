"""Ottla's own fields in ShareFetch and ShareAcknowledge, and its settings for long batches."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from ottla.testing.embedded import EmbeddedBroker
from ottla.wire.schema import share_acknowledge as ack
from tests.support.share_member import (
    RELEASE,
    SHARE_CONFIG,
    set_group_configs,
)
from tests.support.share_queue import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator

WINDOW = 1_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    config = {**SHARE_CONFIG, "group.share.max.partition.max.record.locks": str(WINDOW)}
    with EmbeddedBroker(config=config) as broker:
        yield broker


@pytest.fixture
def queue(broker: EmbeddedBroker) -> Iterator[Queue]:
    queue = Queue(broker.bootstrap)
    yield queue
    queue.close()


def test_a_fetch_that_only_acquires_brings_ranges_without_records(queue: Queue) -> None:
    member = queue.member()
    queue.produce(5, together=True)
    answer = member.fetch((0,), epoch=0, max_wait_ms=10_000, is_acquire_only=True)
    [row] = answer.responses[0].partitions
    assert [tuple(one) for one in row.acquired_records] == [(0, 4, 1)]
    assert not row.records
    assert member.ack(0, 4, RELEASE) == 0
    assert member.acquire().ranges == [(0, 4, 2)]


def test_an_uncounted_release_does_not_raise_the_delivery_count(queue: Queue) -> None:
    member = queue.member()
    queue.produce(5, together=True)
    assert member.first().ranges == [(0, 4, 1)]
    for _ in range(7):  # more often than the limit would let it
        named = [ack.AcknowledgePartition(0, [ack.AcknowledgementBatch(0, 4, [RELEASE])])]
        topics = [ack.AcknowledgeTopic(member.topic_id, named)]
        request = ack.ShareAcknowledgeRequest(
            queue.group, member.member_id, member.session_epoch, False, topics, is_uncounted=True
        )
        answer = member.client.ask("share_acknowledge", 2, request)
        assert answer.responses[0].partitions[0].error_code == 0
        member.session_epoch += 1
        assert member.acquire().ranges == [(0, 4, 1)]


def test_a_member_with_grace_comes_back_to_its_locks(queue: Queue) -> None:
    set_group_configs(queue.client, queue.group, share_session_grace_ms="30000")
    member = queue.member(member_id="m")
    queue.produce(5, together=True)
    assert member.first().offsets == [0, 1, 2, 3, 4]
    member.client.close()
    again = queue.newcomer(member_id="m")
    assert again.fetch((0,), epoch=0, max_records=0).error_code == 0
    assert again.ack(0, 4, RELEASE) == 0, "it is not held any more"


def test_a_grace_that_ends_gives_back_what_was_held(queue: Queue) -> None:
    set_group_configs(queue.client, queue.group, share_session_grace_ms="200")
    member = queue.member()
    queue.produce(5, together=True)
    member.first()
    other = queue.member()
    member.client.close()
    began = time.monotonic()
    # Well before the lock would end by itself, and not at once.
    assert other.first().ranges == [(0, 4, 2)]
    assert time.monotonic() - began >= 0.15


def test_a_window_of_a_million_records(queue: Queue) -> None:
    set_group_configs(queue.client, queue.group, share_partition_max_record_locks=str(WINDOW))
    member = queue.member()
    for _ in range(6):
        queue.produce(1000, together=True)
    settings = {"max_records": WINDOW, "batch_size": WINDOW, "is_acquire_only": True}
    answer = member.fetch((0,), epoch=0, max_wait_ms=10_000, **settings)
    [row] = answer.responses[0].partitions
    assert [tuple(one) for one in row.acquired_records] == [(0, 5999, 1)]
    assert member.ack(0, 5999, RELEASE) == 0
