"""librdkafka's share consumer (confluent-kafka) against Ottla: it is the judge, case 67.

Members come, hold, give back, reject, are killed; records are lost by none of that and accepted
twice by nobody.
"""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import AcknowledgeType

from ottla.testing.embedded import EmbeddedBroker
from tests.support.share_member import LOCK_MS, SHARE_CONFIG
from tests.support.share_workers import (
    PATIENCE,
    Accepting,
    HoldingProcess,
    Ledger,
    confirmed,
    messages,
    poll_until,
    produce_numbers,
    set_group,
    share_consumer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPLICIT: Final = {"share_acknowledgement_mode": "explicit"}
_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=SHARE_CONFIG) as broker:
        yield broker


Place = tuple[str, str, str]
"""Bootstrap, group and topic."""


@pytest.fixture
def place(broker: EmbeddedBroker) -> Place:
    """A topic of one partition, and a group that reads it from its start."""
    number = next(_numbers)
    group, topic = f"sharers-{number}", f"shared-{number}"
    broker.create_topic(topic)
    set_group(broker.bootstrap, group, share_auto_offset_reset="earliest")
    return broker.bootstrap, group, topic


def offsets(found: list[object]) -> list[int]:
    return [message.offset() for message in found]  # type: ignore[attr-defined]


def test_67_implicit_polls_accept_what_came_before(place: Place) -> None:
    bootstrap, _, topic = place
    produce_numbers(bootstrap, topic, range(100))
    consumer = share_consumer(*place)
    found = poll_until(consumer, 100)
    assert [int(message.value()) for message in found] == list(range(100))
    assert {message.delivery_count() for message in found} == {1}
    consumer.commit_sync(PATIENCE)
    consumer.close()
    # A later member is given only what is new: all the rest was accepted.
    produce_numbers(bootstrap, topic, [100])
    consumer = share_consumer(*place)
    assert offsets(poll_until(consumer, 1)) == [100]
    consumer.close()


def test_67_explicit_accept_release_and_reject(place: Place) -> None:
    bootstrap, _, topic = place
    produce_numbers(bootstrap, topic, range(30))
    consumer = share_consumer(*place, **EXPLICIT)
    kinds = [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT]
    for message in poll_until(consumer, 30):
        consumer.acknowledge(message, kinds[message.offset() % 3])
    assert set(consumer.commit_sync(PATIENCE).values()) == {None}
    again = poll_until(consumer, 10)
    assert offsets(again) == list(range(1, 30, 3))
    assert {message.delivery_count() for message in again} == {2}
    for message in again:
        consumer.acknowledge(message)
    consumer.commit_sync(PATIENCE)
    assert not messages(consumer, 0.3)
    consumer.close()


def test_67_latest_begins_with_what_comes_after_the_join(place: Place) -> None:
    bootstrap, group, topic = place
    set_group(bootstrap, group, share_auto_offset_reset="latest")
    produce_numbers(bootstrap, topic, range(10))
    consumer = share_consumer(*place)
    found: list[object] = []
    deadline = time.monotonic() + PATIENCE
    sent = 10
    # Nobody is told when the group has its start; records are sent until one of them arrives.
    while not found:
        assert time.monotonic() < deadline
        found = list(messages(consumer, 0.2))
        produce_numbers(bootstrap, topic, [sent])
        sent += 1
    assert offsets(found)[0] >= 10
    consumer.close()


def test_67_a_lock_ends_in_time(place: Place) -> None:
    bootstrap, group, topic = place
    set_group(bootstrap, group, share_record_lock_duration_ms=str(LOCK_MS))
    produce_numbers(bootstrap, topic, range(3))
    holder = share_consumer(*place, **EXPLICIT)
    assert len(poll_until(holder, 3)) == 3
    other = share_consumer(*place, **EXPLICIT)
    again = poll_until(other, 3)
    assert {message.delivery_count() for message in again} == {2}
    for message in again:
        other.acknowledge(message)
    assert confirmed(other)
    other.close()
    holder.close()


def test_67_closing_gives_back_what_was_held(place: Place) -> None:
    bootstrap, _, topic = place
    produce_numbers(bootstrap, topic, range(5))
    first = share_consumer(*place, **EXPLICIT)
    first.acknowledge(poll_until(first, 5)[0])
    first.close()
    second = share_consumer(*place, **EXPLICIT)
    again = poll_until(second, 4)
    assert offsets(again) == [1, 2, 3, 4]
    assert {message.delivery_count() for message in again} == {2}
    second.close()


def test_67_three_members_and_a_killed_one_share_ten_thousand_records(place: Place) -> None:
    bootstrap, _, topic = place
    records = 10_000
    produce_numbers(bootstrap, topic, range(records))
    killed = HoldingProcess(*place)
    held = killed.held()
    ledger = Ledger()
    members = [Accepting(*place, ledger) for _ in range(3)]
    for member in members:
        member.start()
    try:
        deadline = time.monotonic() + PATIENCE
        # No further: what is held keeps the window from moving on.
        while len(ledger.accepted) < 1000:
            assert time.monotonic() < deadline, f"{len(ledger.accepted)} accepted"
            time.sleep(0.02)
        assert not held & ledger.delivered.keys(), "delivered while somebody held it"
        killed.kill()
        while len(ledger.accepted) < records:
            assert time.monotonic() < deadline, f"{len(ledger.accepted)} accepted"
            time.sleep(0.02)
    finally:
        for member in members:
            member.stop()
    assert set(ledger.accepted) == set(range(records))
    assert set(ledger.accepted.values()) == {1}, "accepted twice"
    assert {offset: counts for offset, counts in ledger.delivered.items() if counts != [1]} == {
        offset: [2] for offset in held
    }
