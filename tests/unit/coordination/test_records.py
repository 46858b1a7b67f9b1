"""The records of `__consumer_offsets`: hand-built layouts, round trips, damage."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.codec import MalformedRecord, Reader, UnsupportedRecordVersion, Writer
from ottla.coordination.groups.keys import (
    ClassicGroupKey,
    ConsumerGroupKey,
    CurrentAssignmentKey,
    Key,
    MemberKey,
    OffsetKey,
    PartitionMetadataKey,
    RegexKey,
    TargetEpochKey,
    TargetMemberKey,
    decode_key,
    encode_key,
)
from ottla.coordination.groups.records import (
    ClassicGroupValue,
    ClassicMemberValue,
    ConsumerGroupValue,
    CurrentAssignmentValue,
    MemberValue,
    OffsetValue,
    Record,
    RegexValue,
    TargetEpochValue,
    TargetMemberValue,
    Value,
    decode,
)

T1 = UUID("00112233-4455-6677-8899-aabbccddeeff")
T1_HEX = "00112233445566778899aabbccddeeff"


def layout(text: str) -> bytes:
    """Bytes from hex, with comments after '#' left out."""
    return bytes.fromhex("".join(line.split("#")[0] for line in text.splitlines()))


KEYS = [
    (OffsetKey("g", "to", 5), "0001 0001 67 0002 746f 00000005"),
    (ClassicGroupKey("g"), "0002 0001 67"),
    (ConsumerGroupKey("g"), "0003 0001 67"),
    (PartitionMetadataKey("g"), "0004 0001 67"),
    (MemberKey("g", "mm"), "0005 0001 67 0002 6d6d"),
    (TargetEpochKey("g"), "0006 0001 67"),
    (TargetMemberKey("g", "mm"), "0007 0001 67 0002 6d6d"),
    (CurrentAssignmentKey("g", "mm"), "0008 0001 67 0002 6d6d"),
    (RegexKey("g", "a.*"), "0010 0001 67 0003 612e2a"),
]


@pytest.mark.parametrize(("key", "text"), KEYS, ids=lambda value: type(value).__name__)
def test_key_layout(key: Key, text: str) -> None:
    assert encode_key(key) == layout(text)
    assert decode_key(layout(text)) == key


def test_offset_keys_of_type_0_and_1_are_the_same_fact() -> None:
    assert decode_key(layout("0000 0001 67 0002 746f 00000005")) == OffsetKey("g", "to", 5)


@pytest.mark.parametrize("kind", [9, 17, 18, 99])
def test_unknown_types_are_left_alone(kind: int) -> None:
    assert decode(Writer().int16(kind).string("g").done(), b"\x00\x00whatever") is None


VALUES: list[tuple[Key, Value, str]] = [
    (
        OffsetKey("g", "t", 0),
        OffsetValue(258, 7, "md", 1),
        """0003                # version
        0000000000000102    # offset
        00000007            # leader epoch
        0002 6d64           # metadata
        0000000000000001    # commit timestamp""",
    ),
    (
        OffsetKey("g", "t", 0),
        OffsetValue(258, -1, "", 1, expire_ms=9),
        """0001
        0000000000000102
        0000
        0000000000000001
        0000000000000009    # expire timestamp""",
    ),
    (
        ClassicGroupKey("g"),
        ClassicGroupValue(
            "consumer",
            3,
            "range",
            "m",
            2,
            (ClassicMemberValue("m", None, "c", "/h", 300, 100, b"\x01", b""),),
        ),
        """0003
        0008 636f6e73756d6572
        00000003
        0005 72616e6765
        0001 6d
        0000000000000002
        00000001            # members
        0001 6d
        ffff                # no instance id
        0001 63
        0002 2f68
        0000012c            # rebalance timeout
        00000064            # session timeout
        00000001 01
        00000000""",
    ),
    (
        ClassicGroupKey("g"),
        ClassicGroupValue("", 4, None, None, 2, ()),
        "0003 0000 00000004 ffff ffff 0000000000000002 00000000",
    ),
    (ConsumerGroupKey("g"), ConsumerGroupValue(5), "0000 00000005 00"),
    (
        ConsumerGroupKey("g"),
        ConsumerGroupValue(5, 258),
        "0000 00000005 01 00 08 0000000000000102",
    ),
    (
        MemberKey("g", "m"),
        MemberValue("i", None, "c", "/h", ("a", "bc"), None, 300, "uniform"),
        """0000
        02 69
        00                  # no rack
        02 63
        03 2f68
        03 02 61 03 6263    # two names
        00                  # no regex
        0000012c
        08 756e69666f726d
        00""",
    ),
    (TargetEpochKey("g"), TargetEpochValue(6), "0000 00000006 00"),
    (
        TargetMemberKey("g", "m"),
        TargetMemberValue(frozenset({(T1, 1), (T1, 0)})),
        f"0000 02 {T1_HEX} 03 00000000 00000001 00 00",
    ),
    (
        CurrentAssignmentKey("g", "m"),
        CurrentAssignmentValue(4, 3, 1, frozenset({(T1, 2)}), frozenset()),
        f"0000 00000004 00000003 01 02 {T1_HEX} 02 00000002 00 01 00",
    ),
    (
        RegexKey("g", "a.*"),
        RegexValue(("ab",), 3, 4),
        "0000 02 03 6162 0000000000000003 0000000000000004 00",
    ),
]


@pytest.mark.parametrize(("key", "value", "text"), VALUES)
def test_value_layout(key: Key, value: Value, text: str) -> None:
    assert Record(key, value).encode() == (encode_key(key), layout(text))
    assert decode(encode_key(key), layout(text)) == Record(key, value)


@pytest.mark.parametrize(("key", "_"), KEYS)
def test_tombstone(key: Key, _: str) -> None:
    assert Record(key, None).encode() == (encode_key(key), None)
    assert decode(encode_key(key), None) == Record(key, None)


def test_older_offset_versions() -> None:
    key = encode_key(OffsetKey("g", "t", 0))
    for version in ("0000", "0002"):
        data = layout(version + "0000000000000005 0001 78 0000000000000007")
        assert decode(key, data) == Record(OffsetKey("g", "t", 0), OffsetValue(5, -1, "x", 7))


def test_the_newer_offset_version() -> None:
    data = layout(
        """0004
        0000000000000102
        00000007
        01                  # compact string of length 0
        0000000000000001
        01 a846 00          # a tag that nobody knows: 9000, size 0"""
    )
    expected = Record(OffsetKey("g", "t", 0), OffsetValue(258, 7, "", 1))
    assert decode(encode_key(OffsetKey("g", "t", 0)), data) == expected


def test_older_group_versions() -> None:
    key = encode_key(ClassicGroupKey("g"))
    head = "0001 70 00000002 0001 72 0001 6d"
    tail = "00000001 0001 6d 0001 63 0001 68 {} 00000064 00000000 00000000"
    session = ClassicMemberValue("m", None, "c", "h", 100, 100, b"", b"")
    v0 = decode(key, layout("0000" + head + tail.format("")))
    v1 = decode(key, layout("0001" + head + tail.format("0000012c")))
    v2 = decode(key, layout("0002" + head + "0000000000000009" + tail.format("0000012c")))
    named = ClassicGroupKey("g")
    assert v0 == Record(named, ClassicGroupValue("p", 2, "r", "m", -1, (session,)))
    rebalance = session._replace(rebalance_timeout_ms=300)
    assert v1 == Record(named, ClassicGroupValue("p", 2, "r", "m", -1, (rebalance,)))
    assert v2 == Record(named, ClassicGroupValue("p", 2, "r", "m", 9, (rebalance,)))


def test_flexible_group_version_is_read() -> None:
    data = layout(
        """0004 02 70 00000002 02 72 02 6d 0000000000000009
        02 02 6d 00 02 63 02 68 0000012c 00000064 01 01 00
        00"""
    )
    member = ClassicMemberValue("m", None, "c", "h", 300, 100, b"", b"")
    expected = Record(ClassicGroupKey("g"), ClassicGroupValue("p", 2, "r", "m", 9, (member,)))
    assert decode(encode_key(ClassicGroupKey("g")), data) == expected


def test_unknown_tags_are_skipped() -> None:
    data = layout("0000 00000005 02 01 01 ff 09 00")
    assert decode(encode_key(ConsumerGroupKey("g")), data) == Record(
        ConsumerGroupKey("g"), ConsumerGroupValue(5)
    )


def test_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedRecordVersion, match="expected 0 to 4, got 5"):
        decode(encode_key(OffsetKey("g", "t", 0)), b"\x00\x05")


@pytest.mark.parametrize(("key", "value", "_"), VALUES)
def test_every_truncation_is_a_named_error(key: Key, value: Value, _: str) -> None:
    key_data, value_data = encode_key(key), value.encode()
    for end in range(len(key_data)):
        with pytest.raises(MalformedRecord):
            decode(key_data[:end], value_data)
    for end in range(len(value_data)):
        with pytest.raises(MalformedRecord):
            decode(key_data, value_data[:end])
    with pytest.raises(MalformedRecord):
        decode(key_data, value_data + b"\x00")


@given(st.binary(max_size=60), st.sampled_from(KEYS))
def test_hostile_bytes_end_in_a_named_error(data: bytes, key: tuple[Key, str]) -> None:
    try:
        record = decode(encode_key(key[0]), data)
    except (MalformedRecord, UnsupportedRecordVersion):
        return
    assert record is not None
    assert record.key == key[0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("0000 ffffffffff 01", "a longer one"),  # instance id: a varint without an end
        ("0000 00 00 00", "a string, got null"),  # client id: may not be null
        ("0000 00 00 02 ff", "expected UTF-8"),  # client id: not text
        ("0000 00 00 ff 01", "at most 0 bytes, got 254"),  # client id: longer than what is left
    ],
)
def test_damage_is_named(data: str, message: str) -> None:
    with pytest.raises(MalformedRecord, match=message):
        decode(encode_key(MemberKey("g", "m")), layout(data))


def test_a_huge_array_claim_allocates_nothing() -> None:
    with pytest.raises(MalformedRecord, match="2147483647"):
        Reader(b"\x7f\xff\xff\xff", "array").array(lambda: 0)


names = st.text(max_size=5)
partitions = st.frozensets(st.tuples(st.uuids(), st.integers(0, 2**31 - 1)), max_size=5)


@given(st.builds(CurrentAssignmentValue, *[st.integers(-2, 9)] * 2, st.just(0), *[partitions] * 2))
def test_assignments_round_trip(value: CurrentAssignmentValue) -> None:
    record = Record(CurrentAssignmentKey("g", "m"), value)
    assert decode(*record.encode()) == record


@given(
    st.builds(
        OffsetValue,
        st.integers(0, 2**63 - 1),
        st.integers(-1, 2**31 - 1),
        names,
        st.integers(0, 2**63 - 1),
    )
)
def test_offsets_round_trip(value: OffsetValue) -> None:
    record = Record(OffsetKey("g", "t", 1), value)
    assert decode(*record.encode()) == record
