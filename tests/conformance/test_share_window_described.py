"""The window of a share-partition as `Admin.describe_share_windows` tells it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from ottla import EmbeddedBroker, sync
from ottla.client.admin.share import MOST_RUNS
from ottla.client.errors import BadArgument, KafkaError, UnsupportedApi
from ottla.console import window as w
from tests.support.raw_client import RawClient, batch
from tests.support.share_member import (
    ACCEPT,
    RELEASE,
    SHARE_CONFIG,
    ShareMember,
    set_group_configs,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

WINDOW = 100  # the smallest there is
TOPIC, GROUP = "queue", "workers"


@pytest.fixture
def room() -> Iterator[tuple[sync.Admin, ShareMember]]:
    """A member that holds a full window, with three more records in the log."""
    config = {**SHARE_CONFIG, "group.share.partition.max.record.locks": str(WINDOW)}
    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker(config=config))
        broker.create_topic(TOPIC, partitions=2)
        client = stack.enter_context(RawClient(broker.bootstrap))
        set_group_configs(client, GROUP, share_auto_offset_reset="earliest")
        for _ in range(WINDOW + 3):
            assert client.produce(TOPIC, batch(b"v")).error_code == 0
        member = stack.enter_context(ShareMember(broker.bootstrap, GROUP, TOPIC))
        member.join()
        assert member.first().offsets == list(range(WINDOW))
        yield stack.enter_context(sync.Admin(broker.bootstrap)), member


def test_case_51_a_full_window_is_told_with_its_holder(
    room: tuple[sync.Admin, ShareMember],
) -> None:
    admin, member = room
    [window] = admin.describe_share_windows(GROUP)
    assert (window.topic, window.partition) == (TOPIC, 0)
    assert (window.start, window.end, window.log_end) == (0, WINDOW, WINDOW + 3)
    assert (window.max_locks, window.limit, window.lock_ms) == (WINDOW, 5, 30_000)
    assert window.members == [member.member_id]
    assert sum(run.records for run in window.runs) == WINDOW
    assert {(run.state, run.deliveries, run.member) for run in window.runs} == {(w.ACQUIRED, 1, 0)}
    assert all(0 < run.lock_ms <= 30_000 for run in window.runs)
    assert 0 <= window.stalled_ms < 60_000
    assert not window.cut
    assert w.is_full(window)
    assert member.member_id[:20] in " ".join(w.why(window))


def test_states_of_records_that_were_settled_and_given_back(
    room: tuple[sync.Admin, ShareMember],
) -> None:
    admin, member = room
    assert member.ack(1, 9, ACCEPT) == 0
    assert member.ack(10, 10, RELEASE) == 0
    [window] = admin.describe_share_windows(GROUP, [TOPIC])
    assert w.totals(window) == {
        w.State.ACQUIRED: WINDOW - 10,
        w.State.ACKNOWLEDGED: 9,
        w.State.AGAIN: 1,
    }
    assert not w.is_full(window)
    assert member.ack(0, 0, ACCEPT) == 0
    [window] = admin.describe_share_windows(GROUP)
    assert window.start == 10
    [cut] = admin.describe_share_windows(GROUP, max_runs=1)
    assert len(cut.runs) == 1
    assert cut.cut


def test_case_54_no_more_runs_than_allowed_can_be_asked_for(
    room: tuple[sync.Admin, ShareMember],
) -> None:
    admin, _ = room
    with pytest.raises(BadArgument, match="max_runs"):
        admin.describe_share_windows(GROUP, max_runs=MOST_RUNS + 1)
    with pytest.raises(KafkaError):
        admin.describe_share_windows("no-such-group")


def test_a_broker_that_does_not_know_the_tag_is_named(
    room: tuple[sync.Admin, ShareMember], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.sharing import describing

    admin, _ = room
    unknown = describing.Held(-1)
    monkeypatch.setattr("ottla.broker.shares.partitions.held", lambda *_: unknown)
    with pytest.raises(UnsupportedApi, match="does not tell who holds"):
        admin.describe_share_windows(GROUP)


def test_the_coordinator_asks_the_leaders_on_other_nodes() -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker(nodes=3))
        broker.create_topic(TOPIC, partitions=3)
        admin = stack.enter_context(sync.Admin(broker.bootstrap))
        producer = stack.enter_context(sync.Producer(broker.bootstrap))
        for partition in range(3):
            producer.send(TOPIC, b"v", partition=partition)
        [described] = admin.describe_topics([TOPIC])
        assert len({one.leader for one in described.partitions}) == 3
        member = stack.enter_context(
            sync.ShareConsumer(
                broker.bootstrap,
                group=GROUP,
                topics=[TOPIC],
                ack_mode="explicit",
                auto_offset_reset="earliest",
            )
        )
        held: set[int] = set()
        while len(held) < 3:
            found = member.poll(60.0)
            assert found
            held |= {record.partition for record in found}
            for record in found:
                member.acknowledge(record, "renew")
        windows = admin.describe_share_windows(GROUP)
        assert [one.partition for one in windows] == [0, 1, 2]
        assert all(sum(w.held_by(one).values()) == 1 for one in windows)
