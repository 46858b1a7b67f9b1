"""One connection: what is written, who gets which answer, and how it ends.

The transport and the broker are stand-ins, because no real ones fill up, fall silent or hang up at
a chosen moment.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.client.cluster.connection import SLICE_BYTES, Address, Connection
from ottla.client.errors import (
    BrokerUnreachable,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedApi,
)
from ottla.wire.messages import response_parts
from ottla.wire.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.schema.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.client_broker import Instead, ScriptedBroker
from tests.support.client_transport import RecordingTransport

ADDRESS = Address("broker", 9092)
HEARTBEAT = HeartbeatRequest("g", 1, "m")


def opened(full_after: int | None = None) -> tuple[Connection, RecordingTransport]:
    connection = Connection(ADDRESS, "me")
    transport = RecordingTransport(connection, full_after)
    connection.connection_made(transport)
    connection.versions = {12: (0, 4)}
    return connection, transport


def arrive(connection: Connection, data: bytes) -> None:
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


def heartbeat_answer(correlation_id: int, code: int) -> bytes:
    return b"".join(response_parts(12, 4, correlation_id, HeartbeatResponse(error_code=code)))


def produce(records: Any) -> ProduceRequest:
    partition = PartitionProduceData(0, records)
    return ProduceRequest(acks=0, topic_data=[TopicProduceData("t", partition_data=[partition])])


async def connect(broker: ScriptedBroker, **options: Any) -> Connection:
    connection = Connection(Address("127.0.0.1", broker.port), "me")
    await connection.open(**options)
    return connection


async def ask(connection: Connection, count: int) -> list[asyncio.Task[Any]]:
    tasks = [asyncio.create_task(connection.send(HEARTBEAT, 4, 60.0)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_answers_go_to_those_who_asked() -> None:
    connection, _ = opened()
    tasks = await ask(connection, 3)
    assert connection.in_flight == 3
    arrive(connection, b"".join(heartbeat_answer(number, number) for number in range(3)))
    assert [(await task).error_code for task in tasks] == [0, 1, 2]
    assert connection.in_flight == 0


async def test_a_cancelled_caller_costs_the_others_nothing() -> None:
    connection, _ = opened()
    first, second, third = await ask(connection, 3)
    second.cancel()
    await asyncio.sleep(0)
    arrive(connection, b"".join(heartbeat_answer(number, number) for number in range(3)))
    assert [(await task).error_code for task in (first, third)] == [0, 2]
    assert second.cancelled()
    assert connection.is_open


async def test_a_late_answer_ends_the_connection_for_all() -> None:
    connection, transport = opened()
    [other] = await ask(connection, 1)
    with pytest.raises(RequestTimedOut, match="heartbeat from broker:9092 in 0 s"):
        await connection.send(HEARTBEAT, 4, 0.0)
    with pytest.raises(ConnectionLost, match="no answer to heartbeat"):
        await other
    assert transport.ended == "aborted"
    with pytest.raises(BrokerUnreachable, match="given up"):
        await connection.send(HEARTBEAT, 4)
    with pytest.raises(BrokerUnreachable, match="given up"):
        connection.send_unanswered(HEARTBEAT, 4)


async def test_who_asks_is_told_once_whatever_comes() -> None:
    connection, transport = opened()
    heard: list[Any] = []
    for within in (60.0, 0.0, 60.0):
        connection.ask(HEARTBEAT, 4, heard.append, within)
    given_up = connection.ask(HEARTBEAT, 4, heard.append, 0.0)
    given_up.cancel()
    arrive(connection, heartbeat_answer(0, 7))
    assert [one.error_code for one in heard] == [7]  # as it is read
    while transport.ended is None:  # noqa: ASYNC110  # the time that is given is no time
        await asyncio.sleep(0)
    connection.connection_lost(None)
    assert [type(one) for one in heard[1:]] == [RequestTimedOut, ConnectionLost, ConnectionLost]
    with pytest.raises(BrokerUnreachable, match="given up"):
        connection.ask(HEARTBEAT, 4, heard.append)


async def test_a_broken_protocol_ends_the_connection() -> None:
    connection, transport = opened()
    [task] = await ask(connection, 1)
    arrive(connection, heartbeat_answer(99, 0))
    with pytest.raises(ConnectionLost, match="broke the protocol"):
        await task
    assert transport.ended == "aborted"
    arrive(connection, heartbeat_answer(0, 0))
    assert not connection.is_open


async def test_a_hang_up_is_reported_with_its_cause() -> None:
    connection, _ = opened()
    [task] = await ask(connection, 1)
    connection.connection_lost(ConnectionResetError("reset by peer"))
    with pytest.raises(ConnectionLost, match="closed the connection: reset by peer"):
        await task


async def test_large_records_are_written_from_where_they_lie() -> None:
    connection, transport = opened()
    records = bytearray(3 * SLICE_BYTES + 5)
    connection.send_unanswered(produce(records), 9)
    views = [part for part in transport.written if isinstance(part, memoryview)]
    assert all(view.obj is records for view in views)
    assert [len(view) for view in views] == [SLICE_BYTES] * 3 + [5]
    # Header before, tags after: one write each.
    assert len(transport.written) == len(views) + 2


async def test_small_parts_leave_in_one_write() -> None:
    connection, transport = opened()
    connection.send_unanswered(produce(b"small"), 9)
    assert len(transport.written) == 1


async def test_a_full_transport_is_not_given_more() -> None:
    connection, transport = opened(full_after=2)
    records = bytes(range(256)) * 4096
    connection.send_unanswered(produce(records), 9)
    assert len(transport.written) == 2
    connection.send_unanswered(HEARTBEAT, 4)
    assert len(transport.written) == 2
    transport.drain()
    whole = b"".join(transport.written)
    assert records in whole
    assert whole.index(records) < whole.index(b"\0\x0c\0\4")


async def test_closing_lets_out_what_is_written_and_fails_who_waits() -> None:
    connection, transport = opened(full_after=1)
    connection.send_unanswered(produce(bytes(2 * SLICE_BYTES)), 9)
    [task] = await ask(connection, 1)
    closing = asyncio.create_task(connection.close())
    await asyncio.sleep(0)
    assert transport.ended is None
    with pytest.raises(ConnectionLost, match="was closed"):
        await task
    transport.drain()
    await closing
    assert transport.ended == "closed"
    await connection.close()


async def test_closing_gives_up_on_a_peer_that_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.client.cluster.connection.CLOSE_TIMEOUT", 0.0)
    connection, transport = opened(full_after=1)
    connection.send_unanswered(produce(bytes(2 * SLICE_BYTES)), 9)
    await connection.close()
    assert transport.ended == "aborted"


async def test_a_cancelled_close_closes_all_the_same() -> None:
    connection, transport = opened(full_after=1)
    connection.send_unanswered(produce(bytes(2 * SLICE_BYTES)), 9)
    closing = asyncio.create_task(connection.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert transport.ended == "aborted"


async def test_the_highest_common_version_is_picked() -> None:
    connection = Connection(ADDRESS, None, max_versions={3: 5})
    connection.versions = {3: (0, 9), 12: (0, 2), 10: (0, 99)}
    assert connection.pick_version(3) == 5
    assert connection.pick_version(12) == 2
    assert connection.pick_version(10) == 6
    assert connection.pick_version(10, high=4) == 4
    with pytest.raises(UnsupportedApi, match=r"heartbeat in versions 0 to 2; .* from 3 to 4"):
        connection.pick_version(12, low=3)
    with pytest.raises(UnsupportedApi, match="does not serve fetch"):
        connection.pick_version(1)


async def test_connecting_agrees_on_versions() -> None:
    async with ScriptedBroker() as broker:
        connection = await connect(broker)
        assert connection.versions == broker.versions
        assert broker.asked(ApiVersionsRequest)[0].client_software_name == "ottla"
        await connection.close()


async def test_a_broker_that_refuses_the_newest_question_is_asked_the_oldest() -> None:
    async with ScriptedBroker({18: (0, 2), 3: (0, 1)}) as broker:
        connection = await connect(broker)
        assert broker.versions_used == [("api_versions", 4), ("api_versions", 0)]
        assert connection.versions == {18: (0, 2), 3: (0, 1)}
        await connection.close()


@pytest.mark.parametrize("instead", [Instead.HANG_UP, Instead.GARBAGE, ApiVersionsResponse(35)])
async def test_what_is_no_broker_is_left_at_once(instead: object) -> None:
    async with ScriptedBroker() as broker:
        broker.script(ApiVersionsRequest, instead)
        with pytest.raises(BrokerUnreachable, match="does not answer as a Kafka broker"):
            await connect(broker)
        await broker.until_left()


async def test_a_silent_peer_is_left_after_a_while() -> None:
    async with ScriptedBroker() as broker:
        broker.script(ApiVersionsRequest, Instead.SILENCE)
        with pytest.raises(BrokerUnreachable, match="no answer to api_versions"):
            await connect(broker, request_timeout=0.05)
        await broker.until_left()


async def test_cancelled_while_connecting_leaves_no_socket() -> None:
    async with ScriptedBroker() as broker:
        broker.script(ApiVersionsRequest, Instead.SILENCE)
        connecting = asyncio.create_task(connect(broker))
        await broker.until(lambda: bool(broker.requests))
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await broker.until_left()


async def test_nobody_listening_is_said_plainly() -> None:
    async with ScriptedBroker() as broker:
        pass
    with pytest.raises(BrokerUnreachable, match=f"cannot connect to {broker.bootstrap}: "):
        await connect(broker)


async def test_closed_before_it_is_open() -> None:
    connection = Connection(ADDRESS, "me")
    await connection.close()
    transport = RecordingTransport(connection)
    connection.connection_made(transport)
    await asyncio.sleep(0)
    assert transport.ended == "aborted"
    assert not connection.is_open
    await connection.close()


def test_addresses_read_as_they_are_written() -> None:
    assert str(Address("h", 1)) == "h:1"
    assert str(Address("::1", 1)) == "[::1]:1"
