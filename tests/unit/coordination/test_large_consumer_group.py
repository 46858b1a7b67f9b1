"""A large KIP-848 group: one target for many changes, and everybody hears of it."""

from __future__ import annotations

import pytest

from ottla.coordination.groups.config import GroupConfig
from ottla.coordination.groups.consumer_state import ConsumerGroup
from ottla.coordination.groups.keys import TargetEpochKey
from ottla.coordination.groups.messages import (
    ConsumerHeartbeatResponse,
    DeleteGroup,
    DeleteGroupResponse,
    DescribeConsumerGroup,
    DescribeConsumerGroupResponse,
)
from ottla.wire.error_codes import ErrorCode
from tests.support.groups_consumer import Client, settle_all, topics_image
from tests.support.groups_driver import Driver

PARTITIONS = 5_000
MEMBERS = 300
IMAGE = topics_image(t=PARTITIONS)
INTERVAL_MS = (PARTITIONS + MEMBERS) // GroupConfig().consumer_assign_per_ms


@pytest.fixture
def driver() -> Driver:
    return Driver()


def client(driver: Driver, name: str) -> Client:
    found = Client(driver, name, "t")
    found.image = IMAGE
    return found


def join(one: Client) -> int:
    return one.begin(0, owned=frozenset(), full=True)


def targets(driver: Driver) -> int:
    return sum(isinstance(record.key, TargetEpochKey) for record in driver.records)


def group(driver: Driver) -> ConsumerGroup:
    found = driver.machine.groups["g"]
    assert isinstance(found, ConsumerGroup)
    return found


def test_all_that_join_at_once_share_one_target(driver: Driver) -> None:
    clients = [client(driver, f"m{number}") for number in range(MEMBERS)]
    tokens = [join(one) for one in clients]
    assert [token in driver.answers for token in tokens] == [True] + [False] * (MEMBERS - 1)
    driver.advance(INTERVAL_MS)
    for one, token in zip(clients, tokens, strict=True):
        one.take(driver.answer(token, ConsumerHeartbeatResponse))
    assert targets(driver) == 2
    assert {one.epoch for one in clients[1:]} == {MEMBERS}
    settle_all(*clients)
    assert group(driver).state == "Stable"
    assert sum(len(one.owned) for one in clients) == PARTITIONS


def test_a_heartbeat_without_news_does_not_wait(driver: Driver) -> None:
    first, second = client(driver, "a"), client(driver, "b")
    first.join()
    join(second)
    answer = driver.answer(first.begin(first.epoch), ConsumerHeartbeatResponse)
    assert answer.error is ErrorCode.NONE
    assert answer.member_epoch == 1
    assert targets(driver) == 1


def test_the_first_heartbeat_after_the_interval_computes_the_target_for_all(driver: Driver) -> None:
    first, second = client(driver, "a"), client(driver, "b")
    first.join()
    waits = join(second)
    driver.now += INTERVAL_MS  # the tick is late
    first.beat()
    assert driver.answer(waits, ConsumerHeartbeatResponse).member_epoch == 2
    assert targets(driver) == 2


def test_who_leaves_while_it_waits_is_answered(driver: Driver) -> None:
    first, second = client(driver, "a"), client(driver, "b")
    first.join()
    waits = join(second)
    second.leave()
    assert driver.answer(waits, ConsumerHeartbeatResponse).error is ErrorCode.UNKNOWN_MEMBER_ID
    first.leave()
    assert driver.ask(DeleteGroup("g"), DeleteGroupResponse).error is ErrorCode.NONE
    driver.advance(INTERVAL_MS)


def test_a_later_heartbeat_overtakes_one_that_waits(driver: Driver) -> None:
    """An old join that is answered last would give away what the member got by the newer one."""
    client(driver, "a").join()
    second = client(driver, "b")
    old, new = join(second), join(second)
    assert driver.answer(old, ConsumerHeartbeatResponse).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert new not in driver.answers
    driver.advance(INTERVAL_MS)
    assert driver.answer(new, ConsumerHeartbeatResponse).member_epoch == 2


def test_who_waits_is_a_member_without_partitions_for_those_who_look(driver: Driver) -> None:
    client(driver, "a").join()
    join(client(driver, "b"))
    seen = driver.ask(DescribeConsumerGroup("g"), DescribeConsumerGroupResponse)
    assert seen.state == "Assigning"
    assert [len(member.assignment) for member in seen.members] == [PARTITIONS, 0]


def test_after_a_restart_who_waited_asks_again(driver: Driver) -> None:
    client(driver, "a").join()
    second = client(driver, "b")
    join(second)
    driver.restart()
    assert second.join().error is ErrorCode.NONE
    assert second.epoch == 2


def test_a_small_group_waits_for_nothing() -> None:
    driver = Driver()
    clients = [Client(driver, name, "t") for name in "abcd"]
    for one in clients:
        one.image = topics_image(t=900)
        assert join(one) in driver.answers
    assert targets(driver) == 4
