"""Reading a dead-letter topic with librdkafka's plain consumer."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

from confluent_kafka import Consumer

from tests.support.share_workers import PATIENCE

_numbers = count(1)


def read_letters(bootstrap: str, topic: str, letters: int) -> list[Any]:
    """That many, from the start of the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"letter-readers-{next(_numbers)}",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 100,
            "allow.auto.create.topics": False,
        }
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < letters:
        assert time.monotonic() < deadline, f"{len(found)} of {letters} letters"
        found += [one for one in consumer.consume(100, 0.2) if one.error() is None]
    consumer.close()
    return found
