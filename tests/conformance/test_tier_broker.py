"""Tiered storage through a broker: what leaves the local disk is read as if it had not.

Cases are numbered as in the specification; those that need no broker are in tests/unit/tier.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from ottla.broker.tiering.sweeps import SCRUB_AGE_MS
from ottla.log.checkpoints import encode_id
from ottla.log.producer_state import Origin
from ottla.tier.catalogue.rlmm import NotReadyRlmm
from ottla.tier.reading.answers import EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD, LATEST_TIERED
from ottla.tier.store import pacing
from ottla.wire.error_codes import ErrorCode
from ottla.wire.records import ControlType
from ottla.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.support.log_batches import batch_of, marker
from tests.support.raw_client import (
    EARLIEST,
    LATEST,
    RawClient,
    batches_of,
    fetch_request,
    values_of,
)
from tests.support.tiered_broker import (
    TierPlace,
    consume,
    eventually,
    share,
    tier_place,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.broker.running.node import Node
    from ottla.wire.batch import RecordBatch

ONE_SEGMENT = 1000  # records, as `TierPlace.fill` writes them


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TierPlace]:
    with tier_place(tmp_path_factory.mktemp("tier")) as place:
        yield place


@pytest.fixture
def place(shared: TierPlace) -> Iterator[TierPlace]:
    yield shared
    shared.faults.heal()


def test_case_43_every_reader_gets_what_was_produced(place: TierPlace) -> None:
    topic = place.topic()
    sent = place.cold(topic, 100)
    assert consume(place.broker.bootstrap, topic, len(sent)) == sent
    assert share(place.broker.bootstrap, topic, len(sent)) == sent


def test_case_43_the_batches_of_the_store_are_those_of_the_log(place: TierPlace) -> None:
    topic = place.topic(local_retention_bytes="-2")
    place.fill(topic)
    eventually(lambda: place.offset(topic, LATEST_TIERED) == 2 * ONE_SEGMENT - 1, "copies")
    local = place.client.fetch_one(topic, 130, partition_max_bytes=200_000)
    assert place.alter(topic, {"local.retention.bytes": "1"}) == 0
    eventually(lambda: place.offset(topic, EARLIEST_LOCAL) == 2 * ONE_SEGMENT, "local deletion")
    remote = place.client.fetch_one(topic, 130, partition_max_bytes=200_000)
    assert remote._replace(records=None) == local._replace(records=None)
    assert [one.data for one in batches_of(remote)] == [one.data for one in batches_of(local)]


# -- copying --------------------------------------------------------------------------------------


def test_case_28_rolled_segments_go_without_further_traffic_and_the_active_one_stays(
    place: TierPlace,
) -> None:
    topic = place.topic(local_retention_bytes="-2")
    place.fill(topic, 50)
    eventually(lambda: place.offset(topic, LATEST_TIERED) == 2 * ONE_SEGMENT - 1, "copies")
    assert len(place.keys(topic, ".log")) == len(place.keys(topic, ".meta")) == 2
    assert place.offset(topic, EARLIEST_PENDING_UPLOAD) == 2 * ONE_SEGMENT


def test_case_28_49_transactions_wait_for_their_end_and_aborts_are_told(place: TierPlace) -> None:
    """The abort of records in the first segment is recorded in a later one, or not copied yet."""
    topic = place.topic(local_retention_bytes="1")
    append(place, topic, batch_of(b"gone", producer_id=7, epoch=0, sequence=0, transactional=True))
    place.fill(topic, 30)
    assert place.offset(topic, LATEST) == 1501
    assert place.client.offset(topic, LATEST, isolation_level=1).offset == 0
    assert place.offset(topic, LATEST_TIERED) == -1
    append(place, topic, marker(ControlType.ABORT, 7, 0), Origin.COORDINATOR)
    eventually(lambda: place.offset(topic, EARLIEST_LOCAL) > 0, "the segment goes at last")
    for _ in range(2):
        found = place.client.fetch_one(topic, 0, isolation_level=1)
        aborted = {(one.producer_id, one.first_offset) for one in found.aborted_transactions or ()}
        assert aborted == {(7, 0)}
        assert values_of(found)[0] == b"gone"
        place.fill(topic, 30)  # the marker is copied, too
        eventually(lambda: place.offset(topic, LATEST_TIERED) > 1501, "the second segment goes")


def append(
    place: TierPlace, topic: str, batch: RecordBatch, origin: Origin = Origin.CLIENT
) -> None:
    async def run(node: Node) -> None:
        hosted = await node.partitions.open(topic, 0, write=True)
        hosted.log.append(batch, leader_epoch=hosted.leader_epoch, now_ms=1, origin=origin)
        hosted.advance(hosted.log.log_end_offset)

    place.broker._call(run)


def test_case_30_segments_without_times_are_not_too_old_at_once(place: TierPlace) -> None:
    topic = place.topic(retention_ms="600000")
    for _ in range(25):
        append(place, topic, batch_of(*[b"v" * 1000] * 50, timestamps=[-1] * 50))
    eventually(lambda: place.offset(topic, LATEST_TIERED) > 0, "copies")
    assert place.counted("delete_requests", topic) == 0
    assert place.offset(topic, EARLIEST) == 0


def test_case_31_a_store_that_was_down_gets_another_copy(place: TierPlace) -> None:
    topic = place.topic()
    place.faults.down = True
    sent = place.fill(topic)
    eventually(lambda: place.counted("copy_errors", topic) > 0, "copies fail")
    assert f"{topic}-0" in place.tiering.errors()
    place.faults.heal()
    eventually(lambda: place.offset(topic, EARLIEST_LOCAL) == ONE_SEGMENT, "copies after all")
    assert consume(place.broker.bootstrap, topic, len(sent)) == sent
    eventually(lambda: f"{topic}-0" not in place.tiering.errors(), "nothing is wrong any more")


def test_case_31_a_store_that_refuses_keeps_nothing_and_loses_nothing(place: TierPlace) -> None:
    place.faults.refusing = True
    topic = place.topic()
    sent = place.fill(topic)
    eventually(lambda: place.counted("copy_errors", topic) > 1, "copies fail")
    assert place.offset(topic, EARLIEST_LOCAL) == 0
    assert any("refuses" in error for error in place.tiering.errors().values())
    assert consume(place.broker.bootstrap, topic, len(sent)) == sent
    place.faults.heal()
    eventually(lambda: place.offset(topic, EARLIEST_LOCAL) == ONE_SEGMENT, "copies after all")
    assert consume(place.broker.bootstrap, topic, len(sent)) == sent


def test_case_31_a_slow_store_holds_nobody_up(place: TierPlace) -> None:
    topic = place.topic()
    place.faults.delay = 2.0
    sent = place.fill(topic)
    assert consume(place.broker.bootstrap, topic, len(sent)) == sent
    sent += place.fill(topic)
    assert consume(place.broker.bootstrap, topic, len(sent)) == sent
    place.faults.heal()
    eventually(lambda: place.offset(topic, EARLIEST_LOCAL) > 0, "copies after all")
    assert consume(place.broker.bootstrap, topic, len(sent)) == sent


def test_case_32_more_custom_metadata_than_allowed(tmp_path: Path) -> None:
    limit = {"remote.log.metadata.custom.metadata.max.bytes": "10"}
    with tier_place(tmp_path, limit) as place:
        topic = place.topic()
        sent = place.fill(topic)
        eventually(lambda: place.counted("copy_errors", topic) == 1, "the copy is undone")
        eventually(lambda: not place.keys(topic), "no objects are left")
        other = place.topic()
        place.fill(other)
        eventually(lambda: place.counted("copy_errors", other) == 1, "the next one as well")
        assert place.counted("copy_errors", topic) == 1
        assert consume(place.broker.bootstrap, topic, len(sent)) == sent


def test_case_33_the_copy_quota_holds(tmp_path: Path) -> None:
    quota = {"remote.log.manager.copy.max.bytes.per.second": "1"}
    with tier_place(tmp_path, quota) as place:
        topic = place.topic(local_retention_bytes="-2")
        place.fill(topic, 100)
        eventually(lambda: place.counted("copy_throttled", topic) > 0, "copies wait")
        assert len(place.keys(topic, ".meta")) == 1


# -- settings -------------------------------------------------------------------------------------


def test_case_35_a_read_only_tier(place: TierPlace) -> None:
    topic = place.topic()
    place.cold(topic)
    disabled = {
        "remote.log.copy.disable": "true",
        "local.retention.bytes": "-2",
        "retention.bytes": "2000000",
    }
    copied = 2 * ONE_SEGMENT - 1
    eventually(lambda: place.offset(topic, LATEST_TIERED) == copied, "copies")
    assert place.alter(topic, disabled) == 0
    place.fill(topic, 100)
    eventually(lambda: place.offset(topic, EARLIEST) > copied, "local deletion moves the start")
    assert place.offset(topic, LATEST_TIERED) <= copied


def test_case_36_switching_the_tier_off(place: TierPlace) -> None:
    topic = place.topic()
    sent = place.cold(topic)
    assert place.alter(topic, {"remote.storage.enable": "false"}) == ErrorCode.INVALID_CONFIG
    off = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
    assert place.alter(topic, off) == 0
    start = place.offset(topic, EARLIEST)
    assert start == ONE_SEGMENT
    assert place.client.fetch_one(topic, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    eventually(lambda: not place.keys(topic), "the objects go")
    # Tiered once more: what was remote before does not count as such.
    assert place.alter(topic, {"remote.storage.enable": "true"}) == 0
    place.fill(topic)
    eventually(lambda: place.offset(topic, EARLIEST_LOCAL) > start, "copied again")
    found = place.client.fetch_one(topic, start)
    assert list(values_of(found)) == sent[start : start + len(values_of(found))]


@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup.policy": "compact"},
        {"retention.ms": "1000", "local.retention.ms": "2000"},
        {"retention.ms": "1000", "local.retention.ms": "-1"},
        {"retention.bytes": "1000", "local.retention.bytes": "2000"},
        {"remote.log.copy.disable": "true", "local.retention.bytes": "5"},
    ],
)
def test_case_37_settings_that_do_not_go_together(
    place: TierPlace, configs: dict[str, str]
) -> None:
    topic = place.topic(local_retention_bytes="-2")
    assert place.alter(topic, configs) == ErrorCode.INVALID_CONFIG


def test_case_37_internal_topics_are_not_tiered(place: TierPlace) -> None:
    enable = {"remote.storage.enable": "true"}
    assert place.alter("__remote_log_metadata", enable) == ErrorCode.INVALID_CONFIG


# -- what goes ------------------------------------------------------------------------------------


def test_case_38_remote_segments_expire_by_time(tmp_path: Path) -> None:
    """Times are far in the past: everything that is rolled goes, the objects after their grace."""
    with tier_place(tmp_path, {"remote.delete.grace.ms": "0"}) as place:
        topic = place.topic()
        place.cold(topic, 100)
        assert place.alter(topic, {"retention.ms": "1000", "local.retention.ms": "-2"}) == 0
        eventually(lambda: place.offset(topic, EARLIEST) == 4 * ONE_SEGMENT, "the start moves")
        eventually(lambda: not place.keys(topic), "the objects go")
        assert place.client.fetch_one(topic, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_case_39_40_size_counts_no_byte_twice(tmp_path: Path) -> None:
    """What is local and remote is counted once, also by a broker that has just started."""
    grace = {"remote.delete.grace.ms": "0"}
    with tier_place(tmp_path, grace) as place:
        topic = place.topic(local_retention_bytes="-2", retention_bytes=str(5 * 1024 * 1024))
        place.fill(topic, 100)
        eventually(lambda: place.offset(topic, LATEST_TIERED) == 4 * ONE_SEGMENT - 1, "copies")
    with tier_place(tmp_path, grace) as place:
        eventually(lambda: place.tiering.manager is not None, "the catalogue is read")
        time.sleep(0.3)  # several rounds
        assert place.offset(topic, EARLIEST) == 0
        assert place.alter(topic, {"retention.bytes": "3800000"}) == 0
        eventually(lambda: place.offset(topic, EARLIEST) == ONE_SEGMENT, "one segment goes")
        eventually(lambda: len(place.keys(topic, ".log")) == 3, "with its objects")


def test_case_42_deleted_records_leave_the_store(tmp_path: Path) -> None:
    with tier_place(tmp_path, {"remote.delete.grace.ms": "0"}) as place:
        topic = place.topic()
        place.cold(topic, 100)

        async def delete(node: Node) -> None:
            hosted = node.partitions.find(topic, 0)
            hosted.log.delete_records_before(2500)

        place.broker._call(delete)
        eventually(lambda: len(place.keys(topic, ".log")) == 2, "two segments lie before")
        assert place.client.fetch_one(topic, 2499).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert batches_of(place.client.fetch_one(topic, 2500))[0].last_offset >= 2500


def test_case_53_a_deleted_topic_leaves_nothing(place: TierPlace) -> None:
    place.broker.delete_topic(place.topic())  # nothing of it was ever copied
    topic = place.topic()
    place.cold(topic)
    directory = next(place.store.glob(f"{topic}-*")) / "0"
    orphan = directory / f"{0:020d}-AAAAAAAAAAAAAAAAAAAAAg.log"
    orphan.write_bytes(b"of a copy that nobody finished")
    place.broker.delete_topic(topic)
    place.broker.create_topic(topic, configs={"remote.storage.enable": "true"})
    eventually(lambda: not place.keys(topic), "all objects go")
    eventually(lambda: not place.tiering.sweeps.pending(), "both deletions end")
    assert place.client.fetch_one(topic, 0).error_code == 0


def test_case_53_a_deletion_that_was_cut_off_is_finished(tmp_path: Path) -> None:
    with tier_place(tmp_path) as place:
        topic = place.topic()
        place.cold(topic)
        place.faults.down = True
        place.broker.delete_topic(topic)
        eventually(lambda: place.tiering.sweeps.error is not None, "the store is down")
        assert place.keys(topic)
    with tier_place(tmp_path) as place:
        eventually(lambda: not place.keys(topic), "the next life goes on")


# -- reading --------------------------------------------------------------------------------------


def test_case_54_the_scrub_removes_old_objects_of_no_segment(tmp_path: Path) -> None:
    with tier_place(tmp_path, {"remote.scrub.interval.ms": "1"}) as place:
        topic = place.topic()
        sent = place.cold(topic)
        (log, *_) = sorted(place.store.glob(f"{topic}-*/0/*.log"))
        week_ago = time.time() - SCRUB_AGE_MS / 1000 - 60
        old, young = (log.with_name(f"{0:020d}-{encode_id(uuid4())}.log") for _ in range(2))
        for path, age in ((old, week_ago), (young, time.time()), (log, week_ago)):
            if path is not log:
                path.write_bytes(b"of a copy that nobody finished")
            os.utime(path, (age, age))
        eventually(
            lambda: place.counted("unknown_objects_deleted", topic) == 1,
            "what is old and unknown goes",
        )
        assert (old.exists(), young.exists()) == (False, True)
        assert consume(place.broker.bootstrap, topic, len(sent)) == sent


def test_copies_go_on_however_busy_the_broker_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the slowest pace there is, since every waking of the loop counts as late."""
    monkeypatch.setattr(pacing, "BUSY_REQUESTS", 0.0)
    monkeypatch.setattr(pacing, "LATE", -1.0)
    with tier_place(tmp_path) as place:
        topic = place.topic()
        sent = place.cold(topic)
        assert place.tiering.pacer.pace.rate == pacing.FLOOR
        assert consume(place.broker.bootstrap, topic, len(sent)) == sent


def test_case_44_a_follower_is_told_where_the_offset_is(place: TierPlace) -> None:
    topic = place.topic()
    place.cold(topic)
    request = fetch_request({(topic, 0): 0})._replace(replica_id=1)
    found = place.client.fetch(request).responses[0].partitions[0]
    assert found.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE


def test_case_45_what_clients_are_told(place: TierPlace) -> None:
    topic = place.topic()
    sent = place.cold(topic)
    client = place.client
    assert client.fetch_one(topic, 3001).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    place.faults.down = True
    assert client.fetch_one(topic, 7).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert client.fetch_one(topic, 2500).error_code == 0
    assert place.counted("fetch_errors", topic) == 1
    assert "read: the store is down" in place.tiering.errors()[f"{topic}-0"]
    place.faults.heal()
    before = place.tiering.catalogue.swap(NotReadyRlmm())
    assert client.fetch_one(topic, 9).error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    place.tiering.catalogue.swap(before)
    assert list(values_of(client.fetch_one(topic, 0)))[9] == sent[9]
    eventually(lambda: f"{topic}-0" not in place.tiering.errors(), "nothing is wrong any more")


@pytest.mark.parametrize("fault", ["truncating", "corrupting"])
def test_case_45_damaged_bytes_are_never_served(place: TierPlace, fault: str) -> None:
    topic = place.topic()
    sent = place.cold(topic)
    setattr(place.faults, fault, True)
    assert place.client.fetch_one(topic, 5).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert place.counted("corrupt_remote_segments", topic) == 1
    assert "read: " in place.tiering.errors()[f"{topic}-0"]
    assert place.offset(topic, EARLIEST) == 0
    place.faults.heal()
    assert consume(place.broker.bootstrap, topic, len(sent)) == sent


@pytest.mark.parametrize("fault", ["down", "refusing", "truncating", "corrupting"])
def test_case_45_a_fault_on_the_way_costs_a_reader_nothing_but_time(
    place: TierPlace, fault: str
) -> None:
    """One that goes on where it ended, and so is served from what is read ahead."""
    topic = place.topic()
    sent = place.cold(topic)
    last = place.offset(topic, LATEST) - 1
    got: list[bytes | None] = []
    offset = faults = 0
    while len(got) < len(sent):
        answer = place.client.fetch_one(topic, offset, partition_max_bytes=10_000)
        if answer.error_code:
            assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert batches_of(place.client.fetch_one(topic, last)), "local data is served meanwhile"
            assert place.offset(topic, EARLIEST) == 0
            place.faults.heal()
            faults += 1
            continue
        for batch in batches_of(answer):
            offset = batch.next_offset
        if not got:
            setattr(place.faults, fault, True)
        got += values_of(answer)
    assert got == sent
    assert faults == 1


def test_case_46_cold_partitions_of_one_fetch(place: TierPlace) -> None:
    topic = place.topic(partitions=5)
    for partition in range(5):
        place.cold(topic, 45, partition=partition)
    offsets = {(topic, partition): 0 for partition in range(5)}
    request = fetch_request(offsets, partition_max_bytes=120_000)

    def read() -> bool:
        """A read that takes longer than remote.fetch.max.wait.ms comes with the next fetch."""
        rows = place.client.fetch(request).responses[0].partitions
        counts = [len(batches_of(row)) for row in rows]
        assert set(counts) <= {0, 2}
        return counts == [2] * 5

    eventually(read, "all five are read")
    # The first one is larger than its limit and comes whole, the others do not come.
    request = fetch_request(offsets, partition_max_bytes=1000)
    rows = place.client.fetch(request).responses[0].partitions
    assert [len(batches_of(row)) for row in rows] == [1, 0, 0, 0, 0]
    assert {row.error_code for row in rows} == {0}


def test_case_47_a_slow_store_serves_the_retry(tmp_path: Path) -> None:
    with tier_place(tmp_path) as place:  # of its own: nothing else is kept there
        topic = place.topic()
        place.cold(topic)
        eventually(
            lambda: bool(batches_of(place.client.fetch_one(topic, 0, partition_max_bytes=1))),
            "indexes are at hand",
        )
        place.faults.delay = 1.0
        before = place.faults.log_reads
        first = place.client.fetch_one(topic, 40)
        assert (first.error_code, batches_of(first)) == (0, [])
        eventually(lambda: place.tiering.reads.results.size > 0, "the answer comes, and is kept")
        assert batches_of(place.client.fetch_one(topic, 40))
        assert place.faults.log_reads == before + 1


def test_case_48_readers_and_their_queue_are_bounded(place: TierPlace) -> None:
    topic = place.topic()
    place.cold(topic)
    place.client.fetch_one(topic, 0, partition_max_bytes=1)
    place.faults.delay = 2.0
    clients = [RawClient(place.broker.bootstrap) for _ in range(111)]
    try:
        for number, client in enumerate(clients):
            client.send("fetch", 12, fetch_request({(topic, 0): number}, max_wait_ms=0))
        codes = [
            client.receive("fetch", 12)[1].responses[0].partitions[0].error_code
            for client in clients
        ]
    finally:
        for client in clients:
            client.close()
    assert codes.count(ErrorCode.UNKNOWN_SERVER_ERROR) == 1
    assert codes.count(0) == 110
    place.faults.heal()
    eventually(lambda: place.tiering.reads.pool.waiting == 0, "the others are served")


def test_a_fetch_quota_that_is_used_up_puts_reads_off(tmp_path: Path) -> None:
    quota = {"remote.log.manager.fetch.max.bytes.per.second": "1000"}
    with tier_place(tmp_path, quota) as place:
        topic = place.topic()
        place.cold(topic)
        eventually(lambda: bool(batches_of(place.client.fetch_one(topic, 0))), "it is read")
        found = place.client.fetch_one(topic, 500)
        assert (found.error_code, batches_of(found)) == (0, [])
        assert place.counted("fetch_throttled", topic) == 1


def test_case_50_special_offsets(place: TierPlace) -> None:
    topic = place.topic(local_retention_bytes="-2")
    special = (EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
    assert [place.offset(topic, one) for one in special] == [0, -1, 0]
    place.fill(topic, 30)
    eventually(lambda: place.offset(topic, LATEST_TIERED) == 999, "a copy")
    assert [place.offset(topic, one) for one in special] == [0, 999, 1000]
    place.alter(topic, {"local.retention.bytes": "1"})
    eventually(lambda: place.offset(topic, EARLIEST_LOCAL) == 1000, "local deletion")
    assert [place.offset(topic, one) for one in special] == [1000, 999, 1000]
    place.broker.create_topic(plain := f"{topic}-plain")
    assert [place.offset(plain, one) for one in special] == [0, -1, -1]
    old = place.client.offset(topic, LATEST_TIERED, version=8)
    assert old.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_case_51_offsets_by_time(place: TierPlace) -> None:
    """Record n has the time n + 1."""
    topic = place.topic()
    place.cold(topic)
    assert place.offset(topic, EARLIEST_LOCAL) == ONE_SEGMENT
    for timestamp, offset in ((0, 0), (1, 0), (778, 777), (1500, 1499), (3000, 2999), (3001, -1)):
        assert place.offset(topic, timestamp) == offset
    place.faults.delay = 60
    found = place.client.ask("list_offsets", 10, _by_time(topic, 500, timeout_ms=300))
    assert found.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert place.offset(topic, 1500) == 1499


def _by_time(topic: str, timestamp: int, *, timeout_ms: int) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(0, -1, timestamp)
    return ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [asked])], timeout_ms)


def test_a_share_group_waits_for_a_store_that_is_down(place: TierPlace) -> None:
    topic = place.topic()
    sent = place.cold(topic)
    place.faults.down = True
    healer = threading.Timer(1.5, place.faults.heal)
    healer.start()
    try:
        assert share(place.broker.bootstrap, topic, len(sent)) == sent
    finally:
        healer.join()
    assert place.counted("fetch_errors", topic) > 0
