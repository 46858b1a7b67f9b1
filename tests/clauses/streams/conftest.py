"""A place of each backend; tests say which by parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clauses.streams.places import BACKENDS, SERVERS, STORES, Place, place

if TYPE_CHECKING:
    from pathlib import Path

    from ottla import EmbeddedBroker
    from tests.services import RedisServer


@pytest.fixture
def kafka(broker: EmbeddedBroker) -> Place:
    return place("kafka", f"kafka://{broker.bootstrap}", broker)


@pytest.fixture
def redis(redis_server: RedisServer) -> Place:
    return place("redis", redis_server.url)


@pytest.fixture
def file(tmp_path: Path) -> Place:
    return place("file", f"file://{tmp_path}/streams.ss")


@pytest.fixture
def stdio() -> Place:
    return place("stdio", "stdio://.")


def _of(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=BACKENDS)
def anywhere(request: pytest.FixtureRequest) -> Place:
    """Each of the four backends."""
    return _of(request)


@pytest.fixture(params=STORES)
def stored(request: pytest.FixtureRequest) -> Place:
    """Each backend that keeps what was sent: Kafka, Redis and files."""
    return _of(request)


@pytest.fixture(params=SERVERS)
def served(request: pytest.FixtureRequest) -> Place:
    """Each backend that keeps positions: Kafka and Redis."""
    return _of(request)
