"""Share state under any order of requests, leaders, snapshots, pruning and restarts.

Held at every step: each share-partition reads as a model that keeps single offsets, and both a
replay of the whole log and one of its unpruned part equal the state.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.coordination.share_state.batches import DeliveryState, StateBatch
from ottla.coordination.share_state.coordinator import ShareStateConfig
from ottla.coordination.share_state.messages import (
    DeleteState,
    DropTopics,
    InitializeState,
    ReadState,
    ReadStateResponse,
    ReadStateSummary,
    StateResponse,
    StateSummaryResponse,
    WriteState,
)
from ottla.coordination.share_state.records import ShareKey
from ottla.wire.error_codes import ErrorCode
from tests.support.share_state import IMAGE, TOPIC, OffsetModel, StateDriver

COLD_MS = 1000
KEYS = [ShareKey("a", TOPIC, 0), ShareKey("a", TOPIC, 1), ShareKey("b", TOPIC, 0)]

keys = st.sampled_from(KEYS)
epochs = st.integers(-1, 3)
offsets = st.integers(0, 20)
starts = st.one_of(st.just(-1), offsets)
batches = st.lists(
    st.builds(
        lambda first, size, state, count: StateBatch(first, first + size, state, count),
        offsets,
        st.integers(0, 6),
        st.sampled_from(DeliveryState),
        st.integers(1, 3),
    ),
    max_size=4,
).map(tuple)


class ShareStates(RuleBasedStateMachine):
    @initialize(limit=st.integers(0, 4))
    def start(self, limit: int) -> None:
        self.driver = StateDriver(ShareStateConfig(limit, COLD_MS))
        self.model: dict[ShareKey, OffsetModel] = {}
        self.fences: dict[ShareKey, int] = {}

    @rule(key=keys, epoch=st.integers(0, 3), start=starts)
    def initialize_state(self, key: ShareKey, epoch: int, start: int) -> None:
        error = self.driver.ask(InitializeState(key, IMAGE, epoch, start), StateResponse).error
        known = self.model.get(key)
        if known is not None and known.state_epoch > epoch:
            assert error is ErrorCode.FENCED_STATE_EPOCH
            return
        assert error is ErrorCode.NONE
        self.model[key] = OffsetModel(epoch, start, -1 if start == -1 else 0)

    @rule(key=keys, epoch=epochs)
    def read(self, key: ShareKey, epoch: int) -> None:
        answer = self.driver.ask(ReadState(key, IMAGE, epoch), ReadStateResponse)
        if (known := self.model.get(key)) is None:
            assert answer.error is ErrorCode.INVALID_REQUEST
        elif self.fences.get(key, -1) > epoch:
            assert answer.error is ErrorCode.FENCED_LEADER_EPOCH
        else:
            assert answer == ReadStateResponse(
                ErrorCode.NONE, None, known.state_epoch, known.start, known.batches()
            )
            if epoch != -1:
                known.leader_epoch = self.fences[key] = epoch

    @rule(
        key=keys,
        epoch=epochs,
        leader=epochs,
        start=starts,
        count=st.integers(-1, 9),
        changed=batches,
    )
    def write(
        self,
        key: ShareKey,
        epoch: int,
        leader: int,
        start: int,
        count: int,
        changed: tuple[StateBatch, ...],
    ) -> None:
        request = WriteState(key, IMAGE, epoch, leader, start, changed, count)
        error = self.driver.ask(request, StateResponse).error
        if (known := self.model.get(key)) is None:
            assert error is ErrorCode.INVALID_REQUEST
        elif leader != -1 and self.fences.get(key, -1) > leader:
            assert error is ErrorCode.FENCED_LEADER_EPOCH
        elif epoch != -1 and known.state_epoch > epoch:
            assert error is ErrorCode.FENCED_STATE_EPOCH
        else:
            assert error is ErrorCode.NONE
            known.write(start, count, changed)

    @rule(key=keys)
    def delete(self, key: ShareKey) -> None:
        assert self.driver.ask(DeleteState(key), StateResponse) == StateResponse()
        self.model.pop(key, None)
        self.fences.pop(key, None)

    @rule()
    def topic_is_deleted(self) -> None:
        assert self.driver.ask(DropTopics(frozenset({TOPIC})), StateResponse) == StateResponse()
        self.model.clear()
        self.fences.clear()

    @rule(ms=st.sampled_from([1, COLD_MS]))
    def advance(self, ms: int) -> None:
        self.driver.advance(ms)

    @rule()
    def restart(self) -> None:
        self.driver.machine = self.driver.replayed()

    @invariant()
    def reads_as_the_model(self) -> None:
        if not hasattr(self, "driver"):
            return
        assert self.driver.machine.states.keys() == self.model.keys()
        for key, known in self.model.items():
            answer = self.driver.ask(ReadStateSummary(key, IMAGE), StateSummaryResponse)
            assert answer == StateSummaryResponse(
                ErrorCode.NONE,
                None,
                known.state_epoch,
                known.leader_epoch,
                known.start,
                known.count,
            )
            assert self.driver.machine.states[key].snapshot.batches == known.batches()

    @invariant()
    def replay_equals(self) -> None:
        if hasattr(self, "driver"):
            assert self.driver.replayed().states == self.driver.machine.states

    @invariant()
    def nothing_needed_is_pruned(self) -> None:
        """Only the fence of a leader before the latest snapshot is forgotten with the log."""
        if not hasattr(self, "driver"):
            return
        pruned = self.driver.replayed(self.driver.index.needed_from).states
        live = self.driver.machine.states
        assert [(key, state[:2]) for key, state in sorted(pruned.items())] == [
            (key, state[:2]) for key, state in sorted(live.items())
        ]

    @invariant()
    def updates_are_bounded(self) -> None:
        if hasattr(self, "driver"):
            limit = self.driver.config.updates_per_snapshot
            assert all(state.updates <= limit for state in self.driver.machine.states.values())


TestShareStates = ShareStates.TestCase
