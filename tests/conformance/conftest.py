"""What the conformance tests share: a raw connection, topic and group names of one's own."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla import EmbeddedBroker

_numbers = count(1)


@pytest.fixture
def raw(ottla_broker: EmbeddedBroker) -> Iterator[RawClient]:
    """A connection that speaks the protocol and nothing else."""
    with RawClient(ottla_broker.bootstrap) as client:
        yield client


@pytest.fixture
def group() -> str:
    """A group id that no other test uses."""
    return f"group-{next(_numbers)}"


@pytest.fixture
def new_topic(ottla_broker: EmbeddedBroker) -> Callable[..., str]:
    """Make topics with partitions and configs; they stay until the session's broker ends."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = f"topic-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        ottla_broker.create_topic(name, partitions=partitions, configs=settings)
        return name

    return make
