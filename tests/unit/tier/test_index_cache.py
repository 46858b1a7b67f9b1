"""The index cache: one download, limits, damage."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from ottla.tier.catalogue.rlmm import InMemoryRlmm
from ottla.tier.errors import CorruptRemoteData
from ottla.tier.store.layout import CustomMetadata, Section
from ottla.tier.store.storage_manager import RemoteStorageManager
from tests.support.tier_copies import (
    Clock,
    FailingStore,
    cache_on,
    copy_all,
    damage,
    failing,
)
from tests.support.tier_logs import make_log, rolled
from tests.support.tiering import TIP

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.log.partition import PartitionLog


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
