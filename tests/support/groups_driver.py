"""Drives a group coordinator by hand: a clock, tokens, answers, and a log to replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ottla.clock import Now
from ottla.coordination.groups.config import GroupConfig
from ottla.coordination.groups.consumer import InvalidRegularExpression
from ottla.coordination.groups.coordinator import GroupCoordinator
from ottla.coordination.groups.messages import (
    ApplyMarker,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    OffsetCommit,
    OffsetCommitResponse,
    SyncGroup,
    SyncGroupResponse,
)
from ottla.coordination.machine import Batch, Marker

if TYPE_CHECKING:
    from ottla.coordination.groups.messages import Request, Response
    from ottla.coordination.groups.records import Record
    from ottla.coordination.groups.topics import TopicsImage
    from ottla.coordination.machine import Decision, Effect, Transaction
    from ottla.wire.error_codes import ErrorCode

ResponseT = TypeVar("ResponseT")

RANGE = (JoinProtocol("range", b"s"),)
SESSION_MS = 10_000
REBALANCE_MS = 30_000


def resolve_prefix(regex: str, topics: TopicsImage) -> frozenset[str]:
    """Stands in for RE2: `prefix.*`, and anything with "[" is wrong."""
    if "[" in regex:
        raise InvalidRegularExpression("missing closing ]")
    prefix = regex.removesuffix(".*")
    return frozenset(name for name in topics.topics_by_name if name.startswith(prefix))


def transaction_of(request: Request) -> Transaction | None:
    """What the broker tells the runtime besides the request."""
    if isinstance(request, ApplyMarker):
        return request.marker
    return request.transaction if isinstance(request, OffsetCommit) else None


class Driver:
    """One coordinator at a time of its own; `batches` are what it has emitted, as bytes."""

    def __init__(self, config: GroupConfig | None = None) -> None:
        self.config = config or GroupConfig(initial_rebalance_delay_ms=0)
        self.now = 0
        self.ahead_ms = 0
        self.batches: list[Batch] = []
        self.machine = self.replayed()
        self.records: list[Record] = []
        self.effects: list[Effect] = []
        self.answers: dict[int, Response] = {}
        self._next_token = 0

    def _machine(self) -> GroupCoordinator:
        return GroupCoordinator(self.config, resolve_prefix)

    @property
    def log(self) -> list[tuple[bytes, bytes | None]]:
        """All records, in a transaction or not."""
        return [record for batch in self.batches for record in batch.records]

    @property
    def time(self) -> Now:
        """Monotonic time begins where wall time is; a test steps the latter by `ahead_ms`."""
        return Now(self.now, self.now + self.ahead_ms)

    def replayed(self) -> GroupCoordinator:
        """What a restart at this moment would come up with."""
        machine = self._machine()
        for records, transaction in self.batches:
            if isinstance(transaction, Marker):
                machine.replay_marker(transaction)
            for key, value in records:
                if transaction is None:
                    machine.replay(key, value)
                else:
                    machine.replay_transactional(transaction.producer_id, key, value)
        machine.loaded(self.time)
        return machine

    def restart(self) -> None:
        self.machine = self.replayed()
        self.answers.clear()

    def send(self, request: Request) -> int:
        """Hands in a request and returns its token; the answer may come later."""
        token = self._next_token
        self._next_token += 1
        self._take(self.machine.decide(request, token, self.time), transaction_of(request))
        return token

    def ask(self, request: Request, kind: type[ResponseT]) -> ResponseT:
        """Hands in a request that is answered at once."""
        return self.answer(self.send(request), kind)

    def answer(self, token: int, kind: type[ResponseT]) -> ResponseT:
        answer = self.answers[token]
        assert isinstance(answer, kind)
        return answer

    def wait(self, token: int, kind: type[ResponseT]) -> ResponseT:
        """Lets time pass until there is an answer."""
        while token not in self.answers:
            deadline = self.machine.next_deadline()
            assert deadline is not None, "nobody will ever answer"
            self.advance(max(0, deadline - self.now))
        return self.answer(token, kind)

    def advance(self, ms: int) -> None:
        """Lets time pass, ticking at every deadline on the way."""
        end = self.now + ms
        while (deadline := self.machine.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self._take(self.machine.tick(self.time))
        self.now = end

    def _take(
        self, decision: Decision[Record, Response], transaction: Transaction | None = None
    ) -> None:
        for token, response in decision.replies:
            assert token not in self.answers, "a request was answered twice"
            self.answers[token] = response
        self.records += decision.records
        self.effects += decision.effects
        encoded = [self.machine.encode(record) for record in decision.records]
        if encoded or isinstance(transaction, Marker):
            self.batches.append(Batch(encoded, transaction))

    # The classic protocol in short

    def join_request(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        fresh: str = "1",
        instance: str | None = None,
        protocols: tuple[JoinProtocol, ...] = RANGE,
        known: bool = False,
        skip: bool = True,
        protocol_type: str = "consumer",
    ) -> JoinGroup:
        return JoinGroup(
            group,
            member_id,
            fresh,
            protocol_type,
            protocols,
            SESSION_MS,
            REBALANCE_MS,
            instance,
            "c",
            "/h",
            require_known_member=known,
            can_skip_assignment=skip,
        )

    def join_as(self, fresh: str, instance: str | None = None) -> JoinGroupResponse:
        """Joins an Empty group as its only member."""
        return self.ask(self.join_request(fresh=fresh, instance=instance), JoinGroupResponse)

    def sync(
        self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None
    ) -> int:
        pairs = tuple((assignments or {}).items())
        return self.send(SyncGroup("g", member_id, generation, assignments=pairs))

    def synced(
        self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None
    ) -> SyncGroupResponse:
        return self.answer(self.sync(member_id, generation, assignments), SyncGroupResponse)

    def beat(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        request = Heartbeat("g", member_id, generation, instance)
        return self.ask(request, HeartbeatResponse).error

    def leave(self, *members: tuple[str, str | None]) -> list[ErrorCode]:
        request = LeaveGroup("g", tuple(LeavingMember(*member) for member in members))
        return [entry.error for entry in self.ask(request, LeaveGroupResponse).members]

    def commit(self, request: OffsetCommit) -> list[ErrorCode]:
        return [entry.error for entry in self.ask(request, OffsetCommitResponse).partitions]

    def stable_group(self, size: int) -> tuple[list[str], int]:
        """A Stable group of `size` dynamic members; the first leads."""
        first = self.join_as("0")
        members = [first.member_id]
        tokens = [self.send(self.join_request(fresh=str(n))) for n in range(1, size)]
        if tokens:
            tokens.insert(0, self.send(self.join_request(members[0])))
            answers = [self.answer(token, JoinGroupResponse) for token in tokens]
            members = [answer.member_id for answer in answers]
            generation = answers[0].generation
        else:
            generation = first.generation
        waiting = [self.sync(member, generation) for member in members[1:]]
        shares = {member: member.encode() for member in members}
        assert self.synced(members[0], generation, shares).assignment == members[0].encode()
        assert all(token in self.answers for token in waiting)
        return members, generation
