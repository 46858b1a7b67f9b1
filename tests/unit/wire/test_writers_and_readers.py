"""Every message of every API in every version, against kio's own writer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.wire.errors import MalformedMessage, UnsupportedVersion
from ottla.wire.messages import message
from ottla.wire.readers import compile_reader
from ottla.wire.schema import API_NAMES
from ottla.wire.schema.fetch import (
    FETCH_RESPONSE,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from ottla.wire.schema.metadata import METADATA_REQUEST, METADATA_RESPONSE, MetadataResponse
from ottla.wire.schema.produce import PRODUCE_REQUEST, PartitionProduceData, TopicProduceData
from ottla.wire.schema.produce import ProduceRequest as Produce
from ottla.wire.schema.sasl_handshake import SASL_HANDSHAKE_REQUEST, SaslHandshakeRequest
from ottla.wire.spec import MAX_STRING_BYTES
from ottla.wire.writers import UnwritableValue, compile_writer
from tests.support.kio_twins import entities, every_message, kio_bytes, kio_class, twin

# Examples of each version: few in `make test`, more in `make verify`.
few_and_more = pytest.mark.parametrize("examples", [2, pytest.param(30, marks=pytest.mark.long)])


@few_and_more
@pytest.mark.parametrize(("api_key", "request_"), every_message(), ids=str)
def test_bytes_are_those_of_kio_in_every_version(
    api_key: int, request_: bool, examples: int
) -> None:
    spec = message(api_key, request=request_)
    for version in range(spec.versions[0], spec.versions[1] + 1):
        write, read = compile_writer(spec, version), compile_reader(spec, version)

        @settings(max_examples=examples)
        @given(entity=entities(kio_class(api_key, version, request=request_)))
        def check(entity: object) -> None:
            ours = twin(entity, api_key, request=request_)
            expected = kio_bytes(entity)
            assert b"".join(write(ours)) == expected  # noqa: B023
            assert read(memoryview(expected), 0) == (ours, len(expected))  # noqa: B023

        check()


def test_every_api_of_kio_has_a_schema() -> None:
    assert len(every_message()) == 2 * len(API_NAMES) == 178


@few_and_more
@pytest.mark.parametrize(("api_key", "request_"), every_message(), ids=str)
def test_mutated_bytes_are_read_or_refused_but_nothing_else(
    api_key: int, request_: bool, examples: int
) -> None:
    spec = message(api_key, request=request_)

    @settings(max_examples=2 * examples)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        version = data.draw(st.integers(*spec.versions))
        entity = data.draw(entities(kio_class(api_key, version, request=request_)))
        raw = bytearray(kio_bytes(entity))
        for _ in range(data.draw(st.integers(1, 4))):
            if raw:
                raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        del raw[data.draw(st.integers(0, len(raw))) :]
        try:
            _, end = compile_reader(spec, version)(memoryview(raw), 0)
        except MalformedMessage:
            return
        assert end <= len(raw)

    check()


def test_records_are_parts_of_their_own_and_never_copied() -> None:
    first, second = memoryview(b"first records"), memoryview(b"second")
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="t",
                partitions=[
                    PartitionData(0, records=first),
                    PartitionData(1, records=[second, first]),
                    PartitionData(2, records=b""),
                    PartitionData(3, records=None),
                ],
            )
        ]
    )
    for version in (4, 12, 17):
        parts = compile_writer(FETCH_RESPONSE, version)(response)
        assert parts[1] is first
        assert parts[3] is second
        assert parts[4] is first
        assert len(parts) == 6
        read, end = compile_reader(FETCH_RESPONSE, version)(memoryview(b"".join(parts)), 0)
        assert end == sum(map(len, parts))
        partitions = read.responses[0].partitions
        assert bytes(partitions[1].records) == bytes(second) + bytes(first)
        assert partitions[3].records is None


def test_read_records_are_a_window_into_the_frame() -> None:
    request = Produce(
        topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, b"abc")])]
    )
    frame = bytearray(b"".join(compile_writer(PRODUCE_REQUEST, 9)(request)))
    read, _ = compile_reader(PRODUCE_REQUEST, 9)(memoryview(frame), 0)
    window = read.topic_data[0].partition_data[0].records
    window[0] = ord("X")
    assert b"Xbc" in frame


def test_unknown_tags_are_skipped_at_every_level() -> None:
    unknown = b"\x01" + b"\xd0\x0f" + b"\x03" + b"???"
    body = b"".join(
        (
            b"\x02",  # one topic
            bytes(16) + b"\x02t" + unknown,
            b"\x01\x00",  # two booleans
            unknown,
        )
    )
    read, end = compile_reader(METADATA_REQUEST, 12)(memoryview(body), 0)
    assert end == len(body)
    assert read.topics[0].name == "t"
    assert read.allow_auto_topic_creation is True


def test_a_field_a_version_does_not_have_reads_as_its_default() -> None:
    read, _ = compile_reader(METADATA_REQUEST, 0)(memoryview(b"\0\0\0\0"), 0)
    assert read == METADATA_REQUEST.root(topics=(), allow_auto_topic_creation=True)


@pytest.mark.parametrize(
    ("body", "got"),
    [
        (b"\xff\xff\xff\xff\x0f", "length 4294967294"),  # 4 billion topics
        (b"\xff\xff\xff\xff\xff\x01", "a longer one"),
        (b"\x02" + bytes(16) + b"\x05t", "length 4"),
        (b"\x02" + bytes(16) + b"\x02\xff\0", "byte 0xff"),
        (b"\x02" + bytes(7), "end at byte 8"),
    ],
)
def test_hostile_lengths_are_named(body: bytes, got: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        compile_reader(METADATA_REQUEST, 12)(memoryview(body), 0)
    assert got in str(caught.value)


def test_negative_array_length_other_than_null_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="length -2"):
        compile_reader(METADATA_REQUEST, 1)(memoryview(b"\xff\xff\xff\xfe"), 0)


def test_null_where_null_is_not_allowed_is_refused_both_ways() -> None:
    with pytest.raises(MalformedMessage, match="null"):
        compile_reader(METADATA_REQUEST, 0)(memoryview(b"\xff\xff\xff\xff"), 0)
    with pytest.raises(UnwritableValue, match="SaslHandshakeRequest"):
        compile_writer(SASL_HANDSHAKE_REQUEST, 1)(SaslHandshakeRequest(None))  # type: ignore[arg-type]


def test_a_string_too_long_for_the_old_form_is_refused() -> None:
    with pytest.raises(UnwritableValue, match="32768 bytes"):
        compile_writer(SASL_HANDSHAKE_REQUEST, 1)(SaslHandshakeRequest("x" * 32768))


def test_no_form_carries_a_longer_string() -> None:
    write, read = compile_writer(METADATA_RESPONSE, 13), compile_reader(METADATA_RESPONSE, 13)
    longest = MetadataResponse(cluster_id="x" * MAX_STRING_BYTES)
    assert read(memoryview(b"".join(write(longest))), 0)[0] == longest
    longer = MetadataResponse(cluster_id="x" * (MAX_STRING_BYTES + 1))
    with pytest.raises(MalformedMessage, match="a string of at most 32767 bytes, got length 32768"):
        read(memoryview(b"".join(write(longer))), 0)


def test_versions_outside_the_table_are_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="expected 0 to 13, got 14"):
        compile_writer(METADATA_RESPONSE, 14)
    with pytest.raises(UnsupportedVersion, match="expected 0 to 13, got -1"):
        compile_reader(METADATA_RESPONSE, -1)
