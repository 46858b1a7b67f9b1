"""One broker for each module, and topics and groups that no other test uses."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from ottla import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

_numbers = count(1)


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """The module's broker; a module that needs settings has them in `BROKER_CONFIG`."""
    with EmbeddedBroker(config=getattr(request.module, "BROKER_CONFIG", None)) as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    """A new topic with one partition."""
    name = f"topic-{next(_numbers)}"
    broker.create_topic(name)
    return name


@pytest.fixture
def group() -> str:
    """A group id that no other test uses."""
    return f"group-{next(_numbers)}"
