"""A topic with its share group, for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clauses.share_consumer.queue import Queue

if TYPE_CHECKING:
    from ottla import EmbeddedBroker


@pytest.fixture
def queue(broker: EmbeddedBroker, topic: str, group: str) -> Queue:
    """A queue without records; its group starts at the beginning."""
    return Queue(broker.bootstrap, topic, group)
