"""Copies that are killed, fail or race; the index cache; reads of what was copied."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from ottla.log.checkpoints import encode_id
from ottla.tier.copier import CopyStep, CustomMetadataTooLarge, SegmentCopy, delete_segment
from ottla.tier.errors import (
    CorruptRemoteData,
    NotReady,
    OffsetNotRemote,
    RemoteStorageError,
    RetriableRemoteError,
    StaleSegmentState,
)
from ottla.tier.expiring import orphans
from ottla.tier.index_cache import RemoteIndexCache
from ottla.tier.layout import CustomMetadata, Section
from ottla.tier.partition_delete import delete_partition
from ottla.tier.remote_read import read_remote
from ottla.tier.rlmm import InMemoryRlmm, NotReadyRlmm
from ottla.tier.segments import (
    MetadataEvent,
    PartitionDeleteState,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from ottla.tier.storage_manager import RemoteStorageManager
from ottla.tier.store_local import LocalStore
from tests.support.tier_logs import NOW_MS, Rolled, make_log, rolled
from tests.support.tiering import DELETED, DELETING, FINISHED, STARTED, TIP, becomes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.log.partition import PartitionLog
    from ottla.tier.rlmm import RemoteLogMetadataManager

HOUR = 3_600_000
STEPS = [step for step in CopyStep if step is not CopyStep.DONE]


class Recording(InMemoryRlmm):
    """Remembers the states that were published."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[SegmentState] = []

    async def publish(self, event: MetadataEvent) -> None:
        await super().publish(event)
        assert not isinstance(event, RemotePartitionDeleteMetadata)
        self.states.append(event.state)


class FailingStore(LocalStore):
    """Fails when told to."""

    failure: Exception | None = None
    deletions_left = 1 << 30
    reads = 0

    async def delete(self, key: str) -> None:
        if self.deletions_left == 0:
            raise RetriableRemoteError("killed")
        self.deletions_left -= 1
        await super().delete(key)

    async def put_new(self, key: str, data: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        await super().put_new(key, data)

    async def get_range(
        self, key: str, start: int, end: int, *, etag: str | None = None
    ) -> memoryview:
        self.reads += 1
        await asyncio.sleep(0)
        return await super().get_range(key, start, end, etag=etag)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    made = make_log(tmp_path / "log", batches=120, epochs=3, aborts=True)
    yield made
    made.close()


@pytest.fixture
def storage(tmp_path: Path) -> RemoteStorageManager:
    return RemoteStorageManager(FailingStore(tmp_path / "store"), "", "cluster-1")


def failing(storage: RemoteStorageManager) -> FailingStore:
    assert isinstance(storage.store, FailingStore)
    return storage.store


def copy_of(
    one: Rolled, catalogue: RemoteLogMetadataManager, storage: RemoteStorageManager
) -> SegmentCopy:
    return SegmentCopy(catalogue, storage, one.metadata, one.data, clock_ms=lambda: NOW_MS)


async def keys(storage: RemoteStorageManager) -> list[str]:
    return [one.key async for one in storage.store.list("")]


async def copy_all(
    log: PartitionLog, catalogue: RemoteLogMetadataManager, storage: RemoteStorageManager
) -> None:
    for one in rolled(log):
        await copy_of(one, catalogue, storage).run()


async def test_a_copy_from_start_to_end(log: PartitionLog, storage: RemoteStorageManager) -> None:
    catalogue = Recording()
    one = next(rolled(log))
    copied = await copy_of(one, catalogue, storage).run()
    assert catalogue.states == [STARTED, FINISHED]
    assert catalogue.list_remote_log_segments(TIP) == [copied]
    assert copied.custom_metadata is not None
    assert len(await keys(storage)) == 2


@pytest.mark.parametrize("killed_before", STEPS)
async def test_case_31_killed_at_each_step(
    log: PartitionLog, storage: RemoteStorageManager, killed_before: CopyStep
) -> None:
    catalogue = Recording()
    first, second = next(rolled(log)), next(rolled(log, first_number=5000))
    dying = copy_of(first, catalogue, storage)
    while dying.next is not killed_before:
        await dying.step()
    # Nobody sees anything of it.
    metadata = first.metadata
    assert catalogue.remote_log_segment_metadata(TIP, 0, metadata.start_offset) is None
    # The next run copies again under a new id, and the sweep removes what was left.
    await copy_of(second, catalogue, storage).run()
    cache = catalogue.catalogue.cache(TIP)
    for orphan in orphans(cache, in_flight=(), now_ms=NOW_MS + HOUR + 1, age_ms=HOUR):
        await delete_segment(
            catalogue, storage, orphan, broker_id=5, clock_ms=lambda: NOW_MS + HOUR + 1
        )
    (left,) = catalogue.list_remote_log_segments(TIP)
    assert left.id == second.metadata.id
    assert len(await keys(storage)) == 2
    assert await storage.fetch_log_segment(left, 0) == second.data.log.read_bytes()


async def test_case_31_a_retriable_error_leaves_it_to_the_next_run(
    log: PartitionLog, storage: RemoteStorageManager
) -> None:
    catalogue = Recording()
    failing(storage).failure = RetriableRemoteError("away")
    with pytest.raises(RetriableRemoteError):
        await copy_of(next(rolled(log)), catalogue, storage).run()
    assert catalogue.states == [STARTED]
    failing(storage).failure = None
    await copy_of(next(rolled(log, first_number=5000)), catalogue, storage).run()
    assert catalogue.states == [STARTED, STARTED, FINISHED]


async def test_case_31_a_permanent_error_is_undone(
    log: PartitionLog, storage: RemoteStorageManager
) -> None:
    catalogue = Recording()
    failing(storage).failure = RemoteStorageError("refused")
    with pytest.raises(RemoteStorageError, match="refused"):
        await copy_of(next(rolled(log)), catalogue, storage).run()
    assert catalogue.states == [STARTED, DELETING, DELETED]
    assert await keys(storage) == []


async def test_case_32_custom_metadata_over_the_limit(
    log: PartitionLog, storage: RemoteStorageManager
) -> None:
    catalogue = Recording()
    one = next(rolled(log))
    copy = SegmentCopy(
        catalogue, storage, one.metadata, one.data, clock_ms=lambda: 0, max_custom_metadata=48
    )
    with pytest.raises(CustomMetadataTooLarge):
        await copy.run()
    assert catalogue.states == [STARTED, DELETING, DELETED]
    assert await keys(storage) == []


async def test_case_18_nothing_is_uploaded_without_a_catalogue(
    log: PartitionLog, storage: RemoteStorageManager
) -> None:
    with pytest.raises(NotReady):
        await copy_of(next(rolled(log)), NotReadyRlmm(), storage).run()
    assert await keys(storage) == []


async def test_a_copy_that_was_swept_meanwhile_does_not_come_back(
    log: PartitionLog, storage: RemoteStorageManager
) -> None:
    catalogue = Recording()
    one = next(rolled(log))
    zombie = copy_of(one, catalogue, storage)
    while zombie.next is not CopyStep.FINISH:
        await zombie.step()
    await catalogue.update_remote_log_segment_metadata(becomes(one.metadata, DELETING))
    with pytest.raises(StaleSegmentState):
        await zombie.run()
    assert catalogue.remote_log_segment_metadata(TIP, 0, 0) is None


@pytest.mark.parametrize("done", range(0, 24, 3))
async def test_case_53_a_partition_goes_with_all_its_objects(
    log: PartitionLog, storage: RemoteStorageManager, tmp_path: Path, done: int
) -> None:
    catalogue = InMemoryRlmm()
    await copy_all(log, catalogue, storage)
    recreated = TIP._replace(topic_id=UUID(int=99))
    for one in list(rolled(log, tip=recreated, first_number=9000))[:2]:
        await copy_of(one, catalogue, storage).run()
    orphan = next(rolled(log, first_number=7000))
    await storage.copy_log(orphan.metadata, orphan.data)

    async def delete() -> None:
        await delete_partition(catalogue, storage, TIP, broker_id=1, clock_ms=lambda: NOW_MS)

    store = failing(storage)
    store.deletions_left = done
    with suppress(RetriableRemoteError):
        await delete()
    store.deletions_left = 1 << 30
    await delete()
    await delete()
    assert catalogue.list_remote_log_segments(TIP) == []
    state = catalogue.catalogue.delete_state(TIP)
    assert state is PartitionDeleteState.DELETE_PARTITION_FINISHED
    assert catalogue.catalogue.tips() == [recreated]
    left = await keys(storage)
    assert len(left) == 4
    assert all(encode_id(recreated.topic_id) in key for key in left)


async def test_case_53_without_events_the_segments_go_all_the_same(
    log: PartitionLog, storage: RemoteStorageManager
) -> None:
    catalogue = Recording()
    await copy_all(log, catalogue, storage)
    await delete_partition(
        catalogue, storage, TIP, broker_id=1, clock_ms=lambda: NOW_MS, publish_events=False
    )
    assert await keys(storage) == []
    assert catalogue.catalogue.delete_state(TIP) is None


# The index cache


class Clock:
    now = 0

    def __call__(self) -> int:
        return self.now


def cache_on(
    directory: Path, storage: RemoteStorageManager, clock: Clock, max_bytes: int = 1 << 30
) -> RemoteIndexCache:
    return RemoteIndexCache(directory, storage, max_bytes=max_bytes, ttl_ms=900_000, clock_ms=clock)


async def test_case_52_one_download_for_many(
    log: PartitionLog, storage: RemoteStorageManager, tmp_path: Path
) -> None:
    catalogue, clock = InMemoryRlmm(), Clock()
    await copy_all(log, catalogue, storage)
    segments = catalogue.list_remote_log_segments(TIP)
    cache = cache_on(tmp_path / "cache", storage, clock)
    await cache.load()
    found = await asyncio.gather(*(cache.get(segments[0]) for _ in range(50)))
    assert failing(storage).reads == cache.misses == 1
    assert all(one is found[0] for one in found)
    expected = next(rolled(log)).data.offset_index.read_bytes()
    assert found[0].offsets.encode() == expected
    # A restart takes over whole sets and removes the rest.
    for one in segments[1:3]:
        await cache.get(one)
    (tmp_path / "cache" / "5_x.index.tmp").write_bytes(b"")
    (tmp_path / "cache" / "5_x.index.deleted").write_bytes(b"")
    next((tmp_path / "cache").glob(f"{segments[2].start_offset}_*.timeindex")).unlink()
    again = cache_on(tmp_path / "cache", storage, clock)
    await again.load()
    assert len(again) == 2
    assert len(list((tmp_path / "cache").iterdir())) == 6
    await again.get(segments[0])
    assert (again.hits, again.misses) == (1, 0)


async def test_case_52_limits_hold(
    log: PartitionLog, storage: RemoteStorageManager, tmp_path: Path
) -> None:
    catalogue, clock = InMemoryRlmm(), Clock()
    await copy_all(log, catalogue, storage)
    segments = catalogue.list_remote_log_segments(TIP)
    probe = cache_on(tmp_path / "probe", storage, clock)
    await probe.get(segments[0])
    limit = probe.size * 2 + probe.size // 2
    cache = cache_on(tmp_path / "cache", storage, clock, limit)
    for one in segments:
        await cache.get(one)
        assert cache.size <= limit
        on_disk = sum(path.stat().st_size for path in (tmp_path / "cache").iterdir())
        assert on_disk == cache.size
    await cache.evict([segments[-1].id.id, UUID(int=12345)])
    assert not list((tmp_path / "cache").glob(f"{segments[-1].start_offset}_*"))
    clock.now += 900_001
    assert await cache.expire() > 0
    assert (len(cache), cache.size) == (0, 0)


async def test_case_52_a_damaged_file_is_fetched_once_more(
    log: PartitionLog, storage: RemoteStorageManager, tmp_path: Path
) -> None:
    catalogue, clock = InMemoryRlmm(), Clock()
    await copy_all(log, catalogue, storage)
    one = catalogue.list_remote_log_segments(TIP)[0]
    await cache_on(tmp_path / "cache", storage, clock).get(one)
    (path,) = (tmp_path / "cache").glob("*.index")
    path.write_bytes(b"short")
    cache = cache_on(tmp_path / "cache", storage, clock)
    await cache.load()
    found = await cache.get(one)
    assert len(found.offsets) > 0
    assert cache.misses == 1


async def damage(storage: RemoteStorageManager, key: str, at: int, scratch: Path) -> None:
    """Flip a bit of an object."""
    data = bytearray(await storage.store.get_tail(key, 1 << 20))
    data[at] ^= 0x80
    await asyncio.to_thread(scratch.write_bytes, data)
    await storage.store.put_file(key, scratch)


async def test_case_52_damaged_indexes_are_made_from_the_log(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log", batches=800, segment_bytes=60_000)
    storage = RemoteStorageManager(FailingStore(tmp_path / "store"), "", "c")
    catalogue = InMemoryRlmm()
    await copy_all(log, catalogue, storage)
    for one, at in zip(catalogue.list_remote_log_segments(TIP), (0, -1), strict=False):
        await damage(storage, storage.key(one, ".meta"), at, tmp_path / "scratch")
        cache = cache_on(tmp_path / f"cache{at}", storage, Clock())
        found = await cache.get(one)
        assert cache.rebuilt == 1
        assert len(found.offsets) > 5
        assert found.times.timestamps[-1] == one.max_timestamp_ms
        (local,) = (s for s in log.segments if s.base_offset == one.start_offset)
        lasts = {at: header.last_offset - one.start_offset for at, header in local.headers()}
        pairs = zip(found.offsets.positions, found.offsets.offsets, strict=True)
        assert all(lasts[position] == offset for position, offset in pairs)
    log.close()


async def test_case_52_lost_transactions_are_an_error(
    log: PartitionLog, storage: RemoteStorageManager, tmp_path: Path
) -> None:
    catalogue = InMemoryRlmm()
    await copy_all(log, catalogue, storage)
    one = next(s for s in catalogue.list_remote_log_segments(TIP) if not s.txn_index_empty)
    custom = CustomMetadata.decode(one.custom_metadata)
    assert custom is not None
    at = custom.places[Section.TRANSACTION].position
    await damage(storage, storage.key(one, ".meta"), at, tmp_path / "scratch")
    failing(storage).reads = 0
    with pytest.raises(CorruptRemoteData, match="lost"):
        await cache_on(tmp_path / "cache", storage, Clock()).get(one)
    assert failing(storage).reads == 2


# Reads


async def test_case_43_remote_reads_give_the_batches_of_the_log(
    log: PartitionLog, storage: RemoteStorageManager, tmp_path: Path
) -> None:
    catalogue = InMemoryRlmm()
    await copy_all(log, catalogue, storage)
    cache = cache_on(tmp_path / "cache", storage, Clock())
    end = max(one.end_offset for one in catalogue.list_remote_log_segments(TIP)) + 1
    draw = random.Random(3)
    for _ in range(150):
        offset, max_bytes = draw.randrange(end), draw.choice([1, 300, 1000, 5000])
        upper = draw.randrange(offset, end + 1)
        found = await read_remote(
            catalogue, storage, cache, TIP, log.epochs.entries, offset,
            max_bytes=max_bytes, upper_bound=upper, at_least_one=draw.random() < 0.5,
            committed=True, index_interval=200,
        )  # fmt: skip
        local = log.read(
            offset, 1 << 20, upper_bound_offset=log.log_end_offset, min_one_message=True
        )
        expected = b"".join(local.chunks)
        assert expected.startswith(bytes(found.records))
        if found.records:
            aborted = {
                one
                for one in log.aborted_transactions(0, log.log_end_offset)
                if one.first_offset < found.next_offset and one.last_offset >= offset
            }
            remote = {one for one in aborted if one.last_offset < end}
            assert remote <= set(found.aborted)
            assert not found.aborted_complete or aborted <= set(found.aborted)
        else:
            assert upper == offset or max_bytes < 1000 or upper < end


async def test_case_43_a_consumer_walks_through_all_of_it(
    log: PartitionLog, storage: RemoteStorageManager, tmp_path: Path
) -> None:
    catalogue = InMemoryRlmm()
    await copy_all(log, catalogue, storage)
    cache = cache_on(tmp_path / "cache", storage, Clock())
    end = max(one.end_offset for one in catalogue.list_remote_log_segments(TIP)) + 1
    offset, got = 0, []
    while offset < end:
        found = await read_remote(
            catalogue, storage, cache, TIP, log.epochs.entries, offset,
            max_bytes=100, upper_bound=end, at_least_one=True, committed=False,
        )  # fmt: skip
        got.append(bytes(found.records))
        offset = found.next_offset
    files = [one.data.log.read_bytes() for one in rolled(log)]
    assert b"".join(got) == b"".join(files)
    with pytest.raises(OffsetNotRemote):
        await read_remote(
            catalogue, storage, cache, TIP, log.epochs.entries, end,
            max_bytes=100, upper_bound=end, at_least_one=True, committed=False,
        )  # fmt: skip


async def test_damaged_batches_are_never_served(
    log: PartitionLog, storage: RemoteStorageManager, tmp_path: Path
) -> None:
    catalogue = InMemoryRlmm()
    await copy_all(log, catalogue, storage)
    one = catalogue.list_remote_log_segments(TIP)[0]
    key = storage.key(one)
    data = bytearray(await storage.store.get_tail(key, 1 << 20))
    data[80] ^= 1
    path = tmp_path / "damaged"
    path.write_bytes(data)
    await storage.store.put_file(key, path)
    with pytest.raises(CorruptRemoteData):
        await read_remote(
            catalogue, storage, cache_on(tmp_path / "cache", storage, Clock()), TIP,
            log.epochs.entries, 0,
            max_bytes=1000, upper_bound=99, at_least_one=True, committed=False,
        )  # fmt: skip


async def test_an_index_that_leads_too_far_is_refused(
    log: PartitionLog, storage: RemoteStorageManager, tmp_path: Path
) -> None:
    catalogue = InMemoryRlmm()
    await copy_all(log, catalogue, storage)
    one = catalogue.list_remote_log_segments(TIP)[0]
    cache = cache_on(tmp_path / "cache", storage, Clock())
    offsets = (await cache.get(one)).offsets
    offsets.offsets[0] = 0
    offset = one.start_offset + 1
    with pytest.raises(CorruptRemoteData, match="leads past"):
        await read_remote(
            catalogue, storage, cache, TIP, log.epochs.entries, offset,
            max_bytes=1000, upper_bound=99, at_least_one=True, committed=False,
        )  # fmt: skip
