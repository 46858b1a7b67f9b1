"""The share coordinator driven by hand, and a model of it that knows single offsets only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from ottla.clock import Now
from ottla.coordination.groups.topics import Topic, TopicsImage
from ottla.coordination.share_state.batches import StateBatch
from ottla.coordination.share_state.coordinator import ShareStateConfig, ShareStateMachine
from ottla.coordination.share_state.index import SnapshotIndex
from ottla.coordination.share_state.records import ShareKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.coordination.machine import Decision
    from ottla.coordination.share_state.batches import StateBatches
    from ottla.coordination.share_state.messages import StateReply, StateRequest
    from ottla.coordination.share_state.records import StateRecord

ResponseT = TypeVar("ResponseT")

TOPIC = UUID("11111111-2222-3333-4444-555555555555")
IMAGE = TopicsImage({"t": Topic(TOPIC, "t", 2)}, 1)
KEY = ShareKey("g1", TOPIC, 0)
START_MS = 1_700_000_000_000


class StateDriver:
    """`log` is what the machine has emitted, as bytes."""

    def __init__(self, config: ShareStateConfig | None = None) -> None:
        self.config = config or ShareStateConfig()
        self.now = START_MS
        self.ahead_ms = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.records: list[StateRecord] = []
        self.index = SnapshotIndex()
        self.machine = self.replayed()

    @property
    def time(self) -> Now:
        """Monotonic time begins where wall time is; a test steps the latter by `ahead_ms`."""
        return Now(self.now, self.now + self.ahead_ms)

    def replayed(self, from_offset: int = 0) -> ShareStateMachine:
        """What a restart at this moment would come up with."""
        machine = ShareStateMachine(self.config)
        for key, value in self.log[from_offset:]:
            machine.replay(key, value)
        machine.loaded(self.time)
        return machine

    def ask(self, request: StateRequest, kind: type[ResponseT]) -> ResponseT:
        decision = self.machine.decide(request, 7, self.time)
        self._take(decision)
        (reply,) = decision.replies
        assert reply.token == 7
        assert isinstance(reply.response, kind)
        return reply.response

    def advance(self, ms: int) -> None:
        end = self.now + ms
        while (deadline := self.machine.next_deadline()) is not None and deadline <= end:
            self.now = deadline
            self._take(self.machine.tick(self.time))
        self.now = end

    def _take(self, decision: Decision[StateRecord, StateReply]) -> None:
        for record in decision.records:
            key, value = self.machine.encode(record)
            self.index.note(len(self.log), key, value)
            self.log.append((key, value))
            self.records.append(record)


@dataclass
class OffsetModel:
    """A share-partition offset by offset: the highest (delivery count, state) seen of each."""

    state_epoch: int
    start: int
    count: int
    leader_epoch: int = -1
    ranks: dict[int, tuple[int, int]] = field(default_factory=dict)

    def write(self, start: int, count: int, batches: Iterable[StateBatch]) -> None:
        if start != -1:
            self.start = start
        self.count = count
        for batch in batches:
            for offset in range(batch.first, batch.last + 1):
                rank = (batch.delivery_count, batch.state)
                self.ranks[offset] = max(rank, self.ranks.get(offset, rank))
        self.ranks = {offset: rank for offset, rank in self.ranks.items() if offset >= self.start}

    def batches(self) -> StateBatches:
        return as_batches(self.ranks)


def as_batches(ranks: dict[int, tuple[int, int]]) -> StateBatches:
    """Runs of equal offsets, as long as they get."""
    runs: list[StateBatch] = []
    for offset in sorted(ranks):
        count, state = ranks[offset]
        if runs and runs[-1] == (runs[-1].first, offset - 1, state, count):
            runs[-1] = runs[-1]._replace(last=offset)
        else:
            runs.append(StateBatch(offset, offset, state, count))
    return tuple(runs)
