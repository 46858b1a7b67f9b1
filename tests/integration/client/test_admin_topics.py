"""A topic that was created can be used, though brokers answer before they have heard of it."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client.admin import topics as admin_topics
from ottla.client.admin.admin import Admin
from ottla.wire.schema.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.schema.metadata import MetadataRequest, MetadataResponse
from tests.support.client_broker import Instead, ScriptedBroker, describe

MADE = CreateTopicsResponse(topics=[CreatableTopicResult("t", num_partitions=1)])


def about_t(broker: ScriptedBroker) -> int:
    """How often it was asked for the topic."""
    asked = [one.topics or () for one in broker.asked(MetadataRequest)]
    return sum(topic.name == "t" for topics in asked for topic in topics)


async def test_a_topic_is_waited_for() -> None:
    async with ScriptedBroker() as broker, Admin(broker.bootstrap) as admin:
        describe({1: broker}, controller=1)
        broker.script(CreateTopicsRequest, MADE)
        creating = asyncio.create_task(admin.create_topic("t"))
        await broker.until(lambda: about_t(broker) == 3)
        assert not creating.done()
        describe({1: broker}, {"t": [1]}, controller=1)
        assert (await creating).partitions == 1
        assert len(broker.asked(CreateTopicsRequest)) == 1


@pytest.mark.parametrize("answer", [MetadataResponse(), Instead.HANG_UP])
async def test_it_is_there_even_if_nobody_says_so(
    monkeypatch: pytest.MonkeyPatch, answer: MetadataResponse | Instead
) -> None:
    monkeypatch.setattr(admin_topics, "HEARD_OF_WITHIN", 0.05)
    async with ScriptedBroker() as broker, Admin(broker.bootstrap) as admin:
        describe({1: broker}, controller=1)
        broker.script(CreateTopicsRequest, MADE)
        await admin.list_topics()  # finds the controller
        broker.script(MetadataRequest, answer)
        assert (await admin.create_topic("t")).name == "t"
        asked = about_t(broker)
        assert (await admin.create_topic("t", validate_only=True)).name == "t"
        assert about_t(broker) == asked, "nothing was made, and nothing is waited for"
