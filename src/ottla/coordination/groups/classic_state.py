"""A classic group and its rounds.

    Empty --first join--> PreparingRebalance --all joined, or time is up--> CompletingRebalance
    CompletingRebalance --leader syncs--> Stable        (the one moment the members are recorded)
    any of the last two --join, leave, loss of a member--> PreparingRebalance
    PreparingRebalance --no member left--> Empty

Rules:

- Each completed round raises the generation by one, also the one that ends in Empty.
- The first round of an Empty group waits `initial_rebalance_delay_ms`, and once more after each
  delay in which a member joined, up to the rebalance timeout. Later rounds end when every known
  member and every pending id has joined, or at the largest rebalance timeout.
- Members that miss a round are dropped, static ones (KIP-345) only by their session.
- Members that get a generation and do not sync within the rebalance timeout are dropped.
- A member that waits in Join or Sync is alive: its session starts again with the response.
- Only `stored`, the last record, is durable; the rest is rebuilt from it after a restart. So a
  restart in the middle of a round takes the group back to its last stable generation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.coordination.codec import MalformedRecord, Reader
from ottla.coordination.groups.keys import ClassicGroupKey
from ottla.coordination.groups.messages import (
    JoinGroupResponse,
    JoinMember,
    JoinProtocol,
    SyncGroupResponse,
)
from ottla.coordination.groups.records import ClassicGroupValue, ClassicMemberValue
from ottla.coordination.timers import Timers
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from ottla.coordination.groups.config import GroupConfig
    from ottla.coordination.groups.turn import Turn
    from ottla.coordination.machine import Token


CONSUMER_PROTOCOL_TYPE = "consumer"


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


TimerKey: TypeAlias = tuple[str, str]
"""The kind of a deadline, and its member ("" for the group)."""

ROUND: TimerKey = ("round", "")
SYNC: TimerKey = ("sync", "")


def session(member_id: str) -> TimerKey:
    return ("session", member_id)


def pending(member_id: str) -> TimerKey:
    return ("pending", member_id)


@dataclass(slots=True)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[JoinProtocol, ...]
    assignment: bytes = b""
    join_token: Token | None = None
    sync_token: Token | None = None

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    @property
    def waiting(self) -> bool:
        return self.join_token is not None or self.sync_token is not None


class ClassicGroup:
    kind: Final = "classic"

    def __init__(self, group_id: str, config: GroupConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.stored: ClassicGroupValue | None = None
        self.state = State.EMPTY
        self.state_ms = -1
        """Wall time of the last change of state: it is stored, and offsets expire by it."""
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static: dict[str, str] = {}
        self.pending: set[str] = set()
        self.unsynced: set[str] = set()
        self.timers: Timers[TimerKey] = Timers()
        self._initial_left_ms: int | None = None
        self._newcomer = False

    # The durable part

    def apply(self, value: ClassicGroupValue) -> None:
        self.stored = value

    def restore(self, now_ms: int) -> None:
        """Rebuild the group from its record; sessions start again."""
        if (stored := self.stored) is None:
            return
        self.state = State.STABLE if stored.members else State.EMPTY
        self.state_ms = stored.state_ms
        self.generation = stored.generation
        self.protocol_type = stored.protocol_type
        self.protocol = stored.protocol
        self.leader = stored.leader
        for value in stored.members:
            member = ClassicMember(
                value.member_id,
                value.instance_id,
                value.client_id,
                value.client_host,
                value.session_timeout_ms,
                value.rebalance_timeout_ms,
                (JoinProtocol(stored.protocol or "", value.subscription),),
                value.assignment,
            )
            self.members[member.member_id] = member
            if member.instance_id is not None:
                self.static[member.instance_id] = member.member_id
            self.touch(member, now_ms)

    def store(self, turn: Turn) -> None:
        """Records the group as it is; called when it is Stable or Empty."""
        members = tuple(
            ClassicMemberValue(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(self.protocol),
                member.assignment,
            )
            for member in self.members.values()
        )
        value = ClassicGroupValue(
            self.protocol_type,
            self.generation,
            self.protocol,
            self.leader,
            self.state_ms,
            members,
        )
        turn.emit(ClassicGroupKey(self.group_id), value)

    # Members

    def touch(self, member: ClassicMember, now_ms: int) -> None:
        """Renew the session of a member; a waiting member needs none."""
        if not member.waiting:
            self.timers.set(session(member.member_id), now_ms + member.session_timeout_ms)

    def add(self, member: ClassicMember) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self._newcomer = True

    def add_pending(self, member_id: str, session_timeout_ms: int, now_ms: int) -> None:
        self.pending.add(member_id)
        self.timers.set(pending(member_id), now_ms + session_timeout_ms)

    def drop_pending(self, member_id: str) -> None:
        self.pending.discard(member_id)
        self.timers.cancel(pending(member_id))

    def remove(self, member_id: str, turn: Turn) -> None:
        """Remove a member; `after_removal` then starts or ends the round."""
        member = self.members.pop(member_id)
        self.fail_waiting(member, ErrorCode.UNKNOWN_MEMBER_ID, turn)
        self.unsynced.discard(member_id)
        self.timers.cancel(session(member_id))
        if member.instance_id is not None:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def after_removal(self, turn: Turn) -> None:
        if self.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.rebalance(turn)
        else:
            self.maybe_complete(turn)

    def rename(self, old_id: str, new_id: str) -> ClassicMember:
        """Give a returning static member its new id; it keeps its assignment."""
        self.members = {
            (new_id if member_id == old_id else member_id): member
            for member_id, member in self.members.items()
        }
        member = self.members[new_id]
        member.member_id = new_id
        if member.instance_id is not None:
            self.static[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(new_id)
        self.timers.cancel(session(old_id))
        return member

    def fail_waiting(self, member: ClassicMember, error: ErrorCode, turn: Turn) -> None:
        if member.join_token is not None:
            turn.reply(member.join_token, JoinGroupResponse(error, member.member_id))
            member.join_token = None
        if member.sync_token is not None:
            turn.reply(member.sync_token, SyncGroupResponse(error))
            member.sync_token = None

    def shares_protocol(
        self, protocol_type: str, names: set[str], besides: str | None = None
    ) -> bool:
        """Whether all members except `besides` support one of these protocols."""
        others = [member for member in self.members.values() if member.member_id != besides]
        if not others:
            return True
        for member in others:
            names = names & {protocol.name for protocol in member.protocols}
        return bool(names) and protocol_type == self.protocol_type

    def select_protocol(self) -> str:
        """Each member votes for the first of its protocols that all support; most votes win."""
        members = list(self.members.values())
        common = set.intersection(*({p.name for p in member.protocols} for member in members))
        votes = Counter(
            next(p.name for p in member.protocols if p.name in common) for member in members
        )
        return votes.most_common(1)[0][0]

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members read; None if unknown, and then no offset expires."""
        if not self.members:
            return frozenset()
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            for _, metadata in member.protocols:
                reader = Reader(metadata, "consumer protocol subscription")
                try:
                    reader.int16()
                    topics.update(reader.array(reader.string))
                except MalformedRecord:
                    return None
        return frozenset(topics)

    # Rounds

    def park_join(self, member: ClassicMember, token: Token, turn: Turn) -> None:
        """Park the member until the end of the round; a repeated request replaces the first."""
        self.fail_waiting(member, ErrorCode.REBALANCE_IN_PROGRESS, turn)
        member.join_token = token
        self.timers.cancel(session(member.member_id))
        if self.state is State.PREPARING_REBALANCE:
            self.maybe_complete(turn)
        else:
            self.rebalance(turn)

    def rebalance(self, turn: Turn) -> None:
        initial = self.state is State.EMPTY
        self.state = State.PREPARING_REBALANCE
        self.unsynced.clear()
        self.timers.cancel(SYNC)
        for member in self.members.values():
            if member.sync_token is not None:
                self.fail_waiting(member, ErrorCode.REBALANCE_IN_PROGRESS, turn)
                self.touch(member, turn.now_ms)
        delay = timeout = self._rebalance_timeout_ms()
        self._initial_left_ms = None
        if initial:
            delay = min(self.config.initial_rebalance_delay_ms, timeout)
            self._initial_left_ms = timeout - delay
            self._newcomer = False
        self.timers.set(ROUND, turn.now_ms + delay)
        self.maybe_complete(turn)

    def maybe_complete(self, turn: Turn) -> None:
        if self.state is not State.PREPARING_REBALANCE:
            return
        if not self.members:
            self._complete(turn)
        elif self._initial_left_ms is not None:
            if (deadline := self.timers.deadline(ROUND)) is None or deadline <= turn.now_ms:
                self._round_due(turn)
        elif not self.pending and all(m.join_token is not None for m in self.members.values()):
            self._complete(turn)

    def _rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def _round_due(self, turn: Turn) -> None:
        left = self._initial_left_ms
        if left and self._newcomer:
            self._newcomer = False
            delay = min(self.config.initial_rebalance_delay_ms, left)
            self._initial_left_ms = left - delay
            self.timers.set(ROUND, turn.now_ms + max(1, delay))
        else:
            self._complete(turn)

    def _complete(self, turn: Turn) -> None:
        for member in list(self.members.values()):
            if member.join_token is None and member.instance_id is None:
                self.remove(member.member_id, turn)
        joined = [member for member in self.members.values() if member.join_token is not None]
        if self.members and not joined:
            # Only static members are left, and none has rejoined: their sessions decide.
            self.timers.set(ROUND, turn.now_ms + max(1, self._rebalance_timeout_ms()))
            return
        self.timers.cancel(ROUND)
        self._initial_left_ms = None
        self.generation += 1
        self.state_ms = turn.wall_ms
        if not joined:
            self.state = State.EMPTY
            self.protocol = self.leader = None
            self.store(turn)
            return
        if self.leader not in {member.member_id for member in joined}:
            self.leader = joined[0].member_id
        self.protocol = self.select_protocol()
        self.state = State.COMPLETING_REBALANCE
        self.unsynced = {member.member_id for member in joined}
        self.timers.set(SYNC, turn.now_ms + max(1, self._rebalance_timeout_ms()))
        for member in joined:
            token, member.join_token = member.join_token, None
            assert token is not None
            turn.reply(token, self.joined(member))
            self.touch(member, turn.now_ms)

    def joined(self, member: ClassicMember) -> JoinGroupResponse:
        """The JoinGroup response for one member; only the leader gets the member list."""
        others = self.members.values() if member.member_id == self.leader else ()
        return JoinGroupResponse(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader or "",
            members=tuple(
                JoinMember(m.member_id, m.instance_id, m.metadata(self.protocol)) for m in others
            ),
        )

    def synced(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            assignment=member.assignment,
        )

    def mark_synced(self, member_id: str) -> None:
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self.timers.cancel(SYNC)

    def become_stable(self, assignments: dict[str, bytes], turn: Turn) -> None:
        """Store the leader's assignment, then answer all waiting members."""
        self.state = State.STABLE
        self.state_ms = turn.wall_ms
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self.store(turn)
        for member in self.members.values():
            if member.sync_token is not None:
                turn.reply(member.sync_token, self.synced(member))
                member.sync_token = None
                self.touch(member, turn.now_ms)

    # Time

    def tick(self, turn: Turn) -> None:
        while (key := self.timers.pop_due(turn.now_ms)) is not None:
            kind, member_id = key
            if key == ROUND:
                self._round_due(turn)
            elif key == SYNC:
                for late in sorted(self.unsynced):
                    self.remove(late, turn)
                self.after_removal(turn)
            elif kind == "pending":
                self.pending.discard(member_id)
                self.maybe_complete(turn)
            else:
                self.remove(member_id, turn)
                self.after_removal(turn)
