"""What the conformance tests share: a raw connection, topic and group names of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ottla
from tests.support.names import fresh
from tests.support.raw_client import RawClient
from tests.support.share_member import SHARE_CONFIG
from tests.support.share_place import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def raw(ottla_broker: ottla.EmbeddedBroker) -> Iterator[RawClient]:
    """A connection that speaks the protocol and nothing else."""
    with RawClient(ottla_broker.bootstrap) as client:
        yield client


@pytest.fixture
def group() -> str:
    """A group id that no other test uses."""
    return fresh("group")


@pytest.fixture
def new_topic(ottla_broker: ottla.EmbeddedBroker) -> Callable[..., str]:
    """Make topics with partitions and configs; they stay until the session's broker ends."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = fresh("topic")
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        ottla_broker.create_topic(name, partitions=partitions, configs=settings)
        return name

    return make


@pytest.fixture(scope="module")
def share_broker() -> Iterator[ottla.EmbeddedBroker]:
    """Ottla's, where locks can be short."""
    with ottla.EmbeddedBroker(config=SHARE_CONFIG) as broker:
        yield broker


@pytest.fixture(params=["ottla", "apache"])
async def place(request: pytest.FixtureRequest) -> Place:
    """On each of the brokers that must not make a difference."""
    if request.param == "apache":
        bootstrap: str = request.getfixturevalue("apache_bootstrap")
    else:
        bootstrap = request.getfixturevalue("share_broker").bootstrap
    made = Place(bootstrap)
    await made.create()
    return made


@pytest.fixture
def own(share_broker: ottla.EmbeddedBroker) -> Place:
    """On Ottla's broker alone."""
    made = Place(share_broker.bootstrap)
    share_broker.create_topic(made.topic)
    return made
