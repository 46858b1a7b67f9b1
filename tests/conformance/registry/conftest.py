"""A broker with a registry, asked by confluent-kafka's client and by plain HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from ottla import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(registry=True) as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[SchemaRegistryClient]:
    """Fresh: it remembers what it was answered."""
    with SchemaRegistryClient({"url": broker.registry_url}) as client:
        yield client
