"""The records of share groups in `__consumer_offsets`: hand-built layouts, round trips, damage."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.codec import MalformedRecord, UnsupportedRecordVersion
from ottla.coordination.groups.keys import (
    Key,
    ShareCurrentAssignmentKey,
    ShareGroupKey,
    ShareMemberKey,
    ShareStatePartitionsKey,
    ShareTargetEpochKey,
    ShareTargetMemberKey,
)
from ottla.coordination.groups.records import (
    Record,
    TargetEpochValue,
    TargetMemberValue,
    Value,
    decode,
)
from ottla.coordination.groups.share_records import (
    ShareCurrentAssignmentValue,
    ShareGroupValue,
    ShareMemberValue,
    ShareStatePartitionsValue,
)

T1 = UUID("00112233-4455-6677-8899-aabbccddeeff")
T2 = UUID("00112233-4455-6677-8899-aabbccddef00")
T1_HEX, T2_HEX = T1.hex, T2.hex


def layout(text: str) -> bytes:
    """Bytes from hex, with comments after '#' left out."""
    return bytes.fromhex("".join(line.split("#")[0] for line in text.splitlines()))


RECORDS: list[tuple[Key, str, Value, str]] = [
    (
        ShareMemberKey("g", "mm"),
        "000a 0001 67 0002 6d6d",
        ShareMemberValue(None, "c", "/h", ("a", "bc")),
        """
        0000     # version
        00       # rack: null
        02 63    # client id
        03 2f68  # client host
        03 02 61 03 6263
        00       # no tags
        """,
    ),
    (
        ShareGroupKey("g"),
        "000b 0001 67",
        ShareGroupValue(7, -2),
        "0000 00000007 fffffffffffffffe 00",
    ),
    (ShareTargetEpochKey("g"), "000c 0001 67", TargetEpochValue(7), "0000 00000007 00"),
    (
        ShareTargetMemberKey("g", "mm"),
        "000d 0001 67 0002 6d6d",
        TargetMemberValue(frozenset({(T1, 1), (T1, 0)})),
        f"0000 02 {T1_HEX} 03 00000000 00000001 00 00",
    ),
    (
        ShareCurrentAssignmentKey("g", "mm"),
        "000e 0001 67 0002 6d6d",
        ShareCurrentAssignmentValue(4, 3, frozenset({(T1, 2)})),
        f"0000 00000004 00000003 00 02 {T1_HEX} 02 00000002 00 00",
    ),
    (
        ShareStatePartitionsKey("g"),
        "000f 0001 67",
        ShareStatePartitionsValue(
            frozenset({(T1, 2)}),
            frozenset({(T1, 0), (T1, 1)}),
            frozenset({T2}),
            {T1: "t", T2: "uv"},
        ),
        f"""
        0000
        02 {T1_HEX} 02 74 02 00000002 00            # initializing
        02 {T1_HEX} 02 74 03 00000000 00000001 00   # initialized
        02 {T2_HEX} 03 7576 00                      # deleting
        00
        """,
    ),
]
ids = [type(record[0]).__name__ for record in RECORDS]


@pytest.mark.parametrize(("key", "key_text", "value", "text"), RECORDS, ids=ids)
def test_layout(key: Key, key_text: str, value: Value, text: str) -> None:
    assert Record(key, value).encode() == (layout(key_text), layout(text))
    assert decode(layout(key_text), layout(text)) == Record(key, value)
    assert decode(layout(key_text), None) == Record(key, None)


@pytest.mark.parametrize(("key", "key_text", "value", "text"), RECORDS, ids=ids)
def test_damage_has_a_name(key: Key, key_text: str, value: Value, text: str) -> None:
    whole = layout(text)
    for end in range(len(whole)):
        with pytest.raises(MalformedRecord):
            decode(layout(key_text), whole[:end])
    with pytest.raises(MalformedRecord):
        decode(layout(key_text), whole + b"\x00")
    with pytest.raises(UnsupportedRecordVersion):
        decode(layout(key_text), b"\x00\x01" + whole[2:])


def test_unknown_tags_are_skipped() -> None:
    value = layout("0000 00000007 0000000000000000 01 05 02 beef")
    assert decode(layout("000b 0001 67"), value) == Record(ShareGroupKey("g"), ShareGroupValue(7))


partitions = st.frozensets(st.tuples(st.sampled_from([T1, T2]), st.integers(0, 5)), max_size=6)


@given(partitions, partitions, st.frozensets(st.sampled_from([T1, T2])), st.text(max_size=5))
def test_state_partitions_round_trip(
    initializing: frozenset[tuple[UUID, int]],
    initialized: frozenset[tuple[UUID, int]],
    deleting: frozenset[UUID],
    name: str,
) -> None:
    mentioned = {topic_id for topic_id, _ in initializing | initialized} | deleting
    names = dict.fromkeys(mentioned, name)
    value = ShareStatePartitionsValue(initializing, initialized, deleting, names)
    record = Record(ShareStatePartitionsKey("g"), value)
    assert decode(*record.encode()) == record
