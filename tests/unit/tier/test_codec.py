"""Events and their bytes, and the partition they go to: vectors from Kafka's own classes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.tier.catalogue.codec import decode_event, encode_event
from ottla.tier.catalogue.placement import metadata_partition_for, metadata_partitions_for
from ottla.tier.catalogue.segments import (
    EpochStart,
    MetadataEvent,
    PartitionDeleteState,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
    TopicIdPartition,
    random_segment_id,
)
from ottla.tier.errors import CodecError, InvalidSegment
from tests.support.tiering import TIP, TOPIC_ID, segment

SEGMENT_ID = RemoteLogSegmentId(TIP, UUID("0a1b2c3d-4e5f-4061-8293-a4b5c6d7e8f9"))
SEGMENT = RemoteLogSegmentMetadata(
    SEGMENT_ID,
    1000,
    1999,
    1700000000123,
    5,
    1700000000456,
    65536,
    (EpochStart(2, 1000), EpochStart(4, 1500)),
    txn_index_empty=True,
)
V1 = bytes.fromhex(
    "01000007636c69636b736f1d2c3b4a5947889796a5b4c3d2e1f000000003000a1b2c3d4e5f40618293a4b5c6d7e8f9"
    "0000000000000003e800000000000007cf000000050000018bcfe5687b0000018bcfe569c80300000002000000000000"
    "03e8000000000400000000000005dc0000010000000001000101"
)
V2 = bytes.fromhex(
    "01010007636c69636b736f1d2c3b4a5947889796a5b4c3d2e1f000000003000a1b2c3d4e5f40618293a4b5c6d7e8f9"
    "00000000050000018bcfe56b1504c0ffee0100"
)
V3 = bytes.fromhex(
    "01020007636c69636b736f1d2c3b4a5947889796a5b4c3d2e1f00000000300000000050000018bcfe56be70000"
)
EVENTS: list[tuple[bytes, MetadataEvent]] = [
    (V1, SEGMENT),
    (
        V2,
        RemoteLogSegmentMetadataUpdate(
            SEGMENT_ID, 5, 1700000000789, b"\xc0\xff\xee", SegmentState.COPY_SEGMENT_FINISHED
        ),
    ),
    (
        V3,
        RemotePartitionDeleteMetadata(
            TIP, PartitionDeleteState.DELETE_PARTITION_MARKED, 1700000000999, 5
        ),
    ),
]


@pytest.mark.parametrize(("data", "event"), EVENTS)
def test_case_01_vectors(data: bytes, event: MetadataEvent) -> None:
    assert encode_event(event) == data
    assert decode_event(data) == event


def test_case_01_a_segment_with_transactions_is_shorter() -> None:
    event = replace(SEGMENT, txn_index_empty=False)
    assert encode_event(event) == V1[:-4] + b"\x00"
    assert decode_event(V1[:-4] + b"\x00") == event


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" + V1[1:],
        b"\x02" + V1[1:],
        b"\x01\x03" + V1[2:],
        b"\x01\x09" + V1[2:],
        V1[:-5] + b"\x04" + V1[-4:],
        V2[:-2] + b"\x04" + V2[-1:],
        V3[:-2] + b"\x03" + V3[-1:],
        V1 + b"\x00",
        V2 + b"\x00",
        V3 + b"\x00",
        b"\x01\x01\x01" + V2[3:],
        b"\x01\x00\x00\x03\xff\xff" + V1[10:],
        V1[:-3] + b"\x00\x02\x01\x01",
        *(V1[:length] for length in range(len(V1))),
    ],
)
def test_case_02_bytes_that_are_no_event(data: bytes) -> None:
    with pytest.raises(CodecError):
        decode_event(data)


@given(st.binary(max_size=200), st.sampled_from([V1, V2, V3]), st.data())
def test_case_02_any_bytes_give_an_event_or_the_named_error(
    noise: bytes, vector: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(vector)))
    for candidate in (noise, vector[:at] + noise + vector[at + len(noise) :]):
        with suppress(CodecError):
            assert decode_event(encode_event(decode_event(candidate))) is not None


def test_case_02_an_impossible_count_costs_no_memory() -> None:
    at = V1.index(bytes.fromhex("0300000002"))
    with pytest.raises(CodecError, match="an array that fits"):
        decode_event(V1[:at] + b"\xff\xff\xff\xff\x0f" + V1[at + 1 :])


def test_case_03_unknown_tagged_fields_are_skipped() -> None:
    assert decode_event(V1[:-4] + bytes.fromhex("020001010703aabbcc")) == SEGMENT
    assert decode_event(V2[:-1] + bytes.fromhex("010700")) == EVENTS[1][1]
    # The proposed version 1 adds the leader epoch as tag 1.
    later = b"\x01\x00\x01" + V1[3:-4] + bytes.fromhex("02000101010400000007")
    assert decode_event(later) == SEGMENT


def test_case_03_three_kinds_of_custom_metadata() -> None:
    kinds = [None, b"", bytes(128)]
    encoded = [encode_event(replace(SEGMENT, custom_metadata=kind)) for kind in kinds]
    decoded = [decode_event(data) for data in encoded]
    assert decoded == [replace(SEGMENT, custom_metadata=kind) for kind in kinds]
    assert len(set(encoded)) == 3


def test_case_03_epochs_are_written_in_order() -> None:
    shuffled = replace(SEGMENT, leader_epochs=(EpochStart(4, 1500), EpochStart(2, 1000)))
    assert encode_event(shuffled) == V1


@pytest.mark.parametrize(
    ("topic_id", "partition", "expected"),
    [
        *((TOPIC_ID, number, found) for number, found in enumerate((21, 35, 23, 1, 40, 17))),
        (UUID(int=1), 0, 35),
        (UUID(int=0xCA), 7, 31),
        (UUID(int=(1 << 128) - 1), 2147483647, 10),
    ],
)
def test_case_04_the_metadata_partition_is_kafkas(
    topic_id: UUID, partition: int, expected: int
) -> None:
    assert metadata_partition_for(topic_id, partition, 50) == expected
    assert metadata_partition_for(topic_id, partition, 1) == 0


def test_case_04_names_play_no_part_and_partitions_come_once() -> None:
    with pytest.raises(ValueError, match="partition_count"):
        metadata_partition_for(TOPIC_ID, 0, 0)
    tips = [TopicIdPartition(TOPIC_ID, name, number) for number in range(6) for name in "ab"]
    assert metadata_partitions_for(reversed(tips), 50) == [1, 17, 21, 23, 35, 40]


@pytest.mark.parametrize(
    ("start", "end", "epochs"),
    [(-1, 5, {0: 0}), (7, 6, {0: 7}), (0, 5, {})],
)
def test_case_06_impossible_segments(start: int, end: int, epochs: dict[int, int]) -> None:
    with pytest.raises(InvalidSegment):
        segment(start, end, epochs=epochs)


def test_new_ids_are_never_reserved() -> None:
    assert all(random_segment_id().int > 1 for _ in range(100))
