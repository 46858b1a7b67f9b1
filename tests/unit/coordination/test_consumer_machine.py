"""KIP-848 groups under any order of heartbeats, losses, topic changes, time and restarts.

Held at every step: no partition has two owners, on the server or in the hands of clients that are
still members; a replay of the emitted records equals the state; epochs never fall. Held at the end:
when everyone keeps heartbeating, the group becomes Stable and every partition is read once.
"""

from __future__ import annotations

import itertools

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.coordination.groups.config import GroupConfig
from ottla.coordination.groups.consumer_state import NOTHING_YET, ConsumerGroup
from ottla.coordination.groups.messages import OffsetCommit, OffsetToCommit
from ottla.wire.error_codes import ErrorCode
from tests.support.groups_consumer import (
    REBALANCE_MS,
    Client,
    settle_all,
    topics_image,
)
from tests.support.groups_driver import Driver
from tests.support.groups_snapshot import durable

SESSION_MS = GroupConfig().consumer.session_timeout_ms
NAMES = ("a", "b", "c", "d")
clients = st.sampled_from(range(len(NAMES)))
subscriptions = st.sampled_from([(("t",), ""), (("t", "u"), ""), ((), "t.*"), (("u",), "t.*")])


class ConsumerMachine(RuleBasedStateMachine):
    config: GroupConfig | None = None

    @initialize()
    def start(self) -> None:
        self.driver = Driver(self.config)
        self.clients = [
            Client(self.driver, name, "t", instance="i" if name == "d" else None) for name in NAMES
        ]
        self.image = topics_image(t=3)
        self.epochs = (0, 0)
        self.incarnation = 0
        self.share_image()

    def share_image(self) -> None:
        for client in self.clients:
            client.image = self.image

    def group(self) -> ConsumerGroup | None:
        group = self.driver.machine.groups.get("g")
        assert group is None or isinstance(group, ConsumerGroup)
        return group

    def is_member(self, client: Client) -> bool:
        group = self.group()
        return group is not None and client.member_id in group.members

    def is_heard(self, client: Client) -> bool:
        """Whether the client is a member and knows its epoch."""
        group = self.group()
        if group is None or client.member_id not in group.members:
            return False
        return group.current.get(client.member_id, NOTHING_YET).member_epoch == client.epoch

    def after(self, client: Client, error: ErrorCode) -> None:
        """A client that is turned away stops reading before anything else."""
        if error is not ErrorCode.NONE:
            client.owned = client.told = frozenset()
            client.epoch = 0

    @rule(index=clients, subscription=subscriptions, assignor=st.sampled_from([None, "range"]))
    def join(
        self, index: int, subscription: tuple[tuple[str, ...], str], assignor: str | None
    ) -> None:
        client = self.clients[index]
        client.topics, client.regex = subscription
        client.assignor = assignor
        answer = client.join()
        assert answer.error is ErrorCode.NONE
        assert answer.assignment is not None

    @rule(index=clients, report=st.booleans())
    def beat(self, index: int, report: bool) -> None:
        client = self.clients[index]
        answer = client.settle() if report else client.beat()
        if client.epoch > 0 and self.is_heard(client):
            assert answer.error is ErrorCode.NONE
        self.after(client, answer.error)

    @rule(index=clients)
    def give_up_and_wait(self, index: int) -> None:
        client = self.clients[index]
        client.owned = client.told

    @rule(index=clients, full=st.booleans())
    def beat_with_a_lost_answer(self, index: int, full: bool) -> None:
        client = self.clients[index]
        client.send(client.epoch, owned=client.owned, full=full)

    @rule(index=clients, subscription=subscriptions)
    def resubscribe(self, index: int, subscription: tuple[tuple[str, ...], str]) -> None:
        client = self.clients[index]
        client.topics, client.regex = subscription
        if client.epoch > 0:
            answer = client.send(client.epoch, owned=client.owned, full=True)
            client.take(answer)
            self.after(client, answer.error)

    @rule(index=clients, subscription=subscriptions)
    def join_and_hang_up(self, index: int, subscription: tuple[tuple[str, ...], str]) -> None:
        """What was read before is not read any more; an answer, now or later, is not heard."""
        client = self.clients[index]
        client.owned = client.told = frozenset()
        client.epoch = 0
        client.topics, client.regex = subscription
        client.begin(0, owned=frozenset(), full=True)

    @rule(index=clients)
    def leave(self, index: int) -> None:
        client = self.clients[index]
        client.leave()
        client.epoch = 0

    @rule()
    def static_member_restarts(self) -> None:
        """Leaves for now and comes back under a new id, with what it had."""
        client = self.clients[-1]
        group = self.group()
        if group is None or not self.is_heard(client) or client.epoch <= 0:
            return
        had = group.current[client.member_id].assigned
        assert client.leave(-2).error is ErrorCode.NONE
        client.member_id = f"d{self.incarnation}"
        self.incarnation += 1
        answer = client.join()
        assert answer.error is ErrorCode.NONE
        if group.epoch == self.epochs[0]:
            target = group.targets[client.member_id]
            assert had & target <= (answer.assignment or frozenset())

    @rule(t=st.integers(1, 4), u=st.integers(0, 2))
    def topics_change(self, t: int, u: int) -> None:
        counts = {"t": t, "u": u} if u else {"t": t}
        self.image = topics_image(self.image.version + 1, **counts)
        self.share_image()

    @rule(ms=st.sampled_from([1, 5_000, 10_000, REBALANCE_MS, SESSION_MS]))
    def advance(self, ms: int) -> None:
        """A client that was fenced meanwhile is cut off from its partitions, as fencing intends."""
        self.driver.advance(ms)
        for client in self.clients:
            if not self.is_member(client):
                client.owned = client.told = frozenset()

    @rule(index=clients)
    def commit(self, index: int) -> None:
        client = self.clients[index]
        if client.epoch > 0:
            offsets = (OffsetToCommit("t", 0, 1),)
            errors = self.driver.commit(OffsetCommit("g", offsets, client.member_id, client.epoch))
            assert (errors == [ErrorCode.NONE]) == self.is_heard(client)

    @rule()
    def restart(self) -> None:
        self.driver.restart()

    @invariant()
    def replay_equals(self) -> None:
        if hasattr(self, "driver"):
            assert durable(self.driver.replayed()) == durable(self.driver.machine)

    @invariant()
    def epochs_never_fall(self) -> None:
        if hasattr(self, "driver") and (group := self.group()) is not None:
            epochs = (group.epoch, group.target_epoch)
            assert epochs >= self.epochs
            assert group.target_epoch <= group.epoch
            self.epochs = epochs

    @invariant()
    def partitions_have_one_owner(self) -> None:
        if not hasattr(self, "driver") or (group := self.group()) is None:
            return
        held = {
            member_id: current.assigned | current.pending_revocation
            for member_id, current in group.current.items()
        }
        self.check_members(group)
        for one, other in itertools.combinations(held.values(), 2):
            assert not one & other
        members = [client for client in self.clients if self.is_member(client)]
        for client in members:
            assert client.owned <= held.get(client.member_id, frozenset())

    def check_members(self, group: ConsumerGroup) -> None:
        assert group.current.keys() == group.members.keys()
        assert group.targets.keys() == group.members.keys()

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        live = [client for client in self.clients if self.is_member(client)]
        for client in live:
            self.after(client, client.settle().error)
            if client.epoch <= 0:
                client.join()
        self.settle(live)
        self.driver.advance(GroupConfig().regex_refresh_interval_ms)
        self.settle(live)
        if live:
            self.check_end(live)

    def settle(self, live: list[Client]) -> None:
        settle_all(*live, rounds=6)

    def check_end(self, live: list[Client]) -> None:
        group = self.group()
        assert group is not None
        assert group.state == "Stable"
        assert set(group.members) == {client.member_id for client in live}
        read = sorted(partition for client in live for partition in client.owned)
        expected = sorted(
            (topic.topic_id, n)
            for name in group.subscribed_topics()
            if (topic := self.image.topics_by_name.get(name)) is not None
            for n in range(topic.partitions)
        )
        assert read == expected


class LargeMachine(ConsumerMachine):
    """A group that counts as large: changes wait for the next target, and some are in between."""

    config = GroupConfig(
        initial_rebalance_delay_ms=0, consumer_assign_at_once=0, consumer_assign_per_ms=1
    )

    def settle(self, live: list[Client]) -> None:
        """Heartbeats that change nothing do not wait for the target: it needs time, too."""
        for _ in range(3):
            self.driver.advance(100)
            settle_all(*live, rounds=3)

    def check_members(self, group: ConsumerGroup) -> None:
        assert group.current.keys() <= group.members.keys()
        assert group.targets.keys() <= group.members.keys()
        assert {one.member_id for one in group.waiting} <= group.members.keys()


TestConsumerGroups = ConsumerMachine.TestCase
TestLargeConsumerGroups = LargeMachine.TestCase
