"""Hostile bytes over a real socket: the broker answers or closes, and everyone else is served.

Each connection sends some well-formed requests with odd values and ends with bytes that are wrong.
Held throughout: every answer is to the request whose turn it is and can be read with its schema;
every connection ends; a healthy client is served; memory and tasks do not grow; no handler fails
in a way it did not foresee, which the broker would log as "request failed".
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.wire.builder import BatchBuilder
from ottla.wire.error_codes import ErrorCode
from ottla.wire.frames import FrameParser
from ottla.wire.messages import read_response
from ottla.wire.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.schema.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.faults_broker import PATIENCE_SECONDS, BrokerProcess, soak
from tests.support.faults_client import ConnectionLost, PlainClient
from tests.support.faults_hostile import TOPICS, Hostile, Request
from tests.support.seeds import run_seed

if TYPE_CHECKING:
    from pathlib import Path

INPUTS: Final = 10_000_000 if soak() else 100_000
MAX_REQUESTS: Final = 12  # of one connection, before the bytes that end it
IN_FLIGHT: Final = 24  # connections open at a time
PARKED_SECONDS: Final = 0.5  # how long a connection waits for an answer before it hangs up
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
# Topics, groups and committed offsets that the requests make stay; hostile bytes must not.
MAX_GROWTH_BYTES: Final = 150 * 1024 * 1024
HEALTHY: Final = "healthy"
PRODUCE, CREATE_TOPICS = 0, 19


def create(client: PlainClient, name: str, **configs: str) -> bytes:
    asked = CreatableTopic(
        name, 2, -1, configs=[CreatableTopicConfig(*config) for config in configs.items()]
    )
    answer: CreateTopicsResponse = client.ask(CREATE_TOPICS, 7, CreateTopicsRequest((asked,)))
    (created,) = answer.topics
    assert created.error_code == ErrorCode.NONE
    return created.topic_id


class HealthyClient:
    """Produces all the time; a request that is refused or not answered ends it with an error."""

    def __init__(self, port: int) -> None:
        self._client = PlainClient(port)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.served = 0
        self.error: Exception | None = None
        # Its own limits: those of the broker are the hostile clients' to change.
        create(self._client, HEALTHY, **{"max.message.bytes": "100000", "cleanup.policy": "delete"})

    def _run(self) -> None:
        builder = BatchBuilder()
        builder.append(b"pulse", timestamp=1_700_000_000_000)
        partition = PartitionProduceData(0, builder.build())
        topic = TopicProduceData(HEALTHY, partition_data=(partition,))
        request = ProduceRequest(None, -1, 1000, (topic,))
        try:
            while not self._stop.wait(0.05):
                answer: ProduceResponse = self._client.ask(PRODUCE, 9, request)
                code = answer.responses[0].partition_responses[0].error_code
                assert code == ErrorCode.NONE, ErrorCode(code)
                self.served += 1
        except (ConnectionLost, OSError, AssertionError) as error:
            self.error = error

    def __enter__(self) -> HealthyClient:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._client.close()


class Conversation:
    """One hostile connection. `advance` checks what has come back and hangs up when all has."""

    def __init__(self, port: int, requests: list[Request], last: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
        self.socket.sendall(b"".join(request.data for request in requests) + last)
        self._frames = FrameParser(MAX_ANSWER_BYTES)
        self._unanswered = deque(requests)
        self._hung_up_at: float | None = None
        self._deadline = time.monotonic() + PARKED_SECONDS
        self.answers = 0
        self._hang_up_if_answered()

    def advance(self) -> bool:
        """Read what is there; True at the end of the stream."""
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionResetError:
            return True  # closed while some of the garbage was still on its way
        for frame in self._frames.feed(data):
            self._answer(frame)
        if data:
            self._hang_up_if_answered()
        elif self._hung_up_at is None:
            # A well-formed request never closes the connection, unless it has no other way.
            refused = next((r for r in self._unanswered if r.answered), None)
            before = [r for r in self._unanswered if not r.answered]
            assert refused is None or before, f"closed instead of an answer to {refused}"
        return not data

    def watch(self) -> None:
        """Hang up on what is parked for long; the broker then has to close."""
        now = time.monotonic()
        if self._hung_up_at is None and now > self._deadline:
            self._hang_up()
        assert self._hung_up_at is None or now < self._hung_up_at + PATIENCE_SECONDS, "hangs"

    def _answer(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big")
        while self._unanswered and self._unanswered[0].correlation_id != correlation_id:
            skipped = self._unanswered.popleft()
            assert not skipped.answered, f"no answer to {skipped}"
        if self._unanswered:  # else it is the answer to the mutated request at the end
            request = self._unanswered.popleft()
            read_response(request.api_key, request.version, frame)
            self.answers += 1

    def _hang_up_if_answered(self) -> None:
        if not any(request.answered for request in self._unanswered):
            self._hang_up()

    def _hang_up(self) -> None:
        if self._hung_up_at is None:
            self._hung_up_at = time.monotonic()
            with suppress(OSError):  # the broker may have been faster
                self.socket.shutdown(socket.SHUT_WR)


class Flood:
    """Sends what `hostile` makes, over many connections at a time."""

    def __init__(self, port: int, hostile: Hostile) -> None:
        self._port = port
        self._hostile = hostile
        self._open = selectors.DefaultSelector()
        self.inputs = 0
        self.connections = 0
        self.answers = 0

    def run(self, inputs: int) -> None:
        with self._open:
            while self.inputs < inputs or self._open.get_map():
                while self.inputs < inputs and len(self._open.get_map()) < IN_FLIGHT:
                    self._begin()
                self._turn()

    def _begin(self) -> None:
        hostile = self._hostile
        requests = [hostile.request() for _ in range(hostile.random.randrange(MAX_REQUESTS))]
        last = hostile.garbage() if hostile.random.random() < 0.2 else hostile.mutated()
        conversation = Conversation(self._port, requests, last)
        self._open.register(conversation.socket, selectors.EVENT_READ, conversation)
        self.inputs += len(requests) + 1
        self.connections += 1

    def _turn(self) -> None:
        for key, _ in self._open.select(0.05):
            conversation: Conversation = key.data
            if conversation.advance():
                self._open.unregister(conversation.socket)
                conversation.socket.close()
                self.answers += conversation.answers
        for key in tuple(self._open.get_map().values()):
            key.data.watch()


def test_hostile_bytes(tmp_path: Path) -> None:
    seed = run_seed()
    with BrokerProcess(tmp_path, ephemeral=True) as broker:
        with PlainClient(broker.port) as client:
            checked = {"events": "all", "compacted": "none"}
            topic_ids = [
                create(client, name, **{"ottla.validate.records": checked.get(name, "sampled")})
                for name in TOPICS[:3]
            ]
        warm_up = Flood(broker.port, Hostile(seed + 1, topic_ids))
        warm_up.run(INPUTS // 10)
        before = broker.rss_bytes()
        tasks = broker.stats()["tasks"]
        with HealthyClient(broker.port) as healthy:
            flood = Flood(broker.port, Hostile(seed, topic_ids))
            flood.run(INPUTS)
        assert healthy.error is None
        assert healthy.served > 0
        assert broker.alive
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (stats := broker.stats())["connections"]:
            assert time.monotonic() < deadline, stats  # clients have closed; the broker hears of it
        grown = broker.rss_bytes() - before
        print(f"{flood.inputs} inputs, {flood.connections} connections, {flood.answers} answers")
        print(f"RSS {before >> 20} MiB + {grown >> 20} MiB, {stats}")
        assert stats["tasks"] <= tasks + 1
        assert grown < MAX_GROWTH_BYTES
        assert broker.stop() == 0
    assert "Traceback" not in broker.log_text()
    assert "ERROR" not in broker.log_text()
