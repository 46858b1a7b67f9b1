"""The records of `__transaction_state`: Kafka's bytes, round trips, damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.codec import MalformedRecord, UnsupportedRecordVersion, Writer
from ottla.coordination.transactions.messages import TransactionState
from ottla.coordination.transactions.records import (
    IN_LOG,
    Transaction,
    TransactionRecord,
    decode,
)

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE, COMPLETE = TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT
T0 = frozenset({("t", 0)})
KEY = bytes.fromhex("000000017a")

# What a broker of Apache Kafka 4.3.1 wrote as a producer used up its epochs.
WRITTEN_BY_KAFKA = [
    (
        Transaction(10, 32766, 60000, EMPTY, frozenset(), 1794748032174, -1, 10),
        "0001000000000000000a7ffe0000ea600000000001a1df51a4aeffffffffffffffff010008000000000000000a",
    ),
    (
        Transaction(10, 32766, 60000, ONGOING, T0, 1794748032174, 1794748032174, 10, -1, 2),
        (
            "0001000000000000000a7ffe0000ea6001020274020000000000000001a1df51a4ae000001a1df51a4ae02"
            "0008000000000000000a02020002"
        ),
    ),
    (
        Transaction(10, 32767, 60000, PREPARE, T0, 1794748032175, 1794748032174, 10, 11, 2),
        (
            "0001000000000000000a7fff0000ea6002020274020000000000000001a1df51a4af000001a1df51a4ae03"
            "0008000000000000000a0108000000000000000b02020002"
        ),
    ),
    (
        Transaction(11, 0, 60000, COMPLETE, frozenset(), 1794748032175, 1794748032174, 10, -1, 2),
        (
            "0001000000000000000b00000000ea600401000001a1df51a4af000001a1df51a4ae02"
            "0008000000000000000a02020002"
        ),
    ),
]

# What its class for the log makes of values at transaction.version 0.
VERSION_0 = [
    (
        Transaction(7, 3, 60000, ONGOING, frozenset({("a", 0)}), 1700000000123, 1700000000000),
        (
            "0000000000000000000700030000ea600100000001000161000000010000000000"
            "00018bcfe5687b0000018bcfe56800"
        ),
    ),
    (
        Transaction(7, 3, 60000, EMPTY, frozenset(), 1700000000123, -1),
        "0000000000000000000700030000ea6000ffffffff0000018bcfe5687bffffffffffffffff",
    ),
]


@pytest.mark.parametrize(
    ("value", "text"), WRITTEN_BY_KAFKA, ids=[value.state.label for value, _ in WRITTEN_BY_KAFKA]
)
def test_bytes_are_kafkas(value: Transaction, text: str) -> None:
    encoded = TransactionRecord("z", value).encode()
    assert encoded == (KEY, bytes.fromhex(text))
    assert decode(*encoded) == TransactionRecord("z", value)


def test_a_key_is_kafkas() -> None:
    key, _ = TransactionRecord("payments-ä", None).encode()
    assert key == bytes.fromhex("0000000b7061796d656e74732dc3a4")


@pytest.mark.parametrize(("value", "text"), VERSION_0, ids=["Ongoing", "Empty"])
def test_version_0_is_read(value: Transaction, text: str) -> None:
    assert decode(KEY, bytes.fromhex(text)) == TransactionRecord("z", value)


def test_topics_come_in_any_order() -> None:
    text = (
        "000100000000000000077fff0000ea60020302610300000001000000000002620200000002000000018bcfe5687b"
        "0000018bcfe5680003000800000000000000050108000000000000000902020002"
    )
    partitions = frozenset({("a", 0), ("a", 1), ("b", 2)})
    value = Transaction(7, 32767, 60000, PREPARE, partitions, 1700000000123, 1700000000000, 5, 9, 2)
    assert decode(KEY, bytes.fromhex(text)) == TransactionRecord("z", value)
    assert decode(KEY, value.encode()) == TransactionRecord("z", value)


def test_no_value_is_the_end() -> None:
    encoded = TransactionRecord("z", None).encode()
    assert encoded == (KEY, None)
    assert decode(*encoded) == TransactionRecord("z", None)


def test_a_key_of_another_type_is_left_alone() -> None:
    assert decode(bytes.fromhex("00010001"), b"\0\1whatever") is None


int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
topics = st.text(min_size=1, max_size=5)


@st.composite
def values(draw: st.DrawFn) -> Transaction:
    state = draw(st.sampled_from(sorted(IN_LOG)))
    partitions = st.frozensets(st.tuples(topics, int32s), max_size=5)
    return Transaction(
        draw(int64s),
        draw(st.integers(-(2**15), 2**15 - 1)),
        draw(int32s),
        state,
        frozenset() if state is EMPTY else draw(partitions),
        draw(int64s),
        draw(int64s),
        draw(int64s),
        draw(int64s),
        draw(st.integers(0, 2**15 - 1)),
    )


@given(st.text(max_size=9), values())
def test_round_trip(transactional_id: str, value: Transaction) -> None:
    record = TransactionRecord(transactional_id, value)
    assert decode(*record.encode()) == record


@given(values(), st.data())
def test_a_cut_value_is_malformed(value: Transaction, data: st.DataObject) -> None:
    encoded = value.encode()
    with pytest.raises(MalformedRecord):
        decode(KEY, encoded[: data.draw(st.integers(0, len(encoded) - 1))])


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(UnsupportedRecordVersion, match="expected 0 to 1, got 2"):
        decode(KEY, b"\x00\x02")


@pytest.mark.parametrize("state", [6, 7, 8, -1])
def test_a_state_that_is_never_written_is_malformed(state: int) -> None:
    text = bytearray(bytes.fromhex(WRITTEN_BY_KAFKA[0][1]))
    text[16] = state & 0xFF
    with pytest.raises(MalformedRecord, match="a state that is written"):
        decode(KEY, bytes(text))


def test_unknown_tags_are_skipped() -> None:
    value, text = WRITTEN_BY_KAFKA[0]
    untagged = bytes.fromhex(text)[: -len("010008000000000000000a") // 2]
    tags = Writer().tags({0: Writer().int64(10), 9: Writer().int64(1)}).done()
    assert decode(KEY, untagged + tags) == TransactionRecord("z", value)
