"""A real node whose wall clock is set an hour forward or back while it runs.

What is due goes on time, and what is not stays.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from ottla.broker.running.node import Node
from ottla.testing.embedded import EmbeddedBroker
from ottla.wire.schema.describe_groups import DescribeGroupsRequest
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.schema.sync_group import SyncGroupRequest
from tests.support.clocks import HOUR_MS, SteppedClock
from tests.support.raw_client import RawClient
from tests.support.raw_transactions import CONFIG, RawProducer, wait_for
from tests.support.share_member import SHARE_CONFIG, WAIT_MS
from tests.support.share_queue import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORT_MS = 300
LONG_MS = 60_000

steps = pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def bootstrap(clock: SteppedClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Node, "start", partial(Node.start, clock=clock))
    own = {
        "group.min.session.timeout.ms": "100",
        # A join waits half as long for the group's share state: fetches come after it.
        "group.share.heartbeat.interval.ms": "10000",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    with EmbeddedBroker(config={**SHARE_CONFIG, **CONFIG, **own}) as broker:
        yield broker.bootstrap


def join(raw: RawClient, group: str, session_ms: int) -> None:
    """As the only member, which never says anything again."""
    raw.ask("find_coordinator", 4, FindCoordinatorRequest(coordinator_keys=[group]))
    protocols = [JoinGroupRequestProtocol("range", b"")]
    request = JoinGroupRequest(group, session_ms, LONG_MS, "", None, "consumer", protocols)
    joined = raw.ask("join_group", 3, request)
    assert joined.error_code == 0, joined
    member = joined.generation_id, joined.member_id
    assert raw.ask("sync_group", 3, SyncGroupRequest(group, *member)).error_code == 0


def state_of(raw: RawClient, group: str) -> str:
    answer = raw.ask("describe_groups", 5, DescribeGroupsRequest([group]))
    return str(answer.groups[0].group_state)


@steps
def test_a_dead_member_leaves_and_a_live_one_stays(
    bootstrap: str, clock: SteppedClock, step_ms: int
) -> None:
    raw = RawClient(bootstrap)
    join(raw, "alive", LONG_MS)
    join(raw, "dead", SHORT_MS)
    clock.step(step_ms)
    wait_for(lambda: state_of(raw, "dead") == "Empty")
    assert state_of(raw, "alive") == "Stable"
    raw.close()


@steps
def test_a_lock_ends_and_a_longer_one_stays(
    bootstrap: str, clock: SteppedClock, step_ms: int
) -> None:
    short = Queue(bootstrap, share_record_lock_duration_ms="1000")
    long = Queue(bootstrap)
    for queue in (short, long):
        queue.produce(1)
        assert queue.member().first().offsets == [0]
    clock.step(step_ms)
    again = short.member().first(max_wait_ms=WAIT_MS)
    assert again.offsets == [0]
    assert long.member().first(max_wait_ms=1).offsets == []
    short.close()
    long.close()


@steps
def test_an_old_transaction_is_aborted_and_a_young_one_is_not(
    bootstrap: str, clock: SteppedClock, step_ms: int
) -> None:
    raw = RawClient(bootstrap)
    assert raw.topic("t", create=True).error_code in (0, 5)
    old, young = RawProducer(raw), RawProducer(raw)
    for producer, timeout_ms in ((young, LONG_MS), (old, SHORT_MS)):
        assert producer.init(timeout_ms).error_code == 0
        assert producer.add("t", 0) == [0]
    clock.step(step_ms)
    old.wait_until("CompleteAbort")
    assert young.describe().transaction_state == "Ongoing"
    raw.close()
