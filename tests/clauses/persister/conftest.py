"""The share state of a group of each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clauses.persister.state import ShareState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla import EmbeddedBroker


@pytest.fixture
def state(broker: EmbeddedBroker, topic: str, group: str) -> Iterator[ShareState]:
    """Not initialized yet; the state topic exists."""
    state = ShareState(broker.bootstrap, group, topic)
    assert state.coordinator().error_code == 0
    yield state
    state.close()
