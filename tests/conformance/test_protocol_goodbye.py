"""A client that sends its last requests and closes at once: with acks=0 that is all it can do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.support.raw_client import LATEST, RawClient, batch, produce_request

if TYPE_CHECKING:
    from collections.abc import Callable

    import ottla

PATIENCE_SECONDS = 20.0


@pytest.mark.parametrize("version", [8, 11])
@pytest.mark.parametrize("requests", [1, 20, 600])
def test_what_was_sent_without_acknowledgement_before_a_close_is_written(
    ottla_broker: ottla.EmbeddedBroker, new_topic: Callable[..., str], requests: int, version: int
) -> None:
    """The log of a new partition is opened by a worker while the client goes away."""
    topic = new_topic(2)
    with RawClient(ottla_broker.bootstrap) as client:
        for number in range(requests):
            records = {0: batch(b"%d" % number), 1: batch(b"%d" % number)}
            client.send("produce", version, produce_request(topic, records, acks=0))
    deadline = time.monotonic() + PATIENCE_SECONDS
    with RawClient(ottla_broker.bootstrap) as client:
        for partition in (0, 1):
            while client.offset(topic, LATEST, partition=partition).offset < requests:
                assert time.monotonic() < deadline
                time.sleep(0.01)
