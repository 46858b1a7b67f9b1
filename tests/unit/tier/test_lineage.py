"""The lineage cache and the managers over it."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.objects.errors import RemoteNotFound
from ottla.tier.catalogue.catalogue import Catalogue
from ottla.tier.catalogue.lineage import RemoteLogMetadataCache, Verdict
from ottla.tier.catalogue.rlmm import InMemoryRlmm, NotReadyRlmm, SwappableRlmm
from ottla.tier.catalogue.segments import (
    MetadataEvent,
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from ottla.tier.errors import InvalidAdd, InvalidUpdate, NotReady, StaleSegmentState
from tests.support.sizes import examples
from tests.support.tiering import DELETED, DELETING, FINISHED, STARTED, TIP, becomes, segment

MARKED, DELETE_STARTED, DELETE_FINISHED = PartitionDeleteState


def finished(*segments: RemoteLogSegmentMetadata) -> RemoteLogMetadataCache:
    """A cache in which these were copied, one after the other."""
    cache = RemoteLogMetadataCache()
    for one in segments:
        assert cache.add(one) is Verdict.APPLIED
        assert cache.update(becomes(one, FINISHED)) is Verdict.APPLIED
    return cache


def found(cache: RemoteLogMetadataCache, offset: int, epoch: int = 0) -> int | None:
    metadata = cache.find(epoch, offset)
    return None if metadata is None else metadata.id.id.int


LEGAL = {
    (None, STARTED),
    (STARTED, STARTED),
    (STARTED, FINISHED),
    (STARTED, DELETING),
    (FINISHED, FINISHED),
    (FINISHED, DELETING),
    (DELETING, DELETING),
    (DELETING, DELETED),
}


@pytest.mark.parametrize(
    ("before", "after"), list(product([None, STARTED, FINISHED, DELETING], SegmentState))
)
def test_case_05_segment_transitions(before: SegmentState | None, after: SegmentState) -> None:
    one = segment(0, 9)
    cache = RemoteLogMetadataCache()
    if before is not None:
        cache.put(segment(0, 9, state=before))
    verdict = cache.add(one) if after is STARTED else cache.update(becomes(one, after))
    if (before, after) in LEGAL:
        assert verdict is Verdict.APPLIED
        held = cache.segments.get(one.id.id)
        assert held is None if after is DELETED else held is not None and held.state is after
    else:
        unknown = before is None
        assert verdict is (Verdict.UNKNOWN_SEGMENT if unknown else Verdict.ILLEGAL_TRANSITION)


@pytest.mark.parametrize(
    ("before", "after"), list(product([None, *PartitionDeleteState], PartitionDeleteState))
)
def test_case_05_partition_delete_transitions(
    before: PartitionDeleteState | None, after: PartitionDeleteState
) -> None:
    catalogue = Catalogue()
    if before is not None:
        catalogue.put_delete(RemotePartitionDeleteMetadata(TIP, before, 0, 5))
    verdict = catalogue.apply(RemotePartitionDeleteMetadata(TIP, after, 1, 5))
    legal = after == 0 if before is None else after - before in (0, 1)
    assert verdict is (Verdict.APPLIED if legal else Verdict.ILLEGAL_TRANSITION)
    assert catalogue.delete_state(TIP) is (after if legal else before)


def test_case_05_nothing_follows_a_finished_partition_delete() -> None:
    catalogue = Catalogue()
    catalogue.apply(segment(0, 9))
    for state in PartitionDeleteState:
        catalogue.apply(RemotePartitionDeleteMetadata(TIP, state, 0, 5))
    assert not catalogue.cache(TIP).segments
    assert catalogue.tips() == []
    assert catalogue.apply(segment(10, 19, number=101)) is Verdict.ILLEGAL_TRANSITION


async def test_case_06_states_that_additions_and_updates_never_have() -> None:
    manager = InMemoryRlmm()
    with pytest.raises(InvalidAdd):
        await manager.add_remote_log_segment_metadata(segment(0, 9, state=FINISHED))
    with pytest.raises(InvalidUpdate):
        await manager.update_remote_log_segment_metadata(becomes(segment(0, 9), STARTED))
    assert manager.list_remote_log_segments(TIP) == []


def test_case_07_an_update_replaces_custom_metadata() -> None:
    one = segment(0, 9)
    cache = RemoteLogMetadataCache()
    cache.add(one)
    cache.update(becomes(one, FINISHED, b"where"))
    held = cache.segments[one.id.id]
    assert held.custom_metadata == b"where"
    assert held.update(DELETING, broker_id=5, now_ms=7).custom_metadata == b"where"
    cache.update(becomes(one, DELETING))
    assert cache.segments[one.id.id].custom_metadata is None


def test_case_08_the_longer_copy_serves() -> None:
    cache = finished(segment(0, 100, number=2), segment(0, 200, number=3))
    assert found(cache, 50) == 3
    assert [one.end_offset for one in cache.list_epoch(0)] in ([100, 200], [200, 100])
    cache = finished(segment(10, 90, number=2), segment(5, 100, number=3))
    assert found(cache, 20) == found(cache, 95) == 3


def test_case_09_a_late_shorter_copy_hides_nothing() -> None:
    cache = finished(segment(0, 200, number=2), segment(0, 100, number=3))
    assert found(cache, 50) == found(cache, 150) == 2
    assert len(cache.list_epoch(0)) == 2
    assert {one.int for one in cache.referenced()} == {2}
    inside = finished(segment(0, 200, number=2), segment(50, 100, number=3))
    assert found(inside, 150) == found(inside, 60) == 2


def test_case_10_epochs_share_a_segment() -> None:
    cache = finished(segment(1000, 1999, number=2, epochs={2: 1000, 4: 1500}))
    assert found(cache, 1499, epoch=2) == found(cache, 1500, epoch=4) == 2
    assert found(cache, 1500, epoch=2) is found(cache, 1499, epoch=4) is None
    assert found(cache, 1000, epoch=3) is None


def test_case_11_deletion_hides_then_forgets() -> None:
    one = segment(0, 9, number=2)
    cache = finished(one)
    cache.update(becomes(one, DELETING))
    assert found(cache, 5) is None
    assert [listed.state for listed in cache.list_epoch(0)] == [DELETING]
    assert cache.highest_offset(0) == 9
    cache.update(becomes(one, DELETED))
    assert cache.list_epoch(0) == []
    assert not cache.segments
    assert cache.highest_offset(0) == 9


def test_case_12_finishing_what_is_being_deleted() -> None:
    one = segment(0, 9, number=2)
    cache = finished(one)
    cache.update(becomes(one, DELETING))
    assert cache.update(becomes(one, FINISHED)) is Verdict.ILLEGAL_TRANSITION
    assert found(cache, 5) is None
    cache.update(becomes(one, DELETED))
    assert cache.update(becomes(one, FINISHED)) is Verdict.UNKNOWN_SEGMENT
    assert not cache.segments


async def test_case_12_a_manager_says_so() -> None:
    manager = InMemoryRlmm()
    one = segment(0, 9)
    await manager.add_remote_log_segment_metadata(one)
    await manager.update_remote_log_segment_metadata(becomes(one, DELETING))
    with pytest.raises(StaleSegmentState):
        await manager.update_remote_log_segment_metadata(becomes(one, FINISHED))
    await manager.update_remote_log_segment_metadata(becomes(one, DELETED))
    with pytest.raises(RemoteNotFound):
        await manager.update_remote_log_segment_metadata(becomes(one, FINISHED))


def test_transactions_are_looked_for_from_an_offset_on() -> None:
    cache = finished(
        segment(0, 9, number=2),
        segment(10, 19, number=3, txn_index_empty=False),
        segment(20, 29, number=4, txn_index_empty=False),
    )
    starts = [cache.next_with_txn_index(0, offset) for offset in (0, 15, 20, 30)]
    assert [None if one is None else one.start_offset for one in starts] == [10, 10, 20, None]
    assert cache.next_with_txn_index(7, 0) is None


async def test_case_18_the_placeholder_refuses_everything() -> None:
    manager = NotReadyRlmm()
    one = segment(0, 9)
    for call in (
        lambda: manager.remote_log_segment_metadata(TIP, 0, 0),
        lambda: manager.highest_offset_for_epoch(TIP, 0),
        lambda: manager.list_remote_log_segments(TIP),
        lambda: manager.list_remote_log_segments(TIP, 0),
        lambda: manager.next_segment_with_txn_index(TIP, 0, 0),
        lambda: manager.remote_log_size(TIP, 0),
        lambda: manager.on_partition_leadership_changes([TIP], []),
        lambda: manager.on_stop_partitions([TIP]),
    ):
        with pytest.raises(NotReady):
            call()
    assert not manager.is_ready(TIP)
    delete = RemotePartitionDeleteMetadata(TIP, MARKED, 0, 5)
    for mutation in (
        manager.add_remote_log_segment_metadata(one),
        manager.update_remote_log_segment_metadata(becomes(one, FINISHED)),
        manager.put_remote_partition_delete_metadata(delete),
    ):
        with pytest.raises(NotReady):
            await mutation


class _Slow(InMemoryRlmm):
    """Waits in the middle of a mutation."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = asyncio.Event()
        self.go_on = asyncio.Event()

    async def publish(self, event: MetadataEvent) -> None:
        self.entered.set()
        await self.go_on.wait()
        await super().publish(event)


async def test_case_19_a_call_ends_on_the_manager_it_began_with() -> None:
    facade = SwappableRlmm(NotReadyRlmm())
    with pytest.raises(NotReady):
        facade.list_remote_log_segments(TIP)
    slow, last = _Slow(), InMemoryRlmm()
    facade.swap(slow)
    call = asyncio.create_task(facade.add_remote_log_segment_metadata(segment(0, 9)))
    await slow.entered.wait()
    assert facade.swap(last) is slow
    slow.go_on.set()
    await call
    assert len(slow.list_remote_log_segments(TIP)) == 1
    assert facade.list_remote_log_segments(TIP) == []
    await facade.add_remote_log_segment_metadata(segment(0, 9))
    assert len(last.list_remote_log_segments(TIP)) == 1


class LineageMachine(RuleBasedStateMachine):
    """Against a model that keeps every segment in a list and looks at all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = RemoteLogMetadataCache()
        self.all: list[RemoteLogSegmentMetadata] = []
        self.states: dict[int, SegmentState] = {}
        self.highest: dict[int, int] = {}
        self.any_deleted = False

    @rule(start=st.integers(0, 30), length=st.integers(0, 20), split=st.integers(0, 25))
    def start(self, start: int, length: int, split: int) -> None:
        epochs = {0: start, 1: start + split} if 0 < split <= length else {split % 2: start}
        one = segment(start, start + length, number=len(self.all) + 2, epochs=epochs)
        assert self.cache.add(one) is Verdict.APPLIED
        self.all.append(one)
        self.states[one.id.id.int] = STARTED

    @precondition(lambda self: self.all)
    @rule(data=st.data(), state=st.sampled_from([FINISHED, FINISHED, DELETING, DELETED]))
    def update(self, data: st.DataObject, state: SegmentState) -> None:
        one = data.draw(st.sampled_from(self.all))
        before = self.states[one.id.id.int]
        verdict = self.cache.update(becomes(one, state))
        if before is DELETED:
            assert verdict is Verdict.UNKNOWN_SEGMENT
        elif (before, state) in LEGAL:
            assert verdict is Verdict.APPLIED
            self.states[one.id.id.int] = state
            self.any_deleted |= state is DELETING and before is FINISHED
            if state is FINISHED:
                for epoch, _, end in one.epoch_ranges():
                    self.highest[epoch] = max(end, self.highest.get(epoch, -1))
        else:
            assert verdict is Verdict.ILLEGAL_TRANSITION

    def _copies(self, epoch: int, offset: int) -> set[int]:
        return {
            one.id.id.int
            for one in self.all
            if self.states[one.id.id.int] is FINISHED
            for number, first, last in one.epoch_ranges()
            if number == epoch and first <= offset <= last
        }

    @invariant()
    def lookups_agree(self) -> None:
        for epoch in (0, 1):
            assert self.cache.highest_offset(epoch) == self.highest.get(epoch)
            for offset in range(52):
                copies = self._copies(epoch, offset)
                answer = found(self.cache, offset, epoch)
                assert answer in copies if answer is not None else True
                # Until something is deleted, what has a copy can be read.
                assert self.any_deleted or (answer is None) == (not copies)

    @invariant()
    def listings_agree(self) -> None:
        live = {number for number, state in self.states.items() if state is not DELETED}
        assert {one.int for one in self.cache.segments} == live
        for epoch in (0, 1):
            listed = self.cache.list_epoch(epoch)
            assert [one.start_offset for one in listed] == sorted(o.start_offset for o in listed)
            expected = {
                one.id.id.int
                for one in self.all
                if one.id.id.int in live and any(e == epoch for e, _ in one.leader_epochs)
            }
            assert {one.id.id.int for one in listed} == expected


TestLineage = LineageMachine.TestCase
TestLineage.settings = settings(max_examples=examples(40), stateful_step_count=25)
