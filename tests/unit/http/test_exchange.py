"""One connection without a socket: what comes out for which bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.http.exchange import Exchange
from ottla.http.messages import Answer, Limits, Refused, Request

LIMITS = Limits(head_bytes=2048, headers=8, body_bytes=1000)
GET = b"GET /metrics?name=x HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /a%2Fb/%C3%A4 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"


def served(exchange: Exchange) -> Request:
    request = exchange.next_request()
    assert request is not None
    return request


def test_a_request_is_given_out_when_it_is_whole() -> None:
    exchange = Exchange(LIMITS, "127.0.0.1")
    assert exchange.is_idle
    exchange.received(GET[:10])
    assert not exchange.is_idle
    assert exchange.next_request() is None
    exchange.received(GET[10:])
    request = served(exchange)
    assert (request.method, request.path, request.query) == ("GET", "/metrics", "name=x")
    assert request.headers == {"host": "a"}
    assert request.host == "127.0.0.1"


def test_segments_are_decoded_after_the_path_is_cut() -> None:
    exchange = Exchange(LIMITS)
    exchange.received(POST)
    request = served(exchange)
    assert request.segments == ("a/b", "ä")
    assert request.body == b"hello"


def test_requests_of_one_connection_are_answered_in_order() -> None:
    exchange = Exchange(LIMITS)
    exchange.received(GET + POST)
    assert served(exchange).method == "GET"
    assert exchange.next_request() is None  # until the first is answered
    assert b"200" in exchange.answered(Answer.text(200, "first"))
    assert served(exchange).body == b"hello"
    assert exchange.answered(Answer.text(200, "second")).endswith(b"\r\n\r\nsecond\n")
    assert exchange.is_idle
    assert not exchange.is_over


@given(st.lists(st.integers(0, len(GET + POST)), max_size=6).map(sorted))
def test_it_does_not_matter_how_bytes_are_cut(cuts: list[int]) -> None:
    exchange, found = Exchange(LIMITS), []
    whole = GET + POST
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        if begin == end:
            continue  # no bytes would mean the end
        exchange.received(whole[begin:end])
        while (request := exchange.next_request()) is not None:
            found.append((request.method, request.body))
            exchange.answered(Answer(200))
    assert found == [("GET", b""), ("POST", b"hello")]


def test_a_head_request_gets_no_body_and_the_length_of_one() -> None:
    exchange = Exchange(LIMITS)
    exchange.received(GET.replace(b"GET", b"HEAD"))
    assert served(exchange).method == "HEAD"
    sent = exchange.answered(Answer.text(200, "hello"))
    assert b"Content-Length: 6" in sent
    assert sent.endswith(b"\r\n\r\n")
    exchange.received(GET)
    assert served(exchange).method == "GET"


def test_a_client_that_waits_to_send_its_body_is_told_to_go_on() -> None:
    exchange = Exchange(LIMITS)
    head, body = POST.split(b"\r\n\r\n")
    exchange.received(head + b"\r\nExpect: 100-continue\r\n\r\n")
    assert exchange.next_request() is None
    assert exchange.go_on().startswith(b"HTTP/1.1 100 ")
    assert exchange.go_on() == b""
    exchange.received(body)
    assert served(exchange).body == b"hello"


def test_a_client_of_http_1_0_is_answered_and_the_connection_ends() -> None:
    exchange = Exchange(LIMITS)
    exchange.received(b"GET / HTTP/1.0\r\n\r\n")
    assert served(exchange).path == "/"
    assert b"200" in exchange.answered(Answer.text(200, "hello"))
    assert exchange.is_over


def chunked(size: int) -> bytes:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + f"{size:x}\r\n".encode() + bytes(size) + b"\r\n0\r\n\r\n"


def test_a_chunked_body_is_taken() -> None:
    exchange = Exchange(LIMITS)
    exchange.received(chunked(1000))
    assert served(exchange).body == bytes(1000)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),  # a TLS hello
        (b"\x00\x00\x00\x20\x00\x12\x00\x03\x00\x00\x00\x01\r\n\r\n", 400),  # a Kafka request
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /%FF HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /" + b"x" * 3000, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 8 + b"\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n", 413),
        (chunked(1001), 413),
    ],
)
def test_bad_requests_are_refused_and_end_the_connection(sent: bytes, status: int) -> None:
    exchange = Exchange(LIMITS)
    exchange.received(sent)
    with pytest.raises(Refused) as refused:
        exchange.next_request()
    assert refused.value.answer.status == status
    answer = exchange.answered(refused.value.answer, last=True)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"Connection: close" in answer
    assert exchange.is_over


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=20))
def test_whatever_comes_gives_a_request_a_refusal_or_nothing(pieces: list[bytes]) -> None:
    exchange = Exchange(LIMITS)
    try:
        for piece in [b"GET / HTTP/1.1\r\n", *pieces]:
            exchange.received(piece)
            while exchange.next_request() is not None:
                exchange.answered(Answer(200))
            if exchange.is_over:
                break
    except Refused as refused:
        exchange.answered(refused.answer, last=True)
        assert exchange.is_over


def test_a_client_that_leaves_ends_the_exchange() -> None:
    exchange = Exchange(LIMITS)
    exchange.received(b"")
    assert exchange.next_request() is None
    assert exchange.is_over
