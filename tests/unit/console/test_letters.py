"""Dead letters as values: what headers tell, what a plan would do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import ConnectionLost
from ottla.client.reader.types import Record
from ottla.console import redrive
from ottla.console.decode.mask import Rules
from ottla.console.decode.reading import Decoder
from ottla.console.letters import (
    PREVIEW,
    REDRIVE_TOPIC,
    Box,
    Entry,
    Letter,
    Origin,
    Place,
    about,
    decode_entry,
    encode_entry,
    is_copy,
    own_headers,
)
from ottla.console.problem import Refused
from ottla.console.query import Bounds
from ottla.console.redrive import BadPlan, Plan, Preview, Refusal
from ottla.console.signing import opened, sealed
from ottla.sharing.dead_letters import LetterOrigin, dead_letters
from ottla.sharing.values import Archived, ArchiveReason

if TYPE_CHECKING:
    from collections.abc import Mapping


def letter(offset: int, *, origin: int = 5, copied: bool = True, count: int = 0) -> Letter:
    archived = Archived(origin, origin, 5, ArchiveReason.DELIVERY_LIMIT)
    [made] = dead_letters(LetterOrigin("warehouse", "orders", 2), archived, {})
    extra = [("ottla.redrive.count", str(count).encode())] if count else []
    headers = (*extra, *made.added)
    value = b"v" if copied else None
    record = Record("dlq.orders", 0, offset, 1_000, 0, None, value, headers)
    return Letter(
        Place(0, offset), about(headers), Decoder(Rules(), 100).read(record), is_copy(record)
    )


def test_headers_tell_where_a_letter_came_from_and_why() -> None:
    told = letter(1, count=3).about
    assert told.origin == Origin("orders", 2, 5)
    assert (told.group, told.tries, told.reason, told.count) == (
        "warehouse",
        5,
        "delivery limit",
        3,
    )
    assert letter(1, copied=False).is_copy is False
    nothing = about([("__dlq.errors.topic", b"x"), ("__dlq.errors.offset", b"-1")])
    assert nothing.origin is None
    assert nothing.reason == "not said"


def test_headers_of_its_death_are_not_the_records() -> None:
    headers = (("source", b"web"), ("__dlq.errors.topic", b"x"), ("ottla.redrive.count", b"1"))
    record = Record("t", 0, 1, 1, 0, None, None, headers)
    assert own_headers(record) == [("source", b"web")]
    assert is_copy(record)


@given(st.binary(max_size=50))
def test_an_entry_that_is_none_is_passed_over(value: bytes) -> None:
    assert decode_entry(value) is None
    assert decode_entry(b'{"version":2}') is None
    assert decode_entry(b"[" * 5_000) is None
    entry = Entry("p", 7, "orders", 2)
    assert decode_entry(encode_entry(entry)) == entry


def plan(*offsets: int, **options: object) -> Plan:
    places = tuple(Place(0, one) for one in offsets)
    return Plan("warehouse", "dlq.orders", places, **options)  # type: ignore[arg-type]


def test_case_57_a_preview_says_what_is_sent_passed_and_refused() -> None:
    letters = [letter(1), letter(2, count=5), letter(3), letter(4)]
    entries = {"dlq.orders-0@3": Entry("other", 1, "orders", 1)}
    asked = plan(1, 2, 3, 9)
    seen = redrive.preview(asked, letters, entries, ["orders"])
    assert (seen.by_target, seen.passed) == ({"orders": 1}, 1)
    assert [one.letter for one in seen.refused] == ["dlq.orders-0@2", "dlq.orders-0@9"]
    assert "sent again 5 times already; force it" in seen.refused[0].reason
    forced = redrive.preview(plan(1, 2, 3, force=True), letters, entries, ["orders"])
    assert forced == Preview({"orders": 3}, 0, [])
    gone = redrive.preview(plan(1), letters, {}, [])
    assert gone.refused == [
        Refusal(
            "dlq.orders-0@1",
            "topic orders does not exist any more; choose another topic",
        )
    ]
    assert redrive.preview(plan(1, to="other"), letters, {}, ["other"]).by_target == {"other": 1}
    assert redrive.preview(plan(1, 2, dismiss=True), letters, {}, []).by_target == {"": 2}


def test_a_plan_passes_over_what_it_did_itself_even_if_forced() -> None:
    asked = plan(1, force=True)
    done = {"dlq.orders-0@1": Entry(asked.id, 1, "orders", 1)}
    assert redrive.preview(asked, [letter(1)], done, ["orders"]).passed == 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=60))
def test_a_plan_survives_its_form(given: list[tuple[int, int]]) -> None:
    places = tuple(Place(*one) for one in given)
    asked = Plan("g", "dlq.x", places, to="t", force=True, rate=7)
    text = sealed(b"secret", "queue", "g", redrive.to_json(asked))
    back = redrive.from_json(opened(b"secret", "queue", "g", text))
    assert set(back.places) == set(places)
    assert (back.id, back.to, back.force, back.rate) == (asked.id, "t", True, 7)
    for secret, kind, of, said in (
        (b"other", "queue", "g", text),
        (b"secret", "group", "g", text),
        (b"secret", "queue", "h", text),
        (b"secret", "queue", "g", text[1:]),
    ):
        with pytest.raises(Refused):
            opened(secret, kind, of, said)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (plan(), "Choose letters"),
        (plan(*range(10_001)), "At most 10,000"),
        (plan(1, rate=0), "rate is a number"),
        (plan(1, to="dlq.orders"), "cannot be sent to dlq.orders"),
        (plan(1, to="ottla.redrive"), "cannot be sent to ottla.redrive"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(wrong: Plan, reason: str) -> None:
    with pytest.raises(BadPlan, match=reason):
        redrive.check(wrong)


def test_a_letter_is_named_by_partition_and_offset() -> None:
    assert redrive.parse_place("3@17") == Place(3, 17)
    for wrong in ("", "3", "a@b", "-1@2", "1@2@3"):
        with pytest.raises(BadPlan, match="partition@offset"):
            redrive.parse_place(wrong)


class Topics:
    """Topics with one or more partitions; stands in for a `Browser`."""

    def __init__(self) -> None:
        self.records: dict[str, dict[int, list[Record]]] = {}
        self.fails_after: int | None = None

    async def has_topic(self, name: str) -> bool:
        return name in self.records

    async def bounds(self, query: Any) -> dict[int, Bounds]:
        found = self.records[query.topic]
        return {number: Bounds(0, len(some)) for number, some in found.items()}

    def reader(self, topic: str, _: str, starts: Mapping[int, int], __: object) -> Reading:
        found = self.records[topic]
        return Reading(
            self,
            [
                found[number][at : at + 2]
                for number, at in starts.items()
                for at in range(at, len(found[number]), 2)
            ],
        )

    def add(self, topic: str, partition: int, value: bytes, key: bytes | None = None) -> None:
        some = self.records.setdefault(topic, {}).setdefault(partition, [])
        headers = (("__dlq.errors.topic", b"orders"), ("h", b"x"))
        some.append(Record(topic, partition, len(some), 1_000, 0, key, value, headers))


class Reading:
    def __init__(self, topics: Topics, batches: list[list[Record]]) -> None:
        self._topics = topics
        self._left = batches

    async def __aenter__(self) -> Reading:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def read_many(self, _: int) -> list[Record]:
        if self._topics.fails_after is not None:
            self._topics.fails_after -= 1
            if self._topics.fails_after < 0:
                raise ConnectionLost("the broker has gone")
        return self._left.pop(0) if self._left else []


DECODER = Decoder(Rules(), 4096)


def places(box: Box) -> list[Place]:
    return sorted(one.place for one in box.letters)


async def refresh(box: Box, topics: Topics) -> bool:
    browser: Any = topics
    return await box.refresh(browser, DECODER)


async def test_a_reading_that_breaks_off_lists_no_letter_twice() -> None:
    topics, box = Topics(), Box("dlq")
    for number in range(6):
        topics.add("dlq", number % 2, b"v")
    wanted = [Place(partition, offset) for partition in (0, 1) for offset in range(3)]
    for fails_after in (1, 3, 0):
        topics.fails_after = fails_after
        with pytest.raises(ConnectionLost):
            await refresh(box, topics)
        assert len(places(box)) == len(set(places(box)))
    topics.fails_after = None
    assert await refresh(box, topics)
    assert places(box) == wanted
    topics.add("dlq", 1, b"new")
    assert await refresh(box, topics)
    assert places(box) == [*wanted, Place(1, 3)]


async def test_letters_and_entries_of_a_deleted_topic_are_forgotten() -> None:
    topics, box = Topics(), Box("dlq")
    entry = encode_entry(Entry("p", 1, "orders", 1))
    for number in range(4):
        topics.add("dlq", number % 2, b"old")
        topics.add(REDRIVE_TOPIC, 0, entry, b"dlq-0@%d" % number)
    assert await refresh(box, topics)
    assert len(box.entries.by_name) == 4
    topics.records.clear()
    topics.add("dlq", 0, b"new")  # with fewer partitions, too
    topics.add(REDRIVE_TOPIC, 0, entry, b"dlq-0@7")
    assert await refresh(box, topics)
    assert [(one.place, one.message.value.text) for one in box.letters] == [(Place(0, 0), "new")]
    assert list(box.entries.by_name) == ["dlq-0@7"]
    topics.records.clear()
    assert not await refresh(box, topics)
    assert (len(box.letters), box.total) == (0, 0)


async def test_a_letter_that_is_kept_is_small() -> None:
    topics, box = Topics(), Box("dlq")
    topics.add("dlq", 0, json.dumps({"n": list(range(200))}).encode())
    topics.add("dlq", 0, b"x" * 100_000)
    assert await refresh(box, topics)
    for one in box.letters:
        assert len(one.message.value.text) <= PREVIEW
        assert one.message.value.tree is None
        assert one.message.headers == ()
    assert box.letters[0].message.value.form == "json"
