"""Classic groups under any order of requests, time and restarts.

Held at every step: the generation grows by one per round; all joins answered in a generation agree
on leader and protocol, and the leader alone sees the members; no request is answered twice; a
replay of the emitted records equals the durable state, and a group between rounds is rebuilt
exactly. Held at the end: with time, every request that waits is answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.coordination.groups.classic_state import ClassicGroup, ClassicMember, State
from ottla.coordination.groups.config import GroupConfig
from ottla.coordination.groups.messages import (
    Heartbeat,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetToCommit,
    SyncGroup,
    SyncGroupResponse,
)
from ottla.wire.error_codes import ErrorCode
from tests.support.groups_driver import REBALANCE_MS, SESSION_MS, Driver
from tests.support.groups_snapshot import durable, settled

if TYPE_CHECKING:
    from ottla.coordination.groups.messages import Response
    from ottla.coordination.groups.records import Record
    from ottla.coordination.machine import Decision, Transaction

protocols = st.sampled_from(
    [
        (JoinProtocol("a", b"1"), JoinProtocol("b", b"1")),
        (JoinProtocol("b", b"1"), JoinProtocol("a", b"1")),
        (JoinProtocol("a", b"2"),),
    ]
)
FOREVER_MS = 10 * REBALANCE_MS


class WatchedDriver(Driver):
    """Checks each decision for what must hold between one and the next."""

    watched: tuple[ClassicGroup | None, int] = (None, 0)

    def group(self) -> ClassicGroup | None:
        group = self.machine.groups.get("g")
        assert group is None or isinstance(group, ClassicGroup)
        return group

    def _take(
        self, decision: Decision[Record, Response], transaction: Transaction | None = None
    ) -> None:
        super()._take(decision, transaction)
        joins = [
            response
            for _, response in decision.replies
            if isinstance(response, JoinGroupResponse) and response.error is ErrorCode.NONE
        ]
        group = self.group()
        seen, generation = self.watched
        if group is not None and group is seen:
            assert group.generation - generation in (0, 1)
        self.watched = (group, 0 if group is None else group.generation)
        for join in joins:
            assert group is not None
            assert join.generation == group.generation
            assert join.protocol == group.protocol
            assert bool(join.members) == (join.member_id == join.leader)


class ClassicMachine(RuleBasedStateMachine):
    @initialize(delay=st.sampled_from([0, 3000]), size=st.sampled_from([2, 100]))
    def start(self, delay: int, size: int) -> None:
        config = GroupConfig(initial_rebalance_delay_ms=delay, max_size=size)
        self.driver = WatchedDriver(config)
        self.sent: list[int] = []
        self.ids: list[str] = []
        self.fresh = 0

    @property
    def generation(self) -> int:
        group = self.driver.group()
        return 0 if group is None else group.generation

    def send_join(
        self, member_id: str, instance: str | None, *, known: bool, offer: object
    ) -> None:
        self.fresh += 1
        assert isinstance(offer, tuple)
        request = self.driver.join_request(
            member_id, fresh=str(self.fresh), instance=instance, known=known, protocols=offer
        )
        self.sent.append(self.driver.send(request))
        if not member_id:
            self.ids.append(f"{instance or 'c'}-{self.fresh}")

    def draw_member(self, data: st.DataObject) -> str:
        """Mostly one that the group knows, so that the walk does not drown in unknown ids."""
        known = [member.member_id for member in self.members()]
        return data.draw(st.sampled_from(known * 3 + self.ids[-3:]))

    @rule(
        instance=st.sampled_from([None, None, "i", "j"]),
        known=st.sampled_from([False, False, True]),
        offer=protocols,
    )
    def join(self, instance: str | None, known: bool, offer: object) -> None:
        self.send_join("", instance, known=known, offer=offer)

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), offer=protocols)
    def rejoin(self, data: st.DataObject, offer: object) -> None:
        member_id = self.draw_member(data)
        instance = member_id[0] if member_id[0] in "ij" else None
        self.send_join(member_id, instance, known=True, offer=offer)

    @rule(offer=protocols, newcomers=st.integers(0, 2), sync=st.booleans())
    def whole_round(self, offer: object, newcomers: int, sync: bool) -> None:
        """A whole round: random steps alone would seldom bring several members to its end."""
        for _ in range(newcomers):
            self.send_join("", None, known=False, offer=offer)
        for member in self.members():
            self.send_join(member.member_id, member.instance_id, known=True, offer=offer)
        self.driver.advance(self.driver.config.initial_rebalance_delay_ms)
        if sync:
            self.everyone_syncs()

    def members(self) -> list[ClassicMember]:
        group = self.driver.group()
        return [] if group is None else list(group.members.values())

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), off=st.sampled_from([0, 0, 0, 1]))
    def sync(self, data: st.DataObject, off: int) -> None:
        member_id = self.draw_member(data)
        group = self.driver.group()
        members = () if group is None else tuple(group.members)
        shares = tuple((name, name.encode()) for name in members)
        request = SyncGroup("g", member_id, self.generation + off, assignments=shares)
        self.sent.append(self.driver.send(request))

    def everyone_syncs(self) -> None:
        names = [member.member_id for member in self.members()]
        shares = tuple((name, name.encode()) for name in names)
        for name in names:
            request = SyncGroup("g", name, self.generation, assignments=shares)
            self.sent.append(self.driver.send(request))
        group = self.driver.group()
        if group is not None and group.state is State.STABLE and names:
            last = self.driver.answer(self.sent[-1], SyncGroupResponse)
            kept = group.members[names[-1]].assignment
            assert (last.error, last.assignment) == (ErrorCode.NONE, kept)

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def heartbeat_and_commit(self, data: st.DataObject) -> None:
        member_id = self.draw_member(data)
        self.sent.append(self.driver.send(Heartbeat("g", member_id, self.generation)))
        offsets = (OffsetToCommit("t", 0, self.fresh),)
        commit = OffsetCommit("g", offsets, member_id, self.generation)
        self.sent.append(self.driver.send(commit))

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member_id = self.draw_member(data)
        self.sent.append(self.driver.send(LeaveGroup("g", (LeavingMember(member_id),))))

    @rule(ms=st.sampled_from([1, 1000, 3000, 6000, SESSION_MS - 1, SESSION_MS, REBALANCE_MS]))
    def advance(self, ms: int) -> None:
        self.driver.advance(ms)

    @rule(ms=st.sampled_from([3000, SESSION_MS - 1]))
    def advance_while_alive(self, ms: int) -> None:
        self.driver.advance(ms)
        for member in self.members():
            self.driver.send(Heartbeat("g", member.member_id, self.generation))

    @rule()
    def restart(self) -> None:
        """Requests that wait are lost with the connection; the generation falls back."""
        self.sent.clear()
        self.driver.restart()

    @invariant()
    def replay_equals(self) -> None:
        if not hasattr(self, "driver"):
            return
        replayed = self.driver.replayed()
        assert durable(replayed) == durable(self.driver.machine)
        group, rebuilt = self.driver.group(), replayed.groups.get("g")
        if group is not None and group.stored and group.state in (State.STABLE, State.EMPTY):
            assert isinstance(rebuilt, ClassicGroup)
            assert settled(rebuilt) == settled(group)

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.advance(FOREVER_MS)
            assert set(self.sent) <= self.driver.answers.keys()
            group = self.driver.group()
            assert group is None or group.state is State.EMPTY


TestClassicGroups = ClassicMachine.TestCase
