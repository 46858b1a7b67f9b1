"""tier.reader: plans over real logs in a store, read without any broker."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa
import pytest

from ottla.log.index import OffsetIndex
from ottla.objects.errors import RemoteNotFound
from ottla.objects.local import LocalStore
from ottla.tier.catalogue.codec import encode_event
from ottla.tier.catalogue.event_log import InProcessMetadataEventLog
from ottla.tier.catalogue.placement import metadata_partition_for
from ottla.tier.errors import CorruptRemoteData
from ottla.tier.reader import (
    AmbiguousTopic,
    ListingSource,
    OffsetsExpired,
    RemoteReader,
    SegmentGone,
    TopicSource,
    read_split,
    reading,
    rebuild_catalogue,
)
from ottla.tier.reader.planning import MissingSegments
from ottla.tier.store.layout import META_SUFFIX
from ottla.tier.store.ranges import ByteRange, byte_range, cut
from ottla.tier.store.storage_manager import RemoteStorageManager
from ottla.wire.arrow import batches_to_arrow
from ottla.wire.batch import iter_batches
from tests.support.faulty_store import FaultyStore
from tests.support.tier_copies import put_file
from tests.support.tier_logs import NOW_MS, make_log, rolled
from tests.support.tiering import FINISHED, TIP, TOPIC_ID, becomes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ottla.log.partition import PartitionLog
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata
    from ottla.tier.reader import Plan


class Tiered:
    """A log, all of whose rolled segments are in a store and in a metadata log."""

    def __init__(self, log: PartitionLog, storage: RemoteStorageManager) -> None:
        self.log = log
        self.storage = storage
        self.events = InProcessMetadataEventLog(4)
        self.segments: list[RemoteLogSegmentMetadata] = []

    async def upload(self) -> None:
        partition = metadata_partition_for(*TIP.identity, self.events.partition_count)
        for metadata, data in rolled(self.log):
            custom = await self.storage.copy_log_segment_data(metadata, data)
            update = replace(
                becomes(metadata, FINISHED, custom), event_timestamp_ms=metadata.event_timestamp_ms
            )
            await self.events.publish(partition, encode_event(metadata))
            await self.events.publish(partition, encode_event(update))
            self.segments.append(metadata.after(update))

    def listing(self) -> RemoteReader:
        return RemoteReader(self.storage, ListingSource(self.storage))

    def topic(self) -> RemoteReader:
        return RemoteReader(self.storage, TopicSource(self.events, {TIP.topic: TOPIC_ID}))

    def local(self, first: int, end: int, *, committed: bool) -> pa.Table:
        """The same rows, from the files on disk."""
        data = b"".join(s.storage.read_file(s.path(".log")) for s in self.log.segments)
        aborted = [
            (one.producer_id, one.first_offset)
            for one in self.log.aborted_transactions(0, self.log.log_end_offset)
        ]
        rows = batches_to_arrow(
            data, TIP.topic, TIP.partition,
            start_offset=first, end_offset=end, aborted=aborted if committed else (),
        )  # fmt: skip
        return pa.Table.from_batches([rows])


@pytest.fixture
async def tiered(tmp_path: Path) -> AsyncIterator[Tiered]:
    log = make_log(tmp_path / "log", batches=120, epochs=3, aborts=True)
    storage = RemoteStorageManager(LocalStore(tmp_path / "store"), "some/where/", "cluster-1")
    found = Tiered(log, storage)
    await found.upload()
    assert len(found.segments) > 3
    yield found
    log.close()


async def rows_of(reader: RemoteReader, plan: Plan) -> pa.Table:
    found = [rows async for rows in reader.read(plan)]
    return pa.Table.from_batches(found) if found else pa.table({})


@pytest.mark.parametrize("part_bytes", [90, 500, reading.PART_BYTES])
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_all_rows_are_those_of_the_files(
    tiered: Tiered, isolation: str, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the bytes of a split are cut: batches are larger than the smallest parts."""
    monkeypatch.setattr(reading, "PART_BYTES", part_bytes)
    committed = isolation == "read_committed"
    reader = tiered.listing()
    plan = await reader.plan(TIP.topic, TIP.partition, isolation_level=isolation, split_bytes=1000)  # type: ignore[arg-type]  # one of the two
    end = tiered.segments[-1].end_offset + 1
    assert (plan.start_offset, plan.end_offset) == (0, end)
    assert len(plan.splits) > len(plan.segments)
    assert await rows_of(reader, plan) == tiered.local(0, end, committed=committed)


async def test_any_range_of_offsets(tiered: Tiered) -> None:
    reader = tiered.topic()
    end = tiered.segments[-1].end_offset + 1
    draw = random.Random(1)
    for _ in range(40):
        first, last = sorted(draw.randrange(end) for _ in range(2))
        plan = await reader.plan(
            TIP.topic, TIP.partition, start_offset=first, end_offset=last + 1, split_bytes=700
        )
        found = await rows_of(reader, plan)
        expected = tiered.local(first, last + 1, committed=True)
        assert found.num_rows == expected.num_rows
        assert found == expected or not expected.num_rows


async def test_times_stand_for_offsets(tiered: Tiered) -> None:
    reader = tiered.listing()
    everything = tiered.local(0, tiered.segments[-1].end_offset + 1, committed=False)
    times = [value.value // 1000 for value in everything["timestamp"]]
    offsets = everything["offset"].to_pylist()
    for number in (0, 1, 57, 90):
        at = NOW_MS + number * 1000 + 1
        expected = next(offset for offset, t in zip(offsets, times, strict=True) if t >= at)
        plan = await reader.plan(
            TIP.topic, TIP.partition, start_timestamp_ms=at, isolation_level="read_uncommitted"
        )
        assert plan.start_offset == expected
    late = await reader.plan(TIP.topic, TIP.partition, start_timestamp_ms=NOW_MS * 2)
    assert late.splits == ()
    early = await reader.plan(TIP.topic, TIP.partition, end_timestamp_ms=0)
    assert early.splits == ()


async def test_case_55_a_log_without_meta_is_no_segment(tiered: Tiered) -> None:
    last = tiered.segments[-1]
    await tiered.storage.store.delete(tiered.storage.key(last, META_SUFFIX))
    plan = await tiered.listing().plan(TIP.topic, TIP.partition, isolation_level="read_uncommitted")
    assert plan.end_offset == last.start_offset


async def test_case_57_topic_and_listing_give_the_same_plan(tiered: Tiered) -> None:
    plans = [
        await reader.plan(TIP.topic, TIP.partition, start_offset=7, split_bytes=900)
        for reader in (tiered.topic(), tiered.listing())
    ]
    assert plans[0].splits == plans[1].splits
    assert [one[:-1] for one in plans[0].segments] == [one[:-1] for one in plans[1].segments]
    found = await ListingSource(tiered.storage).find(TIP.topic, TIP.partition, TOPIC_ID)
    cache = rebuild_catalogue(found.segments).cache(TIP)
    for one in tiered.segments:
        for epoch, first, last in one.epoch_ranges():
            assert cache.find(epoch, first) == cache.find(epoch, last) == one


async def test_case_58_a_deleted_object_means_a_new_plan_or_a_loud_end(tiered: Tiered) -> None:
    reader = tiered.listing()
    plan = await reader.plan(TIP.topic, TIP.partition)
    await tiered.storage.delete_log_segment_data(tiered.segments[0])
    with pytest.raises(OffsetsExpired):
        await rows_of(reader, plan)
    later = tiered.segments[1].start_offset
    plan = await reader.plan(TIP.topic, TIP.partition, start_offset=later)
    assert plan.log_start == later
    # Another copy of the same range, as a second leader makes it, takes over.
    victim = tiered.segments[2]
    for metadata, data in rolled(tiered.log, first_number=5000):
        if metadata.start_offset == victim.start_offset:
            await tiered.storage.copy_log_segment_data(metadata, data)
    await tiered.storage.delete_log_segment_data(victim)
    expected = tiered.local(later, plan.end_offset, committed=True)
    assert await rows_of(reader, plan) == expected


async def test_case_58_a_hole_is_loud(tiered: Tiered) -> None:
    reader = tiered.listing()
    plan = await reader.plan(TIP.topic, TIP.partition)
    await tiered.storage.delete_log_segment_data(tiered.segments[2])
    with pytest.raises(MissingSegments):
        await rows_of(reader, plan)


async def test_case_58_a_replaced_object_is_refused(tiered: Tiered, tmp_path: Path) -> None:
    plan = await tiered.listing().plan(TIP.topic, TIP.partition)
    split = plan.splits[1]
    other = tmp_path / "other"
    other.write_bytes(bytes(await tiered.storage.store.get_tail(split.key, 1 << 20)))
    await put_file(tiered.storage.store, split.key, other)
    with pytest.raises(SegmentGone):
        await read_split(tiered.storage.store, split)


@pytest.mark.parametrize("part_bytes", [500, reading.PART_BYTES])
async def test_case_58_damaged_or_short_bytes_are_refused(
    tiered: Tiered, tmp_path: Path, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PART_BYTES", part_bytes)
    plan = await tiered.listing().plan(TIP.topic, TIP.partition, isolation_level="read_uncommitted")
    split = plan.splits[1]._replace(etag=None)
    data = bytearray(await tiered.storage.store.get_tail(split.key, 1 << 20))
    other = tmp_path / "other"
    sizes = [batch.size for batch in iter_batches(memoryview(data))]
    for damaged in (
        data[:100] + bytes([data[100] ^ 1]) + data[101:],
        data[:-1],
        data[: -sizes[-1]],
        # The offset of a batch in the middle, which no CRC covers.
        data[: sizes[0] + 7] + bytes([data[sizes[0] + 7] ^ 0x40]) + data[sizes[0] + 8 :],
    ):
        other.write_bytes(damaged)
        await put_file(tiered.storage.store, split.key, other)
        for one in (split, split._replace(end=len(damaged))):
            with pytest.raises(CorruptRemoteData):
                await read_split(tiered.storage.store, one)


@pytest.mark.parametrize("part_bytes", [500, reading.PART_BYTES])
@pytest.mark.parametrize("fault", ["truncating", "corrupting"])
async def test_bytes_that_come_damaged_once_are_asked_for_again(
    tiered: Tiered, fault: str, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PART_BYTES", part_bytes)
    monkeypatch.setattr(reading, "PARTS_IN_FLIGHT", 1)  # so that it is the first one
    plan = await tiered.listing().plan(TIP.topic, TIP.partition, isolation_level="read_uncommitted")
    split = plan.splits[1]
    expected = tiered.local(split.first_offset, split.last_offset + 1, committed=False)
    store = FaultyStore(tiered.storage.store)
    setattr(store, fault, True)
    get_range = store.get_range

    async def once(key: str, start: int, end: int, *, etag: str | None = None) -> memoryview:
        found = await get_range(key, start, end, etag=etag)
        store.heal()
        return found

    monkeypatch.setattr(store, "get_range", once)
    assert pa.Table.from_batches(await read_split(store, split)) == expected
    assert store.log_reads == len(reading._parts(split)) + 1


async def test_a_transaction_that_ends_after_the_remote_part(tmp_path: Path) -> None:
    from ottla.log.producer_state import Origin
    from ottla.wire.records import ControlType
    from tests.support.log_batches import batch_of, marker

    log = make_log(tmp_path / "log", batches=20, segment_bytes=2000)
    first = log.append(
        batch_of(b"x" * 100, producer_id=9, epoch=0, sequence=0, transactional=True),
        leader_epoch=0,
        now_ms=NOW_MS,
    ).base_offset
    for _ in range(40):
        log.append(batch_of(b"y" * 100), leader_epoch=0, now_ms=NOW_MS)
    log.append(
        marker(ControlType.ABORT, 9, 0), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR
    )
    log.flush()
    log.advance_high_watermark(log.log_end_offset)
    storage = RemoteStorageManager(LocalStore(tmp_path / "store"), "", "c")
    tiered = Tiered(log, storage)
    await tiered.upload()
    reader = tiered.listing()
    assert tiered.segments[-1].end_offset > first
    assert (await reader.plan(TIP.topic, TIP.partition)).end_offset == first
    aborted = log.aborted_transactions(0, log.log_end_offset)
    plan = await reader.plan(TIP.topic, TIP.partition, tail_aborted=aborted)
    assert plan.end_offset == tiered.segments[-1].end_offset + 1
    assert await rows_of(reader, plan) == tiered.local(0, plan.end_offset, committed=True)
    log.close()


async def test_topics_that_cannot_be_told(tiered: Tiered) -> None:
    with pytest.raises(RemoteNotFound):
        await tiered.listing().plan("nothing", 0)
    with pytest.raises(RemoteNotFound):
        await tiered.topic().plan("nothing", 0)
    other = TIP._replace(topic_id=UUID(int=9))
    metadata, data = next(rolled(tiered.log, tip=other))
    await tiered.storage.copy_log_segment_data(metadata, data)
    with pytest.raises(AmbiguousTopic):
        await tiered.listing().plan(TIP.topic, TIP.partition)
    plan = await tiered.listing().plan(TIP.topic, TIP.partition, topic_id=TOPIC_ID)
    assert plan.tip == TIP


def test_case_56_ranges_hold_every_wanted_batch_and_splits_each_once() -> None:
    draw = random.Random(5)
    pairs = 0
    while pairs < 10_000:
        index, batches, base = OffsetIndex(), [], draw.randrange(1000)
        offset, position, last_indexed = base, 0, 0
        for _ in range(draw.randrange(1, 60)):
            last = offset + draw.randrange(4)
            size = draw.randrange(70, 400)
            if position - last_indexed > 500:
                index.append(last - base, position)
                last_indexed = position
            batches.append((offset, last, position, position + size))
            offset, position = last + 1, position + size
        for _ in range(200):
            pairs += 1
            a, b = sorted(draw.randrange(base, offset) for _ in range(2))
            found = byte_range(index, base, a, b, position)
            wanted = [one for one in batches if one[1] >= a and one[0] <= b]
            assert found.start <= wanted[0][2]
            assert found.end >= wanted[-1][3]
            starts = {one[2] for one in batches} | {position}
            assert {found.start, found.end} <= starts
            pieces = cut(index, found, draw.randrange(300, 3000))
            assert pieces[0].start == found.start
            assert pieces[-1].end == found.end
            for one, two in pairwise(pieces):
                assert one.end == two.start
                assert one.end in starts
                assert one.start < one.end


def test_a_range_without_an_index_is_the_whole() -> None:
    assert byte_range(OffsetIndex(), 0, 5, 9, 77) == ByteRange(0, 77)
    assert cut(OffsetIndex(), ByteRange(0, 77), 10) == [ByteRange(0, 77)]
