"""Bad input to the clients: each has a type under `ottla.errors`, and a sentence with a way out."""

from __future__ import annotations

import asyncio
import inspect
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

import ottla
from ottla import Admin, Producer, Reader, ShareConsumer, errors
from ottla.client.cluster.connection import Address, Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 30.0


def consumer_of(bootstrap: str, topic: str, **options: Any) -> ottla.ShareConsumer:
    return ShareConsumer(
        bootstrap,
        group=f"group-of-{topic}",
        topics=[topic] if topic else [],
        auto_offset_reset="earliest",
        **options,
    )


async def polled(consumer: ottla.ShareConsumer, wanted: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < wanted:
            found += await consumer.poll()
    return found


def test_all_of_them_have_one_root_and_a_text() -> None:
    offered = {name: getattr(errors, name) for name in errors.__all__}
    assert all(issubclass(one, errors.OttlaError) for one in offered.values())
    assert all(inspect.getdoc(one) for one in offered.values())


async def test_not_subscribed(ottla_broker: ottla.EmbeddedBroker) -> None:
    async with consumer_of(ottla_broker.bootstrap, "") as consumer:
        for poll in (consumer.poll, consumer.poll_arrow, consumer.__anext__):
            with pytest.raises(errors.NotSubscribed, match=r"call subscribe\(\["):
                await poll()


async def test_unsubscribed_under_a_poll(ottla_broker: ottla.EmbeddedBroker, topic: str) -> None:
    async with consumer_of(ottla_broker.bootstrap, topic) as consumer:
        polling = asyncio.create_task(consumer.poll(PATIENCE))
        await asyncio.sleep(0.05)
        consumer.unsubscribe()
        with pytest.raises(errors.NotSubscribed, match="subscribe first"):
            await polling


def test_an_empty_group_id() -> None:
    with pytest.raises(errors.EmptyGroupId, match="give group=") as refused:
        ShareConsumer("127.0.0.1:1", group="", topics=["t"])
    assert isinstance(refused.value, ValueError)


async def test_an_unknown_topic(ottla_broker: ottla.EmbeddedBroker) -> None:
    bootstrap = ottla_broker.bootstrap
    said = r"'found-later': UNKNOWN_TOPIC_OR_PARTITION.*; check the name"
    with pytest.raises(errors.UnknownTopic, match=said):
        async with Reader(bootstrap, "found-later"):
            pass
    async with consumer_of(bootstrap, "found-later") as consumer:
        with pytest.raises(errors.UnknownTopic, match=said):
            await consumer.poll(PATIENCE)
        # It is told once, and may come to be.
        assert await consumer.poll(timeout=0.1) == []
        ottla_broker.create_topic("found-later")
        async with Producer(bootstrap) as producer:
            await producer.send("found-later", b"found")
        [record] = await polled(consumer, 1)
        assert record.value == b"found"


async def test_a_partition_that_is_not_there(
    ottla_broker: ottla.EmbeddedBroker, topic: str
) -> None:
    async with Producer(ottla_broker.bootstrap) as producer:
        with pytest.raises(errors.UnknownTopic, match="its partitions are 0 to 0"):
            await producer.send(topic, b"v", partition=7)


async def test_acknowledged_twice_or_too_late(
    ottla_broker: ottla.EmbeddedBroker, topic: str
) -> None:
    said = "acknowledge each record once, before the poll after its own"
    async with Producer(ottla_broker.bootstrap) as producer:
        await producer.send(topic, b"v")
    async with consumer_of(ottla_broker.bootstrap, topic, ack_mode="explicit") as consumer:
        [record] = await polled(consumer, 1)
        with pytest.raises(errors.UnacknowledgedRecords, match="acknowledge each of them"):
            await consumer.poll()
        consumer.acknowledge(record, "release")
        await consumer.commit()
        with pytest.raises(errors.RecordNotHeld, match=said):
            consumer.acknowledge(record)
        [again] = await polled(consumer, 1)
        with pytest.raises(errors.RecordNotHeld, match=said):
            consumer.acknowledge(record)
        consumer.acknowledge(again)


async def test_a_record_that_is_too_large(ottla_broker: ottla.EmbeddedBroker, topic: str) -> None:
    async with Producer(ottla_broker.bootstrap, max_request_size=1000) as producer:
        with pytest.raises(errors.RecordTooLarge, match=r"max_request_size \(1000\); raise it"):
            await producer.send(topic, bytes(1000))


@pytest.fixture
def topic(ottla_topic: str) -> str:
    return ottla_topic


def calls(bootstrap: str) -> dict[str, Callable[[], Any]]:
    """The first thing that each client does."""

    async def produce() -> None:
        async with Producer(bootstrap, max_block_ms=1000) as producer:
            await producer.send("t", b"v")

    async def read() -> None:
        async with Reader(bootstrap, "t", api_timeout=1.0):
            pass

    async def administer() -> None:
        async with Admin(bootstrap, api_timeout=1.0) as admin:
            await admin.list_topics()

    async def share() -> None:
        async with ShareConsumer(bootstrap, group="g", topics=["t"], api_timeout=1.0):
            pass

    return {"Producer": produce, "Reader": read, "Admin": administer, "ShareConsumer": share}


CLIENTS = sorted(calls(""))


@pytest.mark.parametrize("client", CLIENTS)
async def test_nobody_is_there(client: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    kinds = (errors.BrokerUnreachable, errors.RequestTimedOut)
    said = "connection refused; see that a Kafka broker is up there"
    with pytest.raises(kinds, match=said):
        await calls(f"127.0.0.1:{port}")[client]()


async def test_a_broker_that_goes_away() -> None:
    broker = ottla.EmbeddedBroker()
    await asyncio.to_thread(broker.start)
    broker.create_topic("t")
    async with consumer_of(broker.bootstrap, "t", api_timeout=1.0) as consumer:
        await consumer.poll(timeout=0.1)
        await asyncio.to_thread(broker.stop)
        with pytest.raises(errors.BrokerUnreachable, match="see that a Kafka broker is up"):
            await consumer.poll(PATIENCE)


@pytest.mark.long("each call waits for its timeout")
async def test_no_call_outlives_a_broker_that_goes_away() -> None:
    broker = ottla.EmbeddedBroker()
    await asyncio.to_thread(broker.start)
    broker.create_topic("t")
    where, short = broker.bootstrap, {"api_timeout": 2.0, "request_timeout": 1.0}
    block = {"max_block_ms": 2000, "delivery_timeout_ms": 2000, "request_timeout_ms": 1000}
    async with (
        asyncio.timeout(PATIENCE * 2),
        Producer(where, **block) as producer,  # type: ignore[arg-type]
        Producer(where, transactional_id="x", **block) as guarded,  # type: ignore[arg-type]
        Reader(where, "t", **short) as reader,  # type: ignore[arg-type]
        consumer_of(where, "t", ack_mode="explicit", **short) as consumer,
    ):
        await producer.send("t", b"v")
        assert await reader.read_many()
        [record] = await polled(consumer, 1)
        with suppress(errors.OttlaError):
            async with guarded.transaction():
                await guarded.send("t", b"v")
                await asyncio.to_thread(broker.stop)
        consumer.acknowledge(record)
        for call in (
            producer.send("t", b"v"),
            producer.send("t", b"v", partition=0),
            reader.read_many(),
            reader.seek("latest"),
            reader.lag(),
            consumer.poll(PATIENCE),
            consumer.take(1, PATIENCE),
        ):
            with suppress(errors.OttlaError):
                await call
        await producer.flush()
        with suppress(errors.OttlaError):
            await consumer.commit()


def refuse_as_http(peer: socket.socket) -> None:
    peer.recv(1000)
    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def wait_for_a_line(peer: socket.socket) -> None:
    with peer.makefile("rb") as lines:
        if lines.readline():
            peer.sendall(b"HTTP/1.0 501 Unsupported method\r\n\r\n")


def shake_hands(peer: socket.socket) -> None:
    """Without a certificate: what is no handshake never gets that far."""
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).wrap_socket(peer, server_side=True)


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                peer, _ = server.accept()
                with peer, suppress(OSError):
                    if stopping.is_set():
                        return
                    answer(peer)

        stopping = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stopping.set()
            socket.create_connection(server.getsockname()).close()
            thread.join()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refuse_as_http, "an HTTP server listens there; give the port"),
        (shake_hands, "it wants TLS: set security.protocol to SSL or SASL_SSL"),
    ],
)
async def test_another_protocol(
    client: str, answer: Callable[[socket.socket], None], said: str
) -> None:
    with listening(answer) as port, pytest.raises(errors.WrongProtocol, match=said):
        await calls(f"127.0.0.1:{port}")[client]()


async def test_a_web_server_that_waits_for_a_line() -> None:
    with listening(wait_for_a_line) as port:
        connection = Connection(Address("127.0.0.1", port), "me")
        with pytest.raises(errors.WrongProtocol, match="an HTTP server"):
            await connection.open(request_timeout=0.05)


async def test_a_name_that_a_group_of_another_kind_has(
    ottla_broker: ottla.EmbeddedBroker, ottla_topic: str
) -> None:
    """It used to be GROUP_ID_NOT_FOUND with the advice to check the name in a list, where it is."""
    bootstrap = ottla_broker.bootstrap
    async with (
        ottla.Consumer(bootstrap, group="a-consumer-group", topics=[ottla_topic]) as consumer,
        ottla.ShareConsumer(bootstrap, group="a-share-group", topics=[ottla_topic]),
    ):
        while not consumer.assignment:
            await consumer.poll(0.2)
        with pytest.raises(errors.GroupOfAnotherKind, match="a group of another kind has this nam"):
            async with ottla.ShareConsumer(
                bootstrap, group="a-consumer-group", topics=[ottla_topic]
            ):
                pass
        async with ottla.Consumer(
            bootstrap, group="a-share-group", topics=[ottla_topic]
        ) as refused:
            with pytest.raises(errors.GroupOfAnotherKind, match="choose another name"):
                await refused.poll(30)


async def test_a_share_consumer_can_be_started_and_shows_its_membership(
    ottla_broker: ottla.EmbeddedBroker, ottla_topic: str
) -> None:
    consumer = ottla.ShareConsumer(ottla_broker.bootstrap, group="started", topics=[ottla_topic])
    assert (consumer.member_epoch, consumer.heartbeat_interval) == (0, None)
    await consumer.start()
    await consumer.start()  # it is, already
    try:
        assert consumer.member_epoch > 0
        assert consumer.heartbeat_interval is not None
        async with ottla.Admin(ottla_broker.bootstrap) as admin:
            [found] = await admin.describe_share_groups(["started"])
        assert [member.id for member in found.members] == [consumer.member_id]
    finally:
        await consumer.close()
