"""Changes of topics: what comes after the answer, and what is said if none comes.

A topic that was created can be used, though brokers answer before they have heard of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.admin import topics as admin_topics
from ottla.client.admin.admin import Admin
from ottla.client.errors import BrokerUnreachable, ClientError, ConnectionLost, RequestTimedOut
from ottla.wire.schema.create_partitions import CreatePartitionsRequest
from ottla.wire.schema.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.schema.delete_topics import DeleteTopicsRequest
from ottla.wire.schema.metadata import MetadataRequest, MetadataResponse
from tests.support.client_broker import Instead, ScriptedBroker, describe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

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


@pytest.mark.parametrize(
    ("instead", "kind"), [(Instead.HANG_UP, ConnectionLost), (Instead.SILENCE, RequestTimedOut)]
)
@pytest.mark.parametrize(
    ("request_type", "call", "words"),
    [
        (
            CreateTopicsRequest,
            lambda admin: admin.create_topic("t"),
            r"create topic 't': .*; it may have been carried out: check with list_topics\(\)",
        ),
        (
            DeleteTopicsRequest,
            lambda admin: admin.delete_topics(["t"]),
            r"delete topic 't': .*; it may have been carried out: check with list_topics\(\)",
        ),
        (
            CreatePartitionsRequest,
            lambda admin: admin.create_partitions("t", 2),
            r"grow topic 't' to 2: .*; it may .*: check with describe_topics\(\), and call again",
        ),
    ],
)
async def test_a_change_in_flight_may_have_been_carried_out(
    instead: Instead,
    kind: type[ClientError],
    request_type: type[Any],
    call: Callable[[Admin], Awaitable[object]],
    words: str,
) -> None:
    async with ScriptedBroker() as broker, Admin(broker.bootstrap, request_timeout=0.5) as admin:
        describe({1: broker}, controller=1)
        await admin.list_topics()  # finds the controller
        broker.script(request_type, instead)
        with pytest.raises(kind, match=words):
            await call(admin)
        assert len(broker.asked(request_type)) == 1


async def test_what_changes_nothing_is_sent_again() -> None:
    async with ScriptedBroker() as broker, Admin(broker.bootstrap) as admin:
        describe({1: broker}, controller=1)
        broker.script(CreateTopicsRequest, Instead.HANG_UP, MADE)
        assert (await admin.create_topic("t", validate_only=True)).name == "t"
        assert len(broker.asked(CreateTopicsRequest)) == 2


async def test_a_change_that_was_never_sent_was_not_carried_out() -> None:
    async with Admin("127.0.0.1:1", api_timeout=0.3) as admin:
        with pytest.raises(BrokerUnreachable) as said:
            await admin.create_topic("t")
    assert "may have been carried out" not in str(said.value)
