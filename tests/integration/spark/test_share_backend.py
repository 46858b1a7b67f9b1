"""The share source without Spark around it: each backend is a process of a query."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from ottla.client.cluster.view import TopicPartition
from ottla.spark.backend import Limit
from ottla.spark.share.machine import ShareOffset, parse_offset
from ottla.spark.share.ranges import Span
from ottla.testing.embedded import EmbeddedBroker
from tests.support.spark_share import (
    BROKER_CONFIG,
    group_config,
    lags,
    new_group,
    rows,
    share_backend,
    take,
)
from tests.support.spark_source import fill, new_topic

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=BROKER_CONFIG) as running:
        yield running


def test_batches_are_settled_by_the_next_offset(broker: EmbeddedBroker) -> None:
    topic, group = new_topic(broker, 2), new_group(broker.bootstrap)
    # A poll returns with what one partition has while the other is still being loaded.
    assert take(broker.bootstrap, group, topic, 0.1) == []
    while lags(broker.bootstrap, group) != {0: 0, 1: 0}:
        assert take(broker.bootstrap, group, topic, 0.1) == []
    fill(broker, topic, {0: 20, 1: 30})
    source = share_backend(broker.bootstrap, group, topic)
    start = source.bounds().first
    first = source.advance(start, Limit())
    assert rows(source, start, first) == rows(source, start, first)
    assert len(rows(source, start, first)) == 50
    assert take(broker.bootstrap, group, topic, 0.3) == []
    source.settle(first)
    assert source.advance(first, Limit()) == first
    assert lags(broker.bootstrap, group) == {0: 0, 1: 0}
    fill(broker, topic, {0: 5})
    second = source.advance(first, Limit())
    assert [row[:2] for row in rows(source, first, second)] == [(0, at) for at in range(20, 25)]
    assert parse_offset(second, group).batch == 2
    source.close()
    source.close()


def test_stopping_gives_back_what_was_not_planned_and_holds_the_rest(
    broker: EmbeddedBroker,
) -> None:
    topic = new_topic(broker)
    group = new_group(broker.bootstrap, share_session_grace_ms="30000")
    fill(broker, topic, {0: 100})
    source = share_backend(broker.bootstrap, group, topic, share__maxRecords="40")
    start = source.bounds().first
    end = source.advance(start, Limit())
    assert len(rows(source, start, end)) == 40
    source.close()
    others = take(broker.bootstrap, group, topic, 5.0)
    assert {(record.offset, record.delivery_count) for record in others} == {
        (at, 1) for at in range(40, 100)
    }
    # The next life finds the locks of the batch where it left them.
    again = share_backend(broker.bootstrap, group, topic)
    assert rows(again, start, end) == [(0, at, 1) for at in range(40)]
    again.settle(end)
    assert again.latest() == {"held": 0, "waiting": 0, "ghosts": 0, "lostLocks": 0}
    rest = again.advance(end, Limit())
    assert rows(again, end, rest) == [(0, at, 2) for at in range(40, 100)]
    again.close()


def test_stopping_with_release_gives_back_everything(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker)
    group = new_group(broker.bootstrap, share_session_grace_ms="30000")
    fill(broker, topic, {0: 10})
    source = share_backend(broker.bootstrap, group, topic, share__onStop="release")
    source.advance(source.bounds().first, Limit())
    source.close()
    assert len(take(broker.bootstrap, group, topic, 5.0)) == 10


def test_the_member_is_the_one_that_was_asked_for(broker: EmbeddedBroker) -> None:
    topic, group = new_topic(broker), new_group(broker.bootstrap)
    fill(broker, topic, {0: 3})
    source = share_backend(broker.bootstrap, group, topic, share__memberId="spark-1")
    assert parse_offset(source.advance(source.bounds().first, Limit()), group).member == "spark-1"
    source.close()


def test_a_frozen_query_leaves_what_came_later(broker: EmbeddedBroker) -> None:
    topic, group = new_topic(broker), new_group(broker.bootstrap)
    fill(broker, topic, {0: 10})
    source = share_backend(broker.bootstrap, group, topic)
    source.freeze()
    fill(broker, topic, {0: 10})
    start = source.bounds().first
    end = source.advance(start, Limit())
    assert [row[1] for row in rows(source, start, end)] == list(range(10))
    source.settle(end)
    assert source.advance(end, Limit()) == end
    source.close()
    later = take(broker.bootstrap, group, topic, 5.0)
    assert {(one.offset, one.delivery_count) for one in later} == {(at, 1) for at in range(10, 20)}


def test_the_delivery_limit_is_raised_where_nobody_has_set_it(broker: EmbeddedBroker) -> None:
    limits = {}
    for name, configs in (("unset", {}), ("set", {"share_delivery_count_limit": "3"})):
        topic, group = new_topic(broker), new_group(broker.bootstrap, **configs)
        source = share_backend(broker.bootstrap, group, topic, longPollMs="0")
        source.advance(source.bounds().first, Limit())
        source.close()
        limits[name] = group_config(broker.bootstrap, group, "share.delivery.count.limit")
    assert limits == {"unset": "10", "set": "3"}


def test_fragments_are_read_in_one_go_and_gaps_are_left_out(broker: EmbeddedBroker) -> None:
    topic, group = new_topic(broker, 2), new_group(broker.bootstrap)
    fill(broker, topic, {0: 500, 1: 500})
    spans = {
        TopicPartition(topic, 0): [Span(3, 3, 2), Span(5, 9), Span(499, 499)],
        TopicPartition(topic, 1): [Span(0, 0), Span(100, 199, 4)],
    }
    end = ShareOffset(group, "m", 1, spans, {}).to_json()
    source = share_backend(broker.bootstrap, group, topic, maxRecordsPerPartition="100")
    expected = sorted(
        (place.partition, at, one.deliveries)
        for place, some in spans.items()
        for one in some
        for at in range(one.first, one.last + 1)
    )
    assert rows(source, source.bounds().first, end) == expected
    source.close()


def test_what_waits_and_cannot_be_renewed_goes_back_uncounted(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker)
    settings = {"share_renew_acknowledge_enable": "false", "share_record_lock_duration_ms": "2000"}
    group = new_group(broker.bootstrap, **settings)
    fill(broker, topic, {0: 100})
    source = share_backend(broker.bootstrap, group, topic, share__maxRecords="10")
    source.advance(source.bounds().first, Limit())
    deadline = time.monotonic() + 30
    while (source.latest() or {})["waiting"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    others = take(broker.bootstrap, group, topic, 5.0)
    assert {one.delivery_count for one in others if one.offset >= 10} == {1}
    source.close()
