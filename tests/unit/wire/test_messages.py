from __future__ import annotations

import io
import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as KioResponseHeaderV0
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from ottla.wire.errors import (
    MalformedMessage,
    MessageError,
    UnknownApiKey,
    UnsupportedVersion,
)
from ottla.wire.messages import (
    API_VERSIONS,
    is_flexible,
    message,
    read_request,
    read_request_header,
    read_response,
    request_parts,
    response_parts,
)
from ottla.wire.schema import API_NAMES
from ottla.wire.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.schema.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.kio_twins import kio_class

METADATA = 3

every_version = [
    (key, version)
    for key in API_NAMES
    for version in range(
        message(key, request=True).versions[0], message(key, request=True).versions[1] + 1
    )
]


def unframed(parts: list[bytes | bytearray | memoryview]) -> memoryview:
    data = b"".join(parts)
    assert struct.unpack_from(">i", data)[0] == len(data) - 4
    return memoryview(data)[4:]


@given(
    which=st.sampled_from(every_version),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=20),
)
def test_request_headers_are_those_of_kio(
    which: tuple[int, int], correlation_id: int, client_id: str | None
) -> None:
    api_key, version = which
    kio_header = KioHeaderV2 if is_flexible(api_key, version) else KioHeaderV1
    assert kio_class(api_key, version, request=True).__header_schema__ is kio_header
    expected = io.BytesIO()
    entity_writer(kio_header)(
        expected,
        kio_header(
            request_api_key=i16(api_key),
            request_api_version=i16(version),
            correlation_id=i32(correlation_id),
            client_id=client_id,
        ),
    )
    body = message(api_key, request=True).root()
    frame = unframed(request_parts(api_key, version, correlation_id, client_id, body))
    header = read_request_header(frame)
    assert frame[: header.body] == expected.getvalue()
    assert header[:4] == (api_key, version, correlation_id, client_id)


@pytest.mark.parametrize(("api_key", "version"), every_version)
def test_response_header_versions_are_those_of_kio(api_key: int, version: int) -> None:
    kio_header = kio_class(api_key, version, request=False).__header_schema__
    tagged = api_key != API_VERSIONS and is_flexible(api_key, version)
    assert (kio_header is not KioResponseHeaderV0) == tagged
    body = message(api_key, request=False).root()
    frame = unframed(response_parts(api_key, version, 7, body))
    correlation_id, read = read_response(api_key, version, frame)
    assert correlation_id == 7
    assert type(read) is type(body)


def test_api_versions_answers_with_the_old_header() -> None:
    frame = unframed(response_parts(API_VERSIONS, 3, 1, ApiVersionsResponse(error_code=35)))
    assert bytes(frame[4:6]) == b"\x00\x23"


def test_a_request_survives_the_way() -> None:
    request = MetadataRequest(topics=(MetadataRequestTopic(name="orders"),))
    frame = unframed(request_parts(METADATA, 12, 5, "me", request))
    assert read_request(read_request_header(frame), frame) == request


def test_unknown_header_tags_are_skipped() -> None:
    frame = memoryview(
        struct.pack(">hhih", API_VERSIONS, 3, 9, 2) + b"me" + b"\x01\x63\x02zz" + b"\x02a\x02b\0"
    )
    header = read_request_header(frame)
    assert read_request(header, frame) == ApiVersionsRequest("a", "b")


@pytest.mark.parametrize(
    ("frame", "error", "expected", "got"),
    [
        (struct.pack(">hhih", 9999, 0, 1, -1), UnknownApiKey, "a key of the Kafka protocol", 9999),
        (struct.pack(">hhih", -1, 0, 1, -1), UnknownApiKey, "a key of the Kafka protocol", -1),
        (struct.pack(">hhih", METADATA, 99, 1, -1), UnsupportedVersion, "0 to 13", 99),
        (struct.pack(">hhih", METADATA, -1, 1, -1), UnsupportedVersion, "0 to 13", -1),
        (struct.pack(">hhi", METADATA, 1, 1), MalformedMessage, "a whole header", "8 bytes"),
        (struct.pack(">hhih", METADATA, 1, 1, 5) + b"abc", MalformedMessage, "5 bytes", 3),
        (
            struct.pack(">hhih", METADATA, 1, 1, 1) + b"\xff",
            MalformedMessage,
            "UTF-8",
            "other bytes",
        ),
        (struct.pack(">hhih", METADATA, 12, 1, -1), MalformedMessage, "a whole header", "10 bytes"),
        (
            struct.pack(">hhih", METADATA, 12, 1, -1) + b"\x01\x63\x7fx",
            MalformedMessage,
            "127 bytes",
            "less",
        ),
    ],
)
def test_bad_headers_are_named(
    frame: bytes, error: type[MessageError], expected: object, got: object
) -> None:
    with pytest.raises(error) as caught:
        read_request_header(memoryview(frame))
    assert (caught.value.expected, caught.value.got) == (expected, got)
    assert caught.value.where
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_bytes_after_the_body_are_ignored() -> None:
    # What librdkafka 2.16 sends for "all topics": a null array of four bytes instead of one.
    frame = memoryview(bytes.fromhex("0003000d00000003000772646b61666b610000000000010000"))
    request = read_request(read_request_header(frame), frame)
    assert request == MetadataRequest(topics=None, allow_auto_topic_creation=False)


@given(st.binary(max_size=60))
def test_garbage_raises_nothing_but_message_errors(garbage: bytes) -> None:
    frame = memoryview(garbage)
    try:
        read_request(read_request_header(frame), frame)
    except MessageError:
        return
