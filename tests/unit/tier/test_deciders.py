"""What to copy, what to expire, how to answer: the pure decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from ottla.log.retention import Hold
from ottla.objects.errors import RetriableRemoteError
from ottla.objects.store import ObjectInfo
from ottla.tier.catalogue.lineage import RemoteLogMetadataCache
from ottla.tier.errors import CorruptRemoteData, NotReady, OffsetNotRemote
from ottla.tier.reading.answers import (
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST_TIERED,
    OLDEST_VERSION,
    Offsets,
    ReadFrom,
    error_of,
    read_from,
    special_offset,
)
from ottla.tier.store.layout import segment_key
from ottla.tier.upkeep.copying import (
    Candidate,
    LocalSegment,
    clip_epochs,
    copy_metadata,
    first_remote_offset,
    highest_copied,
    segments_to_copy,
)
from ottla.tier.upkeep.expiring import (
    LocalRetention,
    LogView,
    Retention,
    decide_expiration,
    decide_local_retention,
    orphans,
    over_size,
    unknown_objects,
)
from ottla.tier.upkeep.validity import is_within_lineage
from ottla.wire.error_codes import ErrorCode
from tests.support.tiering import DELETING, FINISHED, STARTED, TIP, segment

if TYPE_CHECKING:
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata

NOW = 1_700_000_000_000
HOUR = 3_600_000
NO_LIMIT = Retention(-1, -1, 600_000)


def local(*bases: int, size: int = 10, timestamp: int = NOW) -> list[LocalSegment]:
    return [LocalSegment(base, size, timestamp, NOW) for base in bases]


def bases(candidates: list[Candidate]) -> list[int]:
    return [one.segment.base_offset for one in candidates]


def cache_of(*segments: RemoteLogSegmentMetadata) -> RemoteLogMetadataCache:
    cache = RemoteLogMetadataCache()
    for one in segments:
        cache.put(one)
    return cache


def view(
    *, log_start: int = 0, highest: int = -1, bases: tuple[int, ...] = (300,), end: int = 400
) -> LogView:
    return LogView([(0, 0)], log_start, end, end, highest, local(*bases))


@pytest.mark.parametrize(
    ("stable", "expected"), [(9, []), (10, [0]), (19, [0]), (20, [0, 10]), (99, [0, 10])]
)
def test_case_28_rolled_and_below_the_last_stable_offset(stable: int, expected: list[int]) -> None:
    found = segments_to_copy(local(0, 10, 20), copied=-1, log_start=0, last_stable_offset=stable)
    assert bases(found) == expected


@pytest.mark.parametrize(
    ("copied", "log_start", "expected"),
    [(-1, 0, [0, 10, 20]), (9, 0, [10, 20]), (9, 15, [10, 20]), (9, 20, [20]), (29, 0, [])],
)
def test_case_28_copies_go_on_where_the_last_ended(
    copied: int, log_start: int, expected: list[int]
) -> None:
    found = segments_to_copy(
        local(0, 10, 20, 30), copied=copied, log_start=log_start, last_stable_offset=30
    )
    assert bases(found) == expected


def test_case_30_a_segment_without_timestamps_is_as_old_as_its_file() -> None:
    candidate = Candidate(LocalSegment(0, 10, -1, NOW), 10)
    found = copy_metadata(TIP, candidate, [(0, 0)], segment_id=UUID(int=9), broker_id=1, now_ms=NOW)
    assert found.max_timestamp_ms == NOW
    cache = cache_of(segment(0, 9, state=FINISHED, max_timestamp=found.max_timestamp_ms))
    kept = decide_expiration(cache, view(), Retention(1000, -1, 0), in_flight=(), now_ms=NOW)
    assert kept.start == []


def test_epochs_are_clipped_to_the_segment() -> None:
    lineage = [(1, 0), (3, 15), (4, 18), (7, 30)]
    assert clip_epochs(lineage, 10, 20) == ((1, 10), (3, 15), (4, 18))
    assert clip_epochs(lineage, 18, 30) == ((4, 18),)
    assert clip_epochs(lineage, 30, 31) == ((7, 30),)


def test_the_newest_epoch_says_how_far_copies_have_come() -> None:
    lineage = [(1, 0), (3, 15)]
    # The last but one goes beyond the epoch's end here: the remote tail was truncated away.
    for known, expected in (({1: 9, 3: 19}, 19), ({1: 9}, 9), ({1: 40}, 14), ({}, -1)):
        highest: dict[int, int] = known
        assert highest_copied(lineage, lambda epoch, of=highest: of.get(epoch)) == expected  # type: ignore[misc]  # the default binds the loop's value
    cache = cache_of(segment(20, 29, epochs={3: 20}, state=FINISHED))
    assert first_remote_offset(lineage, cache.list_epoch) == 20
    assert first_remote_offset([], cache.list_epoch) is None
    assert highest_copied([], cache.highest_offset) == -1  # a log without a record has no epoch


@pytest.mark.parametrize(
    ("epochs", "start", "end", "expected"),
    [
        ({2: 10}, 10, 19, True),
        ({2: 5}, 5, 19, True),  # the lineage's first epoch may be cut
        ({2: 15, 4: 20}, 15, 29, True),
        ({1: 0, 2: 10}, 0, 19, True),  # epochs before the lineage say nothing
        ({4: 25}, 25, 29, True),
        ({4: 18}, 18, 29, False),  # before the epoch began
        ({2: 10}, 10, 20, False),  # into the next epoch
        ({2: 10, 3: 15}, 10, 19, False),  # an epoch that never was
        ({2: 10, 4: 21}, 10, 29, False),
        ({2: 15, 6: 30}, 15, 35, False),  # epoch 4 is left out
        ({6: 30}, 30, 40, False),  # past the end of the log
        ({7: 30}, 30, 35, False),
        ({1: 0}, 0, 5, False),
        ({2: 10, 3: 20, 4: 20}, 10, 29, True),  # epoch 3 wrote nothing
    ],
)
def test_lineage(epochs: dict[int, int], start: int, end: int, expected: bool) -> None:
    lineage = [(2, 10), (4, 20), (6, 30)]
    assert is_within_lineage(segment(start, end, epochs=epochs), lineage, 40) is expected


def test_case_38_time_retention_is_strict() -> None:
    for age, expected in ((1000, 0), (1001, 1)):
        cache = cache_of(segment(0, 99, state=FINISHED, max_timestamp=NOW - age))
        found = decide_expiration(
            cache, view(highest=99), Retention(1000, -1, 0), in_flight=(), now_ms=NOW
        )
        assert len(found.start) == expected
        assert found.log_start == expected * 100


def three(size: int = 10) -> RemoteLogMetadataCache:
    return cache_of(
        *(segment(n * 100, n * 100 + 99, number=n + 2, state=FINISHED, size=size) for n in range(3))
    )


def test_case_39_size_retention_deletes_whole_segments() -> None:
    log = view(highest=299, bases=())
    found = decide_expiration(three(), log, Retention(-1, 15, 0), in_flight=(), now_ms=NOW)
    assert [one.start_offset for one in found.start] == [0]
    assert found.log_start == 100


@pytest.mark.parametrize(
    ("hold", "expected"),
    [
        (None, [0, 100, 200]),
        (Hold(150, 100), [0]),
        (Hold(300, 100), [0, 100, 200]),
        (Hold(0, 40), []),
        (Hold(0, 30), [0]),
        (Hold(150, 20), [0, 100]),
    ],
)
def test_what_is_held_stays_while_it_fits(hold: Hold | None, expected: list[int]) -> None:
    """`tables.md`, case 66: 40 bytes, the last 10 of them on the local disk alone."""
    retention = Retention(0, -1, 0, hold)
    found = decide_expiration(three(), view(highest=299), retention, in_flight=(), now_ms=NOW * 2)
    assert [one.start_offset for one in found.start] == expected
    assert found.log_start == 100 * len(expected)


def test_case_40_an_unseeded_highest_offset_does_not_delete_live_data() -> None:
    # All three are local as well; counted twice they would be over the limit.
    log = view(highest=-1, bases=(0, 100, 200, 300))
    assert over_size(three(), log, 40) == 0
    found = decide_expiration(three(), log, Retention(-1, 40, 0), in_flight=(), now_ms=NOW)
    assert found.start == []


def test_case_41_copies_in_flight_stop_everything() -> None:
    cache = three()
    log = view(highest=299)
    found = decide_expiration(
        cache, log, Retention(0, -1, 0), in_flight={UUID(int=3)}, now_ms=NOW * 2
    )
    assert [one.start_offset for one in found.start] == [0]


@pytest.mark.parametrize(("age", "finished"), [(599_999, 0), (600_000, 1)])
def test_case_41_a_begun_deletion_is_finished_after_its_grace(age: int, finished: int) -> None:
    cache = cache_of(segment(0, 99, state=DELETING, event_timestamp=NOW - age))
    found = decide_expiration(cache, view(log_start=100), NO_LIMIT, in_flight=(), now_ms=NOW)
    assert (len(found.start), len(found.finish)) == (0, finished)


def test_case_42_what_lies_before_the_log_start_goes() -> None:
    found = decide_expiration(
        three(), view(log_start=200, highest=299), NO_LIMIT, in_flight=(), now_ms=NOW
    )
    assert [one.start_offset for one in found.start] == [0, 100]
    assert found.log_start == 200


def test_segments_of_epochs_left_behind_go() -> None:
    log = LogView([(5, 300)], 300, 400, 400, -1, local(300))
    found = decide_expiration(three(), log, NO_LIMIT, in_flight={UUID(int=4)}, now_ms=NOW)
    assert [one.start_offset for one in found.start] == [0, 100]
    assert found.log_start == 300


def test_retention_never_passes_the_high_watermark() -> None:
    log = LogView([(0, 0)], 0, 150, 400, 299, local(300))
    found = decide_expiration(three(), log, Retention(0, -1, 0), in_flight=(), now_ms=NOW * 2)
    assert found.log_start == 150


def test_case_54_orphans() -> None:
    old, young = NOW - HOUR - 1, NOW - HOUR
    cache = cache_of(
        segment(0, 9, number=2, state=STARTED, event_timestamp=old),
        segment(0, 9, number=3, state=STARTED, event_timestamp=young),
        segment(0, 9, number=4, state=STARTED, event_timestamp=old),
        segment(0, 99, number=5, state=FINISHED, event_timestamp=old),
        segment(0, 49, number=6, state=FINISHED, event_timestamp=old),
        segment(100, 120, number=7, state=DELETING, event_timestamp=old),
    )
    found = orphans(cache, in_flight={UUID(int=4)}, now_ms=NOW, age_ms=HOUR)
    assert [one.id.id.int for one in found] == [2, 6]


def test_case_54_a_finished_copy_that_nothing_stands_in_for_stays() -> None:
    whole = segment(0, 99, number=5, state=FINISHED, event_timestamp=0)
    part = segment(0, 49, number=6, state=FINISHED, event_timestamp=0)
    cache = cache_of(whole, part, segment(0, 99, number=5, state=DELETING, event_timestamp=0))
    assert orphans(cache, in_flight=(), now_ms=NOW, age_ms=HOUR) == []


def test_case_54_the_scrub_takes_old_unknown_segments_only() -> None:
    week = 7 * 24 * HOUR
    known, unknown = segment(0, 9, number=2), segment(0, 9, number=3)

    def info(one: RemoteLogSegmentMetadata, suffix: str, age: int) -> ObjectInfo:
        return ObjectInfo(segment_key("p/", one, suffix), 1, None, NOW - age)

    objects = [
        info(known, ".log", week + 1),
        info(unknown, ".log", week + 1),
        info(unknown, ".log.1a2b3c4d.tmp", week + 1),
        info(unknown, ".meta", week),
        ObjectInfo("p/somebody/elses.log", 1, None, 0),
    ]
    found = unknown_objects(objects, {known.id.id}, now_ms=NOW, age_ms=week)
    assert found == [objects[1].key, objects[2].key]


@pytest.mark.parametrize(
    ("highest", "log_start", "expected"), [(-1, 0, 0), (9, 0, 1), (19, 0, 2), (-1, 10, 1)]
)
def test_case_34_only_what_is_copied_leaves_the_disk(
    highest: int, log_start: int, expected: int
) -> None:
    log = LogView([(0, 0)], log_start, 25, 25, highest, local(0, 10, 20, timestamp=NOW - 9))
    for limits in ({"retention_ms": 5, "retention_bytes": -1},):
        found = decide_local_retention(log, **limits, now_ms=NOW)
        assert found.segments == expected
    assert decide_local_retention(log, retention_ms=-1, retention_bytes=-1, now_ms=NOW) == (
        min(expected, log_start // 10),
        False,
    )


def test_case_34_local_size() -> None:
    log = LogView([(0, 0)], 0, 25, 25, 19, local(0, 10, 20))
    for limit, expected in ((30, 0), (20, 1), (15, 1), (10, 2)):
        found = decide_local_retention(log, retention_ms=-1, retention_bytes=limit, now_ms=NOW)
        assert found == LocalRetention(expected, roll_active=False)


def test_an_old_active_segment_is_rolled_so_that_it_can_be_copied() -> None:
    log = LogView([(0, 0)], 0, 25, 25, 19, local(0, 10, 20, timestamp=NOW - 9))
    found = decide_local_retention(log, retention_ms=5, retention_bytes=-1, now_ms=NOW)
    assert found == LocalRetention(2, roll_active=True)


def test_case_45_transient_faults_never_move_a_consumer() -> None:
    assert error_of(NotReady("x")) == ErrorCode.REPLICA_NOT_AVAILABLE
    assert error_of(OffsetNotRemote("x")) == ErrorCode.OFFSET_OUT_OF_RANGE
    for failure in (RetriableRemoteError("x"), CorruptRemoteData("x")):
        assert error_of(failure) == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("offset", "consumer", "follower"),
    [
        (9, ReadFrom.OUT_OF_RANGE, ReadFrom.OUT_OF_RANGE),
        (10, ReadFrom.REMOTE, ReadFrom.MOVED_TO_TIERED_STORAGE),
        (19, ReadFrom.REMOTE, ReadFrom.MOVED_TO_TIERED_STORAGE),
        (20, ReadFrom.LOCAL, ReadFrom.LOCAL),
        (30, ReadFrom.LOCAL, ReadFrom.LOCAL),
        (31, ReadFrom.OUT_OF_RANGE, ReadFrom.OUT_OF_RANGE),
    ],
)
def test_case_45_who_answers(offset: int, consumer: ReadFrom, follower: ReadFrom) -> None:
    offsets = Offsets(10, 20, 24, 30)
    assert read_from(offset, offsets, is_tiered=True, is_follower=False) is consumer
    assert read_from(offset, offsets, is_tiered=True, is_follower=True) is follower


@pytest.mark.parametrize(
    ("offsets", "is_tiered", "expected"),
    [
        (Offsets(0, 0, -1, 50), True, (0, -1, 0)),  # before any upload
        (Offsets(0, 0, 9, 50), True, (0, 9, 10)),  # after one
        (Offsets(0, 10, 9, 50), True, (10, 9, 10)),  # after local deletion
        (Offsets(20, 20, 9, 50), True, (20, 9, 20)),
        (Offsets(0, 10, -1, 50), True, (10, -1, -1)),  # not known yet
        (Offsets(5, 5, -1, 50), False, (5, -1, -1)),  # not tiered
    ],
)
def test_case_50_special_offsets(
    offsets: Offsets, is_tiered: bool, expected: tuple[int, int, int]
) -> None:
    asked = (EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
    assert tuple(special_offset(one, offsets, is_tiered=is_tiered) for one in asked) == expected
    assert OLDEST_VERSION[LATEST_TIERED] == 9
