"""The share partition, case by case. The numbers are those of the cases in the contract for share
groups; what needs a broker is proved where the broker is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.sharing.partition import SharePartition
from ottla.sharing.values import (
    Ack,
    AcknowledgeType,
    AcquireMode,
    Archived,
    ArchiveReason,
    BadPersistedState,
    DeliverySettings,
    FetchTurn,
    LogBatch,
    PersistedState,
    RecordState,
    ShareError,
)
from ottla.wire.error_codes import ErrorCode
from tests.support.sharing_model import Store

if TYPE_CHECKING:
    from ottla.sharing.values import Acquisition, Write

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
STRICT = AcquireMode.RECORD_LIMIT
LOCK_MS = 30_000

Range = tuple[int, int, int]


class Driver:
    """A share partition with a log, a clock and a persister that takes every write."""

    def __init__(self, *log: LogBatch, start: int = 0, limit: int = 5, window: int = 2_000) -> None:
        self.log = list(log)
        self.settings = DeliverySettings(LOCK_MS, limit, window)
        self.store = Store(start)
        self.partition = SharePartition(self.settings, PersistedState(7, start))
        self.now = 0

    def fetch(
        self,
        member: str = "a",
        records: int = 500,
        *,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        batch_size: int = 500,
    ) -> list[Range]:
        return ranges(self.take(member, records, mode, batch_size))

    def take(self, member: str, records: int, mode: AcquireMode, batch_size: int) -> Acquisition:
        offset = self.partition.next_fetch_offset
        batches = [batch for batch in self.log if batch.last_offset >= offset]
        turn = FetchTurn(member, records, batch_size, mode)
        return self.partition.acquire(turn, offset, batches, self.now)

    def ack(self, member: str, *acks: tuple[int, int, AcknowledgeType]) -> Write | None:
        return self.done(self.begin(member, *acks))

    def begin(self, member: str, *acks: tuple[int, int, AcknowledgeType]) -> Write | None:
        return self.partition.acknowledge(member, [Ack(*ack) for ack in acks], self.now)

    def done(self, write: Write | None) -> Write | None:
        if write is not None:
            self.store.apply(write)
            self.partition.write_succeeded(write.write_id)
        return write

    def wait(self, ms: int = LOCK_MS) -> Write | None:
        self.now += ms
        return self.done(self.partition.tick(self.now))

    def refused(self, member: str, *acks: tuple[int, int, AcknowledgeType]) -> ErrorCode:
        before = self.partition.runs()
        with pytest.raises(ShareError) as caught:
            self.begin(member, *acks)
        assert self.partition.runs() == before
        return caught.value.code

    def restart(self) -> None:
        self.partition = SharePartition(self.settings, self.store.persisted())


def singles(count: int) -> list[LogBatch]:
    return [LogBatch(offset, offset) for offset in range(count)]


def ranges(got: Acquisition) -> list[Range]:
    return [(found.first_offset, found.last_offset, found.delivery_count) for found in got.ranges]


def states(write: Write | None) -> list[tuple[int, ...]]:
    return [] if write is None else [tuple(batch) for batch in write.batches]


def test_22_a_record_has_one_owner() -> None:
    d = Driver(LogBatch(0, 0))
    assert d.fetch("a") == [(0, 0, 1)]
    assert d.fetch("b") == []
    d.ack("a", (0, 0, RELEASE))
    assert d.fetch("b") == [(0, 0, 2)]


def test_23_released_records_come_again() -> None:
    d = Driver(LogBatch(0, 9))
    d.fetch("a")
    assert states(d.ack("a", (3, 4, RELEASE))) == [(3, 4, AVAILABLE, 1)]
    assert d.fetch("b") == [(3, 4, 2)]


def test_24_rejected_records_do_not() -> None:
    d = Driver(LogBatch(0, 9))
    d.fetch()
    write = d.ack("a", (0, 9, REJECT))
    assert states(write) == [(0, 9, ARCHIVED, 1)]
    assert write is not None
    assert write.archived == [Archived(0, 9, 1, ArchiveReason.REJECTED)]
    assert d.fetch() == []
    assert d.partition.start_offset == 10


def test_25_a_lock_ends_by_time() -> None:
    d = Driver(LogBatch(0, 9))
    d.fetch("a")
    assert d.partition.next_deadline() == LOCK_MS
    assert d.wait(LOCK_MS - 1) is None
    assert states(d.wait(1)) == [(0, 9, AVAILABLE, 1)]
    assert d.partition.next_deadline() is None
    assert d.refused("a", (0, 9, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    assert d.fetch("b") == [(0, 9, 2)]
    assert d.refused("a", (0, 9, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    d.ack("b", (0, 9, ACCEPT))


def test_26_accepting_twice() -> None:
    d = Driver(LogBatch(0, 9))
    d.fetch()
    d.ack("a", (5, 5, ACCEPT))
    assert d.refused("a", (5, 5, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    d.ack("a", (0, 4, ACCEPT))
    assert d.partition.start_offset == 6
    assert d.ack("a", (5, 5, ACCEPT)) is None
    assert states(d.ack("a", (4, 7, ACCEPT))) == [(6, 7, ACKNOWLEDGED, 1)]


def test_27_only_the_owner_acknowledges() -> None:
    d = Driver(*singles(3))
    d.fetch("a", 1)
    d.fetch("b", 1)
    assert d.refused("a", (0, 1, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    d.ack("a", (0, 0, ACCEPT))


def test_28_one_bad_range_refuses_all() -> None:
    d = Driver(LogBatch(0, 9))
    d.fetch()
    d.ack("a", (5, 5, ACCEPT))
    bad = d.refused("a", (0, 1, ACCEPT), (5, 5, ACCEPT), (7, 8, ACCEPT))
    assert bad is ErrorCode.INVALID_RECORD_STATE
    assert d.refused("a", (0, 1, ACCEPT), (1, 2, RELEASE)) is ErrorCode.INVALID_RECORD_STATE
    d.ack("a", (0, 1, ACCEPT), (7, 8, ACCEPT))


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_29_a_record_is_delivered_no_more_than_the_limit_says(limit: int) -> None:
    d = Driver(LogBatch(0, 0), LogBatch(1, 1), limit=limit)
    deliveries = []
    write = None
    for _ in range(limit):
        deliveries += d.fetch(records=1)
        write = d.wait()
    assert deliveries == [(0, 0, count) for count in range(1, limit + 1)]
    assert states(write) == [(0, 0, ARCHIVED, limit)]
    assert write is not None
    assert write.archived == [Archived(0, 0, limit, ArchiveReason.DELIVERY_LIMIT)]
    assert d.partition.start_offset == 1
    assert d.fetch() == [(1, 1, 1)]


def test_30_a_poisonous_record_ends_up_alone() -> None:
    """Offset 123 kills every consumer that sees it; the others accept all they get."""
    d = Driver(LogBatch(0, 499))
    sizes, accepted = [], set()
    while got := d.fetch():
        offsets = {offset for first, last, _ in got for offset in range(first, last + 1)}
        sizes.append(len(offsets))
        if 123 in offsets:
            d.done(d.partition.release("a", d.now))
        else:
            d.ack("a", *((first, last, ACCEPT) for first, last, _ in got))
            accepted |= offsets
    assert sizes[:4] == [500, 500, 500, 250]
    assert accepted == set(range(500)) - {123}
    assert d.partition.start_offset == 500


def test_30_nothing_else_comes_with_a_suspicious_batch() -> None:
    d = Driver(LogBatch(0, 1), LogBatch(2, 5), LogBatch(6, 6), limit=4)
    d.fetch("a", 2)
    d.fetch("b", 4)
    d.done(d.partition.release("b", d.now))
    d.fetch("b", 4)
    d.done(d.partition.release("b", d.now))
    d.done(d.partition.release("a", d.now))
    assert d.fetch("a") == [(0, 1, 2)]
    assert d.fetch("b") == [(2, 3, 3)]
    d.done(d.partition.release("b", d.now))
    assert d.fetch("b") == [(2, 2, 4)], "its last attempt"
    assert d.fetch("c") == [(3, 3, 4)]
    assert d.fetch("c") == [(4, 5, 3)]
    assert d.fetch("c") == [(6, 6, 1)]


def test_30_of_two_attempts_none_is_isolated() -> None:
    d = Driver(LogBatch(0, 9), limit=2)
    d.fetch()
    d.wait()
    assert d.fetch() == [(0, 9, 2)]


def test_31_a_stuck_record_fills_the_window() -> None:
    d = Driver(*singles(200), window=100)
    assert len(d.fetch("a", 1)) == 1
    assert d.fetch("b") == [(1, 99, 1)]
    d.ack("b", (1, 99, ACCEPT))
    assert not d.partition.can_acquire
    assert d.fetch("b") == []
    d.ack("a", (0, 0, ACCEPT))
    assert d.partition.can_acquire
    assert d.fetch("b") == [(100, 199, 1)]


def test_32_a_full_window_still_gives_what_was_released() -> None:
    d = Driver(*singles(200), window=100)
    d.fetch("a")
    d.ack("a", (50, 50, RELEASE))
    assert d.partition.can_acquire
    assert d.partition.next_fetch_offset == 50
    assert d.fetch("b") == [(50, 50, 2)]
    assert not d.partition.can_acquire


def test_33_a_limit_that_is_soft_or_strict() -> None:
    d = Driver(LogBatch(0, 9))
    assert d.fetch(records=3) == [(0, 9, 1)]
    d = Driver(LogBatch(0, 9))
    assert d.fetch("a", 3, mode=STRICT) == [(0, 2, 1)]
    assert d.fetch("b", 100, mode=STRICT) == [(3, 9, 1)]


def test_34_half_of_a_batch_again() -> None:
    d = Driver(LogBatch(0, 4), LogBatch(5, 9), LogBatch(10, 14))
    d.fetch(batch_size=1)
    d.ack("a", (0, 6, ACCEPT), (7, 9, RELEASE), (10, 14, ACCEPT))
    got = d.take("b", 500, AcquireMode.BATCH_OPTIMIZED, 500)
    assert ranges(got) == [(7, 9, 2)]
    assert (got.batches, got.records) == (range(1), 3), "of a read that began with 5..9"


def test_35_types_by_offset() -> None:
    d = Driver(LogBatch(0, 4))
    d.fetch()
    write = d.ack("a", (0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT), (3, 4, GAP))
    assert states(write) == [
        (0, 0, ACKNOWLEDGED, 1),
        (1, 1, AVAILABLE, 1),
        (2, 4, ARCHIVED, 1),
    ]
    assert write is not None
    assert [found.reason for found in write.archived] == [ArchiveReason.REJECTED, ArchiveReason.GAP]
    assert (d.partition.start_offset, d.partition.end_offset) == (1, 5)


def test_36_gaps_inside_a_batch_are_the_consumers_to_tell() -> None:
    d = Driver(LogBatch(0, 9))
    d.fetch()
    d.ack("a", (0, 3, ACCEPT), (4, 6, GAP), (7, 9, ACCEPT))
    assert d.partition.start_offset == 10


def test_36_gaps_between_batches_are_seen() -> None:
    d = Driver(LogBatch(0, 4), LogBatch(7, 9))
    assert d.fetch() == [(0, 4, 1), (7, 9, 1)]
    d.ack("a", (0, 4, ACCEPT))
    assert d.partition.start_offset == 7


def test_37_released_records_that_were_compacted_away() -> None:
    d = Driver(LogBatch(0, 4), LogBatch(5, 9))
    d.fetch()
    d.ack("a", (0, 4, RELEASE), (5, 9, ACCEPT))
    d.log = [LogBatch(12, 12)]
    assert d.fetch() == [(12, 12, 1)]
    assert d.partition.start_offset == 12


def test_38_a_marker_is_passed_by_itself() -> None:
    d = Driver(LogBatch(0, 4), LogBatch(5, 5, has_data=False))
    assert d.fetch() == [(0, 4, 1)]
    d.ack("a", (0, 4, ACCEPT))
    assert d.partition.start_offset == 6
    d.log.append(LogBatch(6, 6, has_data=False))
    assert d.fetch() == []
    assert d.partition.start_offset == 6 + 1
    d.restart()
    assert d.fetch() == []
    assert d.partition.start_offset == 7


def test_39_aborted_batches_are_cut_out() -> None:
    d = Driver(LogBatch(0, 4), LogBatch(5, 9, has_data=False), LogBatch(10, 14))
    got = d.take("a", 500, AcquireMode.BATCH_OPTIMIZED, 500)
    assert ranges(got) == [(0, 4, 1), (10, 14, 1)]
    assert (got.batches, got.records) == (range(3), 10)


def test_40_records_deleted_while_held() -> None:
    d = Driver(LogBatch(0, 9), LogBatch(10, 19))
    d.fetch("a", 1)
    d.partition.log_start_moved(5)
    assert d.partition.start_offset == 5
    d.partition.log_start_moved(3)
    assert d.partition.start_offset == 5
    assert states(d.ack("a", (0, 7, ACCEPT))) == [(5, 7, ACKNOWLEDGED, 1)]
    d.partition.log_start_moved(15)
    assert d.ack("a", (8, 9, ACCEPT)) is None
    assert d.partition.next_fetch_offset == 15
    assert d.fetch("b") == [(15, 19, 1)]
    assert d.partition.next_deadline() == LOCK_MS


def test_40_records_deleted_while_a_write_is_under_way() -> None:
    d = Driver(LogBatch(0, 9), LogBatch(10, 19))
    d.fetch(records=1)
    d.fetch("b")
    write = d.begin("a", (0, 9, ACCEPT))
    assert write is not None
    d.partition.log_start_moved(4)
    assert d.partition.write_failed(write.write_id, d.now) is None
    d.ack("a", (4, 9, ACCEPT))
    assert d.partition.start_offset == 10


def test_41_renewing() -> None:
    d = Driver(LogBatch(0, 9))
    d.fetch()
    d.wait(20_000)
    assert d.ack("a", (0, 4, RENEW)) is None
    assert states(d.wait(10_000)) == [(5, 9, AVAILABLE, 1)]
    assert d.partition.next_deadline() == 50_000
    assert states(d.ack("a", (0, 4, ACCEPT))) == [(0, 4, ACKNOWLEDGED, 1)]


def test_41_renewing_may_be_disabled() -> None:
    d = Driver(LogBatch(0, 9))
    d.fetch()
    d.partition.settings = DeliverySettings(renew_enabled=False)
    assert d.refused("a", (0, 4, RENEW)) is ErrorCode.INVALID_RECORD_STATE


def test_42_beyond_the_window() -> None:
    d = Driver(LogBatch(0, 9), LogBatch(10, 19))
    d.fetch(records=1)
    assert d.refused("a", (5, 10, ACCEPT)) is ErrorCode.INVALID_REQUEST
    assert d.refused("a", (100, 100, ACCEPT)) is ErrorCode.INVALID_REQUEST


def test_45_a_member_that_is_gone() -> None:
    d = Driver(*singles(3), limit=2)
    d.fetch("a", 1)
    d.fetch("b", 1)
    assert states(d.done(d.partition.release("a", d.now))) == [(0, 0, AVAILABLE, 1)]
    assert d.partition.release("a", d.now) is None
    assert d.fetch("c", 1) == [(0, 0, 2)]
    assert states(d.done(d.partition.release("c", d.now))) == [(0, 0, ARCHIVED, 2)]
    d.ack("b", (1, 1, ACCEPT))
    assert d.partition.start_offset == 2


def test_46_a_restart() -> None:
    d = Driver(LogBatch(0, 9))
    d.fetch()
    d.ack("a", (2, 3, ACCEPT), (5, 5, RELEASE))
    d.restart()
    assert d.fetch("b") == [(0, 1, 1), (4, 4, 1), (5, 5, 2), (6, 9, 1)]


def test_47_a_write_that_fails() -> None:
    d = Driver(LogBatch(0, 9))
    d.fetch()
    write = d.begin("a", (0, 4, ACCEPT))
    assert write is not None
    assert d.refused("a", (0, 4, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    assert d.fetch("b") == []
    assert d.partition.write_failed(write.write_id, d.now) is None
    again = d.begin("a", (0, 4, ACCEPT))
    assert again is not None
    d.now = LOCK_MS
    ended = d.partition.tick(d.now)
    assert states(ended) == [(5, 9, AVAILABLE, 1)]
    assert states(d.partition.write_failed(again.write_id, d.now)) == [(0, 4, AVAILABLE, 1)]
    assert d.fetch("b") == [(0, 9, 2)]


def test_47_at_the_limit_what_times_out_during_a_failing_write_is_archived() -> None:
    d = Driver(LogBatch(0, 0), limit=1)
    d.fetch()
    write = d.begin("a", (0, 0, ACCEPT))
    assert write is not None
    ended = d.partition.write_failed(write.write_id, LOCK_MS)
    assert states(ended) == [(0, 0, ARCHIVED, 1)]
    assert d.partition.start_offset == 1


def test_47_a_member_that_is_gone_while_its_write_fails() -> None:
    d = Driver(LogBatch(0, 9))
    d.fetch()
    write = d.begin("a", (0, 4, ACCEPT))
    assert write is not None
    assert states(d.partition.release("a", d.now)) == [(5, 9, AVAILABLE, 1)]
    assert states(d.partition.write_failed(write.write_id, d.now)) == [(0, 4, AVAILABLE, 1)]


def test_47_a_lock_that_ended_stays_ended_when_its_write_fails() -> None:
    d = Driver(LogBatch(0, 9))
    d.fetch()
    d.now = LOCK_MS
    write = d.partition.tick(d.now)
    assert write is not None
    assert d.fetch("b") == [(0, 9, 2)], "not held up by the write"
    assert d.partition.write_failed(write.write_id, d.now) is None
    d.ack("b", (0, 9, ACCEPT))


def test_49_a_write_names_the_state_epoch_and_the_start_it_was_made_at() -> None:
    d = Driver(LogBatch(3, 9), start=3)
    assert d.partition.start_write()[1:] == (7, 3, 0, [], [])
    d.fetch()
    first, second = d.ack("a", (3, 4, ACCEPT)), d.ack("a", (5, 5, ACCEPT))
    assert first is not None
    assert second is not None
    assert (first.state_epoch, first.start_offset, second.start_offset) == (7, 3, 5)
    assert first.write_id < second.write_id


def test_50_a_hole_in_what_was_persisted() -> None:
    partition = SharePartition(
        DeliverySettings(), PersistedState(0, 10, [(21, 30, ACKNOWLEDGED, 1)])
    )
    assert (partition.next_fetch_offset, partition.end_offset) == (10, 31)
    got = partition.acquire(FetchTurn("a", 500, 500), 10, [LogBatch(0, 40)], 0)
    assert ranges(got) == [(10, 20, 1), (31, 40, 1)]
    write = partition.acknowledge("a", [Ack(10, 20, ACCEPT)], 0)
    assert write is not None
    partition.write_succeeded(write.write_id)
    assert partition.start_offset == 31


@pytest.mark.parametrize(
    "batch",
    [
        (9, 12, 0, 1),
        (12, 11, 0, 1),
        (10, 12, 1, 1),
        (10, 12, 3, 1),
        (10, 12, 9, 1),
        (10, 12, 0, -1),
    ],
)
def test_what_cannot_be_loaded(batch: tuple[int, int, int, int]) -> None:
    with pytest.raises(BadPersistedState):
        SharePartition(DeliverySettings(), PersistedState(0, 10, [batch]))


def test_batches_that_overlap_cannot_be_loaded() -> None:
    with pytest.raises(BadPersistedState):
        SharePartition(DeliverySettings(), PersistedState(0, 0, [(0, 5, 0, 1), (5, 6, 0, 1)]))


def test_59_what_is_complete_out_of_order() -> None:
    d = Driver(LogBatch(40, 99), start=40)
    d.fetch()
    write = d.ack("a", (50, 59, ACCEPT))
    assert write is not None
    assert (write.start_offset, write.delivery_complete_count) == (40, 10)
    assert d.partition.delivery_complete_count == 10
    write = d.ack("a", (40, 40, REJECT), (41, 41, RELEASE))
    assert write is not None
    assert write.delivery_complete_count == 11
    assert d.partition.delivery_complete_count == 10, "the start has passed one of them"


def test_in_flight_batches_end_with_log_batches() -> None:
    d = Driver(*(LogBatch(first, first + 9) for first in range(0, 100, 10)))
    assert d.fetch(batch_size=25) == [(0, 29, 1), (30, 59, 1), (60, 89, 1), (90, 99, 1)]
    d.ack("a", (0, 99, RELEASE))
    assert d.fetch("b", 1) == [(0, 29, 2)], "taken whole"
    assert d.fetch("b", 7, mode=STRICT) == [(30, 36, 2)]


def test_a_batch_is_split_only_where_its_records_differ() -> None:
    d = Driver(LogBatch(0, 9_999), window=10_000)
    d.fetch(records=10_000)
    assert len(d.partition.runs()) == 1
    d.ack("a", (5_000, 5_000, ACCEPT))
    assert len(d.partition.runs()) == 3
    d.ack("a", (4_000, 4_999, ACCEPT), (5_001, 6_000, ACCEPT))
    assert len(d.partition.runs()) == 3
    d.wait()
    assert [(run.first, run.last, run.condition.state) for run in d.partition.runs()] == [
        (0, 3_999, RecordState.AVAILABLE),
        (4_000, 6_000, RecordState.ACKNOWLEDGED),
        (6_001, 9_999, RecordState.AVAILABLE),
    ]


def test_a_lower_limit_applies_when_a_delivery_ends() -> None:
    d = Driver(LogBatch(0, 0))
    for _ in range(3):
        d.fetch()
        d.wait()
    d.partition.settings = DeliverySettings(LOCK_MS, delivery_count_limit=2)
    assert d.fetch() == [(0, 0, 4)]
    assert states(d.ack("a", (0, 0, RELEASE))) == [(0, 0, ARCHIVED, 4)]


def test_a_read_beyond_the_window_is_a_mistake() -> None:
    d = Driver(LogBatch(0, 9))
    with pytest.raises(ValueError, match="beyond the window's end at 0"):
        d.partition.acquire(FetchTurn("a", 1, 1), 5, [LogBatch(5, 9)], 0)


def test_locks_of_one_moment_end_together_wherever_they_are() -> None:
    d = Driver(LogBatch(0, 9))
    d.fetch("a")
    d.ack("a", (0, 1, RELEASE), (8, 9, RELEASE))
    d.wait(1)
    d.ack("a", (4, 5, RENEW))
    assert d.fetch("b") == [(0, 1, 2), (8, 9, 2)]
    assert states(d.wait(LOCK_MS - 1)) == [(2, 3, AVAILABLE, 1), (6, 7, AVAILABLE, 1)]
    assert states(d.wait(1)) == [(0, 1, AVAILABLE, 2), (4, 5, AVAILABLE, 1), (8, 9, AVAILABLE, 2)]


def test_locks_that_end_in_one_tick_are_written_by_offset() -> None:
    d = Driver(LogBatch(0, 9))
    d.fetch("a")
    d.wait(1)
    d.ack("a", (0, 3, RENEW))
    assert states(d.wait()) == [(0, 9, AVAILABLE, 1)]


def test_the_rest_of_a_batch_is_taken_whole() -> None:
    d = Driver(LogBatch(0, 9))
    d.fetch()
    d.ack("a", (0, 3, ACCEPT), (4, 9, RELEASE))
    assert d.partition.start_offset == 4
    assert d.fetch(records=1) == [(4, 9, 2)]


def test_30_what_comes_before_a_suspicious_record_counts() -> None:
    d = Driver(LogBatch(0, 3), limit=6)
    d.fetch("a")
    for _ in range(2):
        d.ack("a", (2, 3, RELEASE))
        d.fetch("a")
    d.ack("a", (0, 3, RELEASE))
    assert d.fetch("b") == [(0, 1, 2)]
    assert d.fetch("b") == [(2, 3, 4)]


def test_in_flight_is_what_members_hold_until_a_write_settles_it() -> None:
    d = Driver(LogBatch(0, 9))
    d.fetch()
    assert d.partition.in_flight == 10
    write = d.begin("a", (0, 3, ACCEPT), (4, 5, RELEASE))
    assert d.partition.in_flight == 6
    d.done(write)
    assert d.partition.in_flight == 4
    d.wait()
    assert d.partition.in_flight == 0


def test_an_uncounted_release_takes_the_delivery_back() -> None:
    d = Driver(LogBatch(0, 9), limit=2)
    d.fetch("a")
    d.ack("a", (0, 9, RELEASE))
    for _ in range(3):
        # At the limit, where any other end without success gives records up.
        assert d.fetch("a") == [(0, 9, 2)]
        write = d.done(d.partition.acknowledge("a", [Ack(0, 9, RELEASE, True)], d.now))
        assert states(write) == [(0, 9, AVAILABLE, 1)]
        assert write is not None
        assert not write.archived
        d.restart()


def test_an_uncounted_release_whose_write_fails_is_the_owners_again() -> None:
    d = Driver(LogBatch(0, 9))
    d.fetch("a")
    write = d.partition.acknowledge("a", [Ack(0, 9, RELEASE, True)], d.now)
    assert write is not None
    d.partition.write_failed(write.write_id, d.now)
    assert d.fetch("b") == []
    d.ack("a", (0, 9, ACCEPT))
    assert d.partition.start_offset == 10
