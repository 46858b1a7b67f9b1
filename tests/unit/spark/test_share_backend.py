"""The share source without Spark around it: each backend is a process of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.spark.backend import Limit
from ottla.spark.share_machine import parse_offset
from ottla.testing.embedded import EmbeddedBroker
from tests.support.spark_share import BROKER_CONFIG, lags, new_group, rows, share_backend, take
from tests.support.spark_source import fill, new_topic

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=BROKER_CONFIG) as running:
        yield running


def test_batches_are_settled_by_the_next_offset(broker: EmbeddedBroker) -> None:
    topic, group = new_topic(broker, 2), new_group(broker.bootstrap)
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
