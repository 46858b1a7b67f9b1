"""The window of a share-partition, over the wire: who waits while it is full, and what ends that.

A fetch may wait a minute here, far longer than its client: one that is not woken fails the test.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from ottla import EmbeddedBroker
from tests.support.raw_client import RawClient, batch
from tests.support.share_member import (
    ACCEPT,
    RELEASE,
    SHARE_CONFIG,
    ShareMember,
    acquired,
    set_group_configs,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

WINDOW = 100  # the smallest there is
TOPIC, GROUP = "queue", "workers"


@pytest.fixture
def members() -> Iterator[tuple[ShareMember, ShareMember]]:
    """One that holds a full window, and one whose session is open; 3 more records wait."""
    config = {**SHARE_CONFIG, "group.share.partition.max.record.locks": str(WINDOW)}
    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker(config=config))
        broker.create_topic(TOPIC)
        client = stack.enter_context(RawClient(broker.bootstrap))
        set_group_configs(client, GROUP, share_auto_offset_reset="earliest")
        for _ in range(WINDOW + 3):
            assert client.produce(TOPIC, batch(b"v")).error_code == 0
        holder, waiter = (
            stack.enter_context(ShareMember(broker.bootstrap, GROUP, TOPIC)) for _ in range(2)
        )
        holder.join()
        waiter.join()
        assert holder.first().offsets == list(range(WINDOW))
        assert waiter.first(max_wait_ms=0).offsets == []
        yield holder, waiter


def wait(member: ShareMember) -> None:
    member.client.send("share_fetch", member.version, member.fetch_request(max_wait_ms=60_000))


def test_31_room_at_the_head_wakes_who_waits(members: tuple[ShareMember, ShareMember]) -> None:
    holder, waiter = members
    assert holder.ack(1, WINDOW - 1, ACCEPT) == 0
    assert waiter.acquire(max_wait_ms=100).offsets == []
    wait(waiter)
    assert holder.ack(0, 0, ACCEPT) == 0
    assert acquired(waiter.fetched()).offsets == [WINDOW, WINDOW + 1, WINDOW + 2]


def test_32_what_is_released_inside_a_full_window_is_all_there_is(
    members: tuple[ShareMember, ShareMember],
) -> None:
    holder, waiter = members
    wait(waiter)
    assert holder.ack(50, 50, RELEASE) == 0
    assert acquired(waiter.fetched()).ranges == [(50, 50, 2)]
    assert waiter.acquire(max_wait_ms=100).offsets == []
