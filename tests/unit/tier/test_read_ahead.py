"""Chunks that are read ahead: the same bytes, fewer requests, bounded memory, the same faults."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ottla.log.index import OffsetIndex
from ottla.objects.errors import RemoteStorageError, RetriableRemoteError
from ottla.objects.local import LocalStore
from ottla.tier.catalogue.rlmm import InMemoryRlmm
from ottla.tier.errors import CorruptRemoteData
from ottla.tier.reading import read_ahead
from ottla.tier.reading.batches import Wanted
from ottla.tier.reading.read_ahead import MAX_AGE_MS, ReadAhead, chunk_at, places_of
from ottla.tier.reading.remote_read import RemoteRecords, read_remote
from ottla.tier.store.storage_manager import RemoteStorageManager
from ottla.wire.batch import iter_batches
from tests.support.faulty_store import FaultyStore
from tests.support.tier_copies import Clock, cache_on, copy_all, damage
from tests.support.tier_logs import rolled
from tests.support.tiering import TIP, segment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ottla.log.partition import PartitionLog
    from ottla.tier.reading.index_cache import RemoteIndexCache

CHUNK = 1000  # of segments of 4000 bytes


class Tier(NamedTuple):
    """A log that was copied, and what reads it."""

    log: PartitionLog
    catalogue: InMemoryRlmm
    storage: RemoteStorageManager
    indexes: RemoteIndexCache
    ahead: ReadAhead
    faults: FaultyStore
    clock: Clock

    @property
    def end(self) -> int:
        return max(one.end_offset for one in self.catalogue.list_remote_log_segments(TIP)) + 1

    @property
    def content(self) -> bytes:
        return b"".join(one.data.log.read_bytes() for one in rolled(self.log))

    async def read(self, offset: int, max_bytes: int = 100, **kwargs: int) -> RemoteRecords:
        wanted = Wanted(offset, max_bytes, kwargs.get("upper_bound", self.end), at_least_one=True)
        return await read_remote(
            self.catalogue, self.storage, self.indexes, TIP, self.log.epochs.entries, wanted,
            committed=True, index_interval=200, ahead=self.ahead, ahead_until=self.end,
        )  # fmt: skip

    async def walk(self, offset: int = 0) -> bytes:
        """All from an offset on, as a consumer reads it."""
        got = []
        while offset < self.end:
            found = await self.read(offset)
            assert self.ahead.size <= 8 * CHUNK
            got.append(bytes(found.records))
            offset = found.next_offset
        return b"".join(got)


@pytest.fixture
async def tier(
    log: PartitionLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Tier]:
    monkeypatch.setattr(read_ahead, "CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(read_ahead, "MAX_CHUNK_BYTES", 2 * CHUNK)
    faults = FaultyStore(LocalStore(tmp_path / "store"))
    storage = RemoteStorageManager(faults, "", "cluster-1")
    catalogue, clock = InMemoryRlmm(), Clock()
    await copy_all(log, catalogue, storage)
    indexes = cache_on(tmp_path / "cache", storage, clock)
    ahead = ReadAhead(storage, indexes, max_bytes=8 * CHUNK, clock_ms=clock)
    yield Tier(log, catalogue, storage, indexes, ahead, faults, clock)
    await ahead.close()


async def test_a_consumer_costs_one_request_for_each_chunk(tier: Tier) -> None:
    assert await tier.walk() == tier.content
    chunks = 0
    for one in tier.catalogue.list_remote_log_segments(TIP):
        index = (await tier.indexes.get(one)).offsets
        position = 0
        while position < one.segment_size:
            position = chunk_at(index, one.segment_size, position).end
            chunks += 1
    # The first batch was read alone: nobody knew that there would be a second read.
    assert chunks <= tier.faults.log_reads <= chunks + 2
    assert tier.ahead.size == 0


async def test_reads_here_and_there_are_not_read_ahead(tier: Tier) -> None:
    for offset in (50, 10, 70):
        await tier.read(offset)
    assert tier.ahead.size == 0


@pytest.mark.parametrize("goes_on", [False, True])
async def test_any_read_gives_what_the_log_has(tier: Tier, goes_on: bool) -> None:
    draw = random.Random(5)
    content = memoryview(tier.content)
    ends = [batch.next_offset for batch in iter_batches(content)]
    for _ in range(150):
        offset, max_bytes = draw.randrange(tier.end), draw.choice([1, 300, 1000, 5000])
        upper = draw.choice([end for end in ends if end > offset])
        if goes_on:
            tier.ahead.ended_at(TIP, offset)
        found = await tier.read(offset, max_bytes, upper_bound=upper)
        local = tier.log.read(offset, 1 << 20, upper_bound_offset=upper, min_one_message=True)
        assert b"".join(local.chunks).startswith(bytes(found.records))
        batches = list(iter_batches(found.records))
        assert batches[0].base_offset <= offset < found.next_offset == batches[-1].next_offset
        assert len(found.records) <= max_bytes or len(batches) == 1


async def test_without_room_nothing_is_read_ahead(tier: Tier) -> None:
    tier.ahead.resize(CHUNK // 2)
    assert await tier.walk() == tier.content
    assert tier.ahead.size == 0


async def test_what_nobody_comes_for_goes_after_a_while(tier: Tier) -> None:
    first = await tier.read(0)
    await tier.read(first.next_offset)
    assert tier.ahead.size > 0
    await tier.ahead.close()
    tier.clock.now += MAX_AGE_MS
    tier.ahead.expire()
    assert tier.ahead.size > 0
    tier.clock.now += 1
    tier.ahead.expire()
    assert tier.ahead.size == 0


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("down", RetriableRemoteError),
        ("refusing", RemoteStorageError),
        ("truncating", CorruptRemoteData),
        ("corrupting", CorruptRemoteData),
    ],
)
async def test_a_fault_is_told_and_passes(
    tier: Tier, fault: str, expected: type[Exception]
) -> None:
    first = await tier.read(0)
    setattr(tier.faults, fault, True)
    for _ in range(3):
        with pytest.raises(expected):
            await tier.read(first.next_offset, 5000)
    await tier.ahead.close()
    assert tier.ahead.size == 0
    tier.faults.heal()
    assert bytes(first.records) + await tier.walk(first.next_offset) == tier.content


async def test_a_damaged_batch_hides_no_other_one(tier: Tier, tmp_path: Path) -> None:
    one = tier.catalogue.list_remote_log_segments(TIP)[0]
    await damage(tier.storage, tier.storage.key(one), CHUNK - 20, tmp_path / "damaged")
    offset, got = 0, b""
    while len(got) < CHUNK // 2:
        found = await tier.read(offset)
        got += bytes(found.records)
        offset = found.next_offset
    assert tier.content.startswith(got)
    with pytest.raises(CorruptRemoteData):
        await tier.walk(offset)


def test_chunks_cover_a_segment_and_places_have_the_batch() -> None:
    """For indexes dense and sparse, with batches of many sizes, some larger than a chunk."""
    draw = random.Random(11)
    for _ in range(40):
        index, offset, position = OffsetIndex(), 0, 0
        batches, since = [], 0
        interval = draw.choice([0, 5000, 100_000])
        for _ in range(draw.randrange(1, 200)):
            size = draw.choice([100, 4000, 300_000, 9_000_000])
            last = offset + draw.randrange(1, 50) - 1
            if since > interval:
                index.append(last, position)
                since = 0
            batches.append((offset, last, position))
            offset, position, since = last + 1, position + size, since + size
        one = segment(0, offset - 1, size=position)
        reached = 0
        while reached < position:
            place = chunk_at(index, position, reached)
            assert place.start == reached
            reached = place.end
        for first, last, start in batches:
            wanted = draw.randrange(first, last + 1)
            assert any(a <= start < b for a, b in places_of(index, one, wanted))
