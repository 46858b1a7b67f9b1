"""Routing, retries and cancellation of the cluster client.

The brokers are stand-ins, because leaders that move, answers that do not come and connections that
break cannot be had from real ones at a chosen moment.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from ottla.cli.doctor import _failing_step
from ottla.client.cluster.cluster import Client, Coordinator, together
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import (
    BrokerUnreachable,
    ClientClosed,
    ConnectionLost,
    KafkaError,
    RequestTimedOut,
    UnsupportedApi,
    check,
)
from ottla.wire.error_codes import ErrorCode
from ottla.wire.messages import message
from ottla.wire.schema import API_NAMES
from ottla.wire.schema.api_versions import ApiVersionsRequest
from ottla.wire.schema.find_coordinator import (
    Coordinator as FoundCoordinator,
)
from ottla.wire.schema.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.wire.schema.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.schema.metadata import MetadataRequest, MetadataResponse
from tests.support.client_broker import Instead, ScriptedBroker, describe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HEARTBEAT = HeartbeatRequest("g", 1, "m")
FINE = HeartbeatResponse()


@pytest.fixture
async def brokers() -> AsyncIterator[dict[int, ScriptedBroker]]:
    """Three brokers; partition n of topic t is led by broker n + 1, broker 2 is the controller."""
    async with AsyncExitStack() as stack:
        found = {node: await stack.enter_async_context(ScriptedBroker()) for node in (1, 2, 3)}
        describe(found, {"t": [1, 2, 3]}, controller=2)
        for broker in found.values():
            broker.script(HeartbeatRequest, FINE)
        yield found


def client_of(brokers: dict[int, ScriptedBroker], **options: Any) -> Client:
    """A client that knows of broker 1."""
    return Client(brokers[1].bootstrap, random=lambda: 0.0, **options)


def served(brokers: dict[int, ScriptedBroker]) -> dict[int, int]:
    """How many heartbeats each broker has seen."""
    return {node: len(broker.asked(HeartbeatRequest)) for node, broker in brokers.items()}


async def test_requests_go_where_they_belong(brokers: dict[int, ScriptedBroker]) -> None:
    async with client_of(brokers) as client:
        await client.send(HEARTBEAT, to=3)
        assert served(brokers) == {1: 0, 2: 0, 3: 1}
        await client.send(HEARTBEAT, to="controller")
        assert served(brokers) == {1: 0, 2: 1, 3: 1}
        for partition in range(3):
            await client.send(HEARTBEAT, to=TopicPartition("t", partition))
        assert served(brokers) == {1: 1, 2: 2, 3: 2}
        await client.send(HEARTBEAT, to="any")
        assert sum(served(brokers).values()) == 6
        assert [broker.connections for broker in brokers.values()] == [1, 1, 1]


async def test_what_is_known_is_not_asked_again(brokers: dict[int, ScriptedBroker]) -> None:
    async with client_of(brokers) as client:
        for _ in range(5):
            await client.send(HEARTBEAT, to=TopicPartition("t", 0))
        asked = [one for broker in brokers.values() for one in broker.asked(MetadataRequest)]
        assert len(asked) == 1
        assert not asked[0].allow_auto_topic_creation


async def test_old_metadata_is_asked_again(brokers: dict[int, ScriptedBroker]) -> None:
    async with client_of(brokers, metadata_max_age=0.0) as client:
        await client.leader_of(TopicPartition("t", 0))
        describe(brokers, {"t": [3, 3, 3]})
        assert await client.leader_of(TopicPartition("t", 0)) == 3


async def test_a_leader_that_has_moved_is_found(brokers: dict[int, ScriptedBroker]) -> None:
    async with client_of(brokers) as client:
        assert await client.leader_of(TopicPartition("t", 0)) == 1
        describe(brokers, {"t": [2, 2, 3]})
        brokers[1].script(HeartbeatRequest, HeartbeatResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))

        async def attempt() -> None:
            answer = await client.send(HEARTBEAT, to=TopicPartition("t", 0))
            check(answer.error_code, "try")

        await client.retry(attempt, repeatable=False)
        assert served(brokers) == {1: 1, 2: 1, 3: 0}


async def test_a_missing_topic_and_a_missing_partition(
    brokers: dict[int, ScriptedBroker],
) -> None:
    async with client_of(brokers) as client:
        with pytest.raises(KafkaError, match="find topic 'nope': UNKNOWN_TOPIC_OR_PARTITION"):
            await client.send(HEARTBEAT, to=TopicPartition("nope", 0))
        with pytest.raises(KafkaError, match="t-7: UNKNOWN_TOPIC_OR_PARTITION"):
            await client.send(HEARTBEAT, to=TopicPartition("t", 7))
        describe(brokers, {"t": [-1]})
        with pytest.raises(KafkaError, match="t-0: LEADER_NOT_AVAILABLE"):
            await client.send(HEARTBEAT, to=TopicPartition("t", 0))
        with pytest.raises(BrokerUnreachable, match="broker 9 is not in the cluster"):
            await client.send(HEARTBEAT, to=9)


async def test_topics_that_are_known_ride_along(brokers: dict[int, ScriptedBroker]) -> None:
    describe(brokers, {"t": [1], "u": [1]})
    async with client_of(brokers) as client:
        await client.topics(["t"])
        await client.topics(["u"])
        [_, second] = brokers[1].asked(MetadataRequest)
        assert sorted(one.name for one in second.topics) == ["t", "u"]


@pytest.mark.parametrize("newest", [0, 3, 6])
async def test_coordinators_are_found_in_every_form(
    brokers: dict[int, ScriptedBroker], newest: int
) -> None:
    place = ("127.0.0.1", brokers[3].port)
    found = FoundCoordinator("g", 3, *place)
    brokers[1].script(
        FindCoordinatorRequest,
        FindCoordinatorResponse(0, 0, None, 3, *place, coordinators=[found]),
    )
    brokers[1].versions[10] = (0, newest)
    async with client_of(brokers) as client:
        for _ in range(2):
            await client.send(HEARTBEAT, to=Coordinator("g"))
        assert served(brokers)[3] == 2
        assert brokers[1].versions_used.count(("find_coordinator", newest)) == 1
        # Data has a connection of its own.
        await client.send(HEARTBEAT, to=3)
        assert brokers[3].connections == 2


async def test_a_coordinator_that_has_moved_is_found(brokers: dict[int, ScriptedBroker]) -> None:
    def at(node: int) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=[FoundCoordinator("g", node, "127.0.0.1", brokers[node].port)]
        )

    unknown = FoundCoordinator("g", -1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    brokers[1].script(
        FindCoordinatorRequest, FindCoordinatorResponse(coordinators=[unknown]), at(2), at(3)
    )
    brokers[2].script(HeartbeatRequest, HeartbeatResponse(0, ErrorCode.NOT_COORDINATOR))
    async with client_of(brokers) as client:

        async def attempt() -> None:
            answer = await client.send(HEARTBEAT, to=Coordinator("g"))
            check(answer.error_code, "try")

        await client.retry(attempt)
        assert served(brokers) == {1: 0, 2: 1, 3: 1}


async def test_only_what_may_be_repeated_is_repeated(brokers: dict[int, ScriptedBroker]) -> None:
    for broker in brokers.values():
        broker.script(HeartbeatRequest, Instead.HANG_UP, FINE)
    async with client_of(brokers) as client:
        with pytest.raises(ConnectionLost):
            await client.retry(lambda: client.send(HEARTBEAT, to=1), repeatable=False)
        assert served(brokers)[1] == 1
        assert await client.retry(lambda: client.send(HEARTBEAT, to=2)) == FINE
        assert served(brokers)[2] == 2


async def test_retries_end_with_the_time_that_is_given(brokers: dict[int, ScriptedBroker]) -> None:
    brokers[1].script(HeartbeatRequest, HeartbeatResponse(0, ErrorCode.NOT_COORDINATOR))
    async with client_of(brokers, api_timeout=0.5) as client:

        async def attempt() -> None:
            check((await client.send(HEARTBEAT, to=1)).error_code, "try")

        # The time ends between two attempts, or in one of them.
        with pytest.raises((KafkaError, RequestTimedOut), match="try: NOT_COORDINATOR"):
            await client.retry(attempt)


async def test_what_was_tried_before_is_the_cause_of_giving_up(
    brokers: dict[int, ScriptedBroker],
) -> None:
    """Fault: `ottla doctor` could not say what did not work if the time ended in an attempt."""
    failure = BrokerUnreachable("cannot connect")
    attempts = 0

    async def attempt() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise failure
        await asyncio.Event().wait()

    async with client_of(brokers, api_timeout=1) as client:
        with pytest.raises(RequestTimedOut, match="given up after 1 s: cannot connect") as caught:
            await client.retry(attempt)
    assert caught.value.__cause__ is failure
    assert _failing_step(caught.value) == "TCP"


async def test_the_time_that_is_given_also_ends_an_attempt(
    brokers: dict[int, ScriptedBroker],
) -> None:
    async with client_of(brokers, api_timeout=0.05) as client:
        with pytest.raises(RequestTimedOut, match=r"given up after 0.05 s: no broker"):
            await client.retry(asyncio.Event().wait)


async def test_a_lost_connection_is_made_again(brokers: dict[int, ScriptedBroker]) -> None:
    async with client_of(brokers) as client:
        await client.send(HEARTBEAT, to=1)
        brokers[1].hang_up()
        await brokers[1].until_left()
        assert await client.retry(lambda: client.send(HEARTBEAT, to=1)) == FINE
        assert brokers[1].connections == 2


async def test_a_broker_that_is_down_is_gone_around(brokers: dict[int, ScriptedBroker]) -> None:
    async with Client([brokers[1].bootstrap, brokers[2].bootstrap], random=lambda: 0.0) as client:
        await brokers[1].stop()
        assert await client.send(HEARTBEAT, to="any") == FINE
        assert served(brokers) == {1: 0, 2: 1, 3: 0}


async def test_when_all_known_brokers_are_gone_the_bootstrap_helps(
    brokers: dict[int, ScriptedBroker],
) -> None:
    describe({2: brokers[2]})
    brokers[1].metadata = brokers[2].metadata
    async with client_of(brokers) as client:
        await client.refresh(())
        assert set(client.view.brokers) == {2}
        await brokers[2].stop()
        brokers[1].hang_up()
        await brokers[1].until_left()
        assert await client.retry(lambda: client.send(HEARTBEAT, to="any")) == FINE


async def test_a_cluster_that_says_start_over_is_started_over(
    brokers: dict[int, ScriptedBroker],
) -> None:
    async with client_of(brokers) as client:
        await client.refresh(None)
        for broker in brokers.values():
            broker.script(
                MetadataRequest, MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
            )
        with pytest.raises(KafkaError, match="REBOOTSTRAP_REQUIRED"):
            await client.refresh(None)
        assert not client.view.brokers


async def test_many_callers_make_one_connection(brokers: dict[int, ScriptedBroker]) -> None:
    async with client_of(brokers) as client:
        await together(client.send(HEARTBEAT, to=TopicPartition("t", 1)) for _ in range(50))
        assert brokers[2].connections == 1
        assert len(brokers[1].asked(MetadataRequest)) == 1


async def test_many_callers_share_one_failure(brokers: dict[int, ScriptedBroker]) -> None:
    brokers[1].script(ApiVersionsRequest, Instead.HANG_UP)
    async with client_of(brokers) as client:
        failures = await asyncio.gather(
            *(client.send(HEARTBEAT, to="any") for _ in range(50)), return_exceptions=True
        )
        assert {type(one) for one in failures} == {BrokerUnreachable}
        assert len(brokers[1].asked(ApiVersionsRequest)) == 1


async def test_a_cancelled_connector_hands_over(brokers: dict[int, ScriptedBroker]) -> None:
    brokers[1].script(ApiVersionsRequest, Instead.SILENCE)
    async with client_of(brokers) as client:
        first = asyncio.create_task(client.send(HEARTBEAT, to="any"))
        await brokers[1].until(lambda: bool(brokers[1].requests))
        second = asyncio.create_task(client.send(HEARTBEAT, to="any"))
        await asyncio.sleep(0)
        brokers[1].scripts.pop(ApiVersionsRequest)
        first.cancel()
        assert await second == FINE
        assert first.cancelled()
        assert brokers[1].connections == 2


async def test_closing_leaves_no_task_and_no_socket(brokers: dict[int, ScriptedBroker]) -> None:
    before = asyncio.all_tasks()
    for broker in brokers.values():
        broker.script(HeartbeatRequest, Instead.SILENCE)
    client = client_of(brokers)
    calls = [asyncio.create_task(client.send(HEARTBEAT, to=node)) for node in (1, 2, 3)]
    retrying = asyncio.create_task(client.retry(lambda: client.send(HEARTBEAT, to=1)))
    for node in (2, 3):
        await brokers[node].until(lambda node=node: served(brokers)[node] == 1)  # type: ignore[misc]
    await brokers[1].until(lambda: len(brokers[1].requests) >= 3)
    calls[0].cancel()
    await client.close()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in outcomes] == [
        asyncio.CancelledError,
        ConnectionLost,
        ConnectionLost,
    ]
    with pytest.raises(ClientClosed):
        await retrying
    with pytest.raises(ClientClosed):
        await client.send(HEARTBEAT, to="any")
    for broker in brokers.values():
        await broker.until_left()
    ours = {task for task in asyncio.all_tasks() - before if not task.done()}
    assert not ours


async def test_closed_while_connecting(brokers: dict[int, ScriptedBroker]) -> None:
    brokers[1].script(ApiVersionsRequest, Instead.SILENCE)
    client = client_of(brokers)
    call = asyncio.create_task(client.send(HEARTBEAT, to="any"))
    await brokers[1].until(lambda: bool(brokers[1].requests))
    await client.close()
    with pytest.raises(ClientClosed):
        await call
    await brokers[1].until_left()


async def test_a_silent_broker_times_out(brokers: dict[int, ScriptedBroker]) -> None:
    brokers[1].script(HeartbeatRequest, Instead.SILENCE)
    async with client_of(brokers, request_timeout=0.05) as client:
        with pytest.raises(RequestTimedOut):
            await client.send(HEARTBEAT, to=1)
        await brokers[1].until_left()


async def test_versions_can_be_capped_and_demanded(brokers: dict[int, ScriptedBroker]) -> None:
    async with client_of(brokers, max_versions={12: 2}) as client:
        await client.send(HEARTBEAT, to=1)
        await client.send(HEARTBEAT, to=1, max_version=1)
        used = [version for name, version in brokers[1].versions_used if name == "heartbeat"]
        assert used == [2, 1]
        with pytest.raises(UnsupportedApi):
            await client.send(HEARTBEAT, to=1, min_version=3)


async def test_a_broker_without_an_api_is_told_so() -> None:
    ours = {key: message(key, request=True).versions for key in API_NAMES if key != 12}
    async with ScriptedBroker(ours) as broker, Client(broker.bootstrap) as client:
        with pytest.raises(UnsupportedApi, match="does not serve heartbeat"):
            await client.send(HEARTBEAT, to="any")


async def test_together_cancels_the_others_when_one_fails() -> None:
    cancelled = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    async def fail() -> None:
        raise ConnectionLost("gone")

    with pytest.raises(ConnectionLost, match="gone"):
        await together([wait(), wait(), fail()])
    assert len(cancelled) == 2
