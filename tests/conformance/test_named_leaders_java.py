"""KIP-951 as Kafka's Java consumer uses it: it goes to the leader that a refusal names."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest

from ottla import EmbeddedBroker
from ottla.wire.records import Record
from tests.support.java_client import JavaClient
from tests.support.java_tools import kept_tools
from tests.support.jvm import why_no_jvm
from tests.support.topics import PATIENCE, produce

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.jvm

TOPIC: Final = "led"
FETCH: Final = 1
# A consumer that was told nothing would look the leader up after that.
BACKOFF_MS: Final = 120_000
IDLE_SECONDS: Final = 40.0


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)
    with EmbeddedBroker(nodes=2) as broker:
        broker.create_topic(TOPIC)
        broker.move(TOPIC, 0, 1)
        yield broker


def fetches(broker: EmbeddedBroker, node: int) -> int:
    assert broker._nodes is not None
    return broker._nodes.running[node].dispatcher.requests.get(FETCH, 0)


def test_the_java_consumer_goes_to_the_leader_it_is_told(broker: EmbeddedBroker) -> None:
    config = {
        "retry.backoff.ms": str(BACKOFF_MS),
        "retry.backoff.max.ms": str(BACKOFF_MS),
        "fetch.max.wait.ms": "100",
    }
    produce(broker.bootstrap, TOPIC, [Record(0, 0, None, b"before")])
    with kept_tools() as tools, ThreadPoolExecutor(1) as other:
        java = JavaClient(broker.bootstrap, tools)
        read = other.submit(java.consume, TOPIC, 2, idle=IDLE_SECONDS, config=config)
        deadline = time.monotonic() + PATIENCE
        while fetches(broker, 1) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        broker.move(TOPIC, 0, 2)
        produce(broker.bootstrap, TOPIC, [Record(0, 0, None, b"after")])
        assert [one.record.value for one in read.result()] == [b"before", b"after"]
