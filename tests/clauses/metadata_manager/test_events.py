"""Events: three variants, their bytes, and the partition they go to"""

from __future__ import annotations

from typing import Final, get_args
from uuid import UUID

import pytest

from ottla.tier.catalogue import (
    CodecError,
    InvalidSegment,
    MetadataEvent,
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
    TopicIdPartition,
    decode_event,
    encode_event,
    metadata_partition_for,
    metadata_partitions_for,
)
from tests.support.tiering import FINISHED, TIP, TOPIC_ID, becomes, segment

SEGMENT_ID: Final = UUID("0a1b2c3d-4e5f-4061-8293-a4b5c6d7e8f9")
ADDED: Final = segment(
    1000,
    1999,
    number=SEGMENT_ID.int,
    epochs={2: 1000, 4: 1500},
    max_timestamp=1_700_000_000_123,
    event_timestamp=1_700_000_000_456,
    size=65536,
)
UPDATED: Final = RemoteLogSegmentMetadataUpdate(
    ADDED.id, 5, 1_700_000_000_789, b"\xc0\xff\xee", FINISHED
)
DELETED: Final = RemotePartitionDeleteMetadata(
    TIP, PartitionDeleteState.DELETE_PARTITION_MARKED, 1_700_000_000_999, 5
)
# As Kafka's own serde writes them.
BYTES: Final = {
    ADDED: (
        "01000007636c69636b736f1d2c3b4a5947889796a5b4c3d2e1f000000003000a1b2c3d4e5f406182"
        "93a4b5c6d7e8f90000000000000003e800000000000007cf000000050000018bcfe5687b0000018b"
        "cfe569c8030000000200000000000003e8000000000400000000000005dc00000100000000010001"
        "01"
    ),
    UPDATED: (
        "01010007636c69636b736f1d2c3b4a5947889796a5b4c3d2e1f000000003000a1b2c3d4e5f406182"
        "93a4b5c6d7e8f900000000050000018bcfe56b1504c0ffee0100"
    ),
    DELETED: (
        "01020007636c69636b736f1d2c3b4a5947889796a5b4c3d2e1f00000000300000000050000018bcfe56be70000"
    ),
}


def test_there_are_three_kinds_of_event() -> None:
    """An event adds a segment, updates one, or tells of a partition's deletion."""
    assert set(get_args(MetadataEvent)) == {
        RemoteLogSegmentMetadata,
        RemoteLogSegmentMetadataUpdate,
        RemotePartitionDeleteMetadata,
    }


@pytest.mark.parametrize("event", BYTES, ids=["add", "update", "partition delete"])
def test_the_bytes_are_kafkas(event: MetadataEvent) -> None:
    """The codec is the on-wire format of the three variants, and goes both ways."""
    assert encode_event(event).hex() == BYTES[event]
    assert decode_event(bytes.fromhex(BYTES[event])) == event


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00" + bytes.fromhex(BYTES[UPDATED])[1:],
        b"\x02" + bytes.fromhex(BYTES[UPDATED])[1:],
        b"\x01\x09" + bytes.fromhex(BYTES[UPDATED])[2:],
        bytes.fromhex(BYTES[UPDATED])[:-3] + b"\x09\x00",
        bytes.fromhex(BYTES[UPDATED]) + b"\x00",
        bytes.fromhex(BYTES[UPDATED])[:-1],
    ],
    ids=["nothing", "frame 0", "frame 2", "unknown kind", "unknown state", "longer", "shorter"],
)
def test_what_is_no_event_is_a_codec_error(payload: bytes) -> None:
    """Bytes that are no event are a `CodecError`."""
    with pytest.raises(CodecError):
        decode_event(payload)


def test_unknown_tagged_fields_are_passed_over() -> None:
    """Later versions may add fields; they do not disturb."""
    payload = bytes.fromhex(BYTES[DELETED])[:-1] + b"\x01\x07\x02hi"
    assert decode_event(payload) == DELETED


def test_custom_metadata_may_be_missing_or_empty() -> None:
    """No custom metadata, an empty one and a long one are three values."""
    for custom in (None, b"", bytes(128)):
        found = decode_event(encode_event(becomes(ADDED, FINISHED, custom)))
        assert isinstance(found, RemoteLogSegmentMetadataUpdate)
        assert found.custom_metadata == custom


def test_the_states_have_kafkas_numbers() -> None:
    """Segments and partition deletions have states, which events carry as numbers."""
    assert [state.name for state in SegmentState] == [
        "COPY_SEGMENT_STARTED",
        "COPY_SEGMENT_FINISHED",
        "DELETE_SEGMENT_STARTED",
        "DELETE_SEGMENT_FINISHED",
    ]
    assert [*SegmentState] == [0, 1, 2, 3]
    assert [*PartitionDeleteState] == [0, 1, 2]


def test_a_segment_that_cannot_be_is_refused() -> None:
    """A segment has a range of offsets and at least one leader epoch."""
    for start, end in ((-1, 5), (5, 4)):
        with pytest.raises(InvalidSegment):
            segment(start, end)
    with pytest.raises(InvalidSegment, match="leader epoch"):
        segment(0, 9, epochs={})


@pytest.mark.parametrize(
    ("topic_id", "partition", "wanted"),
    [
        (TOPIC_ID, 0, 21),
        (TOPIC_ID, 3, 1),
        (TOPIC_ID, 5, 17),
        (UUID(int=1), 0, 35),
        (UUID(int=0xCA), 7, 31),
        (UUID(int=(1 << 128) - 1), 2_147_483_647, 10),
    ],
)
def test_the_metadata_partition_is_kafkas_hash(topic_id: UUID, partition: int, wanted: int) -> None:
    """`metadata_partition_for` maps a partition to a partition of the metadata topic.

    Differs: by Kafka's hash, where the document's crate takes its language's; only so do brokers of
    Kafka find the events.
    """
    assert metadata_partition_for(topic_id, partition, 50) == wanted


def test_the_metadata_partition_does_not_depend_on_the_name() -> None:
    """A partition is known by its topic's id; the name is for people."""
    renamed = TopicIdPartition(TIP.topic_id, "renamed", TIP.partition)
    assert metadata_partitions_for([TIP, renamed], 50) == [1]


def test_metadata_partitions_of_many_are_each_named_once() -> None:
    """`metadata_partitions_for` gives the set for many partitions, sorted."""
    tips = [TopicIdPartition(TOPIC_ID, "clicks", number) for number in (0, 1, 2, 3, 0)]
    assert metadata_partitions_for(tips, 50) == [1, 21, 23, 35]


def test_a_metadata_topic_has_partitions() -> None:
    """The count of partitions is at least 1."""
    assert metadata_partition_for(TOPIC_ID, 3, 1) == 0
    with pytest.raises(ValueError, match="partition_count"):
        metadata_partition_for(TOPIC_ID, 3, 0)
