"""The records of `__share_group_state`: Kafka's bytes, round trips, damage, where a key belongs."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.codec import MalformedRecord, UnsupportedRecordVersion, Writer
from ottla.coordination.partitioner import java_string_hash
from ottla.coordination.share_state.batches import DeliveryState, StateBatch
from ottla.coordination.share_state.records import (
    InvalidShareKey,
    ShareKey,
    Snapshot,
    StateRecord,
    Update,
    decode,
)
from tests.support.share_state import KEY, START_MS

KEY_HEX = "000267311111111122223333444455555555555500000000"
GOLDEN = [
    (
        Snapshot(0, 3, -1, -1, START_MS, START_MS, ()),
        "0000",
        "00000000000000000003ffffffffffffffffffffffff0000018bcfe568000000018bcfe568000100",
    ),
    (
        Update(0, 5, 10, (StateBatch(12, 14, DeliveryState.AVAILABLE, 2),), 2),
        "0001",
        (
            "00000000000000000005000000000000000a02"
            "000000000000000c000000000000000e0000020001000400000002"
        ),
    ),
]


@pytest.mark.parametrize(("value", "kind", "text"), GOLDEN, ids=["snapshot", "update"])
def test_60_bytes_are_kafkas(value: Snapshot | Update, kind: str, text: str) -> None:
    encoded = StateRecord(KEY, value).encode()
    assert encoded == (bytes.fromhex(kind + KEY_HEX), bytes.fromhex(text))
    assert decode(*encoded) == StateRecord(KEY, value)


def test_a_snapshot_without_a_value_is_the_end() -> None:
    encoded = StateRecord(KEY, None).encode()
    assert encoded == (bytes.fromhex("0000" + KEY_HEX), None)
    assert decode(*encoded) == StateRecord(KEY, None)


def test_what_is_left_alone() -> None:
    assert decode(bytes.fromhex("0001" + KEY_HEX), None) is None
    assert decode(bytes.fromhex("0002" + KEY_HEX), b"\x00\x00whatever") is None


int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
batches = st.lists(
    st.builds(StateBatch, int64s, int64s, st.integers(-128, 127), st.integers(-(2**15), 2**15 - 1)),
    max_size=4,
).map(tuple)
counts = st.integers(-1, 2**31 - 1)
values = st.one_of(
    st.builds(Snapshot, int32s, int32s, int32s, int64s, int64s, int64s, batches, counts),
    st.builds(Update, int32s, int32s, int64s, batches, counts),
)
keys = st.builds(ShareKey, st.text(min_size=1, max_size=9), st.uuids(), int32s)


@given(keys, values)
def test_round_trip(key: ShareKey, value: Snapshot | Update) -> None:
    record = StateRecord(key, value)
    assert decode(*record.encode()) == record


@given(values, st.data())
def test_a_cut_value_is_malformed(value: Snapshot | Update, data: st.DataObject) -> None:
    key, encoded = StateRecord(KEY, value).encode()
    assert encoded is not None
    with pytest.raises(MalformedRecord):
        decode(key, encoded[: data.draw(st.integers(0, len(encoded) - 1))])


def test_a_newer_version_is_refused_and_unknown_tags_are_skipped() -> None:
    key = bytes.fromhex("0001" + KEY_HEX)
    with pytest.raises(UnsupportedRecordVersion):
        decode(key, b"\x00\x01")
    tagged = Writer(flexible=True).int16(0).int32(4).int32(-1).int64(-1).array((), lambda _: None)
    tagged.tags({0: Writer().int32(6), 9: Writer().int64(1)})
    assert decode(key, tagged.done()) == StateRecord(KEY, Update(4, -1, -1, (), 6))


@pytest.mark.parametrize(
    ("text", "hashed", "partition"),
    [
        ("g1:ERERESIiMzNERFVVVVVVVQ:0", -1364047039, 39),
        ("g1:ERERESIiMzNERFVVVVVVVQ:1", None, 38),
        ("orders-group:AAAAAAAAAAAAAAAAAAAAAQ:7", -878855888, 38),
        ("a:b:_____________________w:0", -1325871425, 25),
    ],
)
def test_60_where_a_key_belongs(text: str, hashed: int | None, partition: int) -> None:
    key = ShareKey.parse(text)
    assert str(key) == text
    assert hashed in (None, java_string_hash(text))
    assert key.state_partition(50) == partition


def test_60_a_group_id_may_hold_colons() -> None:
    assert ShareKey.parse("a:b:_____________________w:0") == ShareKey(
        "a:b", UUID(int=2**128 - 1), 0
    )


@given(keys)
def test_a_key_is_read_from_its_text(key: ShareKey) -> None:
    assert ShareKey.parse(str(key)) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "g",
        "g:0",
        ":ERERESIiMzNERFVVVVVVVQ:0",
        "g:ERERESIiMzNERFVVVVVVVQ:x",
        "g:ERERESIiMzNERFVVVVVVVQ:+1",
        "g:ERERESIiMzNERFVVVVVVV:0",
        "g:11111111-2222-3333-4444-555555555555:0",
        "g:ERERESIiMzNERFVVVVVVVR:0",
        "g:ÄRERESIiMzNERFVVVVVVVQ:0",
    ],
)
def test_a_text_that_names_nothing(text: str) -> None:
    with pytest.raises(InvalidShareKey):
        ShareKey.parse(text)
