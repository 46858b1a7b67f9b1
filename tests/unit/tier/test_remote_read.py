"""Reads of what was copied."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from ottla.tier.catalogue.rlmm import InMemoryRlmm
from ottla.tier.errors import CorruptRemoteData, OffsetNotRemote
from ottla.tier.reading import remote_read
from ottla.tier.reading.batches import Wanted
from ottla.tier.reading.remote_read import read_remote
from tests.support.tier_copies import (
    Clock,
    cache_on,
    copy_all,
    put_file,
)
from tests.support.tier_logs import rolled
from tests.support.tiering import TIP

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.log.partition import PartitionLog
    from ottla.tier.store.storage_manager import RemoteStorageManager


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
            catalogue, storage, cache, TIP, log.epochs.entries,
            Wanted(offset, max_bytes, upper, draw.random() < 0.5), committed=True,
            index_interval=200,
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
            catalogue, storage, cache, TIP, log.epochs.entries,
            Wanted(offset, 100, end, True), committed=False,
        )  # fmt: skip
        got.append(bytes(found.records))
        offset = found.next_offset
    files = [one.data.log.read_bytes() for one in rolled(log)]
    assert b"".join(got) == b"".join(files)
    with pytest.raises(OffsetNotRemote):
        await read_remote(
            catalogue, storage, cache, TIP, log.epochs.entries,
            Wanted(end, 100, end, True), committed=False,
        )  # fmt: skip


async def test_wherever_the_bytes_end_there_is_a_batch(
    log: PartitionLog,
    storage: RemoteStorageManager,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also inside the first bytes of a batch, which do not say yet how large it is."""
    monkeypatch.setattr(remote_read, "MIN_WINDOW", 100)
    catalogue = InMemoryRlmm()
    await copy_all(log, catalogue, storage)
    cache = cache_on(tmp_path / "cache", storage, Clock())
    for offset in (5, 40):
        for max_bytes in range(1, 400):
            found = await read_remote(
                catalogue, storage, cache, TIP, log.epochs.entries,
                Wanted(offset, max_bytes, 99, True), committed=False, index_interval=0,
            )  # fmt: skip
            assert found.next_offset > offset


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
    await put_file(storage.store, key, path)
    with pytest.raises(CorruptRemoteData):
        await read_remote(
            catalogue, storage, cache_on(tmp_path / "cache", storage, Clock()), TIP,
            log.epochs.entries, Wanted(0, 1000, 99, True), committed=False,
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
            catalogue, storage, cache, TIP, log.epochs.entries,
            Wanted(offset, 1000, 99, True), committed=False,
        )  # fmt: skip
