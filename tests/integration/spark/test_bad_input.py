"""What a query is given that cannot be, and what its surroundings do to it: one sentence each.

What is not here has a test by its case: refused options and offsets that are no JSON (1, 5), loss
by retention and topics that were made anew (26), brokers that restart under a task (27), drivers
that are killed (18, 19, 30, 31), killed workers (the chaos of case 19), poison rows (34, 35).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from ottla.client.errors import ClientError, KafkaError
from ottla.spark.backend import Limit
from ottla.spark.errors import BadCheckpoint, DataLoss
from ottla.spark.log.backend import LogBackend
from ottla.spark.options import parse_source
from ottla.testing.embedded import EmbeddedBroker
from tests.support.spark_share import BROKER_CONFIG, new_group, share_backend
from tests.support.spark_source import backend, fill, new_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IMPATIENT: Final = {"kafka.request.timeout.ms": "1000", "kafka.default.api.timeout.ms": "1000"}
NOWHERE: Final = "127.0.0.1:1"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=BROKER_CONFIG) as running:
        yield running


def test_a_topic_that_is_missing_is_named(broker: EmbeddedBroker) -> None:
    source = backend(broker, subscribe=f"{new_topic(broker)},no-such-topic")
    with pytest.raises(KafkaError, match=r"find topic no-such-topic: .*; check the name"):
        source.bounds()
    source.close()


def test_a_broker_that_is_down_at_the_start_is_named_within_the_time_for_it() -> None:
    given = {"kafka.bootstrap.servers": NOWHERE, "subscribe": "t", **IMPATIENT}
    source = LogBackend(parse_source(given, "stream"))
    with pytest.raises(ClientError, match=f"connect to {NOWHERE}"):
        source.bounds()
    source.close()
    queue = share_backend(NOWHERE, "g", "t", **IMPATIENT)
    with pytest.raises(ClientError, match=f"connect to {NOWHERE}"):
        queue.advance(queue.bounds().first, Limit())
    queue.close()


def test_a_broker_that_is_down_in_a_query_fails_it_and_it_goes_on_when_started_again(
    tmp_path: Path,
) -> None:
    with EmbeddedBroker(tmp_path) as first:
        topic = new_topic(first)
        fill(first, topic, {0: 5})
        source = backend(first, subscribe=topic, startingOffsets="earliest", **IMPATIENT)
        start = source.bounds().first
        end = source.advance(start, Limit())
        address = first.bootstrap
    # Spark keeps `end`: whoever starts the query again begins there.
    with pytest.raises(ClientError, match=address):
        source.advance(end, Limit())
    source.close()
    with EmbeddedBroker(tmp_path) as second:
        fill(second, topic, {0: 2})
        again = backend(second, subscribe=topic)
        assert again.advance(end, Limit()) == {topic: {"0": 7}}
        again.close()


def test_a_checkpoint_of_another_query_is_told(broker: EmbeddedBroker) -> None:
    topic, group = new_topic(broker), new_group(broker.bootstrap)
    fill(broker, topic, {0: 3})
    log = backend(broker, subscribe=topic)
    queue = share_backend(broker.bootstrap, group, topic)
    with pytest.raises(BadCheckpoint, match="give the query a checkpointLocation of its own"):
        log.advance(queue.bounds().first, Limit())
    with pytest.raises(BadCheckpoint, match="checkpointLocation of its own"):
        queue.settle({topic: {"0": 3}})
    for call in (lambda at: log.advance(at, Limit()), lambda at: log.plan(at, at)):
        with pytest.raises(DataLoss, match="or the checkpoint is that of another query"):
            call({"another-topic": {"0": 3}})
    log.close()
    queue.close()
