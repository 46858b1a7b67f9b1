"""Dead letters: what they say, what they carry, and how they are packed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.sharing.dead_letters import (
    DeadLetter,
    LetterOrigin,
    dead_letters,
    letter_batches,
    mourned,
)
from ottla.sharing.values import Archived, ArchiveReason
from ottla.wire.batch import read_batch
from ottla.wire.records import Record, iter_records

ORIGIN = LetterOrigin("workers", "orders", 3)


def test_a_letter_carries_the_record_and_says_why_from_where_and_how_often() -> None:
    record = Record(7, 1000, b"key", b"value", (("trace", b"1"), ("empty", None)))
    archived = Archived(7, 7, 2, ArchiveReason.REJECTED)
    (letter,) = dead_letters(ORIGIN, archived, {7: record})
    assert (letter.key, letter.value, letter.copied) == (b"key", b"value", record.headers)
    assert dict(letter.added) == {
        "__dlq.errors.topic": b"orders",
        "__dlq.errors.partition": b"3",
        "__dlq.errors.offset": b"7",
        "__dlq.errors.group": b"workers",
        "__dlq.errors.delivery.count": b"2",
        "__dlq.errors.message": b"Offset rejected by client.",
    }


def test_a_record_that_is_gone_leaves_a_letter_all_the_same() -> None:
    archived = Archived(4, 5, 5, ArchiveReason.DELIVERY_LIMIT)
    gone, there = dead_letters(ORIGIN, archived, {5: Record(5, 0, None, b"v")})
    assert (gone.key, gone.value, gone.copied) == (None, None, ())
    assert dict(gone.added)["__dlq.errors.offset"] == b"4"
    assert (
        dict(gone.added)["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."
    )
    assert there.value == b"v"


def test_gaps_are_not_mourned() -> None:
    reasons = [ArchiveReason.GAP, ArchiveReason.REJECTED, ArchiveReason.DELIVERY_LIMIT]
    archived = [Archived(i, i, 1, reason) for i, reason in enumerate(reasons)]
    assert mourned(archived) == archived[1:]


def test_a_letter_that_is_too_large_loses_its_record_and_keeps_its_reason() -> None:
    archived = Archived(0, 1, 1, ArchiveReason.REJECTED)
    records = {0: Record(0, 0, b"k", b"x" * 2000), 1: Record(1, 0, b"k", b"small")}
    ((count, batch),) = letter_batches(dead_letters(ORIGIN, archived, records), 1500, 5)
    large, small = iter_records(read_batch(memoryview(batch)))
    assert count == 2
    assert (large.key, large.value, small.value) == (None, None, b"small")
    assert [name for name, _ in large.headers] == [name for name, _ in small.headers]


CONTENT = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=5), CONTENT), max_size=3).map(tuple)


@given(st.lists(st.builds(DeadLetter, CONTENT, CONTENT, HEADERS, HEADERS), max_size=20))
def test_batches_hold_every_letter_in_order_and_fit(letters: list[DeadLetter]) -> None:
    limit = 4000
    found = []
    for count, batch in letter_batches(letters, limit, 17):
        assert len(batch) <= limit
        read = read_batch(memoryview(batch))
        assert (read.record_count, read.max_timestamp) == (count, 17)
        found += [(r.key, r.value, r.headers) for r in iter_records(read)]
    assert found == [(one.key, one.value, one.copied + one.added) for one in letters]
