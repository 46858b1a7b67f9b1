"""A client that a broker tells to wait: it sends nothing meanwhile, and loses nothing.

The brokers are stand-ins that tell what a test wants. `tests/integration/broker/test_quotas.py` has
real quotas.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import ottla
from ottla.client.cluster.cluster import Client
from ottla.client.cluster.connection import Address, Connection
from ottla.client.cluster.throttle import MAX_SECONDS, Throttled
from ottla.client.errors import BrokerUnreachable, HeldByQuota, RequestTimedOut
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.schema.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.schema.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.support.client_broker import ScriptedBroker, describe

if TYPE_CHECKING:
    from collections.abc import Sequence

HOUR_MS = 3_600_000
SOON_MS = 30


async def connect(broker: ScriptedBroker, throttled: Throttled | None = None) -> Connection:
    connection = Connection(Address("127.0.0.1", broker.port), "me", throttled=throttled)
    await connection.open()
    return connection


def beats(broker: ScriptedBroker) -> list[int]:
    return [one.generation_id for one in broker.asked(HeartbeatRequest)]


def beat(number: int) -> HeartbeatRequest:
    return HeartbeatRequest("g", number, "m")


async def test_requests_are_held_and_go_out_in_order() -> None:
    throttled = Throttled()
    async with ScriptedBroker() as broker:
        broker.script(HeartbeatRequest, HeartbeatResponse(SOON_MS), HeartbeatResponse())
        connection = await connect(broker, throttled)
        await connection.send(beat(0), 4)
        assert connection.is_muted
        held = [asyncio.create_task(connection.send(beat(n), 4)) for n in range(1, 4)]
        await asyncio.sleep(0)
        assert connection.in_flight == 3
        assert beats(broker) == [0]
        await asyncio.gather(*held)
        assert beats(broker) == [0, 1, 2, 3]
        assert not connection.is_muted
        assert throttled.seconds == pytest.approx(SOON_MS / 1000)
        await connection.close()


async def test_what_is_held_too_long_fails_alone_and_was_not_sent() -> None:
    async with ScriptedBroker() as broker:
        broker.script(HeartbeatRequest, HeartbeatResponse(HOUR_MS), HeartbeatResponse())
        connection = await connect(broker)
        await connection.send(beat(0), 4)
        with pytest.raises(HeldByQuota, match=r"over a quota.*ottla quota set"):
            await connection.send(beat(1), 4, 0.01)
        assert connection.is_open
        assert connection.in_flight == 0
        assert beats(broker) == [0]
        await connection.close()


async def test_a_wait_has_an_end() -> None:
    throttled = Throttled()
    async with ScriptedBroker() as broker:
        broker.script(HeartbeatRequest, HeartbeatResponse(2**31 - 1))
        connection = await connect(broker, throttled)
        await connection.send(beat(0), 4)
        assert throttled.seconds == pytest.approx(MAX_SECONDS)
        await connection.close()


async def test_older_versions_have_waited_already() -> None:
    """Brokers before KIP-219 answered when the time was over."""
    async with ScriptedBroker() as broker:
        broker.script(HeartbeatRequest, HeartbeatResponse(HOUR_MS))
        connection = await connect(broker)
        await connection.send(beat(0), 1)
        assert not connection.is_muted
        await connection.send(beat(1), 1)
        await connection.close()


async def test_closing_tells_who_waits_and_lets_out_what_gets_no_answer() -> None:
    async with ScriptedBroker() as broker:
        broker.script(HeartbeatRequest, HeartbeatResponse(HOUR_MS))
        connection = await connect(broker)
        await connection.send(beat(0), 4)
        connection.send_unanswered(beat(1), 4)
        waiting = asyncio.create_task(connection.send(beat(2), 4))
        await asyncio.sleep(0)
        await connection.close()
        with pytest.raises(BrokerUnreachable, match="was closed"):
            await waiting
        await broker.until(lambda: beats(broker) == [0, 1])
        assert not connection.is_muted


async def test_a_lost_connection_ends_the_wait() -> None:
    async with ScriptedBroker() as broker:
        broker.script(HeartbeatRequest, HeartbeatResponse(HOUR_MS))
        connection = await connect(broker)
        await connection.send(beat(0), 4)
        waiting = asyncio.create_task(connection.send(beat(1), 4))
        await asyncio.sleep(0)
        broker.hang_up()
        with pytest.raises(BrokerUnreachable, match="closed the connection"):
            await waiting


async def test_questions_go_to_a_broker_that_does_not_wait() -> None:
    async with ScriptedBroker() as one, ScriptedBroker() as other:
        describe({1: one, 2: other})
        for broker in (one, other):
            broker.script(HeartbeatRequest, HeartbeatResponse(HOUR_MS))
        async with Client(one.bootstrap) as client:
            await client.refresh(())
            await client.send(beat(0), to=2)
            assert (await client.connection_to(2)).is_muted
            for _ in range(10):
                assert (await client.connection_to("any")).address.port == one.port
            await client.send(beat(0), to=1)
            assert (await client.connection_to("any")).is_muted
            assert client.throttled_seconds == pytest.approx(2 * HOUR_MS / 1000)


@pytest.mark.long
async def test_an_admin_repeats_what_the_quota_refused_when_its_time_is_over() -> None:
    def answer(code: int, throttle_ms: int) -> CreateTopicsResponse:
        return CreateTopicsResponse(throttle_ms, [CreatableTopicResult("t", error_code=code)])

    async with ScriptedBroker() as broker:
        describe({1: broker}, controller=1)
        broker.script(
            CreateTopicsRequest,
            answer(ErrorCode.THROTTLING_QUOTA_EXCEEDED, 300),
            answer(0, 0),
        )
        async with ottla.Admin(broker.bootstrap) as admin:
            await admin.create_topic("t")
            assert admin.throttled_seconds == pytest.approx(0.3)
        assert len(broker.asked(CreateTopicsRequest)) == 2


def produced(throttle_ms: int) -> Any:
    def answer(request: ProduceRequest) -> ProduceResponse:
        found: Sequence[TopicProduceResponse] = [
            TopicProduceResponse(
                topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(one.index_) for one in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
        return ProduceResponse(found, throttle_time_ms=throttle_ms)

    return answer


async def test_a_producer_takes_no_batch_while_it_waits() -> None:
    async with ScriptedBroker() as broker:
        describe({1: broker}, {"t": [1]})
        broker.script(InitProducerIdRequest, InitProducerIdResponse(0, 0, 1, 0))
        broker.script(ProduceRequest, produced(SOON_MS), produced(0))
        async with ottla.Producer(broker.bootstrap, linger_ms=0) as producer:
            await producer.send("t", b"1")
            assert producer.throttled_seconds == pytest.approx(SOON_MS / 1000)
            sends = [asyncio.create_task(producer.send("t", b"%d" % n)) for n in range(2, 6)]
            await asyncio.gather(*sends)
        assert len(broker.asked(ProduceRequest)) == 2


async def test_a_producers_records_time_out_with_the_reason() -> None:
    async with ScriptedBroker() as broker:
        describe({1: broker}, {"t": [1]})
        broker.script(InitProducerIdRequest, InitProducerIdResponse(0, 0, 1, 0))
        broker.script(ProduceRequest, produced(HOUR_MS))
        async with ottla.Producer(
            broker.bootstrap, linger_ms=0, request_timeout_ms=100, delivery_timeout_ms=150
        ) as producer:
            await producer.send("t", b"1")
            with pytest.raises(RequestTimedOut, match="over a quota"):
                await producer.send("t", b"2")
        assert len(broker.asked(ProduceRequest)) == 1
