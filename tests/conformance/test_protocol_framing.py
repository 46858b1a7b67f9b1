"""Frames, headers, versions and the order of answers, as every client relies on them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from ottla import EmbeddedBroker
from ottla.broker.running import jobs
from ottla.broker.serving.apis import SERVED
from ottla.wire.error_codes import ErrorCode
from ottla.wire.messages import is_flexible, message, request_parts
from ottla.wire.schema import API_NAMES
from ottla.wire.schema.api_versions import ApiVersionsRequest
from ottla.wire.schema.metadata import MetadataRequest
from ottla.wire.schema.produce import ProduceRequest
from tests.support.raw_client import RawClient, batch, produce_request

if TYPE_CHECKING:
    from collections.abc import Callable

NAMED = ApiVersionsRequest("tests", "1.0")
UNKNOWN_TAG = bytes([1, 99, 2]) + b"??"  # one tag, number 99, two bytes


def minimal_request(key: int) -> Any:
    """A request that every version can carry and that changes nothing."""
    if key == 0:
        return ProduceRequest(acks=-1)
    if key == 18:
        return NAMED
    return message(key, request=True).root()


def with_unknown_tags(key: int, version: int, correlation_id: int) -> bytes:
    """A request with a tag nobody knows in its header and one at the end of its body."""
    plain = b"".join(request_parts(key, version, correlation_id, None, minimal_request(key)))
    header, body = plain[4:14], plain[15:]
    assert plain[14] == body[-1] == 0  # the empty tag sections
    return header + UNKNOWN_TAG + body[:-1] + UNKNOWN_TAG


def test_too_new_api_versions_is_answered_in_v0_and_the_connection_goes_on(raw: RawClient) -> None:
    raw.send_frame(struct.pack(">hhih", 18, 99, 7, -1) + b"whatever v99 looks like")
    correlation_id, answer = raw.receive("api_versions", 0)
    assert (correlation_id, answer.error_code) == (7, ErrorCode.UNSUPPORTED_VERSION)
    listed = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    assert listed[18] == (0, 4)
    assert raw.ask("api_versions", 4, NAMED).error_code == 0


def test_flexible_api_versions_has_the_old_response_header(raw: RawClient) -> None:
    raw.send("api_versions", 3, NAMED)
    frame = raw.receive_frame()
    # Correlation id, error code, then the compact array: a tag section would shift all of it.
    assert struct.unpack_from(">ihB", frame) == (1, 0, len(SERVED) + 1)


def test_api_versions_lists_what_is_served(raw: RawClient) -> None:
    answer = raw.ask("api_versions", 4, NAMED)
    listed = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    assert listed.pop(0) == (0, 13)
    assert listed == {
        key: (served.min_version, served.max_version) for key, served in SERVED.items() if key
    }
    finalized = {f.name: f.max_version_level for f in answer.finalized_features}
    assert finalized["group.version"] == 1
    assert answer.finalized_features_epoch >= 0


@pytest.mark.parametrize("name", ["", "-lib", "lib-", "a b", "a\n"])
def test_software_names_must_look_like_names(raw: RawClient, name: str) -> None:
    refused = raw.ask("api_versions", 3, ApiVersionsRequest(name, "1.0"))
    assert refused.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: API_NAMES[key])
def test_every_served_version_is_answered(raw: RawClient, key: int) -> None:
    """Also those no client at hand uses: a null where a version has none would close here."""
    for version in range(SERVED[key].min_version, SERVED[key].max_version + 1):
        raw.ask(API_NAMES[key], version, minimal_request(key))


@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: API_NAMES[key])
def test_unknown_tags_in_header_and_body_are_skipped(raw: RawClient, key: int) -> None:
    for version in range(SERVED[key].min_version, SERVED[key].max_version + 1):
        if is_flexible(key, version):
            raw.send_frame(with_unknown_tags(key, version, version))
            assert raw.receive(API_NAMES[key], version)[0] == version


@pytest.mark.parametrize("size", [0, -1, 104857601, 0x7FFFFFFF])
def test_an_impossible_frame_size_closes(raw: RawClient, size: int) -> None:
    raw.send_bytes(struct.pack(">i", size) + b"\0\0\0\0")
    assert raw.closed()


def test_the_frame_limit_is_a_setting() -> None:
    settings = {"socket.request.max.bytes": "1000"}
    with EmbeddedBroker(config=settings) as broker, RawClient(broker.bootstrap) as client:
        client.send_frame(struct.pack(">hhih", 18, 0, 1, 990) + b"x" * 990)
        assert client.receive("api_versions", 0)[1].error_code == 0
        client.send_bytes(struct.pack(">i", 1001))
        assert client.closed()


def test_a_frame_that_is_never_finished_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(jobs, "HALF_FRAME_SECONDS", 0.1)
    with EmbeddedBroker() as broker, RawClient(broker.bootstrap) as client:
        client.send_bytes(struct.pack(">ih", 100, 18))
        assert client.closed()


def test_trailing_bytes_are_ignored_as_kafka_does(raw: RawClient) -> None:
    plain = b"".join(request_parts(3, 12, 1, None, MetadataRequest(())))
    raw.send_frame(plain[4:] + b"\0")
    assert not raw.closed(), "librdkafka sends such a request when it lists all topics"


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", -1, 0, 1, -1),
        struct.pack(">hhih", 4, 0, 1, -1),  # LeaderAndIsr, gone from Kafka
        struct.pack(">hhih", 0, 2, 1, -1),  # listed for old clients' sake, not served
        struct.pack(">hhih", 3, 99, 1, -1),
        struct.pack(">hhih", 3, -1, 1, -1),
        struct.pack(">hhih", 3, 1, 1, 100) + b"short",
        struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xff",
        b"\0\0\0\0",
    ],
)
def test_requests_that_are_not_served_close(raw: RawClient, frame: bytes) -> None:
    raw.send_frame(frame)
    assert raw.closed()


def test_an_array_larger_than_its_frame_closes(raw: RawClient) -> None:
    raw.send_frame(struct.pack(">hhihi", 3, 1, 1, -1, 0x7FFFFFFF))
    assert raw.closed()


def test_a_hundred_pipelined_requests_are_answered_in_order(
    raw: RawClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    sent = []
    for number in range(100):
        if number % 3 == 0:
            sent.append(("metadata", 12, raw.send("metadata", 12, MetadataRequest(()))))
        elif number % 3 == 1:
            request = produce_request(topic, {0: batch(b"%d" % number)})
            sent.append(("produce", 9, raw.send("produce", 9, request)))
        else:
            sent.append(("api_versions", 0, raw.send("api_versions", 0, NAMED)))
    offsets = []
    for api, version, correlation_id in sent:
        found, answer = raw.receive(api, version)
        assert found == correlation_id
        if api == "produce":
            offsets.append(answer.responses[0].partition_responses[0].base_offset)
    assert offsets == list(range(33))


def test_answers_before_a_broken_frame_still_leave(raw: RawClient) -> None:
    good = b"".join(request_parts(18, 0, 5, None, NAMED))
    raw.send_bytes(good + struct.pack(">i", -5))
    assert raw.receive("api_versions", 0)[0] == 5
    assert raw.closed()
