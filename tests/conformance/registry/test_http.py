"""Requests that no client of a registry makes: case 22."""

from __future__ import annotations

import json
import random
import re
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.support.registry_http import V1, ask
from tests.support.sizes import SOAK

if TYPE_CHECKING:
    from ottla import EmbeddedBroker

POST = (
    "POST /subjects/http-value/versions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
)
SEEN_WHOLE = 16 * 1024
"""The head of a longer request is refused before all of it is there."""
BODY = json.dumps({"schema": '"string"'})


def exchange(broker: EmbeddedBroker, *parts: bytes) -> bytes:
    """Send bytes as they are; all that comes back until the server closes, or has answered."""
    url = urlsplit(broker.registry_url)
    with socket.create_connection((url.hostname or "", url.port or 0), timeout=30) as one:
        for part in parts:
            try:
                one.sendall(part)
            except OSError:
                break  # it has been refused already
        found = b""
        try:
            one.shutdown(socket.SHUT_WR)
        except OSError:
            return found
        while True:
            try:
                data = one.recv(65536)
            except ConnectionResetError:
                return found
            if not data:
                return found
            found += data


def statuses(answer: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (POST + "\r\n", 400),
        (POST + f"Content-Length: {len(BODY)}\r\nContent-Length: 3\r\n\r\n{BODY}", 400),
        (POST + f"Transfer-Encoding: chunked\r\n\r\n{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n", 200),
        (POST + "Content-Length: 6291456\r\n\r\n", 413),
        (POST + f"X: {'x' * 1_000_000}\r\n\r\n", 431),
        (POST + "".join(f"X{n}: 1\r\n" for n in range(10_000)) + "\r\n", 431),
        (POST + "".join(f"X{n}: 1\r\n" for n in range(100)) + "\r\n", 431),
        ("PATCH /subjects HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        ("GET /nothing/here HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        ("GET /subjects/%ff/versions HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ("nonsense\r\n\r\n", 400),
    ],
)
def test_case_22_a_request_that_cannot_be(broker: EmbeddedBroker, sent: str, status: int) -> None:
    answer = exchange(broker, sent.encode())
    if len(sent) > SEEN_WHOLE and not answer:
        return  # it was cut off while it was sent, and the answer with it
    assert statuses(answer) == [status]
    if status >= 400:
        assert b'"error_code"' in answer


def test_case_22_pipelined_requests_are_answered_in_order(broker: EmbeddedBroker) -> None:
    first = b"GET /schemas/types HTTP/1.1\r\nHost: x\r\n\r\n"
    second = b"GET /subjects/none/versions HTTP/1.1\r\nHost: x\r\n\r\n"
    url = urlsplit(broker.registry_url)
    found = b""
    with socket.create_connection((url.hostname or "", url.port or 0), timeout=30) as one:
        one.sendall(first + second)
        while len(statuses(found)) < 2:
            data = one.recv(65536)
            assert data
            found += data
    assert statuses(found) == [200, 404]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", V1, 400),
        (b"[]", V1, 400),
        (b"", V1, 400),
        (b"[" * 100_000, V1, 400),
        (b'{"schema": "\\ud800"}', V1, 400),
        (b"\xff", V1, 400),
        (b"{}", V1, 422),
        (b'{"schema": 7}', V1, 422),
        (b'{"schema": "x", "schemaType": "XML"}', V1, 422),
        (b'{"schema": "\\"int\\"", "references": [1]}', V1, 422),
        (b'{"schema": "\\"int\\"", "metadata": []}', V1, 422),
        (b'{"schema": "\\"int\\"", "id": 1e9}', V1, 422),
        (b'{"schema": "\\"int\\""}', "text/html", 415),
        (b'{"schema": "\\"int\\""}', "application/json; charset=utf-8", 200),
    ],
)
def test_case_22_bodies(broker: EmbeddedBroker, body: bytes, kind: str, status: int) -> None:
    answer = ask(
        broker.registry_url,
        "POST",
        "/subjects/bodies-value/versions",
        body,
        headers={"Content-Type": kind},
    )
    assert answer.status == status, answer.body


def test_case_22_slashes_in_subjects(broker: EmbeddedBroker) -> None:
    url = broker.registry_url
    assert ask(url, "POST", "/subjects/a%2Fb%20c/versions", {"schema": '"int"'}).status == 200
    assert ask(url, "GET", "/subjects/a%2Fb%20c/versions").body == [1]
    assert "a/b c" in ask(url, "GET", "/subjects").body


@pytest.mark.parametrize("subject", ["%00", "__GLOBAL", ":.ctx", "%0a", "x" * 2000, ":.a:"])
def test_case_22_names_that_cannot_be(broker: EmbeddedBroker, subject: str) -> None:
    answer = ask(broker.registry_url, "POST", f"/subjects/{subject}/versions", {"schema": '"int"'})
    assert (answer.status, answer.code) == (422, 42208)


@pytest.mark.parametrize("version", ["0", "x", "-2", "99999999999", "1.5", "%C2%B2"])
def test_case_22_versions_that_cannot_be(broker: EmbeddedBroker, version: str) -> None:
    answer = ask(broker.registry_url, "GET", f"/subjects/a/versions/{version}")
    assert (answer.status, answer.code) == (422, 42202)


@pytest.mark.parametrize("number", ["0", "-1", "2147483648", "x", "99999999999999"])
def test_an_id_that_cannot_be_is_unknown(broker: EmbeddedBroker, number: str) -> None:
    answer = ask(broker.registry_url, "GET", f"/schemas/ids/{number}")
    assert (answer.status, answer.code) == (404, 40403)


def test_media_types_and_methods(broker: EmbeddedBroker) -> None:
    url = broker.registry_url
    assert ask(url, "GET", "/").headers["content-type"] == V1
    asked = ask(url, "GET", "/", headers={"Accept": "application/json"})
    assert asked.headers["content-type"] == "application/json"
    refused = ask(url, "PUT", "/subjects")
    assert (refused.status, refused.headers["allow"]) == (405, "GET")


def test_what_the_registry_says_of_itself(broker: EmbeddedBroker) -> None:
    url = broker.registry_url
    assert ask(url, "GET", "/").body == {}
    assert set(ask(url, "GET", "/schemas/types").body) == {"AVRO", "JSON", "PROTOBUF"}
    assert ask(url, "GET", "/v1/metadata/id").body["id"]
    assert ask(url, "GET", "/v1/metadata/version").body["version"]
    assert "not built" in ask(url, "GET", "/exporters").body["message"]


def test_settings(broker: EmbeddedBroker) -> None:
    url = broker.registry_url
    assert ask(url, "GET", "/config").body == {"compatibilityLevel": "BACKWARD"}
    assert ask(url, "GET", "/config/set").code == 40408
    assert ask(url, "PUT", "/config/set", {"compatibility": "full", "normalize": True}).body == {
        "compatibility": "FULL",
        "normalize": True,
    }
    assert ask(url, "GET", "/config/set").body == {"compatibilityLevel": "FULL", "normalize": True}
    assert ask(url, "PUT", "/config/set", {"alias": "x"}).code == 42203
    assert ask(url, "DELETE", "/config/set").body["compatibilityLevel"] == "FULL"
    inherited = ask(url, "GET", "/config/set?defaultToGlobal=true").body
    assert inherited == {"compatibilityLevel": "BACKWARD"}
    assert ask(url, "GET", "/mode/set?defaultToGlobal=true").body == {"mode": "READWRITE"}


def test_case_22_random_requests_are_never_500(broker: EmbeddedBroker) -> None:
    """Parts of real requests, put together and damaged at random."""
    source = random.Random(22)
    segments = ["subjects", "schemas", "ids", "1", "versions", "latest", "config", "mode", "%2F"]
    segments += ["http-value", "compatibility", "guids", "metadata", "schema", "", ":.a:", "%ff"]
    bodies = [BODY, "{}", "[]", '{"mode":"X"}', '{"compatibility":"FULL"}', "\x00", '{"schema":""}']
    url = urlsplit(broker.registry_url)
    seen: set[int] = set()
    for _ in range(100_000 if SOAK else 200):
        method = source.choice(["GET", "POST", "PUT", "DELETE", "HEAD", "X"])
        path = "/".join(source.choices(segments, k=source.randint(0, 5)))
        query = source.choice(
            ["", "?deleted=true", "?permanent=true", "?limit=x", "?&&=", "?format=1"]
        )
        body = source.choice(bodies).encode()
        head = f"{method} /{path}{query} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        sent = bytearray(head.encode() + body)
        if source.random() < 0.3:
            sent[source.randrange(len(sent))] = source.randrange(256)
        answer = exchange(broker, bytes(sent))
        seen.update(statuses(answer))
        assert not {one for one in statuses(answer) if one >= 500}, bytes(sent)
    assert {200, 404, 405} <= seen
    assert url.port


def test_case_73_requests_and_subjects_are_counted() -> None:
    from ottla import EmbeddedBroker

    config = {"ottla.metrics.listener": "http://127.0.0.1:0"}
    with EmbeddedBroker(registry=True, config=config) as broker:
        node = broker._node
        assert node is not None
        assert node.monitoring is not None
        metrics = "http://{}:{}".format(*node.monitoring.address)
        ask(broker.registry_url, "POST", "/subjects/counted/versions", {"schema": '"int"'})
        ask(broker.registry_url, "GET", "/nothing")
        text = ask(metrics, "GET", "/metrics").body.decode()
    assert 'ottla_registry_requests_total{status="200"} 1.0' in text
    assert 'ottla_registry_requests_total{status="404"} 1.0' in text
    assert "ottla_registry_subjects 1.0" in text
