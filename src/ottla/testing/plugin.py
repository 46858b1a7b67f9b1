"""The pytest plugin, active wherever Ottla is installed.

- `ottla_broker`: one broker for the whole session.
- `ottla_topic`: the name of a fresh topic on it for each test, deleted afterwards.

Nothing is imported or started until a test asks for one of them.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.testing.embedded import EmbeddedBroker

_numbers = count(1)


@pytest.fixture(scope="session")
def ottla_broker() -> Iterator[EmbeddedBroker]:
    """A broker shared by all tests of the session; `ottla_broker.bootstrap` is its address."""
    from ottla.testing.embedded import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def ottla_topic(ottla_broker: EmbeddedBroker) -> Iterator[str]:
    """The name of an empty topic with one partition, this test's own."""
    name = f"ottla-topic-{next(_numbers)}"
    ottla_broker.create_topic(name)
    yield name
    ottla_broker.delete_topic(name)
