"""The protocol without a socket: whatever is asked and however bytes arrive, answers match."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.client.cluster.exchange import Exchange, UnexpectedAnswer, api_key_of
from ottla.wire.error_codes import ErrorCode
from ottla.wire.errors import FrameTooLarge, MalformedMessage
from ottla.wire.messages import read_request, read_request_header, response_parts
from ottla.wire.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.schema.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.schema.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.writers import UnwritableValue

if TYPE_CHECKING:
    from ottla.wire.writers import Parts

ASKABLE = [
    (ApiVersionsRequest("a", "1"), 3, ApiVersionsResponse(throttle_time_ms=7)),
    (HeartbeatRequest("g", 1, "m"), 0, HeartbeatResponse(error_code=27)),
    (HeartbeatRequest("g", 1, "m"), 4, HeartbeatResponse(error_code=25)),
    (FindCoordinatorRequest("g"), 2, FindCoordinatorResponse(node_id=3, host="h", port=9)),
]


def feed(exchange: Exchange[int], data: bytes) -> list[tuple[int, Any]]:
    """Give the exchange bytes as a socket would."""
    answers = []
    while data and exchange.error is None:
        buffer = exchange.get_buffer()
        nbytes = min(len(buffer), len(data))
        buffer[:nbytes] = data[:nbytes]
        answers += exchange.received(nbytes)
        data = data[nbytes:]
    return answers


def correlation_id(parts: Parts) -> int:
    return read_request_header(memoryview(b"".join(parts))[4:]).correlation_id


class ExchangeMachine(RuleBasedStateMachine):
    """Requests, answers in any number of pieces, and the end of the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.exchange: Exchange[int] = Exchange("me")
        self.asked: deque[tuple[int, Any]] = deque()
        self.wire = b""
        self.tokens = 0

    @rule(choice=st.sampled_from(ASKABLE))
    def ask(self, choice: tuple[Any, int, Any]) -> None:
        request, version, answer = choice
        frame = memoryview(b"".join(self.exchange.send(request, version, self.tokens)))[4:]
        header = read_request_header(frame)
        assert header.client_id == "me"
        assert read_request(header, frame) == request
        reply = response_parts(header.api_key, version, header.correlation_id, answer)
        self.wire += b"".join(reply)
        self.asked.append((self.tokens, answer))
        self.tokens += 1

    @rule(choice=st.sampled_from(ASKABLE))
    def tell(self, choice: tuple[Any, int, Any]) -> None:
        self.exchange.send_unanswered(choice[0], choice[1])

    @precondition(lambda self: self.wire)
    @rule(data=st.data())
    def receive(self, data: st.DataObject) -> None:
        nbytes = data.draw(st.integers(1, len(self.wire)))
        arrived, self.wire = self.wire[:nbytes], self.wire[nbytes:]
        for got in feed(self.exchange, arrived):
            assert got == self.asked.popleft()

    @rule()
    def lose(self) -> None:
        assert self.exchange.abandon() == [token for token, _ in self.asked]
        self.exchange = Exchange("me")
        self.asked.clear()
        self.wire = b""

    @invariant()
    def counts_what_is_outstanding(self) -> None:
        assert len(self.exchange) == len(self.asked)

    def teardown(self) -> None:
        assert feed(self.exchange, self.wire) == list(self.asked)
        assert len(self.exchange) == 0


TestExchange = ExchangeMachine.TestCase


def test_an_answer_to_another_request_ends_it() -> None:
    exchange: Exchange[int] = Exchange(None)
    exchange.send(HeartbeatRequest(), 0, 0)
    exchange.send(HeartbeatRequest(), 0, 1)
    replies = [response_parts(12, 0, number, HeartbeatResponse()) for number in (0, 7, 1)]
    answers = feed(exchange, b"".join(part for parts in replies for part in parts))
    assert answers == [(0, HeartbeatResponse())]
    assert isinstance(exchange.error, UnexpectedAnswer)
    assert (exchange.error.expected, exchange.error.got) == (1, 7)
    assert exchange.abandon() == [1]


def test_an_answer_to_nothing_ends_it() -> None:
    exchange: Exchange[int] = Exchange(None)
    feed(exchange, b"".join(response_parts(12, 0, 0, HeartbeatResponse())))
    assert isinstance(exchange.error, UnexpectedAnswer)


def test_a_length_that_is_none_ends_it() -> None:
    exchange: Exchange[int] = Exchange(None, max_response_bytes=1000)
    exchange.send(HeartbeatRequest(), 0, 0)
    feed(exchange, b"HTTP/1.1")
    assert isinstance(exchange.error, FrameTooLarge)


@pytest.mark.parametrize("rest", [b"", b"\0\0\0\0", b"\1\0\x12\0\0\0\4\0"])
def test_refused_api_versions_are_read_no_further_than_the_code(rest: bytes) -> None:
    exchange: Exchange[int] = Exchange(None)
    exchange.send(ApiVersionsRequest(), 4, 8)
    body = b"\0\0\0\0" + b"\0\x23" + rest
    [(token, answer)] = feed(exchange, len(body).to_bytes(4, "big") + body)
    assert (token, answer.error_code) == (8, ErrorCode.UNSUPPORTED_VERSION)


def test_api_versions_without_a_code_end_it() -> None:
    exchange: Exchange[int] = Exchange(None)
    exchange.send(ApiVersionsRequest(), 4, 8)
    feed(exchange, b"\0\0\0\4\0\0\0\0")
    assert isinstance(exchange.error, MalformedMessage)


def test_correlation_ids_start_over_instead_of_turning_negative() -> None:
    exchange: Exchange[int] = Exchange(None)
    exchange._last_id = 0x7FFF_FFFE
    ids = [correlation_id(exchange.send(HeartbeatRequest(), 0, token)) for token in (0, 1)]
    assert ids == [0x7FFF_FFFF, 0]


def test_a_request_that_cannot_be_written_leaves_no_trace() -> None:
    exchange: Exchange[int] = Exchange(None)
    with pytest.raises(UnwritableValue):
        exchange.send(HeartbeatRequest(group_id=None), 0, 0)  # type: ignore[arg-type]  # on purpose
    assert len(exchange) == 0
    assert correlation_id(exchange.send(HeartbeatRequest(), 0, 1)) == 0


def test_records_are_parts_of_their_own() -> None:
    records = bytearray(100_000)
    partition = PartitionProduceData(0, records)
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData("t", partition_data=[partition])])
    parts = Exchange[int](None).send(request, 9, 0)
    assert any(part is records for part in parts)


def test_only_requests_of_the_schema_are_requests() -> None:
    assert api_key_of(HeartbeatRequest()) == 12
    for other in (HeartbeatResponse(), "heartbeat", object()):
        with pytest.raises(TypeError, match="not a request"):
            api_key_of(other)
