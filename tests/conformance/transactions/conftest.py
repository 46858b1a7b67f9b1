"""Requests of transactions go to Ottla and to Apache Kafka: both have to answer alike."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.names import fresh
from tests.support.raw_client import LATEST, RawClient
from tests.support.raw_transactions import CONFIG, RawProducer, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def own() -> Iterator[str]:
    with ottla.EmbeddedBroker(config=CONFIG) as broker:
        yield broker.bootstrap


@pytest.fixture(params=["own", "apache"])
def raw(request: pytest.FixtureRequest) -> Iterator[RawClient]:
    name = "apache_bootstrap" if request.param == "apache" else "own"
    with RawClient(request.getfixturevalue(name)) as client:
        yield client


@pytest.fixture
def topic(raw: RawClient) -> str:
    """A topic of two partitions of its own."""
    name = fresh("t")
    request = CreateTopicsRequest([CreatableTopic(name, 2, 1)], 30_000)
    assert raw.ask("create_topics", 7, request).topics[0].error_code == 0
    for index in (0, 1):
        wait_for(partial(_is_led, raw, name, index))
    return name


def _is_led(raw: RawClient, topic: str, partition: int) -> bool:
    return raw.offset(topic, LATEST, partition=partition).error_code == 0


@pytest.fixture
def producer(raw: RawClient) -> RawProducer:
    made = RawProducer(raw)
    assert made.init().error_code == 0
    return made
