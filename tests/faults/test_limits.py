"""What one client may cost: connections, time, memory. Others are served throughout."""

from __future__ import annotations

import resource
import socket
import struct
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from ottla.broker.running import jobs
from ottla.broker.serving.dispatch import Dispatcher
from ottla.testing.embedded import EmbeddedBroker
from ottla.wire.batch import iter_batches
from ottla.wire.builder import BatchBuilder
from ottla.wire.error_codes import ErrorCode
from ottla.wire.messages import read_request_header, request_parts
from ottla.wire.schema.api_versions import ApiVersionsRequest
from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.faults_broker import PATIENCE_SECONDS, BrokerProcess
from tests.support.faults_client import ConnectionLost, PlainClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.broker.serving.context import Peer

PRODUCE, FETCH, API_VERSIONS, CREATE_TOPICS, ALTER_CONFIGS = 0, 1, 18, 19, 44
BROKER: Final = 4  # a kind of resource that has a configuration
MIB: Final = 1024 * 1024


def port_of(broker: EmbeddedBroker) -> int:
    return int(broker.bootstrap.rpartition(":")[2])


def served(client: PlainClient) -> bool:
    """Whether the broker answers this client."""
    try:
        answer = client.ask(API_VERSIONS, 3, ApiVersionsRequest("test", "1"))
    except ConnectionLost:
        return False
    assert answer.error_code == ErrorCode.NONE
    return True


def closed(sock: socket.socket) -> bool:
    """Waits for the broker to close; TimeoutError if it does not."""
    try:
        while sock.recv(MIB):
            pass
    except ConnectionError:
        pass
    return True


def long_poll(topic: str) -> FetchRequest:
    """Answered after a second, if nothing is written."""
    wanted = FetchTopic(topic, partitions=(FetchPartition(0, partition_max_bytes=MIB),))
    return FetchRequest(max_wait_ms=1000, min_bytes=1, topics=(wanted,))


@contextmanager
def clients(port: int, count: int) -> Iterator[list[PlainClient]]:
    with ExitStack() as stack:
        yield [stack.enter_context(PlainClient(port)) for _ in range(count)]


@pytest.mark.parametrize("key", ["max.connections", "max.connections.per.ip"])
def test_one_connection_too_many_is_closed_and_the_others_stay(key: str) -> None:
    with EmbeddedBroker(config={key: "3"}) as broker:
        port = port_of(broker)
        with clients(port, 3) as first:
            assert all(map(served, first))
            with PlainClient(port) as extra:
                assert not served(extra)
            assert all(map(served, first))
            first.pop().close()
            deadline = time.monotonic() + PATIENCE_SECONDS
            while True:  # until the broker has seen the end of that one
                with PlainClient(port) as another:
                    if served(another):
                        break
                assert time.monotonic() < deadline


def alter(client: PlainClient, key: str, value: str) -> None:
    assert altered(client, key, value) == ErrorCode.NONE


def altered(client: PlainClient, key: str, value: str) -> int:
    """The error code, if it is refused."""
    config = AlterableConfig(key, 0, value)
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, "", [config])])
    return int(client.ask(ALTER_CONFIGS, 1, request).responses[0].error_code)


@pytest.mark.parametrize("key", ["max.connections", "max.connections.per.ip"])
def test_a_limit_that_locks_out_whoever_could_undo_it_is_refused(key: str) -> None:
    with EmbeddedBroker() as broker, clients(port_of(broker), 1) as (admin,):
        assert altered(admin, key, "0") == ErrorCode.INVALID_CONFIG
        with PlainClient(port_of(broker)) as another:
            assert served(another)


def test_a_lowered_limit_closes_those_that_were_used_least_recently() -> None:
    with EmbeddedBroker() as broker, clients(port_of(broker), 6) as some:
        broker.create_topic("orders")
        for client in some:
            assert served(client)
        waiting, admin = some[0], some[5]
        waiting.send(FETCH, 11, long_poll("orders"))
        assert all(map(served, some[1:]))
        alter(admin, "max.connections", "3")
        assert [closed(client.socket) for client in some[1:4]] == [True] * 3
        assert served(some[4])
        assert served(admin)
        with PlainClient(port_of(broker)) as extra:
            assert not served(extra)
        alter(admin, "max.connections", "1")
        assert closed(some[4].socket)
        assert waiting.read_frame(), "what was asked is answered"
        assert closed(waiting.socket)
        assert served(admin)


def test_a_lowered_limit_of_an_address_holds_for_new_connections() -> None:
    with EmbeddedBroker() as broker, clients(port_of(broker), 3) as some:
        assert all(map(served, some))
        alter(some[0], "max.connections.per.ip", "1")
        with PlainClient(port_of(broker)) as extra:
            assert not served(extra)
        assert all(map(served, some))
        alter(some[0], "max.connections.per.ip", "4")
        with PlainClient(port_of(broker)) as extra:
            assert served(extra)


def test_an_idle_connection_is_closed_and_one_that_waits_for_us_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "SWEEP_SECONDS", 0.02)
    with EmbeddedBroker(config={"connections.max.idle.ms": "200"}) as broker:
        broker.create_topic("orders")
        with PlainClient(port_of(broker)) as idle, PlainClient(port_of(broker)) as waiting:
            waiting.send(FETCH, 11, long_poll("orders"))
            assert closed(idle.socket)
            assert waiting.read_frame()


def send_slowly(sock: socket.socket, data: bytes) -> None:
    """Always something, never enough."""
    for byte in data:
        sock.sendall(bytes((byte,)))
        time.sleep(0.02)


def test_a_frame_that_comes_too_slowly_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(jobs, "HALF_FRAME_SECONDS", 0.2)
    with EmbeddedBroker() as broker, PlainClient(port_of(broker)) as healthy:
        half = socket.create_connection(("127.0.0.1", port_of(broker)), PATIENCE_SECONDS)
        drip = socket.create_connection(("127.0.0.1", port_of(broker)), PATIENCE_SECONDS)
        with half, drip:
            half.sendall(struct.pack(">ihh", 100, API_VERSIONS, 3))
            drip.sendall(struct.pack(">i", 1000))
            with pytest.raises(ConnectionError):
                send_slowly(drip, bytes(1000))
            assert closed(half)
        assert served(healthy)


@pytest.mark.parametrize("size", [-1, 0, 3, 100 * MIB + 1, 2**31 - 1])
def test_impossible_frame_sizes_close_at_once(size: int) -> None:
    with EmbeddedBroker() as broker, PlainClient(port_of(broker)) as healthy:
        with socket.create_connection(("127.0.0.1", port_of(broker)), PATIENCE_SECONDS) as sock:
            sock.sendall(struct.pack(">i", size))
            assert closed(sock)
        assert served(healthy)


def test_what_came_before_the_error_is_answered() -> None:
    """A produce request waits for its sync; garbage behind it must not cost it its answer."""
    with EmbeddedBroker() as broker, PlainClient(port_of(broker)) as client:
        broker.create_topic("orders")
        good = b"".join(request_parts(PRODUCE, 9, 7, "test", produce_request("orders", 10)))
        client.socket.sendall(good + struct.pack(">ihhi", 8, 9999, 0, 1))
        assert client.read_frame()[:4] == struct.pack(">i", 7)
        assert closed(client.socket)


def produce_request(topic: str, size: int) -> ProduceRequest:
    builder = BatchBuilder()
    builder.append(bytes(size), timestamp=time.time_ns() // 1_000_000)
    partition = PartitionProduceData(0, builder.build())
    return ProduceRequest(None, -1, 1000, (TopicProduceData(topic, partition_data=(partition,)),))


def fetch_all(topic: str, max_bytes: int) -> bytes:
    """A framed request for everything the topic holds."""
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_bytes=max_bytes, topics=(FetchTopic(topic, partitions=(partition,)),)
    )
    return b"".join(request_parts(FETCH, 11, 1, "greedy", request))


def test_a_client_that_asks_for_much_and_reads_nothing(tmp_path: Path) -> None:
    """2,000 pipelined fetches of 20 MiB each: the broker makes only what fits its write buffer."""
    with BrokerProcess(tmp_path) as broker, PlainClient(broker.port) as healthy:
        fill(healthy, "large", 25)
        before = broker.rss_bytes()
        with PlainClient(broker.port) as greedy:
            greedy.socket.sendall(fetch_all("large", 20 * MIB) * 2000)
            for _ in range(20):
                assert served(healthy)
                time.sleep(0.02)
            grown = broker.rss_bytes() - before
        assert grown < 100 * MIB, f"grew by {grown // MIB} MiB"
        assert broker.stop() == 0


def fill(client: PlainClient, topic: str, batches: int) -> None:
    client.ask(CREATE_TOPICS, 5, CreateTopicsRequest((CreatableTopic(topic, 1, -1),)))
    for _ in range(batches):
        answer = client.ask(PRODUCE, 9, produce_request(topic, 900_000))
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def read_all(client: PlainClient, topic: str, count: int) -> int:
    """How many fetches it takes to read so many records, one batch each."""
    fetches = offset = 0
    while offset < count:
        partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=20 * MIB)
        wanted = FetchTopic(topic, partitions=(partition,))
        answer = client.ask(FETCH, 11, FetchRequest(max_bytes=20 * MIB, topics=(wanted,)))
        records = answer.responses[0].partitions[0].records
        found = sum(1 for _ in iter_batches(memoryview(records)))
        assert found, "every fetch gets on"
        offset += found
        fetches += 1
    return fetches


def test_fault_11_many_clients_that_do_not_read_cost_one_budget(tmp_path: Path) -> None:
    """Each asks for 20 MiB, again and again; the one that reads gets all, in smaller pieces."""
    limit, batches = 16 * MIB, 25
    config = {"ottla.queued.max.response.bytes": str(limit)}
    with BrokerProcess(tmp_path, config=config) as broker, PlainClient(broker.port) as healthy:
        fill(healthy, "large", batches)
        assert read_all(healthy, "large", batches) < batches, "several batches in an answer"
        before = broker.rss_bytes()
        with clients(broker.port, 40) as greedy:
            for client in greedy:
                client.socket.sendall(fetch_all("large", 20 * MIB) * 20)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while broker.stats()["unsent"] < limit:
                assert served(healthy)
                assert time.monotonic() < deadline, broker.stats()
            for _ in range(5):
                assert read_all(healthy, "large", batches) == batches, "a batch in each answer"
                stats = broker.stats()
                # Beyond the limit an answer still has a batch, of 900 KB, so that clients get on.
                assert stats["unsent"] <= limit + stats["connections"] * MIB, stats
            grown = broker.rss_bytes() - before
            # They asked for 800 MiB. What waits is counted above; the rest is the allocator's.
            assert grown < 10 * limit, f"grew by {grown // MIB} MiB, {broker.stats()}"
        while broker.stats()["unsent"]:
            assert time.monotonic() < deadline, broker.stats()
        assert read_all(healthy, "large", batches) < batches
        assert broker.stop() == 0


def test_a_client_far_ahead_does_not_hold_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What piled up behind a long poll is served a part at a time, others in between."""
    order: list[str] = []
    dispatch = Dispatcher.dispatch

    def noting(self: Dispatcher, frame: memoryview, peer: Peer, **how: bool) -> object:
        order.append(str(read_request_header(frame).client_id))
        return dispatch(self, frame, peer, **how)

    monkeypatch.setattr(Dispatcher, "dispatch", noting)
    with EmbeddedBroker() as broker, PlainClient(port_of(broker), "healthy") as healthy:
        broker.create_topic("quiet")
        with PlainClient(port_of(broker), "poll") as eager:
            topic = FetchTopic("quiet", partitions=(FetchPartition(0, partition_max_bytes=MIB),))
            request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=(topic,))
            eager.send(FETCH, 11, request)
            ahead = b"".join(request_parts(API_VERSIONS, 0, 1, "eager", ApiVersionsRequest()))
            eager.socket.sendall(ahead * 20_000)
            reading = threading.Thread(target=lambda: [eager.read_frame() for _ in range(20_001)])
            reading.start()
            while reading.is_alive():
                assert served(healthy)
            reading.join()
    first = order.index("eager")
    assert "healthy" in order[first : first + 20_000]


def test_frames_on_their_way_count_against_the_process(tmp_path: Path) -> None:
    """Many half frames: over queued.max.request.bytes new large ones are not read any further."""
    limit = 8 * MIB
    config = {"queued.max.request.bytes": str(limit)}
    with BrokerProcess(tmp_path, config=config) as broker, PlainClient(broker.port) as healthy:
        assert served(healthy)
        before = broker.rss_bytes()
        with clients(broker.port, 40) as greedy:
            for client in greedy:
                client.socket.setblocking(False)
                half = struct.pack(">i", 4 * MIB) + bytes(3 * MIB)
                sent = 0
                for _ in range(20):
                    try:
                        sent += client.socket.send(half[sent:])
                    except BlockingIOError:
                        time.sleep(0.002)
            assert served(healthy)
            grown = broker.rss_bytes() - before
            assert grown < 6 * limit, f"grew by {grown // MIB} MiB"
            for client in greedy:
                client.close()
            # What they held is free again: a large request gets through.
            healthy.ask(CREATE_TOPICS, 5, CreateTopicsRequest((CreatableTopic("after", 1, -1),)))
            answer = healthy.ask(PRODUCE, 9, produce_request("after", 900_000))
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


@contextmanager
def crowd(port: int, idle: int, slow: int) -> Iterator[list[socket.socket]]:
    """Connections that say nothing, and connections that sent half a frame."""
    with ExitStack() as stack:
        address = ("127.0.0.1", port)
        sockets = [
            stack.enter_context(socket.create_connection(address, PATIENCE_SECONDS))
            for _ in range(idle + slow)
        ]
        half = struct.pack(">ihh", 100, API_VERSIONS, 3)
        for each in sockets[idle:]:
            each.sendall(half)
        yield sockets


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 6_000,
    reason="the system does not let a process have 6,000 files open (ulimit -Hn)",
)
def test_case_72_five_thousand_idle_and_two_hundred_slow_connections(tmp_path: Path) -> None:
    """The one that works is served; how fast is a row of benchmarks/broker.py."""
    idle, slow = 5_000, 200
    # Few files to begin with, as most systems have it: the broker must see to it that it has more.
    few_files = ("sh", "-c", 'ulimit -Sn 1024 && exec "$@"', "sh")
    with BrokerProcess(tmp_path, under=few_files) as broker, PlainClient(broker.port) as healthy:
        healthy.ask(CREATE_TOPICS, 5, CreateTopicsRequest((CreatableTopic("orders", 1, -1),)))
        with crowd(broker.port, idle, slow):
            deadline = time.monotonic() + PATIENCE_SECONDS
            while broker.stats()["connections"] < idle + slow + 1:
                assert time.monotonic() < deadline, broker.stats()
                time.sleep(0.05)
            for _ in range(50):
                answer = healthy.ask(PRODUCE, 9, produce_request("orders", 100))
                assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert broker.stop() == 0
