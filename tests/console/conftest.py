"""A broker with data, and the console's application on it, shared within a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from ottla.console.serve import make_app
from ottla.console.settings import ClusterSettings, Settings
from ottla.testing.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

URL = "http://127.0.0.1:9095"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="module")
def settings(broker: EmbeddedBroker) -> Settings:
    return Settings(clusters=(ClusterSettings("local", broker.bootstrap),))


@pytest.fixture(scope="module")
def console(settings: Settings) -> Iterator[TestClient]:
    with TestClient(make_app(settings), base_url=URL, raise_server_exceptions=True) as client:
        yield client
